// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_BLOCK_ALLOCATOR_H_
#define BATON_COMMON_KV_BLOCK_ALLOCATOR_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/kv/block.h"
#include "common/kv/prefix_cache.h"

namespace baton {

// How many blocks are in each state. free + used + cached + quarantined = total, always.
struct BlockCounts {
  int total = 0;
  int free = 0;         // On the free list.
  int used = 0;         // Referenced by at least one sequence or sender queue.
  int cached = 0;       // Referenced by the prefix cache alone: can be evicted.
  int quarantined = 0;  // May still be written to by a writer that has not acknowledged its end.
};

// Reference-counted blocks over one pool and its prefix cache. Pure bookkeeping: no memory, no threads. Engine thread only.
// Every operation costs under a microsecond per block.
class BlockAllocator {
 public:
  // num_blocks >= 0; block_size is a positive multiple of kTokensPerUnit.
  BlockAllocator(int num_blocks, int block_size, bool enable_prefix_cache);

  // Reserves `num_blocks` blocks with one reference each, evicting blocks that only the prefix cache holds, least recently
  // used first and the ends of chains before their beginnings, if needed. All or nothing.
  //   RESOURCE_EXHAUSTED  fewer than num_blocks can be freed; message has needed/free/cached.
  //   INVALID_ARGUMENT    num_blocks < 0 or > total.
  absl::StatusOr<std::vector<BlockId>> Allocate(int num_blocks);
  // How many Allocate can give now: free and cached ones.
  int num_allocatable() const { return static_cast<int>(free_list_.size()) + cache_.num_idle(); }

  // One more reference to a used or cached block.
  void Ref(BlockId block);
  // Drops a reference. At zero the block goes to the free list, or stays cached when the prefix cache knows it.
  void Unref(BlockId block);
  // Last to first: the end of a chain is evicted before its beginning.
  void UnrefAll(std::span<const BlockId> blocks);
  int ref_count(BlockId block) const { return states_[block].refs; }

  // Longest cached chain that is a prefix of `tokens`: a reference is taken on each block returned. Whole blocks only.
  // At most max_tokens tokens are matched (decode needs the last prompt token to run as its first step).
  std::vector<BlockId> MatchPrefix(PrefixChain* chain, std::span<const int32_t> tokens, int max_tokens);
  std::vector<BlockId> MatchPrefix(const CacheKey& key, std::span<const int32_t> tokens, int max_tokens);

  // Makes the whole blocks of a sequence findable: blocks[i] holds tokens [i * block_size, (i + 1) * block_size) and is
  // referenced by the caller. Blocks whose chain is cached already are left alone (the caller keeps its own copy). Costs as
  // much as there are new blocks where the chain up to them was inserted from this sequence before.
  void InsertPrefix(PrefixChain* chain, std::span<const int32_t> tokens, std::span<const BlockId> blocks);
  void InsertPrefix(const CacheKey& key, std::span<const int32_t> tokens, std::span<const BlockId> blocks);

  // Makes these blocks, and whatever follows them in a chain, unfindable: their contents are in doubt.
  void ForgetPrefix(std::span<const BlockId> blocks);

  // used -> quarantined: the caller's reference is kept by the quarantine until ReleaseQuarantined. The block must not be
  // cached: what is still written to was never verified.
  void Quarantine(BlockId block);
  void ReleaseQuarantined(BlockId block);
  bool quarantined(BlockId block) const { return states_[block].quarantined; }

  // Forgets all cached prefixes; blocks in use stay.
  void ClearPrefixCache();

  BlockCounts counts() const;
  int block_size() const { return block_size_; }
  const PrefixCache& prefix_cache() const { return cache_; }

  // CHECKs every invariant: used in debug builds after each step and in tests. O(num_blocks).
  void CheckInvariants() const;

 private:
  struct State {
    int refs = 0;  // Of sequences, sender queues and the quarantine; the cache's own is its entry.
    bool quarantined = false;
  };
  int block_size_;
  bool enable_prefix_cache_;
  std::vector<State> states_;
  std::vector<BlockId> free_list_;  // Used as a stack: a block just freed is warm.
  int num_quarantined_ = 0;
  PrefixCache cache_;
};

}  // namespace baton

#endif  // BATON_COMMON_KV_BLOCK_ALLOCATOR_H_
