// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_PREFIX_CACHE_H_
#define BATON_COMMON_KV_PREFIX_CACHE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/base/token_hash.h"
#include "common/kv/block.h"

namespace baton {

// Everything besides the tokens that decides whether two prefixes are the same. Part of every hash from the first day.
using CacheKey = TokenHashKey;

// The block hashes of one growing sequence, each computed once. Block i's hash is that of the prefix which ends with it:
// the router's hash of the same tokens, whatever its block size.
class PrefixChain {
 public:
  PrefixChain(const CacheKey& key, int block_size);

  const CacheKey& key() const { return key_; }
  int block_size() const { return block_size_; }
  // Hash of tokens [0, (block + 1) * block_size), which `tokens` must cover. Successive calls pass the same tokens,
  // possibly longer.
  const Hash128& BlockHash(std::span<const int32_t> tokens, int block);

 private:
  CacheKey key_;
  int block_size_;
  Hash128 root_;
  std::vector<Hash128> hashes_;
};

// Which block holds which prefix. Entries form trees: a block's parent holds the prefix before it, and an entry never
// outlives its parent, so that every entry can be reached from the first block. Tokens (and, at the first block, the key)
// are compared on a hit, so a hash collision is a miss. Holds ids, never memory.
//
// It also keeps the order of eviction over idle entries, those in no use but the cache's:
//   * an idle entry all of whose descendants are idle is in the eviction order, always after its children, so what is
//     evicted next is a leaf, and the least recently used one;
//   * an idle entry with a descendant in use waits outside of it. It is evicted only when nothing else is idle, and then
//     takes the entries below it along: they could not be found without it.
//
// Single-threaded. Used through BlockAllocator, which owns the references. All operations cost the same whatever the number
// of entries, except where a chain of idle ancestors moves (once per release of a chain).
class PrefixCache {
 public:
  PrefixCache(int num_blocks, int block_size);

  bool Contains(BlockId block) const { return entries_[block].cached; }
  const Hash128& HashOf(BlockId block) const { return entries_[block].hash; }

  // The entry that continues `parent` (kNoBlock: begins a prefix) with `tokens`, one block of them; kNoBlock when there is
  // none. `hash` is the chain's hash.
  BlockId Find(const CacheKey& key, BlockId parent, const Hash128& hash, std::span<const int32_t> tokens) const;
  // Makes `block`, which is in use, findable under that. False, with nothing changed, when another entry has that hash.
  bool Insert(const CacheKey& key, BlockId parent, const Hash128& hash, std::span<const int32_t> tokens, BlockId block);

  // A cached block has got its first user, or lost its last.
  void MarkInUse(BlockId block);
  void MarkIdle(BlockId block);

  // Forgets the entry to evict next, and what cannot be found without it. Idle blocks among those are appended to `freed`.
  // False when no entry is idle.
  bool Evict(std::vector<BlockId>* freed);
  // Forgets this entry, and those below it. Idle blocks among them are appended to `freed`.
  void Remove(BlockId block, std::vector<BlockId>* freed);
  // Forgets everything; idle blocks are appended to `freed`.
  void Clear(std::vector<BlockId>* freed);

  int num_entries() const { return static_cast<int>(by_hash_.size()); }
  int num_idle() const { return num_idle_; }

  // CHECKs every invariant. O(num_blocks).
  void CheckInvariants() const;

 private:
  // The two lists of idle entries, oldest first.
  enum List : int8_t { kNone = -1, kEvictable = 0, kHeld = 1 };
  struct Entry {
    Hash128 hash;
    BlockId parent = kNoBlock;
    BlockId first_child = kNoBlock, next_sibling = kNoBlock, previous_sibling = kNoBlock;
    BlockId next = kNoBlock, previous = kNoBlock;  // In its list.
    int num_held_children = 0;                     // Children that are in use, or idle but held themselves.
    bool cached = false;
    List list = kNone;
    std::unique_ptr<const CacheKey> key;  // First blocks only.
  };
  struct ListEnds {
    BlockId first = kNoBlock, last = kNoBlock;
  };

  std::span<const int32_t> TokensOf(BlockId block) const;
  void PushBack(List list, BlockId block);
  void Unlink(BlockId block);
  void ChildBecameHeld(BlockId parent);
  void ChildBecameEvictable(BlockId parent);
  BlockId LowestHeld() const;
  void RemoveSubtree(BlockId block, std::vector<BlockId>* freed);

  int block_size_;
  std::vector<Entry> entries_;   // [num_blocks]
  std::vector<int32_t> tokens_;  // [num_blocks, block_size]
  absl::flat_hash_map<Hash128, BlockId> by_hash_;
  ListEnds lists_[2];
  int num_idle_ = 0;
};

}  // namespace baton

#endif  // BATON_COMMON_KV_PREFIX_CACHE_H_
