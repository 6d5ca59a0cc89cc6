// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/phases.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <random>
#include <span>

#include "common/base/status_macros.h"

namespace baton::bench {
namespace {

using Clock = std::chrono::steady_clock;

double CpuSeconds() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Block ids of a sequence that lies in a pool by itself, behind `before` others of the same length.
std::vector<int32_t> Blocks(int num_blocks, int before) {
  std::vector<int32_t> blocks(static_cast<size_t>(num_blocks));
  std::iota(blocks.begin(), blocks.end(), before * num_blocks);
  return blocks;
}

}  // namespace

template <typename Body>
std::vector<RunTime> Phases::Run(int repeat, Body body) {
  body();  // Warms caches and the rotary table.
  std::vector<RunTime> times;
  for (int i = 0; i < repeat; ++i) {
    const auto start = Clock::now();
    const double cpu_start = CpuSeconds();
    body();
    times.push_back({std::chrono::duration<double>(Clock::now() - start).count(), CpuSeconds() - cpu_start});
  }
  return times;
}

std::vector<RunTime> Phases::RunPasses(const ModelInput& input, int repeat) {
  return Run(repeat, [&] { ForwardPass(model_, pool_.get(), &input, buffers_.get(), kPanelRows).Finish(); });
}

std::vector<int32_t> Phases::Tokens(int n) const {
  std::mt19937 rng(1);
  std::vector<int32_t> tokens(static_cast<size_t>(n));
  for (int32_t& token : tokens) token = static_cast<int32_t>(rng() % static_cast<uint32_t>(model_->config().vocab_size));
  return tokens;
}

absl::Status Phases::Prepare(int rows, int sequences, int tokens_each, int logit_rows) {
  const int num_blocks = sequences * (tokens_each / kBlockSize + 1);
  if (pool_ == nullptr || pool_->num_blocks() < num_blocks) {
    BATON_ASSIGN_OR_RETURN(pool_, KvPool::Create(model_->kv_layout(kv_dtype_, kBlockSize), num_blocks, backend_));
    for (int l = 0; l < model_->config().num_layers; ++l) {  // Touch the pages.
      for (int b = 0; b < num_blocks; ++b) std::fill(pool_->Cell(l, b).begin(), pool_->Cell(l, b).end(), 0);
    }
  }
  if (buffers_ != nullptr && buffers_->max_rows() >= rows && buffers_->max_logit_rows() >= logit_rows) {
    return absl::OkStatus();
  }
  BATON_ASSIGN_OR_RETURN(buffers_, ForwardBuffers::Create(*model_, rows, logit_rows));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<RunTime>> Phases::Prefill(int n, int repeat) {
  BATON_RETURN_IF_ERROR(Prepare(n, 1, n, 0));
  ModelInput input;
  input.AddSequence(Tokens(n), 0, Blocks(n / kBlockSize + 1, 0), kBlockSize, 0);
  return RunPasses(input, repeat);
}

absl::StatusOr<std::vector<RunTime>> Phases::Decode(int batch, int context, int repeat) {
  BATON_RETURN_IF_ERROR(Prepare(batch, batch, context + 1, batch));
  ModelInput input;
  const std::vector<int32_t> tokens = Tokens(batch);
  for (int s = 0; s < batch; ++s) {
    input.AddSequence(std::span(tokens).subspan(static_cast<size_t>(s), 1), context, Blocks(context / kBlockSize + 1, s),
                      kBlockSize, 1);
  }
  return RunPasses(input, repeat);
}

absl::StatusOr<std::vector<RunTime>> Phases::Attention(int n, int repeat) {
  BATON_RETURN_IF_ERROR(Prepare(1, 1, n, 0));
  const LayerShape& shape = model_->shape();
  BATON_RETURN_IF_ERROR(backend_->Reserve(shape, kPanelRows));
  const int64_t width = static_cast<int64_t>(shape.num_heads) * shape.head_dim;
  BATON_ASSIGN_OR_RETURN(const auto memory, backend_->Allocate(static_cast<size_t>(2 * n * width) * sizeof(float)));
  float* q = reinterpret_cast<float*>(memory.get());
  float* out = q + n * width;
  std::mt19937 rng(2);
  std::normal_distribution<float> normal;
  std::generate(q, out, [&] { return normal(rng); });
  std::vector<int32_t> positions(static_cast<size_t>(n));
  std::iota(positions.begin(), positions.end(), 0);
  const std::vector<int32_t> blocks = Blocks(n / kBlockSize + 1, 0);
  const int32_t* table = blocks.data();
  return Run(repeat, [&] {
    for (int begin = 0; begin < n; begin += kPanelRows) {
      const int32_t query_starts[] = {0, std::min(kPanelRows, n - begin)};
      StepRows rows;
      rows.num_rows = query_starts[1];
      rows.positions = positions.data() + begin;
      rows.num_sequences = 1;
      rows.query_starts = query_starts;
      rows.block_tables = &table;
      backend_->Attention(shape, rows, q + begin * width, pool_->Layer(0), out + begin * width);
    }
  });
}

}  // namespace baton::bench
