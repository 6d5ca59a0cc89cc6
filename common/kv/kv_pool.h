// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_KV_POOL_H_
#define BATON_COMMON_KV_KV_POOL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "common/kv/kv_layout.h"

namespace baton {

// The memory of all blocks. Owns no knowledge of who uses which block (BlockAllocator). Host-visible today; a device pool
// keeps this interface and implements Read/Write by copies.
//
// Threads: the engine thread reads and writes cells of sequences it runs; transport threads write straight into reserved
// blocks. Nobody touches the same cell at the same time; the handoff's rules see to that.
class KvPool {
 public:
  // Blocks start zeroed.
  //   INVALID_ARGUMENT    layout does not validate, or num_blocks is outside [1, 2^31 / block_size): slots are int32.
  //   RESOURCE_EXHAUSTED  names the bytes asked for.
  static absl::StatusOr<std::unique_ptr<KvPool>> Create(const KvLayout& layout, int num_blocks, Backend* backend);

  // As Create, in memory that another process can map: a memfd of exactly bytes() rounded up to whole pages, sealed
  // against shrinking and growing, so that nobody can take pages away from under a reader.
  //   RESOURCE_EXHAUSTED  as Create. UNAVAILABLE  the system has no sealed memfd; says what failed.
  static absl::StatusOr<std::unique_ptr<KvPool>> CreateShared(const KvLayout& layout, int num_blocks);
  // The other side of it: the same blocks through a mapping of its own. `fd` stays the caller's.
  //   INVALID_ARGUMENT    layout or num_blocks, as Create.
  //   FAILED_PRECONDITION fd is not sealed or has another size; names both.
  static absl::StatusOr<std::unique_ptr<KvPool>> MapShared(const KvLayout& layout, int num_blocks, int fd);
  // The memfd of CreateShared, -1 for any other pool. Owned by the pool.
  int shared_fd() const { return shared_fd_; }
  ~KvPool();
  KvPool(const KvPool&) = delete;
  KvPool& operator=(const KvPool&) = delete;

  const KvLayout& layout() const { return layout_; }
  int num_blocks() const { return num_blocks_; }
  size_t bytes() const { return layout_.block_bytes() * static_cast<size_t>(num_blocks_); }

  KvLayerView Layer(int layer) const;
  // One (layer, block) cell, block_layer_bytes() long.
  std::span<uint8_t> Cell(int layer, int32_t block) const;

  // Wire form of `num_tokens` positions starting at `offset` within a cell (offset + num_tokens <= block_size):
  // K [num_kv_heads, head_dim, num_tokens] then V [num_kv_heads, num_tokens, head_dim], num_tokens * token_layer_bytes()
  // long. A whole cell (offset 0, num_tokens block_size) is the cell's own bytes.
  void ReadTokens(int layer, int32_t block, int offset, int num_tokens, std::span<uint8_t> out) const;
  void WriteTokens(int layer, int32_t block, int offset, int num_tokens, std::span<const uint8_t> in) const;

  // Copies a block over all layers (copy on write of a partial block).
  void CopyBlock(int32_t from, int32_t to) const;

 private:
  static absl::Status CheckSize(const KvLayout& layout, int num_blocks);
  KvPool(const KvLayout& layout, int num_blocks, std::shared_ptr<uint8_t[]> memory);
  KvLayout layout_;
  int num_blocks_;
  std::shared_ptr<uint8_t[]> memory_;
  int shared_fd_ = -1;
};

}  // namespace baton

#endif  // BATON_COMMON_KV_KV_POOL_H_
