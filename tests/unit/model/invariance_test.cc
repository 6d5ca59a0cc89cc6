// SPDX-License-Identifier: Apache-2.0
// The numerics contract (common/backend/backend.h): a token's logits and cached keys and values are a function of the tokens
// before it alone, bit for bit. Held for each backend over every way to arrive at the same token.
#include <cmath>
#include <cstring>
#include <random>

#include "common/backend/create_backend.h"
#include "common/model/forward.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tiny_model.h"

namespace baton {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::TinyModelOptions;

constexpr int kNumBlocks = 700;

// Sequences in one pool, advanced by steps that mix them as a test likes.
class Cluster {
 public:
  Cluster(const Model* model, KvDtype dtype, int block_size, int max_rows) : model_(*model) {
    pool_ = KvPool::Create(model->kv_layout(dtype, block_size), kNumBlocks, model->backend()).value();
    buffers_ = ForwardBuffers::Create(*model, max_rows, max_rows).value();
    for (int b = 0; b < kNumBlocks; ++b) free_blocks_.push_back((b * 211) % kNumBlocks);  // Scattered.
  }
  int Add(std::vector<int32_t> tokens) {
    sequences_.push_back({std::move(tokens), 0, {}, {}});
    return static_cast<int>(sequences_.size()) - 1;
  }
  bool finished(int s) const { return sequences_[s].done == static_cast<int>(sequences_[s].tokens.size()); }
  // One forward pass: advances sequence `first` by up to `second` tokens, for each pair.
  void Step(const std::vector<std::pair<int, int>>& work, int panel_rows) {
    const int block_size = pool_->layout().block_size;
    ModelInput input;
    std::vector<std::pair<int, int>> logit_owner;  // (sequence, position) per row.
    for (const auto& [s, count] : work) {
      Sequence& sequence = sequences_[s];
      const int end = std::min<int>(sequence.done + count, static_cast<int>(sequence.tokens.size()));
      if (end == sequence.done) continue;
      while (static_cast<int>(sequence.blocks.size()) * block_size < end) {
        sequence.blocks.push_back(free_blocks_.back());
        free_blocks_.pop_back();
      }
      input.AddSequence(std::span(sequence.tokens).subspan(sequence.done, end - sequence.done), sequence.done,
                        sequence.blocks, block_size, end - sequence.done);
      for (int p = sequence.done; p < end; ++p) logit_owner.push_back({s, p});
      sequence.done = end;
    }
    if (input.num_rows() == 0) return;
    ForwardPass pass(&model_, pool_.get(), &input, buffers_.get(), panel_rows);
    pass.Finish();
    const size_t vocab = model_.config().vocab_size;
    for (size_t i = 0; i < logit_owner.size(); ++i) {
      const float* row = buffers_->logits() + i * vocab;
      sequences_[logit_owner[i].first].logits.emplace_back(row, row + vocab);
    }
  }
  const std::vector<std::vector<float>>& logits(int s) const { return sequences_[s].logits; }
  // The cached keys and values of all layers, token by token.
  std::vector<uint8_t> Kv(int s) const {
    const KvLayout& layout = pool_->layout();
    const size_t token_bytes = layout.token_layer_bytes();
    std::vector<uint8_t> bytes;
    for (int l = 0; l < layout.num_layers; ++l) {
      for (int p = 0; p < sequences_[s].done; ++p) {
        bytes.resize(bytes.size() + token_bytes);
        pool_->ReadTokens(l, sequences_[s].blocks[p / layout.block_size], p % layout.block_size, 1,
                          std::span(bytes).last(token_bytes));
      }
    }
    return bytes;
  }

 private:
  struct Sequence {
    std::vector<int32_t> tokens;
    int done;
    std::vector<int32_t> blocks;
    std::vector<std::vector<float>> logits;  // [done]
  };
  const Model& model_;
  std::unique_ptr<KvPool> pool_;
  std::unique_ptr<ForwardBuffers> buffers_;
  std::vector<int32_t> free_blocks_;
  std::vector<Sequence> sequences_;
};

struct Subject {
  const char* name;
  const char* backend;
  TinyModelOptions model;
  KvDtype kv;
  const char* matmul = "";
};

std::vector<Subject> Subjects() {
  std::vector<Subject> subjects;
  const auto add = [&](const char* name, const char* backend, KvDtype kv, auto change) {
    Subject subject{name, backend, {}, kv};
    subject.model.context_length = 2048;
    change(subject.model);
    subjects.push_back(subject);
  };
  add("cpu_q4_1", "cpu", KvDtype::kF16, [](TinyModelOptions& m) {
    m.matrix_type = GgmlType::kQ4_1;
    m.embedding_type = GgmlType::kQ8_0;
    m.tied = true;
    m.hidden_size = 96;
    m.num_heads = 6;
    m.head_dim = 64;
    m.intermediate_size = 160;
  });
  add("cpu_q6_k_qwen3", "cpu", KvDtype::kBf16, [](TinyModelOptions& m) {
    m.architecture = "qwen3";
    m.matrix_type = GgmlType::kQ6_K;
    m.hidden_size = 256;
    m.num_heads = 4;
    m.num_kv_heads = 1;
    m.head_dim = 64;
    m.intermediate_size = 256;
  });
  add("cpu_f32_qwen2", "cpu", KvDtype::kF32, [](TinyModelOptions& m) {
    m.architecture = "qwen2";
    m.hidden_size = 50;
    m.num_heads = 7;
    m.num_kv_heads = 1;
    m.head_dim = 18;
    m.intermediate_size = 75;
    m.vocab_size = 333;
  });
  add("cpu_bf16", "cpu", KvDtype::kF16, [](TinyModelOptions& m) {
    m.matrix_type = GgmlType::kBF16;
    m.embedding_type = GgmlType::kBF16;
  });
  add("cpu_onednn_bf16", "cpu", KvDtype::kF16, [](TinyModelOptions& m) { m.matrix_type = GgmlType::kQ4_1; });
  subjects.back().matmul = "onednn-bf16";
  add("cpu_q4_1_int8_kv", "cpu", KvDtype::kInt8, [](TinyModelOptions& m) {
    m.matrix_type = GgmlType::kQ4_1;
    m.hidden_size = 96;
    m.num_heads = 6;
    m.head_dim = 64;
    m.intermediate_size = 160;
  });
  add("cpu_f16_int8_kv_d18", "cpu", KvDtype::kInt8, [](TinyModelOptions& m) {
    m.matrix_type = GgmlType::kF16;
    m.hidden_size = 50;
    m.num_heads = 7;
    m.num_kv_heads = 1;
    m.head_dim = 18;
    m.intermediate_size = 75;
  });
  add("reference", "reference", KvDtype::kF16, [](TinyModelOptions& m) { m.matrix_type = GgmlType::kQ4_0; });
  return subjects;
}

class InvarianceTest : public ::testing::TestWithParam<Subject> {
 protected:
  void SetUp() override {
    const std::string file = testing::WriteTempFile("tiny.gguf", testing::TinyModel(GetParam().model).Build());
    auto checkpoint = Checkpoint::Open(file);
    ASSERT_THAT(checkpoint, IsOk());
    checkpoint_ = *checkpoint;
    ASSERT_TRUE(Load("", 1));
    if (model_ == nullptr) GTEST_SKIP() << "oneDNN cannot do bf16 on this CPU";
  }
  // False: this machine cannot run the instruction set.
  bool Load(const std::string& isa, int num_threads) {
    model_.reset();
    auto backend = CreateBackend(GetParam().backend, {.num_threads = num_threads, .isa = isa, .matmul = GetParam().matmul});
    if (absl::IsFailedPrecondition(backend.status())) return false;
    backend_ = std::move(backend).value();
    auto model = Model::Load(checkpoint_, backend_.get());
    if (GetParam().matmul[0] != '\0' && absl::IsFailedPrecondition(model.status())) return true;
    model_ = std::move(model).value();
    return true;
  }
  std::vector<int32_t> Tokens(int count, uint32_t seed) {
    std::mt19937 rng(seed);
    std::vector<int32_t> tokens(static_cast<size_t>(count));
    for (int32_t& t : tokens) t = static_cast<int32_t>(rng() % static_cast<uint32_t>(GetParam().model.vocab_size));
    return tokens;
  }
  struct Outcome {
    std::vector<std::vector<float>> logits;
    std::vector<uint8_t> kv;
  };
  // Alone, in chunks and panels of the sizes given; chunk(done) tokens are taken when `done` are behind.
  template <typename Chunk>
  Outcome Alone(const std::vector<int32_t>& tokens, Chunk chunk, int panel_rows, int block_size = 16) {
    Cluster cluster(model_.get(), GetParam().kv, block_size, static_cast<int>(tokens.size()));
    const int s = cluster.Add(tokens);
    for (int done = 0; !cluster.finished(s); done = static_cast<int>(cluster.logits(s).size())) {
      cluster.Step({{s, chunk(done)}}, panel_rows);
    }
    return {cluster.logits(s), cluster.Kv(s)};
  }
  Outcome Whole(const std::vector<int32_t>& tokens) {
    Outcome outcome = Alone(tokens, [](int) { return 100000; }, 100000);
    // Equal bits must mean something: finite numbers that differ from token to token.
    for (const float x : outcome.logits.back()) EXPECT_TRUE(std::isfinite(x));
    EXPECT_NE(outcome.logits.front(), outcome.logits.back());
    return outcome;
  }
  static void ExpectSame(const Outcome& got, const Outcome& want, const char* how) {
    ASSERT_EQ(got.logits.size(), want.logits.size()) << how;
    for (size_t p = 0; p < want.logits.size(); ++p) {
      ASSERT_EQ(0, std::memcmp(got.logits[p].data(), want.logits[p].data(), want.logits[p].size() * sizeof(float)))
          << how << ": logits of position " << p;
    }
    EXPECT_TRUE(got.kv == want.kv) << how << ": keys and values";
  }

  std::shared_ptr<const Checkpoint> checkpoint_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
};

TEST_P(InvarianceTest, ChunksPanelsAndBlocks) {
  const std::vector<int32_t> tokens = Tokens(300, 1);
  const Outcome whole = Whole(tokens);
  ExpectSame(Alone(tokens, [](int) { return 64; }, 64), whole, "chunks of 64");
  ExpectSame(Alone(tokens, [](int) { return 37; }, 11), whole, "chunks of 37, panels of 11");
  ExpectSame(Alone(tokens, [](int done) { return done % 3 + 1; }, 2), whole, "one to three tokens at a time");
  ExpectSame(Alone(tokens, [](int) { return 1000; }, 7), whole, "panels of 7");
  Outcome other_blocks = Alone(tokens, [](int) { return 100; }, 100, 48);
  ExpectSame(other_blocks, whole, "blocks of 48");
}

TEST_P(InvarianceTest, DecodedTokensRecomputedByPrefill) {
  // Past 512 and 1024 positions, where a kernel may cut the context.
  const std::vector<int32_t> tokens = Tokens(1100, 2);
  const Outcome whole = Whole(tokens);
  ExpectSame(Alone(tokens, [](int done) { return done < 500 || (done > 530 && done < 1020) ? 200 : 1; }, 256), whole,
             "some prefilled, some decoded");
}

TEST_P(InvarianceTest, ThreadsAndInstructionSets) {
  const std::vector<int32_t> tokens = Tokens(530, 3);  // Past 512, where a kernel may cut the context.
  const auto chunk = [](int done) { return done < 500 ? 250 : 1; };
  const Outcome one = Alone(tokens, chunk, 100);
  for (const int threads : {2, 5}) {
    ASSERT_TRUE(Load("", threads));
    ExpectSame(Alone(tokens, chunk, 100), one, "threads");
  }
  if (std::string(GetParam().backend) == "reference") return;
  for (const char* isa : {"scalar", "avx2", "avxvnni", "avx512vnni", "amx"}) {
    if (Load(isa, 2)) ExpectSame(Alone(tokens, chunk, 100), one, isa);
  }
}

TEST_P(InvarianceTest, InABatchOf32) {
  ASSERT_TRUE(Load("", 2));
  std::vector<std::vector<int32_t>> all;
  std::mt19937 rng(4);
  for (uint32_t s = 0; s < 32; ++s) all.push_back(Tokens(s == 5 ? 560 : 20 + static_cast<int>(rng() % 120), s));
  Cluster cluster(model_.get(), GetParam().kv, 16, 1024);
  for (const auto& tokens : all) cluster.Add(tokens);
  // Prompts in random chunks beside sequences that go token by token; everyone joins and leaves at other times.
  bool busy = true;
  while (busy) {
    std::vector<std::pair<int, int>> work;
    for (int s = 0; s < 32; ++s) {
      const uint32_t dice = rng() % 4;
      if (!cluster.finished(s) && dice > 0) work.push_back({s, dice == 1 ? 1 + static_cast<int>(rng() % 90) : 1});
    }
    int rows = 0;
    for (auto& [s, count] : work) count = std::min(count, 1024 - rows - 32), rows += count;
    cluster.Step(work, 1 + static_cast<int>(rng() % 200));
    busy = false;
    for (int s = 0; s < 32; ++s) busy = busy || !cluster.finished(s);
  }
  for (const int s : {0, 5, 17, 31}) {
    ExpectSame({cluster.logits(s), cluster.Kv(s)}, Whole(all[static_cast<size_t>(s)]), "in a batch of 32");
  }
}

TEST_P(InvarianceTest, LastLayerComputesOnlyWhatLogitsNeed) {
  // The same logits whether those of the other rows are wanted or not, and the same keys and values.
  const std::vector<int32_t> tokens = Tokens(90, 6);
  const Outcome whole = Whole(tokens);
  KvLayout layout = model_->kv_layout(GetParam().kv, 16);
  auto pool = KvPool::Create(layout, 6, backend_.get()).value();
  auto buffers = ForwardBuffers::Create(*model_, 90, 2).value();
  const std::vector<int32_t> blocks = {3, 1, 5, 0, 2, 4};
  for (const std::vector<int32_t>& wanted : {std::vector<int32_t>{}, {89}, {31, 60}}) {
    ModelInput input;
    input.AddSequence(tokens, 0, blocks, 16, 0);
    input.logit_rows = wanted;
    ForwardPass pass(model_.get(), pool.get(), &input, buffers.get(), 40);
    EXPECT_EQ(pass.layers_complete(), 0);
    pass.Finish();
    EXPECT_TRUE(pass.done());
    EXPECT_FALSE(pass.Advance());
    EXPECT_EQ(pass.layers_complete(), model_->config().num_layers);
    for (size_t i = 0; i < wanted.size(); ++i) {
      const std::vector<float>& want = whole.logits[static_cast<size_t>(wanted[i])];
      EXPECT_EQ(0, std::memcmp(buffers->logits() + i * want.size(), want.data(), want.size() * sizeof(float)));
    }
    std::vector<uint8_t> kv;
    for (int l = 0; l < layout.num_layers; ++l) {
      for (int p = 0; p < 90; ++p) {
        kv.resize(kv.size() + layout.token_layer_bytes());
        pool->ReadTokens(l, blocks[static_cast<size_t>(p / 16)], p % 16, 1, std::span(kv).last(layout.token_layer_bytes()));
      }
    }
    EXPECT_TRUE(kv == whole.kv);
  }
}

TEST_P(InvarianceTest, TwoPassesInterleaved) {
  // A prefill that pauses after every unit for decode steps of another sequence, as a worker does.
  const std::vector<int32_t> prompt = Tokens(200, 7), other = Tokens(40, 8);
  const Outcome prompt_alone = Whole(prompt), other_alone = Whole(other);
  KvLayout layout = model_->kv_layout(GetParam().kv, 16);
  auto pool = KvPool::Create(layout, 16, backend_.get()).value();
  auto prefill_buffers = ForwardBuffers::Create(*model_, 200, 1).value();
  auto decode_buffers = ForwardBuffers::Create(*model_, 8, 1).value();
  const std::vector<int32_t> prompt_blocks = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, other_blocks = {15, 14, 13};
  ModelInput prefill;
  prefill.AddSequence(prompt, 0, prompt_blocks, 16, 1);
  ForwardPass pass(model_.get(), pool.get(), &prefill, prefill_buffers.get(), 32);
  size_t done = 0;
  do {
    if (done == other.size()) continue;
    ModelInput decode;
    decode.AddSequence(std::span(other).subspan(done, 1), static_cast<int>(done), other_blocks, 16, 1);
    ForwardPass step(model_.get(), pool.get(), &decode, decode_buffers.get(), 8);
    step.Finish();
    const std::vector<float>& want = other_alone.logits[done++];
    ASSERT_EQ(0, std::memcmp(decode_buffers->logits(), want.data(), want.size() * sizeof(float))) << done;
  } while (pass.Advance());
  EXPECT_GE(done, 14u);  // 2 layers of 7 panels.
  const std::vector<float>& want = prompt_alone.logits.back();
  EXPECT_EQ(0, std::memcmp(prefill_buffers->logits(), want.data(), want.size() * sizeof(float)));
}

INSTANTIATE_TEST_SUITE_P(All, InvarianceTest, ::testing::ValuesIn(Subjects()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace baton
