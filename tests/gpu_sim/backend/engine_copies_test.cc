// SPDX-License-Identifier: Apache-2.0
// An engine whose pool lies on the simulated GPU: what it brings to the host and to the device, and what does not wait for that.
#include <algorithm>
#include <span>
#include <vector>

#include "common/backend/create_backend.h"
#include "common/base/logging.h"
#include "common/model/checkpoint.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/gpu_sim/backend/simulator.h"
#include "tests/support/tiny_model.h"
#include "tests/unit/engine/test_worker.h"

namespace baton::testing {
namespace {

const Model& GpuModel() {
  static const Model* const model = [] {
    TinyModelOptions options;
    options.head_dim = 64;
    options.num_heads = 3;
    options.num_kv_heads = 1;
    options.hidden_size = 96;
    options.intermediate_size = 160;
    options.matrix_type = options.embedding_type = GgmlType::kQ8_0;
    auto checkpoint = Checkpoint::Open(WriteTempFile("engine_copies.gguf", TinyModel(options).Build()));
    BATON_CHECK(checkpoint.ok()) << checkpoint.status();
    auto backend = CreateBackend("cuda", {.matmul = "quant", .cuda_driver = Simulator::Driver(), .cublas_library = Simulator::Cublas()});
    BATON_CHECK(backend.ok()) << backend.status();
    auto loaded = Model::Load(*checkpoint, backend->release());
    BATON_CHECK(loaded.ok()) << loaded.status();
    return loaded->release();
  }();
  return *model;
}

// Of which 40 tokens are a prefill worker's: two whole cells a layer and one that is not full.
std::vector<int32_t> Prompt() { return RandomTokens(41, 3); }

bool IsZero(std::span<const uint8_t> cell) {
  return std::ranges::all_of(cell, [](uint8_t byte) { return byte == 0; });
}

class EngineCopiesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!sim_.present()) GTEST_SKIP() << "on the simulator only";
    sim_.Reset();
  }
  void TearDown() override {
    EXPECT_EQ(sim_.Findings(), "");
    sim_.Reset();
  }
  // The prompt's blocks, with references of the caller's.
  std::vector<BlockId> Prefill(TestWorker& worker, bool reads_device, Heard* heard) {
    std::vector<BlockId> blocks;
    SequenceSink sink = heard->Sink();
    sink.reads_device = [reads_device] { return reads_device; };
    const auto hear = sink.on_progress;
    sink.on_progress = [&](const PrefillProgress& progress) {
      if (blocks.empty()) {
        const std::span<const BlockId> of = worker.core().BlocksOf(1);
        blocks.assign(of.begin(), of.end());
        worker.core().RetainBlocks(blocks);
      }
      for (int layer = progress.layer_begin; layer < progress.layer_end; ++layer) {
        // It is there when it is told, on the side where it is read.
        if (!reads_device) {
          EXPECT_FALSE(IsZero(worker.pool().Cell(layer, blocks[static_cast<size_t>(progress.token_begin / kBlockSize)])));
        }
      }
      hear(progress);
    };
    EXPECT_TRUE(worker.core().AddPrefill(1, MakeSpec(Prompt(), 1), 0, std::move(sink)).ok());
    worker.RunUntilIdle();
    EXPECT_EQ(heard->num_prefilled, 1);
    return blocks;
  }
  Simulator sim_;
};

TEST_F(EngineCopiesTest, WhoReadsTheDeviceGetsTheLastCellOnTheHostOnly) {
  const int layers = GpuModel().config().num_layers;
  for (const bool lazy : {false, true}) {
    sim_.Set("lazy_streams", lazy ? 1 : 0);
    for (const bool reads_device : {false, true}) {
      SCOPED_TRACE(reads_device);
      TestWorker worker(8, {}, GpuModel(), KvDtype::kF16);
      Heard heard;
      const std::vector<BlockId> blocks = Prefill(worker, reads_device, &heard);
      ASSERT_EQ(blocks.size(), 3u);
      for (int layer = 0; layer < layers; ++layer) {
        for (int block = 0; block < 3; ++block) {
          const bool on_host = !IsZero(worker.pool().Cell(layer, blocks[static_cast<size_t>(block)]));
          EXPECT_EQ(on_host, !reads_device || block == 2) << "layer " << layer << ", block " << block;
        }
      }
      // The same is told, to the end.
      ASSERT_FALSE(heard.progress.empty());
      EXPECT_EQ(heard.progress.back().layer_end, layers);
      worker.core().ReleaseBlocks(blocks);
      worker.core().Finish(1);
    }
  }
  sim_.Set("lazy_streams", 0);
}

// A landing that is on its way to the device holds up nobody but itself.
TEST_F(EngineCopiesTest, OthersDecodeWhileALandingIsCopied) {
  TestWorker prefill(8, {}, GpuModel(), KvDtype::kF16), worker(32, {}, GpuModel(), KvDtype::kF16);
  Heard prefilled, alone, other, landed;
  const std::vector<BlockId> blocks = Prefill(prefill, /*reads_device=*/false, &prefilled);
  const auto land = [&](SequenceId id, Heard* heard) {
    const auto landing = worker.core().ReserveLanding(id, MakeSpec(Prompt(), 6), heard->Sink());
    ASSERT_TRUE(landing.ok()) << landing.status();
    ASSERT_EQ(landing->num_cached_tokens, 0);
    for (int layer = 0; layer < worker.pool().layout().num_layers; ++layer) {
      for (size_t block = 0; block < blocks.size(); ++block) {
        std::ranges::copy(prefill.pool().Cell(layer, blocks[block]), worker.pool().Cell(layer, landing->blocks[block]).begin());
      }
    }
    worker.core().Landed(id);
  };
  land(1, &alone);
  worker.RunUntilIdle();
  ASSERT_EQ(alone.tokens[0].size(), 6u);
  worker.core().ClearPrefixCache();

  ASSERT_TRUE(worker.Generate(2, MakeSpec(RandomTokens(5, 6), 12), &other).ok());
  while (other.tokens[0].size() < 2) ASSERT_TRUE(worker.core().Step([] {}));
  sim_.Set("stall_host_copy", 1);
  land(3, &landed);
  worker.core().Landed(3);  // Once more is no more.
  while (other.tokens[0].size() < 10) ASSERT_TRUE(worker.core().Step([] {}));
  EXPECT_TRUE(landed.tokens.empty());
  sim_.Set("stall_host_copy", 0);
  worker.RunUntilIdle();
  EXPECT_EQ(landed.tokens[0], alone.tokens[0]);
  EXPECT_EQ(other.tokens[0].size(), 12u);

  // One that is cancelled on its way: its blocks are given to others when nothing comes there any more.
  worker.core().ClearPrefixCache();
  Heard cancelled;
  sim_.Set("lazy_streams", 1);
  land(4, &cancelled);
  worker.core().Cancel(4);
  sim_.Set("lazy_streams", 0);
  worker.RunUntilIdle();
  EXPECT_TRUE(cancelled.tokens.empty());
  worker.core().ClearPrefixCache();
  EXPECT_TRUE(worker.AtBaseline());
  prefill.core().ReleaseBlocks(blocks);
}

}  // namespace
}  // namespace baton::testing
