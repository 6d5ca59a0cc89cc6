// SPDX-License-Identifier: Apache-2.0
// Every operation of the CPU backend against the plain reference, on seeded random shapes, for every instruction set that
// this machine runs. Each operation gets the reference's input, so that an error shows where it is made.
#include <algorithm>
#include <cmath>
#include <deque>
#include <numeric>
#include <random>

#include "common/backend/create_backend.h"
#include "common/backend/packing.h"
#include "common/backend/reference_ops.h"
#include "common/kv/kv_pool.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/status_matchers.h"

namespace baton {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::testing::HasSubstr;

struct OpCase {
  const char* name;
  GgmlType type;    // Of the matrices,
  GgmlType v_type;  // but V's: files mix types within what is stacked.
  int hidden, heads, kv_heads, head_dim, intermediate, vocab;
  bool bias, qk_norm, interleaved;
  KvDtype kv;
};

constexpr OpCase kCases[] = {
    // Quantised matrices need whole blocks per row: 32 columns, or 256 for the K types.
    {"Q4_1_d64_g3", GgmlType::kQ4_1, GgmlType::kQ4_1, 576, 9, 3, 64, 96, 333, false, false, true, KvDtype::kF16},
    {"Q4_0_d16_g4", GgmlType::kQ4_0, GgmlType::kQ8_0, 64, 4, 1, 16, 160, 50, true, false, true, KvDtype::kBf16},
    {"Q8_0_d80_g1", GgmlType::kQ8_0, GgmlType::kQ8_0, 96, 2, 2, 80, 224, 1000, false, true, false, KvDtype::kF32},
    {"Q4_K_d128_g2", GgmlType::kQ4_K, GgmlType::kQ6_K, 256, 2, 1, 128, 256, 77, false, false, true, KvDtype::kF16},
    {"Q6_K_d256_g1", GgmlType::kQ6_K, GgmlType::kQ6_K, 256, 1, 1, 256, 512, 260, false, false, true, KvDtype::kF16},
    {"Q5_0_d32_g16", GgmlType::kQ5_0, GgmlType::kQ5_1, 128, 16, 1, 32, 64, 65, false, false, true, KvDtype::kBf16},
    {"MXFP4_d96_g2", GgmlType::kMXFP4, GgmlType::kQ8_0, 192, 2, 1, 96, 96, 129, true, true, false, KvDtype::kF16},
    {"Q2_K_d64_g4", GgmlType::kQ2_K, GgmlType::kQ3_K, 256, 4, 1, 64, 256, 31, false, false, true, KvDtype::kF16},
    {"Q4_1_d64_g3_int8", GgmlType::kQ4_1, GgmlType::kQ4_1, 576, 9, 3, 64, 96, 333, false, false, true, KvDtype::kInt8},
    {"Q8_0_d80_g1_int8", GgmlType::kQ8_0, GgmlType::kQ8_0, 96, 2, 2, 80, 224, 1000, false, true, false, KvDtype::kInt8},
    // Floating point takes any width.
    {"BF16_F32_d18_g2_int8", GgmlType::kBF16, GgmlType::kF32, 33, 4, 2, 18, 41, 1, false, false, false, KvDtype::kInt8},
    {"F32_d112_g7", GgmlType::kF32, GgmlType::kF32, 112, 7, 1, 112, 176, 600, true, false, false, KvDtype::kF32},
    {"F16_d16_g3", GgmlType::kF16, GgmlType::kF16, 50, 6, 2, 16, 75, 17, false, false, false, KvDtype::kF16},
    {"BF16_d32_g1", GgmlType::kBF16, GgmlType::kBF16, 80, 4, 4, 32, 144, 512, false, true, false, KvDtype::kBf16},
    {"BF16_F32_d18_g2", GgmlType::kBF16, GgmlType::kF32, 33, 4, 2, 18, 41, 1, false, false, false, KvDtype::kF32},
};

// A tensor and its bytes.
struct Tensor {
  std::string data;
  TensorView view;
};

class BackendOpsTest : public ::testing::TestWithParam<std::tuple<OpCase, const char*, const char*>> {
 protected:
  static constexpr int kBlockSize = 16;

  const OpCase& op() const { return std::get<0>(GetParam()); }
  bool floats() const { return TraitsOf(op().type).block_length == 1; }

  // Largest share of an output's size that the CPU backend may be off by: the root mean square of the difference over that
  // of the value.
  double Tolerance() const {
    const std::string activations = std::get<2>(GetParam());
    if (activations == "onednn-bf16") return 0.01;
    if (floats() || activations == "onednn-f32") return 2e-6;
    if (activations == "two") return 1e-4;
    return activations == "mixed" ? 0.01 : 0.02;
  }

  void SetUp() override {
    BackendOptions options;
    options.num_threads = 3;
    options.isa = std::get<1>(GetParam());
    const std::string variant = std::get<2>(GetParam());
    (variant.starts_with("onednn") ? options.matmul : options.activations) = variant;
    auto cpu = CreateBackend("cpu", options);
    if (absl::IsFailedPrecondition(cpu.status())) GTEST_SKIP() << cpu.status().message();
    ASSERT_THAT(cpu, IsOk());
    cpu_ = *std::move(cpu);
    auto reference = CreateBackend("reference", BackendOptions{.num_threads = 1});
    ASSERT_THAT(reference, IsOk());
    reference_ = *std::move(reference);
    shape_.hidden_size = op().hidden;
    shape_.num_heads = op().heads;
    shape_.num_kv_heads = op().kv_heads;
    shape_.head_dim = op().head_dim;
    shape_.intermediate_size = op().intermediate;
    shape_.rope_interleaved = op().interleaved;
    shape_.has_qkv_bias = op().bias;
    shape_.has_qk_norm = op().qk_norm;
    for (int i = 0; i < op().head_dim / 2; ++i) {
      inv_freq_.push_back(std::pow(10000.0f, -2.0f * static_cast<float>(i) / static_cast<float>(op().head_dim)));
    }
    MakeWeights();
    if (!unsupported_.empty()) GTEST_SKIP() << unsupported_;
    ASSERT_THAT(cpu_->Reserve(shape_, kMaxRows), IsOk());
    MakeRows();
  }

  std::vector<float> Random(int64_t count, float scale = 1.0f) {
    std::normal_distribution<float> normal(0, scale);
    std::vector<float> values(static_cast<size_t>(count));
    for (float& v : values) v = normal(rng_);
    return values;
  }
  Tensor MakeTensor(const char* name, GgmlType type, std::vector<int64_t> shape, float scale) {
    Tensor tensor;
    const int64_t count = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
    const bool plain = TraitsOf(type).block_length == 1;
    tensor.data = plain ? testing::Quantize(type, Random(count, scale))
                        : testing::RandomBlocks(type, count, 2 * scale, static_cast<uint64_t>(rng_()));
    tensor.view.name = name;
    tensor.view.type = type;
    tensor.view.shape.assign(shape.begin(), shape.end());
    return tensor;
  }
  // The views of tensors that will not move any more.
  static std::vector<TensorView> Views(std::vector<Tensor>& tensors) {
    std::vector<TensorView> views;
    for (Tensor& t : tensors) {
      t.view.data = reinterpret_cast<const uint8_t*>(t.data.data());
      t.view.bytes = t.data.size();
      views.push_back(t.view);
    }
    return views;
  }

  PackedMatrix Pack(Backend* backend, const std::vector<TensorView>& views) {
    auto packed = backend->Pack(views, {});
    if (absl::IsFailedPrecondition(packed.status())) unsupported_ = std::string(packed.status().message());
    EXPECT_TRUE(packed.ok() || !unsupported_.empty()) << packed.status();
    return packed.ok() ? *packed : PackedMatrix();
  }
  void PackBoth(std::vector<Tensor> tensors, PackedMatrix LayerWeights::*member) {
    tensors_.push_back(std::move(tensors));
    const std::vector<TensorView> views = Views(tensors_.back());
    cpu_weights_.*member = Pack(cpu_.get(), views);
    reference_weights_.*member = Pack(reference_.get(), views);
  }
  void VectorBoth(int64_t size, std::shared_ptr<const float[]> LayerWeights::*member) {
    tensors_.push_back({MakeTensor("vector", GgmlType::kF32, {size}, 1.0f)});
    const std::vector<TensorView> views = Views(tensors_.back());
    cpu_weights_.*member = cpu_->PackVector(views).value();
    reference_weights_.*member = reference_->PackVector(views).value();
  }

  void MakeWeights() {
    const OpCase& c = op();
    const int64_t q = int64_t{c.heads} * c.head_dim, kv = int64_t{c.kv_heads} * c.head_dim;
    const float hidden_scale = 1.0f / std::sqrt(static_cast<float>(c.hidden));
    std::vector<Tensor> qkv;
    qkv.push_back(MakeTensor("q", c.type, {q, c.hidden}, hidden_scale));
    qkv.push_back(MakeTensor("k", c.type, {kv, c.hidden}, hidden_scale));
    qkv.push_back(MakeTensor("v", c.v_type, {kv, c.hidden}, hidden_scale));
    PackBoth(std::move(qkv), &LayerWeights::qkv);
    std::vector<Tensor> gate_up;
    gate_up.push_back(MakeTensor("gate", c.type, {c.intermediate, c.hidden}, hidden_scale));
    gate_up.push_back(MakeTensor("up", c.type, {c.intermediate, c.hidden}, hidden_scale));
    PackBoth(std::move(gate_up), &LayerWeights::gate_up);
    // Rows of o and down are as wide as the heads and the intermediate size, which need not hold whole blocks of 256.
    const auto fit = [&](int64_t columns) { return columns % TraitsOf(c.type).block_length == 0 ? c.type : GgmlType::kQ4_1; };
    PackBoth({MakeTensor("o", fit(q), {c.hidden, q}, 1.0f / std::sqrt(static_cast<float>(q)))}, &LayerWeights::attn_out);
    PackBoth({MakeTensor("down", fit(c.intermediate), {c.hidden, c.intermediate},
                         1.0f / std::sqrt(static_cast<float>(c.intermediate)))},
             &LayerWeights::down);
    VectorBoth(c.hidden, &LayerWeights::attn_norm);
    VectorBoth(c.hidden, &LayerWeights::mlp_norm);
    if (c.bias) VectorBoth(q + 2 * kv, &LayerWeights::qkv_bias);
    if (c.qk_norm) VectorBoth(c.head_dim, &LayerWeights::q_norm);
    if (c.qk_norm) VectorBoth(c.head_dim, &LayerWeights::k_norm);
  }

  // Three sequences: 37 rows from position 0, one row at position 530 (a context that a kernel may cut), 5 rows in mid-block.
  void MakeRows() {
    const std::pair<int, int> spans[] = {{0, 37}, {530, 1}, {19, 5}};
    int next_block = 0;
    query_starts_.push_back(0);
    for (const auto& [first, count] : spans) {
      std::vector<int32_t>& table = tables_.emplace_back();
      for (int b = 0; b <= (first + count - 1) / kBlockSize; ++b) table.push_back((next_block++ * 7) % kNumBlocks);
      for (int p = first; p < first + count; ++p) {
        positions_.push_back(p);
        slots_.push_back(table[static_cast<size_t>(p / kBlockSize)] * kBlockSize + p % kBlockSize);
        token_ids_.push_back(static_cast<int32_t>(rng_() % static_cast<uint32_t>(op().vocab)));
      }
      query_starts_.push_back(static_cast<int32_t>(positions_.size()));
    }
    for (const auto& table : tables_) table_pointers_.push_back(table.data());
    rows_ = {static_cast<int>(positions_.size()), token_ids_.data(),    positions_.data(), slots_.data(),
             static_cast<int>(tables_.size()),    query_starts_.data(), table_pointers_.data()};
    KvLayout layout;
    layout.num_layers = 1;
    layout.num_kv_heads = op().kv_heads;
    layout.head_dim = op().head_dim;
    layout.dtype = op().kv;
    cpu_pool_ = KvPool::Create(layout, kNumBlocks, cpu_.get()).value();
    reference_pool_ = KvPool::Create(layout, kNumBlocks, reference_.get()).value();
    FillPools(layout);
  }
  // The same random past in both pools: whole tokens as another step would have left them.
  void FillPools(const KvLayout& layout) {
    const int64_t width = int64_t{layout.num_kv_heads} * layout.head_dim;
    for (int slot = 0; slot < kNumBlocks * layout.block_size; ++slot) {
      ReferenceWriteKv(reference_pool_->Layer(0), slot, Random(width).data(), Random(width).data());
    }
    for (int b = 0; b < kNumBlocks; ++b) std::ranges::copy(reference_pool_->Cell(0, b), cpu_pool_->Cell(0, b).begin());
  }

  // All that a pool holds, as attention reads it.
  static std::vector<float> Values(const KvPool& pool) {
    const KvLayerView view = pool.Layer(0);
    const int64_t per_head = int64_t{view.block_size} * view.head_dim;
    std::vector<float> values;
    for (int b = 0; b < kNumBlocks; ++b) {
      for (const uint8_t* part : {view.k, view.v}) {
        for (int h = 0; h < view.num_kv_heads; ++h) {
          const uint8_t* const head = part + static_cast<size_t>(b) * view.block_stride + h * KvHeadBytes(view);
          for (int64_t i = 0; i < per_head; ++i) {
            const int64_t offset = part == view.k ? i % view.block_size : i / view.head_dim;
            values.push_back(KvScale(view, head, static_cast<int>(offset)) * LoadKvElement(head, i, view.dtype));
          }
        }
      }
    }
    return values;
  }

  void ExpectClose(const std::vector<float>& got, const std::vector<float>& want, double tolerance, const char* what) {
    ASSERT_EQ(got.size(), want.size());
    double difference = 0, size = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_TRUE(std::isfinite(got[i])) << what << " " << i;
      difference += (double{got[i]} - want[i]) * (double{got[i]} - want[i]);
      size += double{want[i]} * want[i];
    }
    EXPECT_LE(std::sqrt(difference), tolerance * std::sqrt(size)) << what << ", seed " << kSeed;
  }

  static constexpr uint32_t kSeed = 20240607;
  static constexpr int kMaxRows = 64;
  static constexpr int kNumBlocks = 43;  // Prime: block ids are scattered and never repeat.
  std::mt19937 rng_{kSeed};
  std::string unsupported_;  // Why this CPU cannot run this variant.
  std::unique_ptr<Backend> cpu_, reference_;
  LayerShape shape_;
  std::vector<float> inv_freq_;
  std::deque<std::vector<Tensor>> tensors_;
  LayerWeights cpu_weights_, reference_weights_;
  std::vector<int32_t> token_ids_, positions_, slots_, query_starts_;
  std::deque<std::vector<int32_t>> tables_;
  std::vector<const int32_t*> table_pointers_;
  StepRows rows_;
  std::unique_ptr<KvPool> cpu_pool_, reference_pool_;
};

TEST_P(BackendOpsTest, QkvRope) {
  const std::vector<float> x = Random(int64_t{rows_.num_rows} * op().hidden);
  const size_t q_size = static_cast<size_t>(rows_.num_rows) * op().heads * op().head_dim;
  std::vector<float> got(q_size), want(q_size);
  cpu_->QkvRope(shape_, cpu_weights_, rows_, inv_freq_.data(), x.data(), got.data(), cpu_pool_->Layer(0));
  reference_->QkvRope(shape_, reference_weights_, rows_, inv_freq_.data(), x.data(), want.data(),
                      reference_pool_->Layer(0));
  ExpectClose(got, want, Tolerance(), "q");
  // The whole pools: what was written, and that nothing else was.
  const double storage = op().kv == KvDtype::kInt8 ? 1e-2 : op().kv == KvDtype::kBf16 ? 3e-3 : op().kv == KvDtype::kF16 ? 3e-4 : 0;
  const std::vector<float> got_kv = Values(*cpu_pool_), want_kv = Values(*reference_pool_);
  ExpectClose(got_kv, want_kv, Tolerance() + storage, "k and v");
  size_t differing = 0;
  for (size_t i = 0; i < got_kv.size(); ++i) differing += got_kv[i] != want_kv[i] ? 1 : 0;
  EXPECT_LE(differing, static_cast<size_t>(rows_.num_rows) * 2 * op().kv_heads * op().head_dim);
}

TEST_P(BackendOpsTest, Attention) {
  const size_t size = static_cast<size_t>(rows_.num_rows) * op().heads * op().head_dim;
  const std::vector<float> q = Random(static_cast<int64_t>(size), 2.0f);
  std::vector<float> got(size), want(size);
  cpu_->Attention(shape_, rows_, q.data(), cpu_pool_->Layer(0), got.data());
  reference_->Attention(shape_, rows_, q.data(), reference_pool_->Layer(0), want.data());
  ExpectClose(got, want, 1e-5, "attention");
}

TEST_P(BackendOpsTest, AttentionOut) {
  const std::vector<float> attention = Random(int64_t{rows_.num_rows} * op().heads * op().head_dim);
  std::vector<float> got = Random(int64_t{rows_.num_rows} * op().hidden);
  std::vector<float> want = got;
  cpu_->AttentionOut(shape_, cpu_weights_, rows_.num_rows, attention.data(), got.data());
  reference_->AttentionOut(shape_, reference_weights_, rows_.num_rows, attention.data(), want.data());
  ExpectClose(got, want, Tolerance(), "residual");
}

TEST_P(BackendOpsTest, Mlp) {
  std::vector<float> got = Random(int64_t{rows_.num_rows} * op().hidden);
  std::vector<float> want = got;
  cpu_->Mlp(shape_, cpu_weights_, rows_.num_rows, got.data());
  reference_->Mlp(shape_, reference_weights_, rows_.num_rows, want.data());
  ExpectClose(got, want, 1.5 * Tolerance(), "residual");  // Two matrices in a row.
}

TEST_P(BackendOpsTest, Head) {
  std::vector<Tensor> head;
  head.push_back(MakeTensor("head", op().type, {op().vocab, op().hidden}, 1.0f));
  const std::vector<TensorView> views = Views(head);
  const PackedMatrix cpu_head = Pack(cpu_.get(), views), reference_head = Pack(reference_.get(), views);
  const std::vector<float> x = Random(int64_t{rows_.num_rows} * op().hidden);
  const std::vector<int32_t> indices = {0, 36, 37, 42};
  std::vector<float> got(indices.size() * static_cast<size_t>(op().vocab)), want(got.size());
  cpu_->Head(shape_, cpu_weights_.attn_norm.get(), cpu_head, indices, x.data(), got.data());
  reference_->Head(shape_, reference_weights_.attn_norm.get(), reference_head, indices, x.data(), want.data());
  ExpectClose(got, want, 2 * Tolerance(), "logits");  // A vocabulary of one has few values to average over.
}

TEST_P(BackendOpsTest, EmbedIsExact) {
  std::vector<Tensor> table;
  table.push_back(MakeTensor("embedding", op().type, {op().vocab, op().hidden}, 1.0f));
  const std::vector<TensorView> views = Views(table);
  std::vector<float> got(static_cast<size_t>(rows_.num_rows) * op().hidden), want(got.size());
  ASSERT_OK_AND_ASSIGN(const PackedMatrix cpu_table, cpu_->PackTable(views[0]));
  ASSERT_OK_AND_ASSIGN(const PackedMatrix reference_table, reference_->PackTable(views[0]));
  cpu_->Embed(cpu_table, rows_, got.data());
  reference_->Embed(reference_table, rows_, want.data());
  EXPECT_EQ(got, want);
}

std::string CaseName(const ::testing::TestParamInfo<BackendOpsTest::ParamType>& info) {
  return std::string(std::get<0>(info.param).name) + "_" + std::get<1>(info.param) + "_" + std::get<2>(info.param);
}

INSTANTIATE_TEST_SUITE_P(All, BackendOpsTest,
                         ::testing::Combine(::testing::ValuesIn(kCases),
                                            ::testing::Values("scalar", "avx2", "avxvnni", "avx512vnni", "amx"),
                                            ::testing::Values("one", "mixed", "two")),
                         CaseName);

// oneDNN does not depend on the kernels' instruction set: one is enough.
INSTANTIATE_TEST_SUITE_P(OneDnn, BackendOpsTest,
                         ::testing::Combine(::testing::ValuesIn(kCases), ::testing::Values("avx2"),
                                            ::testing::Values("onednn-bf16", "onednn-f32")),
                         [](const auto& info) {
                           std::string name = CaseName(info);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(CreateBackendTest, RefusesWhatItNames) {
  const auto refused = [](absl::string_view name, const BackendOptions& options, absl::StatusCode code,
                          const char* message) {
    EXPECT_THAT(CreateBackend(name, options).status(), StatusIs(code, HasSubstr(message)));
  };
  using enum absl::StatusCode;
  refused("tpu", {}, kInvalidArgument, "backend \"tpu\" is not one of auto, cpu, reference, cuda");
  refused("cpu", {.num_threads = -1}, kInvalidArgument, "threads -1 is outside [0, 1024]");
  refused("cpu", {.isa = "mmx"}, kInvalidArgument, "\"mmx\" is not one of scalar, avx2");
  refused("cpu", {.matmul = "mkl"}, kInvalidArgument, "matmul \"mkl\" is not one of int8, onednn-bf16");
  refused("cpu", {.activations = "three"}, kInvalidArgument, "\"three\" is not one of mixed, one, two");
}

TEST(CreateBackendTest, NumericsIdNamesTheRoundingAndNoInstructionSet) {
  std::vector<std::string> ids;
  for (const char* isa : {"scalar", "avx2"}) {
    for (const char* activations : {"one", "mixed", "two"}) {
      auto backend = CreateBackend("cpu", {.num_threads = 1, .isa = isa, .activations = activations});
      if (backend.ok()) ids.push_back((*backend)->numerics_id());
    }
  }
  ASSERT_GE(ids.size(), 3u);
  EXPECT_NE(ids[0], ids[1]);
  EXPECT_NE(ids[1], ids[2]);
  for (size_t i = 3; i < ids.size(); ++i) EXPECT_EQ(ids[i], ids[i - 3]);
}

TEST(PackingTest, RefusesWhatItNames) {
  ASSERT_OK_AND_ASSIGN(const auto backend, CreateBackend("cpu", {.num_threads = 1}));
  const std::string bytes(4096, '\0');
  const auto view = [&](const char* name, GgmlType type, std::vector<int64_t> shape) {
    TensorView v;
    v.name = name;
    v.type = type;
    v.shape.assign(shape.begin(), shape.end());
    v.data = reinterpret_cast<const uint8_t*>(bytes.data());
    v.bytes = TensorBytes(type, v.shape).value();
    return v;
  };
  using enum absl::StatusCode;
  const TensorView a = view("a", GgmlType::kF32, {2, 8}), b = view("b", GgmlType::kF32, {2, 9});
  EXPECT_THAT(backend->Pack(std::vector<TensorView>{a, b}, {}).status(),
              StatusIs(kInvalidArgument, HasSubstr("tensor b has 9 columns, a has 8")));
  EXPECT_THAT(backend->Pack(std::vector<TensorView>{view("v", GgmlType::kF32, {8})}, {}).status(),
              StatusIs(kInvalidArgument, HasSubstr("tensor v has shape [8], expected a matrix")));
  EXPECT_THAT(backend->Pack(std::vector<TensorView>{view("i", GgmlType::kI32, {2, 8})}, {}).status(),
              StatusIs(kInvalidArgument, HasSubstr("tensor i has type I32")));
  EXPECT_THAT(backend->Pack({}, {}).status(), StatusIs(kInvalidArgument, HasSubstr("no tensor")));
}

}  // namespace
}  // namespace baton
