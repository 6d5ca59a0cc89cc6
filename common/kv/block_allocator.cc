// SPDX-License-Identifier: Apache-2.0
#include "common/kv/block_allocator.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "common/base/logging.h"

namespace baton {

BlockAllocator::BlockAllocator(int num_blocks, int block_size, bool enable_prefix_cache)
    : block_size_(block_size),
      enable_prefix_cache_(enable_prefix_cache),
      states_(num_blocks),
      free_list_(num_blocks),
      cache_(num_blocks, block_size) {
  for (int i = 0; i < num_blocks; ++i) free_list_[i] = num_blocks - 1 - i;  // Block 0 on top.
}

absl::StatusOr<std::vector<BlockId>> BlockAllocator::Allocate(int num_blocks) {
  if (num_blocks < 0 || num_blocks > static_cast<int>(states_.size())) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%d blocks asked for; the pool has %d", num_blocks, states_.size()));
  }
  if (num_blocks > num_allocatable()) {
    return absl::ResourceExhaustedError(absl::StrFormat("KV blocks: %d needed, %d free, %d cached, of %d", num_blocks,
                                                        free_list_.size(), cache_.num_idle(), states_.size()));
  }
  while (static_cast<int>(free_list_.size()) < num_blocks) BATON_CHECK(cache_.Evict(&free_list_));
  std::vector<BlockId> blocks(free_list_.rbegin(), free_list_.rbegin() + num_blocks);
  free_list_.resize(free_list_.size() - num_blocks);
  for (BlockId block : blocks) states_[block].refs = 1;
  return blocks;
}

void BlockAllocator::Ref(BlockId block) {
  State& state = states_[block];
  if (state.refs == 0) {
    BATON_CHECK(cache_.Contains(block)) << "reference to free block " << block;
    cache_.MarkInUse(block);
  }
  ++state.refs;
}

void BlockAllocator::Unref(BlockId block) {
  State& state = states_[block];
  BATON_CHECK(state.refs > (state.quarantined ? 1 : 0)) << "block " << block << " has no reference to drop";
  if (--state.refs > 0) return;
  if (cache_.Contains(block)) {
    cache_.MarkIdle(block);
  } else {
    free_list_.push_back(block);
  }
}

void BlockAllocator::UnrefAll(std::span<const BlockId> blocks) {
  for (size_t i = blocks.size(); i-- > 0;) Unref(blocks[i]);
}

std::vector<BlockId> BlockAllocator::MatchPrefix(PrefixChain* chain, std::span<const int32_t> tokens, int max_tokens) {
  std::vector<BlockId> blocks;
  if (!enable_prefix_cache_) return blocks;
  const int limit = std::min<int64_t>(tokens.size(), std::max(max_tokens, 0)) / block_size_;
  BlockId parent = kNoBlock;
  for (int i = 0; i < limit; ++i) {
    const BlockId block = cache_.Find(chain->key(), parent, chain->BlockHash(tokens, i),
                                      tokens.subspan(static_cast<size_t>(i) * block_size_, block_size_));
    if (block == kNoBlock) break;
    Ref(block);
    blocks.push_back(block);
    parent = block;
  }
  return blocks;
}

std::vector<BlockId> BlockAllocator::MatchPrefix(const CacheKey& key, std::span<const int32_t> tokens, int max_tokens) {
  PrefixChain chain(key, block_size_);
  return MatchPrefix(&chain, tokens, max_tokens);
}

void BlockAllocator::InsertPrefix(PrefixChain* chain, std::span<const int32_t> tokens,
                                  std::span<const BlockId> blocks) {
  if (!enable_prefix_cache_) return;
  const int end = static_cast<int>(std::min(tokens.size() / block_size_, blocks.size()));
  // A block of ours that has an entry was inserted under this very chain, and its ancestors are there.
  int begin = end;
  while (begin > 0 && !cache_.Contains(blocks[begin - 1])) --begin;
  BlockId parent = begin > 0 ? blocks[begin - 1] : kNoBlock;
  for (int i = begin; i < end; ++i) {
    BATON_CHECK(states_[blocks[i]].refs > 0 && !states_[blocks[i]].quarantined) << "block " << blocks[i];
    const Hash128& hash = chain->BlockHash(tokens, i);
    const auto block_tokens = tokens.subspan(static_cast<size_t>(i) * block_size_, block_size_);
    BlockId entry = cache_.Find(chain->key(), parent, hash, block_tokens);
    if (entry == kNoBlock) {
      if (!cache_.Insert(chain->key(), parent, hash, block_tokens, blocks[i])) return;  // Another prefix, same hash.
      entry = blocks[i];
    }
    parent = entry;
  }
}

void BlockAllocator::InsertPrefix(const CacheKey& key, std::span<const int32_t> tokens,
                                  std::span<const BlockId> blocks) {
  PrefixChain chain(key, block_size_);
  InsertPrefix(&chain, tokens, blocks);
}

void BlockAllocator::ForgetPrefix(std::span<const BlockId> blocks) {
  for (BlockId block : blocks) {
    if (cache_.Contains(block)) cache_.Remove(block, &free_list_);
  }
}

void BlockAllocator::Quarantine(BlockId block) {
  State& state = states_[block];
  BATON_CHECK(state.refs > 0 && !state.quarantined && !cache_.Contains(block)) << "block " << block;
  state.quarantined = true;
  ++num_quarantined_;
}

void BlockAllocator::ReleaseQuarantined(BlockId block) {
  BATON_CHECK(states_[block].quarantined) << "block " << block;
  states_[block].quarantined = false;
  --num_quarantined_;
  Unref(block);
}

void BlockAllocator::ClearPrefixCache() { cache_.Clear(&free_list_); }

BlockCounts BlockAllocator::counts() const {
  BlockCounts counts;
  counts.total = static_cast<int>(states_.size());
  counts.free = static_cast<int>(free_list_.size());
  counts.cached = cache_.num_idle();
  counts.quarantined = num_quarantined_;
  counts.used = counts.total - counts.free - counts.cached - counts.quarantined;
  return counts;
}

void BlockAllocator::CheckInvariants() const {
  cache_.CheckInvariants();
  std::vector<bool> is_free(states_.size(), false);
  for (BlockId block : free_list_) {
    BATON_CHECK(!is_free[block]) << "block " << block << " is free twice";
    is_free[block] = true;
  }
  int quarantined = 0, idle = 0;
  for (BlockId block = 0; block < static_cast<BlockId>(states_.size()); ++block) {
    const State& state = states_[block];
    const bool cached = cache_.Contains(block);
    BATON_CHECK(state.refs >= 0) << "block " << block;
    BATON_CHECK(is_free[block] == (state.refs == 0 && !cached)) << "block " << block << " refs " << state.refs;
    if (state.quarantined) BATON_CHECK(state.refs > 0 && !cached) << "block " << block;
    quarantined += state.quarantined;
    idle += cached && state.refs == 0;
  }
  BATON_CHECK_EQ(quarantined, num_quarantined_);
  BATON_CHECK_EQ(idle, cache_.num_idle());
}

}  // namespace baton
