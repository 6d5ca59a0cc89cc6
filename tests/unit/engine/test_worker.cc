// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/engine/test_worker.h"

#include <random>
#include <utility>

#include "common/backend/create_backend.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/model/checkpoint.h"
#include "gtest/gtest.h"
#include "tests/support/tiny_model.h"

namespace baton::testing {

namespace {

const Model* MakeModel(const char* backend_name, GgmlType type) {
  TinyModelOptions options;
  options.weight_scale = 2.0f;
  options.matrix_type = options.embedding_type = type;
  auto checkpoint = Checkpoint::Open(WriteTempFile("engine_test.gguf", TinyModel(options).Build()));
  BATON_CHECK(checkpoint.ok()) << checkpoint.status();
  auto backend = CreateBackend(backend_name, {.num_threads = 2});
  BATON_CHECK(backend.ok()) << backend.status();
  auto model = Model::Load(*checkpoint, backend->release());
  BATON_CHECK(model.ok()) << model.status();
  return model->release();
}

}  // namespace

const Model& RandomModel() {
  static const Model* const model = MakeModel("reference", GgmlType::kF32);
  return *model;
}

const Model& RandomCpuModel() {
  static const Model* const model = MakeModel("cpu", GgmlType::kQ8_0);
  return *model;
}

SequenceSink Heard::Sink() {
  SequenceSink sink;
  sink.on_token = [this](const TokenEvent& event) {
    EXPECT_FALSE(finish.contains(event.choice)) << "a token after the last";
    EXPECT_FALSE(failed.has_value());
    tokens[event.choice].push_back(event.token_id);
    if (event.finish != FinishReason::kNone) finish[event.choice] = event.finish;
    events.push_back(event);
  };
  sink.on_progress = [this](const PrefillProgress& p) { progress.push_back(p); };
  sink.on_prefilled = [this](absl::Status status) {
    EXPECT_TRUE(status.ok()) << status;
    ++num_prefilled;
  };
  sink.on_failed = [this](absl::Status status) {
    EXPECT_FALSE(failed.has_value());
    failed = status;
  };
  return sink;
}

bool Heard::Ended(int num_choices) const {
  return failed.has_value() || static_cast<int>(finish.size()) == num_choices;
}

TestWorker::TestWorker(int num_blocks, const EngineOptions& options, const Model& model, KvDtype kv_dtype) {
  auto pool = KvPool::Create(model.kv_layout(kv_dtype, kBlockSize), num_blocks, model.backend());
  BATON_CHECK(pool.ok()) << pool.status();
  pool_ = *std::move(pool);
  auto core = EngineCore::Create(&model, pool_.get(), options, &clock_);
  BATON_CHECK(core.ok()) << core.status();
  core_ = *std::move(core);
}

absl::Status TestWorker::Generate(SequenceId id, SequenceSpec spec, Heard* heard) {
  BATON_RETURN_IF_ERROR(core_->ReserveLanding(id, std::move(spec), heard->Sink()).status());
  return core_->PrefillLocally(id);
}

void TestWorker::RunUntilIdle(const std::function<void()>& between_units) {
  for (int i = 0; core_->Step(between_units); ++i) {
    core_->CheckInvariants();
    ASSERT_LT(i, 200000) << "the engine never becomes idle";
  }
  core_->CheckInvariants();
}

bool TestWorker::AtBaseline() const {
  const EngineStats stats = core_->stats();
  return stats.blocks.free + stats.blocks.cached == stats.blocks.total && stats.running == 0 && stats.waiting == 0 &&
         stats.landing == 0;
}

SequenceSpec MakeSpec(std::vector<int32_t> prompt, int max_tokens, SamplingParams sampling) {
  SequenceSpec spec;
  spec.num_prompt_tokens = static_cast<int>(prompt.size());
  spec.tokens = std::move(prompt);
  spec.sampling = std::move(sampling);
  spec.sampling.max_tokens = max_tokens;
  spec.cache_key.model_fingerprint = "model";
  return spec;
}

std::vector<int32_t> RandomTokens(int n, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::vector<int32_t> tokens(n);
  for (int32_t& token : tokens) token = 3 + static_cast<int32_t>(rng() % 256);
  return tokens;
}

std::map<int, std::vector<int32_t>> RunAlone(const SequenceSpec& spec, const Model& model) {
  TestWorker worker(64, {}, model);
  Heard heard;
  const absl::Status status = worker.Generate(1, spec, &heard);
  EXPECT_TRUE(status.ok()) << status;
  worker.RunUntilIdle();
  EXPECT_TRUE(heard.Ended(spec.num_choices));
  EXPECT_TRUE(worker.AtBaseline());
  return heard.tokens;
}

absl::Status Disaggregate(TestWorker& prefill, TestWorker& decode, SequenceId id, const SequenceSpec& spec,
                          Heard* heard) {
  BATON_ASSIGN_OR_RETURN(const Landing landing, decode.core().ReserveLanding(id, spec, heard->Sink()));
  if (!landing.complete()) {
    SequenceSink sink;
    bool prefilled = false;
    sink.on_prefilled = [&](absl::Status) { prefilled = true; };
    // Copied as soon as it is reported, so that a report that comes too early shows.
    sink.on_progress = [&](const PrefillProgress& progress) {
      const std::span<const BlockId> from = prefill.core().BlocksOf(id);
      for (int layer = progress.layer_begin; layer < progress.layer_end; ++layer) {
        for (int t = progress.token_begin; t < progress.token_end; ++t) {
          std::vector<uint8_t> cell(prefill.pool().layout().token_layer_bytes());
          prefill.pool().ReadTokens(layer, from[t / kBlockSize], t % kBlockSize, 1, cell);
          decode.pool().WriteTokens(layer, landing.blocks[t / kBlockSize], t % kBlockSize, 1, cell);
        }
      }
    };
    BATON_RETURN_IF_ERROR(prefill.core().AddPrefill(id, spec, landing.num_cached_tokens, std::move(sink)));
    while (!prefilled && prefill.core().Step([] {})) {
    }
    EXPECT_TRUE(prefilled);
    prefill.core().Finish(id);
  }
  decode.core().Landed(id);
  return absl::OkStatus();
}

}  // namespace baton::testing
