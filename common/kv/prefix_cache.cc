// SPDX-License-Identifier: Apache-2.0
#include "common/kv/prefix_cache.h"

#include <algorithm>

#include "common/base/logging.h"

namespace baton {
namespace {

bool SameKey(const CacheKey& a, const CacheKey& b) {
  return a.model_fingerprint == b.model_fingerprint && a.adapter == b.adapter && a.cache_salt == b.cache_salt;
}

}  // namespace

PrefixChain::PrefixChain(const CacheKey& key, int block_size)
    : key_(key), block_size_(block_size), root_(ChainRoot(key)) {}

const Hash128& PrefixChain::BlockHash(std::span<const int32_t> tokens, int block) {
  BATON_DCHECK(static_cast<size_t>(block + 1) * block_size_ <= tokens.size());
  while (static_cast<int>(hashes_.size()) <= block) {
    Hash128 hash = hashes_.empty() ? root_ : hashes_.back();
    const size_t begin = hashes_.size() * block_size_;
    for (int unit = 0; unit < block_size_; unit += kTokensPerUnit) {
      hash = ExtendChain(hash, tokens.subspan(begin + unit, kTokensPerUnit));
    }
    hashes_.push_back(hash);
  }
  return hashes_[block];
}

PrefixCache::PrefixCache(int num_blocks, int block_size)
    : block_size_(block_size), entries_(num_blocks), tokens_(static_cast<size_t>(num_blocks) * block_size) {
  BATON_CHECK(block_size > 0 && block_size % kTokensPerUnit == 0) << "block size " << block_size;
}

std::span<const int32_t> PrefixCache::TokensOf(BlockId block) const {
  return std::span(tokens_).subspan(static_cast<size_t>(block) * block_size_, block_size_);
}

BlockId PrefixCache::Find(const CacheKey& key, BlockId parent, const Hash128& hash,
                          std::span<const int32_t> tokens) const {
  const auto found = by_hash_.find(hash);
  if (found == by_hash_.end()) return kNoBlock;
  const Entry& entry = entries_[found->second];
  if (entry.parent != parent) return kNoBlock;
  if (parent == kNoBlock && !SameKey(*entry.key, key)) return kNoBlock;
  if (!std::ranges::equal(TokensOf(found->second), tokens)) return kNoBlock;
  return found->second;
}

bool PrefixCache::Insert(const CacheKey& key, BlockId parent, const Hash128& hash, std::span<const int32_t> tokens,
                         BlockId block) {
  BATON_DCHECK(static_cast<int>(tokens.size()) == block_size_);
  Entry& entry = entries_[block];
  BATON_CHECK(!entry.cached) << "block " << block << " is in the prefix cache already";
  if (!by_hash_.emplace(hash, block).second) return false;
  entry.hash = hash;
  entry.parent = parent;
  entry.cached = true;
  entry.first_child = entry.previous_sibling = entry.next_sibling = kNoBlock;
  entry.num_held_children = 0;
  if (parent == kNoBlock) {
    entry.key = std::make_unique<const CacheKey>(key);
  } else {
    Entry& above = entries_[parent];
    BATON_CHECK(above.cached) << "parent " << parent << " of block " << block << " is not in the prefix cache";
    entry.next_sibling = above.first_child;
    if (above.first_child != kNoBlock) entries_[above.first_child].previous_sibling = block;
    above.first_child = block;
    ChildBecameHeld(parent);
  }
  std::ranges::copy(tokens, tokens_.begin() + static_cast<size_t>(block) * block_size_);
  return true;
}

void PrefixCache::PushBack(List list, BlockId block) {
  Entry& entry = entries_[block];
  ListEnds& ends = lists_[list];
  entry.list = list;
  entry.next = kNoBlock;
  entry.previous = ends.last;
  (ends.last == kNoBlock ? ends.first : entries_[ends.last].next) = block;
  ends.last = block;
  ++num_idle_;
}

void PrefixCache::Unlink(BlockId block) {
  Entry& entry = entries_[block];
  ListEnds& ends = lists_[entry.list];
  (entry.previous == kNoBlock ? ends.first : entries_[entry.previous].next) = entry.next;
  (entry.next == kNoBlock ? ends.last : entries_[entry.next].previous) = entry.previous;
  entry.list = kNone;
  entry.next = entry.previous = kNoBlock;
  --num_idle_;
}

// Upwards while an evictable ancestor thereby becomes held.
void PrefixCache::ChildBecameHeld(BlockId parent) {
  for (; parent != kNoBlock; parent = entries_[parent].parent) {
    Entry& entry = entries_[parent];
    ++entry.num_held_children;
    if (entry.list != kEvictable) return;
    Unlink(parent);
    PushBack(kHeld, parent);
  }
}

// Upwards while a held idle ancestor thereby becomes evictable; it goes behind its child in the order.
void PrefixCache::ChildBecameEvictable(BlockId parent) {
  for (; parent != kNoBlock; parent = entries_[parent].parent) {
    Entry& entry = entries_[parent];
    --entry.num_held_children;
    if (entry.list != kHeld || entry.num_held_children > 0) return;
    Unlink(parent);
    PushBack(kEvictable, parent);
  }
}

void PrefixCache::MarkInUse(BlockId block) {
  Entry& entry = entries_[block];
  BATON_DCHECK(entry.cached && entry.list != kNone);
  const bool was_evictable = entry.list == kEvictable;
  Unlink(block);
  if (was_evictable) ChildBecameHeld(entry.parent);
}

void PrefixCache::MarkIdle(BlockId block) {
  Entry& entry = entries_[block];
  BATON_DCHECK(entry.cached && entry.list == kNone);
  if (entry.num_held_children > 0) {
    PushBack(kHeld, block);
  } else {
    PushBack(kEvictable, block);
    ChildBecameEvictable(entry.parent);
  }
}

bool PrefixCache::Evict(std::vector<BlockId>* freed) {
  const BlockId evictable = lists_[kEvictable].first;
  const BlockId victim = evictable != kNoBlock ? evictable : LowestHeld();
  if (victim == kNoBlock) return false;
  Remove(victim, freed);
  return true;
}

void PrefixCache::Remove(BlockId block, std::vector<BlockId>* freed) {
  const Entry& entry = entries_[block];
  if (entry.parent != kNoBlock) {
    if (entry.previous_sibling != kNoBlock) {
      entries_[entry.previous_sibling].next_sibling = entry.next_sibling;
    } else {
      entries_[entry.parent].first_child = entry.next_sibling;
    }
    if (entry.next_sibling != kNoBlock) entries_[entry.next_sibling].previous_sibling = entry.previous_sibling;
    if (entry.list != kEvictable) ChildBecameEvictable(entry.parent);  // It holds its parent no longer.
  }
  RemoveSubtree(block, freed);
}

// Where nothing is evictable: the oldest held entry, or one below it, so that as little as possible hangs from it.
BlockId PrefixCache::LowestHeld() const {
  BlockId lowest = lists_[kHeld].first;
  for (BlockId child = lowest; child != kNoBlock;) {
    lowest = child;
    child = entries_[child].first_child;
    while (child != kNoBlock && entries_[child].list == kNone) child = entries_[child].next_sibling;
  }
  return lowest;
}

// The caller has detached `block` from its parent.
void PrefixCache::RemoveSubtree(BlockId block, std::vector<BlockId>* freed) {
  std::vector<BlockId> pending = {block};
  while (!pending.empty()) {
    const BlockId next = pending.back();
    pending.pop_back();
    for (BlockId child = entries_[next].first_child; child != kNoBlock; child = entries_[child].next_sibling) {
      pending.push_back(child);
    }
    if (entries_[next].list != kNone) {
      Unlink(next);
      freed->push_back(next);
    }
    by_hash_.erase(entries_[next].hash);
    entries_[next] = Entry();
  }
}

void PrefixCache::Clear(std::vector<BlockId>* freed) {
  for (BlockId block = 0; block < static_cast<BlockId>(entries_.size()); ++block) {
    if (entries_[block].list != kNone) freed->push_back(block);
    entries_[block] = Entry();
  }
  by_hash_.clear();
  lists_[kEvictable] = lists_[kHeld] = ListEnds();
  num_idle_ = 0;
}

void PrefixCache::CheckInvariants() const {
  std::vector<int> order(entries_.size(), -1);
  int listed = 0;
  for (List list : {kEvictable, kHeld}) {
    BlockId previous = kNoBlock;
    for (BlockId block = lists_[list].first; block != kNoBlock; block = entries_[block].next) {
      BATON_CHECK(entries_[block].cached && entries_[block].list == list && entries_[block].previous == previous);
      order[block] = listed++;
      previous = block;
    }
    BATON_CHECK_EQ(lists_[list].last, previous);
  }
  BATON_CHECK_EQ(listed, num_idle_);
  int cached = 0;
  for (BlockId block = 0; block < static_cast<BlockId>(entries_.size()); ++block) {
    const Entry& entry = entries_[block];
    if (!entry.cached) {
      BATON_CHECK(entry.list == kNone && entry.first_child == kNoBlock);
      continue;
    }
    ++cached;
    const auto found = by_hash_.find(entry.hash);
    BATON_CHECK(found != by_hash_.end() && found->second == block) << "block " << block;
    BATON_CHECK((entry.parent == kNoBlock) == (entry.key != nullptr)) << "block " << block;
    if (entry.parent != kNoBlock) BATON_CHECK(entries_[entry.parent].cached) << "orphan " << block;
    int held = 0;
    for (BlockId child = entry.first_child; child != kNoBlock; child = entries_[child].next_sibling) {
      BATON_CHECK_EQ(entries_[child].parent, block);
      if (entries_[child].list != kEvictable) {
        ++held;
      } else if (entry.list == kEvictable) {
        BATON_CHECK(order[child] < order[block]) << "block " << block << " would go before its child " << child;
      }
    }
    BATON_CHECK_EQ(held, entry.num_held_children) << "block " << block;
    if (entry.list != kNone) BATON_CHECK((entry.list == kHeld) == (held > 0)) << "block " << block;
  }
  BATON_CHECK_EQ(cached, num_entries());
}

}  // namespace baton
