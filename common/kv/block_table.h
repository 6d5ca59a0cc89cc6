// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_BLOCK_TABLE_H_
#define BATON_COMMON_KV_BLOCK_TABLE_H_

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "common/base/logging.h"
#include "common/kv/block.h"

namespace baton {

// The number of blocks that hold `num_tokens` tokens.
constexpr int NumBlocksFor(int num_tokens, int block_size) { return (num_tokens + block_size - 1) / block_size; }

// One sequence's blocks in position order: block i holds positions [i * block_size, (i + 1) * block_size). Names blocks,
// holds no reference: whoever fills and empties it keeps the allocator's counts.
class BlockTable {
 public:
  explicit BlockTable(int block_size) : block_size_(block_size) {}

  int num_blocks() const { return static_cast<int>(blocks_.size()); }
  int capacity() const { return num_blocks() * block_size_; }  // Tokens.
  bool empty() const { return blocks_.empty(); }
  std::span<const BlockId> blocks() const { return blocks_; }
  const std::vector<BlockId>& vector() const { return blocks_; }

  // Where the key and value of `position` go: block id * block_size + offset, as StepRows wants it.
  int32_t Slot(int position) const {
    BATON_DCHECK(position >= 0 && position < capacity()) << "position " << position << " of " << capacity();
    return blocks_[position / block_size_] * block_size_ + position % block_size_;
  }

  void Append(BlockId block) { blocks_.push_back(block); }
  void Append(std::span<const BlockId> blocks) { blocks_.insert(blocks_.end(), blocks.begin(), blocks.end()); }
  // Puts other blocks at [first, end).
  void ReplaceFrom(int first, std::span<const BlockId> blocks) {
    blocks_.resize(first);
    Append(blocks);
  }
  // Empties the table; the caller now answers for the references.
  std::vector<BlockId> Take() { return std::exchange(blocks_, {}); }

 private:
  int block_size_;
  std::vector<BlockId> blocks_;
};

}  // namespace baton

#endif  // BATON_COMMON_KV_BLOCK_TABLE_H_
