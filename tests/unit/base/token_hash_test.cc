// SPDX-License-Identifier: Apache-2.0
#include "common/base/token_hash.h"

#include <numeric>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

std::vector<int32_t> Tokens(int count, int first = 0) {
  std::vector<int32_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

const TokenHashKey kKey{.model_fingerprint = "model", .adapter = "", .cache_salt = ""};

// Values cross the wire between releases: XXH3-128 of nothing is published; the others pin what the first release computed.
TEST(TokenHash, StableValues) {
  EXPECT_EQ(ToHex(HashTokens({})), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(ToHex(HashTokens(Tokens(4, 1))), "903ce79ac359c3eb2de5421794dd19f0");
  EXPECT_EQ(ToHex(ChainRoot(kKey)), "3bd4f3d8d6481fd64315bd6f04f2649c");
  EXPECT_EQ(ToHex(HashChain(kKey, Tokens(32))[1]), "874052d8dbb7b7627b212e3ef440cd5b");
}

TEST(TokenHash, ChainHasOneHashPerWholeUnit) {
  EXPECT_EQ(HashChain(kKey, Tokens(0)).size(), 0u);
  EXPECT_EQ(HashChain(kKey, Tokens(15)).size(), 0u);
  EXPECT_EQ(HashChain(kKey, Tokens(16)).size(), 1u);
  EXPECT_EQ(HashChain(kKey, Tokens(63)).size(), 3u);
}

TEST(TokenHash, ChainOfAPrefixIsAPrefixOfTheChain) {
  const std::vector<Hash128> full = HashChain(kKey, Tokens(96));
  for (int count = 0; count < 96; ++count) {
    const std::vector<Hash128> chain = HashChain(kKey, Tokens(count));
    ASSERT_TRUE(std::equal(chain.begin(), chain.end(), full.begin())) << count;
  }
  EXPECT_EQ(ExtendChain(full[4], Tokens(16, 80)), full[5]);
}

TEST(TokenHash, EveryTokenBeforeMatters) {
  const std::vector<Hash128> base = HashChain(kKey, Tokens(48));
  for (int changed = 0; changed < 48; ++changed) {
    std::vector<int32_t> tokens = Tokens(48);
    tokens[changed] += 1000;
    const std::vector<Hash128> chain = HashChain(kKey, tokens);
    for (int unit = 0; unit < 3; ++unit) {
      EXPECT_EQ(chain[unit] == base[unit], unit < changed / 16) << changed << " " << unit;
    }
  }
}

TEST(TokenHash, ModelAdapterAndSaltSeparateChains) {
  std::set<Hash128> roots;
  for (const TokenHashKey& key : {kKey, TokenHashKey{"model2", "", ""}, TokenHashKey{"model", "a", ""},
                                  TokenHashKey{"model", "", "a"}, TokenHashKey{"model", "ab", "c"},
                                  TokenHashKey{"model", "a", "bc"}, TokenHashKey{"modela", "", ""}}) {
    roots.insert(ChainRoot(key));
    roots.insert(HashChain(key, Tokens(16))[0]);
  }
  EXPECT_EQ(roots.size(), 14u);
}

}  // namespace
}  // namespace baton
