// SPDX-License-Identifier: Apache-2.0
// Google Benchmark of the CPU kernels on one thread, at the shapes of SmolLM2-135M. Every line carries what it is a share
// of: peaks of one thread, measured in the same run. Times are CPU time of the thread, and rates those of the fastest
// iteration, so that other work on the machine disturbs little; memory bandwidth is still shared.
#include <benchmark/benchmark.h>

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <random>

#include "common/backend/cpu/calibration.h"
#include "common/backend/cpu/onednn_linear.h"
#include "tests/unit/backend/kernels_test_support.h"

namespace baton::cpu {
namespace {

PeakRates g_peaks;
const Kernels* g_kernels = nullptr;

double ThreadSeconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

class BestTime {
 public:
  template <typename Body>
  void Run(benchmark::State& state, Body body) {
    for (auto _ : state) {
      const double begin = ThreadSeconds();
      body();
      const double took = ThreadSeconds() - begin;
      state.SetIterationTime(took);
      best_ = std::min(best_, took);
    }
  }
  double seconds() const { return best_; }

 private:
  double best_ = 1e9;
};

void SetRate(benchmark::State& state, double gops, double peak) {
  state.counters["Gop/s"] = gops * 1e-9;
  if (peak > 0) state.counters["of_peak"] = gops / peak;
}

// Arguments: rows, outputs, inputs, two terms (0: one, 1: rule, 2: always two), type.
void BM_LinearQuantised(benchmark::State& state) {
  const int64_t rows = state.range(0), out = state.range(1), in = state.range(2);
  const GgmlType type = static_cast<GgmlType>(state.range(4));
  std::mt19937 rng(1);
  const std::vector<uint8_t> bytes = RandomBlocks(rng, type, out, in);
  const TensorView view = View(bytes, type, out, in);
  PackedQuant w = *PackQuant({&view, 1});
  // Few rows stream weights from memory, as a model's step does: enough copies to leave the caches.
  std::vector<std::shared_ptr<uint8_t[]>> copies = {w.memory};
  if (rows <= 8) {
    while (copies.size() * w.bytes() < (size_t{160} << 20)) {
      copies.push_back(AllocateAligned(w.bytes()));
      std::memcpy(copies.back().get(), w.memory.get(), w.bytes());
    }
  }
  std::vector<float> x = RandomFloats(rng, rows * in);
  for (size_t i = 3; i < x.size(); i += 192) x[i] *= 8;  // A sixth of the groups stands out, the same ones in each row.
  OwnedRows q(rows, in, state.range(3) != 0);
  if (state.range(3) == 2) q.view.lo_threshold = 0;
  g_kernels->quantise_rows(x.data(), in, 0, rows, &q.view);
  std::vector<float> y(static_cast<size_t>(rows * out));
  const std::shared_ptr<uint8_t[]> scratch = AllocateAligned(LinearScratchBytes(in));
  size_t copy = 0;
  BestTime time;
  time.Run(state, [&] {
    w.matrix.data = copies[copy++ % copies.size()].get();
    g_kernels->linear_quantised(
        {&w.matrix, q.view, 0, rows, 0, w.matrix.num_tiles, y.data(), out, Epilogue::kStore, scratch.get()});
  });
  SetRate(state, 2.0 * static_cast<double>(rows * out * in) / time.seconds(), g_peaks.int8_ops);
  const double read = static_cast<double>(w.bytes()) / time.seconds();
  state.counters["GB/s"] = read * 1e-9;
  state.counters["of_read"] = read / g_peaks.read_bytes;
}

void BM_LinearFloat(benchmark::State& state) {
  const int64_t rows = state.range(0), out = state.range(1), in = state.range(2);
  const GgmlType type = static_cast<GgmlType>(state.range(3));
  std::vector<uint8_t> bytes(static_cast<size_t>(out * in * TraitsOf(type).block_bytes));
  const TensorView view = View(bytes, type, out, in);
  PackedFloat w = *PackFloat({&view, 1});
  std::mt19937 rng(1);
  const std::vector<float> x = RandomFloats(rng, rows * in);
  std::vector<float> y(static_cast<size_t>(rows * out));
  BestTime time;
  time.Run(state, [&] {
    g_kernels->linear_float(
        {&w.matrix, x.data(), in, 0, rows, 0, w.matrix.num_tiles, y.data(), out, Epilogue::kStore});
  });
  SetRate(state, 2.0 * static_cast<double>(rows * out * in) / time.seconds(), g_peaks.fp32_flops);
}

// Arguments: rows, outputs, inputs, bf16. Panels of OneDnnLinear::kRows rows, rounding of the input included.
void BM_LinearOneDnn(benchmark::State& state) {
  const int64_t rows = state.range(0), out = state.range(1), in = state.range(2);
  std::mt19937 rng(1);
  const std::vector<float> w = RandomFloats(rng, in), x = RandomFloats(rng, rows * in);
  auto linear = OneDnnLinear::Create([&](int64_t, float* row) { std::copy(w.begin(), w.end(), row); }, out, in,
                                     state.range(3) != 0);
  if (!linear.ok()) {
    state.SkipWithError(linear.status().ToString().c_str());
    return;
  }
  std::vector<float> y(static_cast<size_t>(rows * out));
  const std::shared_ptr<uint8_t[]> scratch = AllocateAligned((*linear)->scratch_bytes());
  BestTime time;
  time.Run(state, [&] {
    for (int64_t r = 0; r < rows; r += OneDnnLinear::kRows) {
      (*linear)->Run(*g_kernels, x.data() + r * in, in, std::min(rows - r, OneDnnLinear::kRows), y.data() + r * out, out,
                     Epilogue::kStore, scratch.get());
    }
  });
  SetRate(state, 2.0 * static_cast<double>(rows * out * in) / time.seconds(),
          state.range(3) != 0 ? g_peaks.bf16_flops : g_peaks.fp32_flops);
  state.SetLabel((*linear)->implementation());
}

struct AttentionSetup {
  AttentionSetup(int64_t tokens, int64_t rows, int heads, int kv_heads, int dim, int block_size, FloatType type) {
    std::mt19937 rng(1);
    const int64_t blocks = (tokens + block_size - 1) / block_size;
    const int64_t half = static_cast<int64_t>(kv_heads) * dim * block_size * (type == FloatType::kF32 ? 4 : 2);
    pool = AllocateAligned(static_cast<size_t>(2 * half * blocks));
    const std::vector<float> values = RandomFloats(rng, kv_heads * dim * block_size * 2);
    for (int64_t b = 0; b < blocks; ++b) {
      FindKernels(Isa::kScalar)
          ->round(values.data(), type, static_cast<int64_t>(values.size()), pool.get() + 2 * half * b);
      table.push_back(static_cast<int32_t>(blocks - 1 - b));
    }
    q = RandomFloats(rng, rows * heads * dim);
    out.resize(q.size());
    args = {q.data(), heads * dim, out.data(), heads * dim, tokens - rows, table.data(), pool.get(), pool.get() + half,
            2 * half, block_size, type, heads, kv_heads, dim, 1.0f / std::sqrt(static_cast<float>(dim))};
    scratch = AllocateAligned(AttentionScratchBytes(dim, heads / kv_heads, rows));
  }
  std::shared_ptr<uint8_t[]> pool, scratch;
  std::vector<int32_t> table;
  std::vector<float> q, out;
  AttentionArgs args;
};

// Arguments: tokens, rows per task. The whole causal attention of a prompt, n (n + 1) / 2 pairs counted.
void BM_AttentionPrefill(benchmark::State& state) {
  const int64_t n = state.range(0), step = state.range(1);
  AttentionSetup s(n, n, 9, 3, 64, 32, FloatType::kF16);
  s.scratch = AllocateAligned(AttentionScratchBytes(64, 3, step));
  BestTime time;
  time.Run(state, [&] {
    for (int h = 0; h < 3; ++h) {
      for (int64_t row = 0; row < n; row += step) {
        g_kernels->attention_rows(s.args, h, row, std::min(n, row + step), s.scratch.get());
      }
    }
  });
  SetRate(state, 4.0 * 9 * 64 * static_cast<double>(n * (n + 1) / 2) / time.seconds(), g_peaks.fp32_flops);
}

// Arguments: context. One row; bytes of K and V read.
void BM_AttentionDecode(benchmark::State& state) {
  const int64_t n = state.range(0);
  AttentionSetup s(n, 1, 9, 3, 64, 32, FloatType::kF16);
  BestTime time;
  time.Run(state, [&] {
    for (int h = 0; h < 3; ++h) g_kernels->attention_rows(s.args, h, 0, 1, s.scratch.get());
  });
  SetRate(state, 4.0 * 9 * 64 * static_cast<double>(n) / time.seconds(), g_peaks.fp32_flops);
  const double read = static_cast<double>(2 * 3 * 64 * 2 * n) / time.seconds();
  state.counters["GB/s"] = read * 1e-9;
  state.counters["of_read"] = read / g_peaks.read_bytes;
}

void BM_RmsNormQuantise(benchmark::State& state) {
  const int64_t rows = 64, in = state.range(0);
  std::mt19937 rng(1);
  const std::vector<float> x = RandomFloats(rng, rows * in), weight = RandomFloats(rng, in);
  OwnedRows q(rows, in, true, {g_kernels->wide_bytes, g_kernels->bf16_rows});
  BestTime time;
  time.Run(state, [&] { g_kernels->rms_norm_quantise_rows(x.data(), in, weight.data(), 1e-5f, 0, rows, &q.view); });
  state.counters["ns/row"] = time.seconds() * 1e9 / rows;
}

void BM_QkvEpilogue(benchmark::State& state) {
  const int64_t rows = 64, width = 960;
  std::mt19937 rng(1);
  std::vector<float> qkv = RandomFloats(rng, rows * width), q(rows * 576), cos_sin = RandomFloats(rng, 64);
  const std::shared_ptr<uint8_t[]> pool = AllocateAligned(2 * 2 * 3 * 64 * 64);
  std::vector<int32_t> slots(rows);
  for (int64_t r = 0; r < rows; ++r) slots[static_cast<size_t>(r)] = static_cast<int32_t>(r);
  std::vector<const float*> tables(rows, cos_sin.data());
  const QkvEpilogueArgs args = {qkv.data(), nullptr, nullptr, nullptr, 1e-5f, tables.data(), state.range(0) != 0, 9, 3, 64,
                                q.data(), slots.data(), pool.get(), pool.get() + 2 * 3 * 64 * 32, 2 * 2 * 3 * 64 * 32, 32,
                                FloatType::kF16};
  BestTime time;
  time.Run(state, [&] { g_kernels->qkv_epilogue(args, 0, rows); });
  state.counters["ns/row"] = time.seconds() * 1e9 / rows;
}

void RegisterLinear() {
  const int64_t q4_1 = static_cast<int64_t>(GgmlType::kQ4_1), q8_0 = static_cast<int64_t>(GgmlType::kQ8_0);
  const std::pair<int64_t, int64_t> shapes[] = {{960, 576}, {576, 576}, {3072, 576}, {576, 1536}};
  for (auto [out, in] : shapes) {
    for (int64_t terms : {0, 1, 2}) {
      for (int64_t rows : {1, 8, 32, 64, 512}) {
        benchmark::RegisterBenchmark("linear_q4_1", BM_LinearQuantised)
            ->ArgNames({"rows", "out", "in", "terms", "type"})->Args({rows, out, in, terms, q4_1})->UseManualTime();
      }
    }
  }
  for (auto [out, in] : shapes) {
    for (int64_t bf16 : {0, 1}) {
      for (int64_t rows : {64, 512}) {
        benchmark::RegisterBenchmark("linear_onednn", BM_LinearOneDnn)
            ->ArgNames({"rows", "out", "in", "bf16"})->Args({rows, out, in, bf16})->UseManualTime();
      }
    }
  }
  for (int64_t rows : {1, 8, 32}) {
    benchmark::RegisterBenchmark("head_q8_0", BM_LinearQuantised)
        ->ArgNames({"rows", "out", "in", "terms", "type"})->Args({rows, 49152, 576, 1, q8_0})->UseManualTime();
  }
  for (GgmlType type : {GgmlType::kF32, GgmlType::kBF16, GgmlType::kF16}) {
    for (int64_t rows : {1, 64}) {
      benchmark::RegisterBenchmark("linear_float", BM_LinearFloat)
          ->ArgNames({"rows", "out", "in", "type"})->Args({rows, 3072, 576, static_cast<int64_t>(type)})->UseManualTime();
    }
  }
}

void RegisterRest() {
  for (int64_t n : {512, 2048}) {
    for (int64_t step : {16, 32, 64}) {
      benchmark::RegisterBenchmark("attention_prefill", BM_AttentionPrefill)
          ->ArgNames({"tokens", "rows_per_task"})->Args({n, step})->UseManualTime();
    }
  }
  for (int64_t n : {128, 512, 2048}) {
    benchmark::RegisterBenchmark("attention_decode", BM_AttentionDecode)->ArgName("context")->Arg(n)->UseManualTime();
  }
  for (int64_t in : {576, 1536}) {
    benchmark::RegisterBenchmark("rms_norm_quantise", BM_RmsNormQuantise)->ArgName("in")->Arg(in)->UseManualTime();
  }
  for (int64_t interleaved : {0, 1}) {
    benchmark::RegisterBenchmark("qkv_epilogue", BM_QkvEpilogue)->ArgName("interleaved")->Arg(interleaved)->UseManualTime();
  }
}

}  // namespace
}  // namespace baton::cpu

int main(int argc, char** argv) {
  using namespace baton::cpu;
  g_kernels = &BestKernels();
  ThreadPool one_thread(1);
  const std::vector<uint8_t> memory(size_t{128} << 20, 1);
  const std::span<const uint8_t> buffer(memory);
  g_peaks = MeasurePeaks(one_thread, g_kernels->isa, /*with_tiles=*/true, {&buffer, 1}, /*milliseconds=*/400);
  std::printf("%s, one thread: int8 %.0f Gop/s, bf16 %.0f Gflop/s, fp32 %.0f Gflop/s, read %.1f GB/s\n", g_kernels->name,
              g_peaks.int8_ops * 1e-9, g_peaks.bf16_flops * 1e-9, g_peaks.fp32_flops * 1e-9, g_peaks.read_bytes * 1e-9);
  RegisterLinear();
  RegisterRest();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
