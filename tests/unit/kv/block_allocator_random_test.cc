// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "common/kv/block_allocator.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

constexpr int kBlock = 16;

const CacheKey& Key() {
  static const CacheKey key = {.model_fingerprint = "m"};
  return key;
}

// What the allocator promises, written down as slowly and plainly as possible.
class NaiveModel {
 public:
  explicit NaiveModel(int num_blocks) : refs_(num_blocks, 0) {}

  int Idle() const {
    return static_cast<int>(std::ranges::count_if(by_prefix_, [&](const auto& e) { return refs_[e.second] == 0; }));
  }
  int Free() const {
    std::set<BlockId> cached;
    for (const auto& [prefix, block] : by_prefix_) cached.insert(block);
    int free = 0;
    for (BlockId b = 0; b < static_cast<BlockId>(refs_.size()); ++b) free += refs_[b] == 0 && !cached.contains(b);
    return free;
  }

  // The allocator gave out these: each free here or the one to evict next.
  void Allocated(const std::vector<BlockId>& blocks) {
    int missing = static_cast<int>(blocks.size()) - Free();
    for (; missing > 0; missing -= EvictOne()) {
    }
    for (BlockId block : blocks) {
      ASSERT_EQ(refs_[block], 0);
      for (const auto& [prefix, cached] : by_prefix_) ASSERT_NE(cached, block) << "evicted out of order";
      refs_[block] = 1;
    }
  }
  void Ref(BlockId block) {
    ++refs_[block];
    Restamp();
  }
  void Unref(BlockId block) {
    --refs_[block];
    Restamp();
  }
  std::vector<BlockId> Match(const std::vector<int32_t>& tokens, int max_tokens) {
    std::vector<BlockId> blocks;
    for (int end = kBlock; end <= max_tokens && end <= static_cast<int>(tokens.size()); end += kBlock) {
      const auto found = by_prefix_.find({tokens.begin(), tokens.begin() + end});
      if (found == by_prefix_.end()) break;
      blocks.push_back(found->second);
    }
    for (BlockId block : blocks) Ref(block);
    return blocks;
  }
  void Insert(const std::vector<int32_t>& tokens, const std::vector<BlockId>& blocks) {
    for (size_t i = 0; i < blocks.size() && (i + 1) * kBlock <= tokens.size(); ++i) {
      by_prefix_.emplace(std::vector<int32_t>(tokens.begin(), tokens.begin() + (i + 1) * kBlock), blocks[i]);
    }
    Restamp();
  }

 private:
  static bool IsPrefix(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
    return a.size() <= b.size() && std::equal(a.begin(), a.end(), b.begin());
  }
  bool Evictable(const std::vector<int32_t>& prefix) const {
    for (const auto& [other, block] : by_prefix_) {
      if (IsPrefix(prefix, other) && refs_[block] > 0) return false;
    }
    return true;
  }
  // Prefixes get the time at which they became evictable, longer ones first.
  void Restamp() {
    std::map<std::vector<int32_t>, int> stamps;
    std::vector<std::vector<int32_t>> fresh;
    for (const auto& [prefix, block] : by_prefix_) {
      if (!Evictable(prefix)) continue;
      const auto old = stamps_.find(prefix);
      if (old != stamps_.end()) {
        stamps.insert(*old);
      } else {
        fresh.push_back(prefix);
      }
    }
    std::ranges::sort(fresh, [](const auto& a, const auto& b) { return a.size() > b.size(); });
    for (auto& prefix : fresh) stamps[prefix] = next_stamp_++;
    stamps_ = std::move(stamps);
  }
  // Returns the number of blocks freed. Without private copies every idle prefix is evictable in its turn.
  int EvictOne() {
    const auto victim = std::ranges::min_element(stamps_, {}, [](const auto& e) { return e.second; })->first;
    by_prefix_.erase(victim);
    Restamp();
    return 1;
  }

  std::vector<int> refs_;
  std::map<std::vector<int32_t>, BlockId> by_prefix_;
  std::map<std::vector<int32_t>, int> stamps_;
  int next_stamp_ = 0;
};

struct Held {
  std::vector<int32_t> tokens;
  std::vector<BlockId> blocks;
};

// Sequences that match, take the rest, cache and end in random order, on few distinct blocks so that prefixes are shared.
class RandomSchedule {
 public:
  explicit RandomSchedule(uint64_t seed) : rng_(seed) {}

  // Every prefix is cached before the next sequence asks, so the naive model can follow.
  void AgainstModel() {
    for (int step = 0; step < 400 && !::testing::Test::HasFailure(); ++step) {
      if (rng_() % 3 == 0) {
        Held h = NewTokens();
        const int n = static_cast<int>(h.tokens.size()) / kBlock;
        h.blocks = blocks_.MatchPrefix(Key(), h.tokens, n * kBlock);
        ASSERT_EQ(h.blocks, model_.Match(h.tokens, n * kBlock));
        const int missing = n - static_cast<int>(h.blocks.size());
        const auto fresh = blocks_.Allocate(missing);
        ASSERT_EQ(fresh.ok(), model_.Free() + model_.Idle() >= missing);
        if (!fresh.ok()) {
          End(h);
          continue;
        }
        model_.Allocated(*fresh);
        h.blocks.insert(h.blocks.end(), fresh->begin(), fresh->end());
        blocks_.InsertPrefix(Key(), h.tokens, h.blocks);
        model_.Insert(h.tokens, h.blocks);
        held_.push_back(std::move(h));
      } else if (!held_.empty()) {
        Held h = TakeHeld();
        if (rng_() % 4 == 0) std::ranges::reverse(h.blocks);
        End(h);
      }
      blocks_.CheckInvariants();
      ASSERT_EQ(blocks_.counts().free, model_.Free());
      ASSERT_EQ(blocks_.counts().cached, model_.Idle());
    }
  }

  // Sequences compute prefixes that others have, so private copies and held trunks occur.
  void WithPrivateCopies() {
    for (int step = 0; step < 400; ++step) {
      if (rng_() % 3 == 0) {
        Held h = NewTokens();
        const int n = static_cast<int>(h.tokens.size()) / kBlock;
        if (rng_() % 2 == 0) h.blocks = blocks_.MatchPrefix(Key(), h.tokens, n * kBlock);
        const auto fresh = blocks_.Allocate(n - static_cast<int>(h.blocks.size()));
        if (fresh.ok()) {
          h.blocks.insert(h.blocks.end(), fresh->begin(), fresh->end());
          blocks_.InsertPrefix(Key(), h.tokens, h.blocks);
          held_.push_back(std::move(h));
        } else {
          blocks_.UnrefAll(h.blocks);
        }
      } else if (!held_.empty()) {
        const Held h = TakeHeld();
        if (rng_() % 8 == 0) blocks_.ForgetPrefix(std::span(h.blocks).subspan(rng_() % h.blocks.size()));
        blocks_.UnrefAll(h.blocks);
      }
      blocks_.CheckInvariants();
    }
    while (!held_.empty()) blocks_.UnrefAll(TakeHeld().blocks);
    EXPECT_EQ(blocks_.counts().used, 0);
    EXPECT_EQ(blocks_.counts().free + blocks_.counts().cached, kNumBlocks);
  }

 private:
  struct Held {
    std::vector<int32_t> tokens;
    std::vector<BlockId> blocks;
  };
  static constexpr int kNumBlocks = 12;

  Held NewTokens() {
    Held h;
    for (int n = 1 + static_cast<int>(rng_() % 4); n > 0; --n) {
      const int32_t kind = static_cast<int32_t>(rng_() % 2);
      for (int i = 0; i < kBlock; ++i) h.tokens.push_back(kind * 1000 + i);
    }
    return h;
  }
  Held TakeHeld() {
    const size_t i = rng_() % held_.size();
    Held h = std::move(held_[i]);
    held_.erase(held_.begin() + static_cast<ptrdiff_t>(i));
    return h;
  }
  void End(const Held& h) {
    blocks_.UnrefAll(h.blocks);
    for (size_t i = h.blocks.size(); i-- > 0;) model_.Unref(h.blocks[i]);
  }

  std::mt19937_64 rng_;
  BlockAllocator blocks_{kNumBlocks, kBlock, true};
  NaiveModel model_{kNumBlocks};
  std::vector<Held> held_;
};

TEST(BlockAllocatorRandom, AgreesWithTheNaiveModel) {
  for (uint64_t seed = 1; seed <= 60 && !HasFailure(); ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    RandomSchedule(seed).AgainstModel();
  }
}

TEST(BlockAllocatorRandom, KeepsItsInvariantsWithPrivateCopies) {
  for (uint64_t seed = 1; seed <= 200 && !HasFailure(); ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    RandomSchedule(seed).WithPrivateCopies();
  }
}

}  // namespace
}  // namespace baton
