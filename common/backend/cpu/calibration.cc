// SPDX-License-Identifier: Apache-2.0
#include "common/backend/cpu/calibration.h"

#include <cpuid.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <vector>

namespace baton::cpu {

// calibration_avx2.cc, calibration_avx512.cc, calibration_amx.cc
double PeakInt8Avx2(long iterations);
double PeakInt8AvxVnni(long iterations);
double PeakFp32Avx2(long iterations);
double PeakInt8Avx512(long iterations);
double PeakFp32Avx512(long iterations);
double PeakBf16Avx512(long iterations);
double PeakInt8Amx(long iterations);
double PeakBf16Amx(long iterations);

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxReadBytes = size_t{256} << 20;  // Beyond any cache that counts.
constexpr size_t kReadChunk = size_t{128} << 10;
constexpr long kIterations = 200;  // Tens of microseconds: far less than a scheduler's time slice.

double Seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

bool HasAvx512Bf16() {
  unsigned a, b, c, d;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) && ((a >> 5) & 1);
}

// All threads of the pool work at the same time, each on its own spans of work: span(thread, i) does the i-th and returns
// what it did. The sum of the threads' median rates.
template <typename Span>
double SumOfMedianRates(ThreadPool& pool, double seconds, Span span) {
  constexpr size_t kMaxSpans = 4096;
  const int num_threads = pool.num_threads();
  std::vector<std::vector<double>> rates(static_cast<size_t>(num_threads));
  std::atomic<int> arrived{0};
  pool.ParallelFor(num_threads, [&](int64_t task, int) {
    // Nobody begins before all are there, or one thread might run two shares after each other; but not for ever.
    arrived.fetch_add(1);
    const auto begin = Clock::now();
    while (arrived.load() < num_threads && Clock::now() - begin < std::chrono::milliseconds(5)) __builtin_ia32_pause();
    std::vector<double>& mine = rates[static_cast<size_t>(task)];
    mine.reserve(256);
    const auto start = Clock::now();
    for (size_t i = 0; i < 3 || (i < kMaxSpans && Seconds(Clock::now() - start) < seconds); ++i) {
      const auto from = Clock::now();
      const double work = span(static_cast<int>(task), i);
      const double took = Seconds(Clock::now() - from);
      if (work > 0 && took > 0) mine.push_back(work / took);
    }
  });
  double sum = 0;
  for (std::vector<double>& mine : rates) {
    if (mine.empty()) continue;
    std::nth_element(mine.begin(), mine.begin() + static_cast<std::ptrdiff_t>(mine.size() / 2), mine.end());
    sum += mine[mine.size() / 2];
  }
  return sum;
}

double LoopRate(ThreadPool& pool, PeakLoop loop, double seconds) {
  if (loop == nullptr) return 0;
  return SumOfMedianRates(pool, seconds, [loop](int, size_t) { return loop(kIterations); });
}

double ReadRate(ThreadPool& pool, std::span<const std::span<const uint8_t>> buffers, double seconds) {
  std::vector<std::span<const uint8_t>> chunks;
  for (const std::span<const uint8_t> buffer : buffers) {
    for (size_t at = 0; at + kReadChunk <= buffer.size() && chunks.size() < kMaxReadBytes / kReadChunk; at += kReadChunk) {
      chunks.push_back(buffer.subspan(at, kReadChunk));
    }
  }
  const size_t num_threads = static_cast<size_t>(pool.num_threads());
  if (chunks.size() < num_threads) return 0;
  std::atomic<uint64_t> sink{0};
  return SumOfMedianRates(pool, seconds, [&](int thread, size_t i) {
    const std::span<const uint8_t> chunk = chunks[(i * num_threads + static_cast<size_t>(thread)) % chunks.size()];
    sink.fetch_add(ReadBytes(chunk.data(), chunk.size()), std::memory_order_relaxed);
    return static_cast<double>(chunk.size());
  });
}

}  // namespace

uint64_t ReadBytes(const uint8_t* data, size_t bytes) {
  // Four lines at a time in vectors that any x86-64 has: loads, not sums, are what takes the time.
  using Words = uint64_t __attribute__((vector_size(16), aligned(16), may_alias));
  Words sums[8] = {};
  for (size_t at = 0; at + 128 <= bytes; at += 128) {
    const Words* words = reinterpret_cast<const Words*>(data + at);
    for (int i = 0; i < 8; ++i) sums[i] += words[i];
  }
  uint64_t sum = 0;
  for (const Words& s : sums) sum += s[0] + s[1];
  return sum;
}

PeakLoops LoopsFor(Isa isa, bool with_tiles) {
  PeakLoops loops;
  if (FindKernels(isa) == nullptr || isa == Isa::kScalar) return loops;
  loops.fp32 = PeakFp32Avx2;
  loops.int8 = isa == Isa::kAvx2 ? PeakInt8Avx2 : PeakInt8AvxVnni;
  if (isa == Isa::kAvx512Vnni || isa == Isa::kAmx) {
    loops.fp32 = PeakFp32Avx512;
    loops.int8 = PeakInt8Avx512;
    if (HasAvx512Bf16()) loops.bf16 = PeakBf16Avx512;
  }
  if (with_tiles && FindKernels(Isa::kAmx) != nullptr) {
    loops.int8 = PeakInt8Amx;
    loops.bf16 = PeakBf16Amx;
  }
  return loops;
}

PeakRates MeasurePeaks(ThreadPool& pool, Isa isa, bool with_tiles, std::span<const std::span<const uint8_t>> buffers,
                       int milliseconds) {
  const PeakLoops loops = LoopsFor(isa, with_tiles);
  const double share = milliseconds * 0.001 / 4;
  PeakRates peaks;
  peaks.int8_ops = LoopRate(pool, loops.int8, share);
  peaks.bf16_flops = LoopRate(pool, loops.bf16, share);
  peaks.fp32_flops = LoopRate(pool, loops.fp32, share);
  peaks.read_bytes = ReadRate(pool, buffers, share);
  return peaks;
}

}  // namespace baton::cpu
