// SPDX-License-Identifier: Apache-2.0
#include "common/kv/block_allocator.h"

#include <algorithm>
#include <vector>

#include "common/kv/block_table.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace baton {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int kBlock = 16;

const CacheKey& Key() {
  static const CacheKey key = {.model_fingerprint = "m"};
  return key;
}

// `num_blocks` whole blocks of tokens; the same seed gives the same beginning.
std::vector<int32_t> Tokens(int num_tokens, int seed = 0) {
  std::vector<int32_t> tokens(num_tokens);
  for (int i = 0; i < num_tokens; ++i) tokens[i] = seed * 1000 + i;
  return tokens;
}

std::vector<BlockId> Take(BlockAllocator& blocks, int n) {
  auto taken = blocks.Allocate(n);
  EXPECT_THAT(taken, IsOk());
  return taken.ok() ? *taken : std::vector<BlockId>();
}

// Computes and caches a prefix, then lets go of it.
std::vector<BlockId> Cache(BlockAllocator& blocks, const std::vector<int32_t>& tokens, const CacheKey& key = Key()) {
  const std::vector<BlockId> taken = Take(blocks, static_cast<int>(tokens.size()) / kBlock);
  blocks.InsertPrefix(key, tokens, taken);
  blocks.UnrefAll(taken);
  return taken;
}

TEST(BlockAllocator, AllocatesAllOrNothing) {
  BlockAllocator blocks(4, kBlock, true);
  const auto three = Take(blocks, 3);
  EXPECT_THAT(three, SizeIs(3));
  EXPECT_THAT(blocks.Allocate(2), StatusIs(absl::StatusCode::kResourceExhausted,
                                           HasSubstr("2 needed, 1 free, 0 cached, of 4")));
  EXPECT_EQ(blocks.counts().free, 1);
  EXPECT_THAT(blocks.Allocate(5), StatusIs(absl::StatusCode::kInvalidArgument, AllOf(HasSubstr("5"), HasSubstr("4"))));
  EXPECT_THAT(blocks.Allocate(-1), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("-1")));
  EXPECT_THAT(Take(blocks, 0), IsEmpty());
  blocks.UnrefAll(three);
  EXPECT_EQ(blocks.counts().free, 4);
  blocks.CheckInvariants();
}

TEST(BlockAllocator, ReferencesAreExact) {
  BlockAllocator blocks(2, kBlock, true);
  const BlockId block = Take(blocks, 1)[0];
  blocks.Ref(block);
  blocks.Unref(block);
  EXPECT_EQ(blocks.counts().used, 1);
  blocks.Unref(block);
  EXPECT_EQ(blocks.counts().used, 0);
  EXPECT_EQ(blocks.ref_count(block), 0);
}

TEST(BlockAllocator, MatchesWholeBlocksUpToTheLimit) {
  BlockAllocator blocks(8, kBlock, true);
  const auto tokens = Tokens(3 * kBlock);
  const auto cached = Cache(blocks, tokens);
  struct Case {
    int num_tokens, limit;
    size_t matched;
  };
  for (const Case& c : {Case{48, 48, 3}, {48, 47, 2}, {48, 31, 1}, {48, 15, 0}, {48, 0, 0}, {48, -1, 0}, {40, 40, 2},
                        {15, 15, 0}, {48, 1000, 3}}) {
    SCOPED_TRACE(::testing::Message() << c.num_tokens << " tokens, limit " << c.limit);
    const auto matched = blocks.MatchPrefix(Key(), std::span(tokens).first(c.num_tokens), c.limit);
    ASSERT_THAT(matched, SizeIs(c.matched));
    EXPECT_TRUE(std::equal(matched.begin(), matched.end(), cached.begin()));
    EXPECT_EQ(blocks.counts().used, static_cast<int>(c.matched));
    blocks.UnrefAll(matched);
    blocks.CheckInvariants();
  }
  EXPECT_EQ(blocks.counts().cached, 3);
}

TEST(BlockAllocator, DifferentTokensOrKeysDoNotMatch) {
  BlockAllocator blocks(8, kBlock, true);
  auto tokens = Tokens(2 * kBlock);
  Cache(blocks, tokens);
  EXPECT_THAT(blocks.MatchPrefix({.model_fingerprint = "other"}, tokens, 32), IsEmpty());
  EXPECT_THAT(blocks.MatchPrefix({.model_fingerprint = "m", .adapter = "a"}, tokens, 32), IsEmpty());
  EXPECT_THAT(blocks.MatchPrefix({.model_fingerprint = "m", .cache_salt = "s"}, tokens, 32), IsEmpty());
  ++tokens[kBlock];
  const auto first = blocks.MatchPrefix(Key(), tokens, 32);
  EXPECT_THAT(first, SizeIs(1));
  blocks.UnrefAll(first);
  ++tokens[0];
  EXPECT_THAT(blocks.MatchPrefix(Key(), tokens, 32), IsEmpty());
}

TEST(BlockAllocator, EvictsTheLeastRecentlyUsedChainFromItsEnd) {
  BlockAllocator blocks(5, kBlock, true);
  const auto old_chain = Cache(blocks, Tokens(3 * kBlock, 1));
  const auto new_chain = Cache(blocks, Tokens(2 * kBlock, 2));
  EXPECT_EQ(Take(blocks, 1), std::vector<BlockId>{old_chain[2]});
  EXPECT_EQ(Take(blocks, 1), std::vector<BlockId>{old_chain[1]});
  // Using the rest of the old chain makes it the most recently used.
  blocks.UnrefAll(blocks.MatchPrefix(Key(), Tokens(3 * kBlock, 1), 48));
  EXPECT_EQ(Take(blocks, 1), std::vector<BlockId>{new_chain[1]});
  EXPECT_EQ(Take(blocks, 1), std::vector<BlockId>{new_chain[0]});
  EXPECT_EQ(Take(blocks, 1), std::vector<BlockId>{old_chain[0]});
  blocks.CheckInvariants();
}

TEST(BlockAllocator, ReleasedFromTheFrontStillEvictsFromTheEnd) {
  BlockAllocator blocks(3, kBlock, true);
  const auto tokens = Tokens(3 * kBlock);
  const auto taken = Take(blocks, 3);
  blocks.InsertPrefix(Key(), tokens, taken);
  for (BlockId block : taken) {
    blocks.Unref(block);
    blocks.CheckInvariants();
  }
  EXPECT_EQ(Take(blocks, 1)[0], taken[2]);
  EXPECT_EQ(Take(blocks, 1)[0], taken[1]);
}

TEST(BlockAllocator, ABranchKeepsItsTrunk) {
  BlockAllocator blocks(4, kBlock, true);
  auto a = Tokens(2 * kBlock), b = Tokens(2 * kBlock);
  b[kBlock] = -7;
  const auto chain_a = Cache(blocks, a);
  auto chain_b = blocks.MatchPrefix(Key(), b, 32);
  EXPECT_THAT(chain_b, ElementsAre(chain_a[0]));
  chain_b.push_back(Take(blocks, 1)[0]);
  blocks.InsertPrefix(Key(), b, chain_b);
  blocks.UnrefAll(chain_b);
  blocks.CheckInvariants();
  const auto taken = Take(blocks, 3);  // One is free; then the ends of a and of b go, the trunk stays.
  EXPECT_EQ(taken.size(), 3u);
  EXPECT_THAT(blocks.MatchPrefix(Key(), a, 32), ElementsAre(chain_a[0]));
}

// Two sequences computed the same prefix at once; the one whose blocks are cached ends first. Its idle blocks carry the
// other's entries, so they go last, and only then are those entries forgotten.
TEST(BlockAllocator, AnIdleTrunkUnderABlockInUseGoesLast) {
  BlockAllocator blocks(6, kBlock, true);
  const auto prefix = Tokens(kBlock);
  const auto longer = Tokens(2 * kBlock);
  const auto first = Take(blocks, 1), second = Take(blocks, 2);
  blocks.InsertPrefix(Key(), prefix, first);
  blocks.InsertPrefix(Key(), longer, second);  // second[0] stays a private copy, second[1] hangs from first[0].
  blocks.CheckInvariants();
  EXPECT_FALSE(blocks.prefix_cache().Contains(second[0]));
  blocks.UnrefAll(first);
  const auto other = Cache(blocks, Tokens(kBlock, 5));
  EXPECT_THAT(Take(blocks, 2), SizeIs(2));  // The free ones.
  EXPECT_EQ(Take(blocks, 1), other);        // More recent than first[0], but nothing hangs from it.
  EXPECT_EQ(Take(blocks, 1), first);
  EXPECT_EQ(blocks.prefix_cache().num_entries(), 0);
  blocks.CheckInvariants();
  blocks.UnrefAll(second);
  EXPECT_EQ(blocks.counts().free, 2);
}

TEST(BlockAllocator, InsertingWhileGrowingNeedsNoFrontBlocks) {
  BlockAllocator blocks(8, kBlock, true);
  const auto tokens = Tokens(4 * kBlock);
  const auto taken = Take(blocks, 4);
  PrefixChain chain(Key(), kBlock);
  for (int n = 1; n <= 4; ++n) {
    blocks.InsertPrefix(&chain, std::span(tokens).first(n * kBlock), taken);
    EXPECT_EQ(blocks.prefix_cache().num_entries(), n);
  }
  blocks.InsertPrefix(&chain, tokens, taken);
  blocks.UnrefAll(taken);
  EXPECT_THAT(blocks.MatchPrefix(Key(), tokens, 64), SizeIs(4));
}

TEST(BlockAllocator, LargerBlocksHashLikeUnits) {
  BlockAllocator blocks(4, 2 * kBlock, true);
  const auto tokens = Tokens(4 * kBlock);
  const auto taken = Take(blocks, 2);
  blocks.InsertPrefix(Key(), tokens, taken);
  EXPECT_EQ(blocks.prefix_cache().HashOf(taken[1]), HashChain(Key(), tokens)[3]);
}

TEST(BlockAllocator, QuarantineKeepsABlockFromEverybody) {
  BlockAllocator blocks(2, kBlock, true);
  const auto taken = Take(blocks, 2);
  blocks.Quarantine(taken[0]);
  blocks.Unref(taken[1]);
  EXPECT_EQ(blocks.counts().quarantined, 1);
  EXPECT_EQ(blocks.counts().used, 0);
  EXPECT_THAT(blocks.Allocate(2), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("1 free")));
  blocks.CheckInvariants();
  blocks.ReleaseQuarantined(taken[0]);
  EXPECT_EQ(blocks.counts().free, 2);
  blocks.CheckInvariants();
}

TEST(BlockAllocator, APinOutlivesTheQuarantine) {
  BlockAllocator blocks(1, kBlock, true);
  const BlockId block = Take(blocks, 1)[0];
  blocks.Ref(block);  // A frame's pin.
  blocks.Quarantine(block);
  blocks.ReleaseQuarantined(block);
  EXPECT_EQ(blocks.counts().used, 1);
  blocks.Unref(block);
  EXPECT_EQ(blocks.counts().free, 1);
}

TEST(BlockAllocator, ForgottenBlocksTakeWhatFollowsAlong) {
  BlockAllocator blocks(6, kBlock, true);
  const auto chain = Cache(blocks, Tokens(3 * kBlock));
  const auto held = blocks.MatchPrefix(Key(), Tokens(2 * kBlock), 32);
  blocks.ForgetPrefix(std::span(held).subspan(1));
  blocks.CheckInvariants();
  EXPECT_EQ(blocks.prefix_cache().num_entries(), 1);
  EXPECT_EQ(blocks.counts().free, 4);
  blocks.UnrefAll(held);
  blocks.CheckInvariants();
  EXPECT_EQ(blocks.counts().cached, 1);
  blocks.ForgetPrefix(chain);
  EXPECT_EQ(blocks.counts().free, 6);
}

TEST(BlockAllocator, ClearForgetsEverythingCached) {
  BlockAllocator blocks(4, kBlock, true);
  Cache(blocks, Tokens(2 * kBlock));
  const auto held = blocks.MatchPrefix(Key(), Tokens(kBlock), 16);
  blocks.ClearPrefixCache();
  blocks.CheckInvariants();
  EXPECT_EQ(blocks.counts().cached, 0);
  EXPECT_EQ(blocks.counts().used, 1);
  blocks.UnrefAll(held);
  EXPECT_EQ(blocks.counts().free, 4);
}

TEST(BlockAllocator, WithoutPrefixCacheNothingIsFound) {
  BlockAllocator blocks(4, kBlock, false);
  Cache(blocks, Tokens(2 * kBlock));
  EXPECT_THAT(blocks.MatchPrefix(Key(), Tokens(2 * kBlock), 32), IsEmpty());
  EXPECT_EQ(blocks.counts().free, 4);
}

TEST(BlockAllocatorDeathTest, MisuseIsCaught) {
  BlockAllocator blocks(2, kBlock, true);
  const BlockId block = Take(blocks, 1)[0];
  blocks.Unref(block);
  EXPECT_DEATH(blocks.Unref(block), "no reference");
  EXPECT_DEATH(blocks.Ref(block), "free block");
}

TEST(BlockTable, SlotsFollowTheBlocks) {
  BlockTable table(kBlock);
  table.Append(5);
  table.Append(2);
  EXPECT_EQ(table.Slot(0), 80);
  EXPECT_EQ(table.Slot(15), 95);
  EXPECT_EQ(table.Slot(16), 32);
  EXPECT_EQ(table.capacity(), 32);
  const std::vector<BlockId> other = {7};
  table.ReplaceFrom(1, other);
  EXPECT_THAT(table.Take(), ElementsAre(5, 7));
  EXPECT_TRUE(table.empty());
  EXPECT_EQ(NumBlocksFor(0, 16), 0);
  EXPECT_EQ(NumBlocksFor(16, 16), 1);
  EXPECT_EQ(NumBlocksFor(17, 16), 2);
}

}  // namespace
}  // namespace baton
