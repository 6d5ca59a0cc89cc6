// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BASE_RNG_H_
#define BATON_COMMON_BASE_RNG_H_

#include <array>
#include <cstdint>

namespace baton {

// Philox4x32 with 10 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11): a bijection of the
// 128-bit counter for each 64-bit key. Word 0 is the least significant.
std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// The random numbers of one token: a pure function of (seed, choice, position) and of how many were drawn before, so that
// a seed gives the same text however batches form and wherever the sequence runs. Distinct triples give independent
// streams. Cheap to make; one thread.
class CounterRng {
 public:
  // `position`: index of the token in its sequence (prompt included).
  CounterRng(uint64_t seed, uint32_t choice, uint64_t position);

  uint32_t NextUint32();
  uint64_t NextUint64();
  // Uniform in the open interval (0, 1): never 0 and never 1, so that log(u) and log(1 - u) are finite.
  float NextUniform();         // 23 random bits.
  double NextUniformDouble();  // 52 random bits.

 private:
  std::array<uint32_t, 4> counter_;
  std::array<uint32_t, 2> key_;
  std::array<uint32_t, 4> words_{};
  int next_word_ = 4;
};

}  // namespace baton

#endif  // BATON_COMMON_BASE_RNG_H_
