// SPDX-License-Identifier: Apache-2.0
#include "common/base/rng.h"

namespace baton {
namespace {

// Multipliers and Weyl increments of the paper.
constexpr uint32_t kMultiplier0 = 0xD2511F53;
constexpr uint32_t kMultiplier1 = 0xCD9E8D57;
constexpr uint32_t kWeyl0 = 0x9E3779B9;
constexpr uint32_t kWeyl1 = 0xBB67AE85;
constexpr int kRounds = 10;

}  // namespace

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = uint64_t{kMultiplier0} * counter[0];
    const uint64_t product1 = uint64_t{kMultiplier1} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

CounterRng::CounterRng(uint64_t seed, uint32_t choice, uint64_t position)
    : counter_{0, choice, static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32)},
      key_{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)} {}

uint32_t CounterRng::NextUint32() {
  if (next_word_ == 4) {
    words_ = Philox4x32(counter_, key_);
    ++counter_[0];
    next_word_ = 0;
  }
  return words_[next_word_++];
}

uint64_t CounterRng::NextUint64() {
  const uint64_t low = NextUint32();
  return low | (uint64_t{NextUint32()} << 32);
}

// The half keeps the value off 0 and, with one bit less than the significand has, off 1.
float CounterRng::NextUniform() { return (static_cast<float>(NextUint32() >> 9) + 0.5f) * 0x1p-23f; }

double CounterRng::NextUniformDouble() { return (static_cast<double>(NextUint64() >> 12) + 0.5) * 0x1p-52; }

}  // namespace baton
