// SPDX-License-Identifier: Apache-2.0
#include "common/base/rng.h"

#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

using ::testing::ElementsAre;

// The known answers that the authors publish with Random123 (kat_vectors, philox4x32 10 rounds).
TEST(Philox, KnownAnswers) {
  EXPECT_THAT(Philox4x32({0, 0, 0, 0}, {0, 0}), ElementsAre(0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u));
  const uint32_t ones = 0xffffffffu;
  EXPECT_THAT(Philox4x32({ones, ones, ones, ones}, {ones, ones}),
              ElementsAre(0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu));
  EXPECT_THAT(Philox4x32({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}, {0xa4093822u, 0x299f31d0u}),
              ElementsAre(0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u));
}

std::vector<uint32_t> Draw(CounterRng rng, int count) {
  std::vector<uint32_t> words;
  for (int i = 0; i < count; ++i) words.push_back(rng.NextUint32());
  return words;
}

TEST(CounterRng, IsAFunctionOfSeedChoiceAndPosition) {
  const std::vector<uint32_t> first = Draw(CounterRng(42, 1, 7), 11);
  EXPECT_EQ(Draw(CounterRng(42, 1, 7), 11), first);
  EXPECT_NE(Draw(CounterRng(43, 1, 7), 11), first);
  EXPECT_NE(Draw(CounterRng(42, 0, 7), 11), first);
  EXPECT_NE(Draw(CounterRng(42, 1, 8), 11), first);
  // All bits of seed and position count.
  EXPECT_NE(Draw(CounterRng(42 | (uint64_t{1} << 63), 1, 7), 11), first);
  EXPECT_NE(Draw(CounterRng(42, 1, 7 | (uint64_t{1} << 40)), 11), first);
}

TEST(CounterRng, ContinuesIntoFurtherBlocksWithoutRepeating) {
  const std::vector<uint32_t> words = Draw(CounterRng(1, 0, 0), 4000);
  EXPECT_GT(std::set<uint32_t>(words.begin(), words.end()).size(), 3990u);
  const std::array<uint32_t, 4> second_block = Philox4x32({1, 0, 0, 0}, {1, 0});
  EXPECT_EQ(words[4], second_block[0]);
  EXPECT_EQ(words[7], second_block[3]);
}

TEST(CounterRng, UniformStaysInsideTheOpenInterval) {
  double sum = 0;
  float least = 1, most = 0;
  const int count = 100000;
  CounterRng rng(7, 0, 0);
  for (int i = 0; i < count; ++i) {
    const float u = rng.NextUniform();
    ASSERT_GT(u, 0.0f);
    ASSERT_LT(u, 1.0f);
    sum += u;
    least = std::min(least, u);
    most = std::max(most, u);
  }
  EXPECT_NEAR(sum / count, 0.5, 0.005);
  EXPECT_LT(least, 1e-3f);
  EXPECT_GT(most, 0.999f);
  // The ends of the range of the formula itself.
  EXPECT_LT((static_cast<float>(0xffffffffu >> 9) + 0.5f) * 0x1p-23f, 1.0f);
  EXPECT_LT((static_cast<double>(std::numeric_limits<uint64_t>::max() >> 12) + 0.5) * 0x1p-52, 1.0);
  const double wide = rng.NextUniformDouble();
  EXPECT_TRUE(wide > 0 && wide < 1);
}

}  // namespace
}  // namespace baton
