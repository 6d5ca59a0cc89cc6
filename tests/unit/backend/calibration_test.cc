// SPDX-License-Identifier: Apache-2.0
// What calibration measures depends on the machine; what it counts does not.
#include "common/backend/cpu/calibration.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace baton::cpu {
namespace {

constexpr Isa kAll[] = {Isa::kScalar, Isa::kAvx2, Isa::kAvxVnni, Isa::kAvx512Vnni, Isa::kAmx};

TEST(CalibrationTest, LoopsOfEveryInstructionSetCountTheirOperations) {
  for (const Isa isa : kAll) {
    for (const bool with_tiles : {false, true}) {
      const PeakLoops loops = LoopsFor(isa, with_tiles);
      EXPECT_EQ(loops.fp32 != nullptr, isa != Isa::kScalar && FindKernels(isa) != nullptr) << IsaName(isa);
      EXPECT_EQ(loops.int8 != nullptr, loops.fp32 != nullptr) << IsaName(isa);
      for (const PeakLoop loop : {loops.int8, loops.bf16, loops.fp32}) {
        if (loop == nullptr) continue;
        const double one = loop(1);
        EXPECT_GT(one, 0);
        EXPECT_EQ(loop(7), 7 * one);
      }
    }
  }
}

TEST(CalibrationTest, MeasuresWithAllThreadsOrSaysZero) {
  const std::vector<uint8_t> memory(size_t{1} << 20, 1);
  const std::span<const uint8_t> buffer(memory);
  for (const int num_threads : {1, 3}) {
    ThreadPool pool(num_threads);
    for (const Isa isa : kAll) {
      const PeakLoops loops = LoopsFor(isa, false);
      const PeakRates peaks = MeasurePeaks(pool, isa, false, {&buffer, 1}, 4);
      EXPECT_EQ(peaks.int8_ops > 0, loops.int8 != nullptr) << IsaName(isa);
      EXPECT_EQ(peaks.bf16_flops > 0, loops.bf16 != nullptr) << IsaName(isa);
      EXPECT_EQ(peaks.fp32_flops > 0, loops.fp32 != nullptr) << IsaName(isa);
      EXPECT_GT(peaks.read_bytes, 0) << IsaName(isa);
      EXPECT_EQ(MeasurePeaks(pool, isa, false, {}, 1).read_bytes, 0) << IsaName(isa);
    }
  }
}

TEST(CalibrationTest, ReadsEveryWord) {
  std::vector<uint64_t> words(16 * 1024 + 5);
  uint64_t sum = 0;
  for (size_t i = 0; i < words.size(); ++i) {
    words[i] = i * 0x9e3779b97f4a7c15u;
    if (i < words.size() / 16 * 16) sum += words[i];  // Whole steps of 128 bytes.
  }
  EXPECT_EQ(ReadBytes(reinterpret_cast<const uint8_t*>(words.data()), words.size() * 8), sum);
}

}  // namespace
}  // namespace baton::cpu
