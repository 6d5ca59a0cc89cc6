// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_KV_POOL_H_
#define BATON_COMMON_KV_KV_POOL_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "common/kv/kv_layout.h"

namespace baton {

// The memory of all blocks. Owns no knowledge of who uses which block (BlockAllocator).
//
// A pool on a device has a second form on the host, where transfers read and write: cells there are as ToHost left them, and count
// on the device after ToDevice. Its pages are the system's to give when they are first touched. For a pool of the host both are one.
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
  // Of a backend on a device it is the form on the host; null: the host's.
  static absl::StatusOr<std::unique_ptr<KvPool>> CreateShared(const KvLayout& layout, int num_blocks, Backend* backend = nullptr);
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

  // What the backend computes with.
  KvLayerView Layer(int layer) const;

  // Brings cells of the layers [layer_begin, layer_end) to the host, after all that the backend was asked to compute; whole blocks to
  // the device. Engine thread; complete on return. Nothing to do for a pool of the host.
  void ToHost(int layer_begin, int layer_end, std::span<const int32_t> blocks) const { Wait(StartToHost(layer_begin, layer_end, blocks)); }
  void ToDevice(std::span<const int32_t> blocks) const { Wait(StartToDevice(blocks)); }
  // The same, begun and not waited for: nobody uses the cells where they are brought to, or writes to them where they come from, before Ended
  // or Wait says so. No blocks to the host: the end of what was computed before. Engine thread.
  CopyTicket StartToHost(int layer_begin, int layer_end, std::span<const int32_t> blocks) const;
  CopyTicket StartToDevice(std::span<const int32_t> blocks) const;
  bool Ended(CopyTicket ticket) const { return ticket == 0 || backend_->CopiesEnded(ticket); }
  void Wait(CopyTicket ticket) const {
    if (ticket != 0) backend_->WaitCopies(ticket);
  }
  // A transfer has put these cells of a layer on the device (true), so that the next ToDevice leaves them out, or on the host. Any thread.
  void SetOnDevice(int layer, std::span<const int32_t> blocks, bool on_device) const;

  // Where its cells begin on the device, as they lie on the host: layer by layer, in order of blocks. Null for a pool of the host.
  uint8_t* DeviceMemory() const { return device_.get(); }

  // Somebody outside this process may still write to the memory on the device: it stays until the process ends, whatever becomes of the pool.
  void KeepDeviceMemory() const;

  // One (layer, block) cell on the host, block_layer_bytes() long.
  std::span<uint8_t> Cell(int layer, int32_t block) const;

  // Wire form of `num_tokens` positions starting at `offset` within a cell (offset + num_tokens <= block_size):
  // K [num_kv_heads, head_dim, num_tokens] then V [num_kv_heads, num_tokens, head_dim], with kInt8 each head's [num_tokens]
  // scales behind its values; num_tokens * token_layer_bytes() long. A whole cell (offset 0, num_tokens block_size) is the cell's own bytes.
  void ReadTokens(int layer, int32_t block, int offset, int num_tokens, std::span<uint8_t> out) const;
  void WriteTokens(int layer, int32_t block, int offset, int num_tokens, std::span<const uint8_t> in) const;

  // Copies a block over all layers (copy on write of a partial block), where the backend computes.
  void CopyBlock(int32_t from, int32_t to) const;

 private:
  static absl::Status CheckSize(const KvLayout& layout, int num_blocks);
  KvPool(const KvLayout& layout, int num_blocks, std::shared_ptr<uint8_t[]> host);
  // Memory of the device, for a backend that has such.
  absl::Status AllocateDevice(Backend* backend);
  size_t CellIndex(int layer, int32_t block) const {
    return static_cast<size_t>(layer) * static_cast<size_t>(num_blocks_) + static_cast<size_t>(block);
  }
  size_t CellOffset(int layer, int32_t block) const { return CellIndex(layer, block) * layout_.block_layer_bytes(); }
  // The pairs of a cell on the device and on the host.
  std::vector<MemoryCopy> Copies(int layer_begin, int layer_end, std::span<const int32_t> blocks, bool to_host) const;

  KvLayout layout_;
  int num_blocks_;
  std::shared_ptr<uint8_t[]> host_, device_;  // device_: null for a pool of the host.
  Backend* backend_ = nullptr;                // Of device_.
  int shared_fd_ = -1;
  std::unique_ptr<std::atomic<bool>[]> on_device_;  // Per cell, with device_: SetOnDevice's.
};

}  // namespace baton

#endif  // BATON_COMMON_KV_KV_POOL_H_
