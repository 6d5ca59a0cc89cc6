// SPDX-License-Identifier: Apache-2.0
#include "common/backend/cpu/calibration.h"

#include <cpuid.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>

#include "common/backend/cpu/kernels.h"
#include "common/backend/cpu/quant_pack.h"

namespace baton::cpu {

// calibration_avx512.cc, calibration_avx2.cc
double PeakInt8Avx512(long iterations);
double PeakFp32Avx512(long iterations);
double PeakBf16Avx512(long iterations);
double PeakInt8AvxVnni(long iterations);
double PeakFp32Avx2(long iterations);

namespace {

bool HasAvx512Bf16() {
  unsigned a, b, c, d;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) && ((a >> 5) & 1);
}

uint64_t SumWords(const uint8_t* p, size_t bytes) {
  uint64_t sums[8] = {};
  for (size_t i = 0; i + 64 <= bytes; i += 64) {
    uint64_t words[8];
    std::memcpy(words, p + i, 64);
    for (int j = 0; j < 8; ++j) sums[j] += words[j];
  }
  uint64_t sum = 0;
  for (uint64_t s : sums) sum += s;
  return sum;
}

double Seconds(std::chrono::steady_clock::duration d) { return std::chrono::duration<double>(d).count(); }

// Best rate of `round` (which returns work done) in the time given, at least three tries.
template <typename Round>
double BestRate(double seconds, Round round) {
  const auto start = std::chrono::steady_clock::now();
  double best = 0;
  for (int i = 0; i < 3 || Seconds(std::chrono::steady_clock::now() - start) < seconds; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    const double work = round();
    best = std::max(best, work / Seconds(std::chrono::steady_clock::now() - begin));
  }
  return best;
}

double BestLoopRate(ThreadPool& pool, PeakLoop loop, double seconds) {
  if (loop == nullptr) return 0;
  constexpr long kIterations = 20000;
  return BestRate(seconds, [&] {
    const int num_tasks = pool.num_threads();
    std::atomic<double> work{0};
    pool.ParallelFor(num_tasks, [&](int64_t, int) { work.fetch_add(loop(kIterations)); });
    return work.load();
  });
}

}  // namespace

PeakLoops LoopsForThisCpu() {
  PeakLoops loops;
  if (FindKernels(Isa::kAvx2) != nullptr) loops.fp32 = PeakFp32Avx2;
  if (FindKernels(Isa::kAvxVnni) != nullptr) loops.int8 = PeakInt8AvxVnni;
  if (FindKernels(Isa::kAvx512Vnni) != nullptr) {
    loops.fp32 = PeakFp32Avx512;
    loops.int8 = PeakInt8Avx512;
    if (HasAvx512Bf16()) loops.bf16 = PeakBf16Avx512;
  }
  return loops;
}

MachinePeaks MeasurePeaks(ThreadPool& pool, int milliseconds, size_t read_buffer_bytes) {
  const double share = milliseconds * 0.001 / 4;
  const PeakLoops loops = LoopsForThisCpu();
  MachinePeaks peaks;
  peaks.int8_ops = BestLoopRate(pool, loops.int8, share);
  peaks.bf16_flops = BestLoopRate(pool, loops.bf16, share);
  peaks.fp32_flops = BestLoopRate(pool, loops.fp32, share);
  constexpr size_t kChunk = size_t{256} << 10;
  const int64_t num_chunks = static_cast<int64_t>(read_buffer_bytes / kChunk);
  const std::shared_ptr<uint8_t[]> buffer = AllocateAligned(static_cast<size_t>(num_chunks) * kChunk);
  if (buffer == nullptr || num_chunks == 0) return peaks;
  std::atomic<uint64_t> sink{0};
  peaks.read_bytes = BestRate(share, [&] {
    pool.ParallelFor(num_chunks, [&](int64_t i, int) {
      sink.fetch_add(SumWords(buffer.get() + static_cast<size_t>(i) * kChunk, kChunk), std::memory_order_relaxed);
    });
    return static_cast<double>(num_chunks) * static_cast<double>(kChunk);
  });
  return peaks;
}

}  // namespace baton::cpu
