// SPDX-License-Identifier: Apache-2.0
#include "common/kv/kv_pool.h"

#include <unistd.h>

#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/backend/packing.h"
#include "common/base/logging.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"

namespace baton {

absl::Status KvPool::CheckSize(const KvLayout& layout, int num_blocks) {
  BATON_RETURN_IF_ERROR(layout.Validate());
  const int max_blocks = std::numeric_limits<int32_t>::max() / layout.block_size;
  if (num_blocks >= 1 && num_blocks <= max_blocks) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("kv pool: num_blocks %d is outside [1, %d]", num_blocks, max_blocks));
}

absl::StatusOr<std::unique_ptr<KvPool>> KvPool::Create(const KvLayout& layout, int num_blocks, Backend* backend) {
  BATON_RETURN_IF_ERROR(CheckSize(layout, num_blocks));
  const size_t bytes = layout.block_bytes() * static_cast<size_t>(num_blocks);
  auto memory = backend->host_visible() ? backend->Allocate(bytes) : AllocateHostMemory(bytes);
  if (!memory.ok()) {
    return Annotate(memory.status(), absl::StrFormat("kv pool of %d blocks x %d bytes", num_blocks,
                                                     static_cast<int64_t>(layout.block_bytes())));
  }
  std::unique_ptr<KvPool> pool(new KvPool(layout, num_blocks, *std::move(memory)));
  BATON_RETURN_IF_ERROR(pool->AllocateDevice(backend));
  return pool;
}

KvPool::KvPool(const KvLayout& layout, int num_blocks, std::shared_ptr<uint8_t[]> host)
    : layout_(layout), num_blocks_(num_blocks), host_(std::move(host)) {}

absl::Status KvPool::AllocateDevice(Backend* backend) {
  if (backend == nullptr || backend->host_visible()) return absl::OkStatus();
  auto memory = backend->Allocate(bytes());
  if (!memory.ok()) {
    return Annotate(memory.status(), absl::StrFormat("kv pool of %d blocks x %d bytes", num_blocks_,
                                                     static_cast<int64_t>(layout_.block_bytes())));
  }
  device_ = *std::move(memory);
  backend_ = backend;
  on_device_ = std::make_unique<std::atomic<bool>[]>(static_cast<size_t>(layout_.num_layers) * static_cast<size_t>(num_blocks_));
  return absl::OkStatus();
}

KvPool::~KvPool() {
  if (shared_fd_ >= 0) close(shared_fd_);
}

KvLayerView KvPool::Layer(int layer) const {
  BATON_DCHECK(layer >= 0 && layer < layout_.num_layers) << layer;
  KvLayerView view;
  view.block_stride = layout_.block_layer_bytes();
  view.k = (device_ != nullptr ? device_ : host_).get() + CellOffset(layer, 0);
  view.v = view.k + view.block_stride / 2;
  view.block_size = layout_.block_size;
  view.num_kv_heads = layout_.num_kv_heads;
  view.head_dim = layout_.head_dim;
  view.dtype = layout_.dtype;
  return view;
}

std::span<uint8_t> KvPool::Cell(int layer, int32_t block) const {
  BATON_CHECK(layer >= 0 && layer < layout_.num_layers && block >= 0 && block < num_blocks_)
      << "layer " << layer << ", block " << block;
  return {host_.get() + CellOffset(layer, block), layout_.block_layer_bytes()};
}

std::vector<MemoryCopy> KvPool::Copies(int layer_begin, int layer_end, std::span<const int32_t> blocks, bool to_host) const {
  std::vector<MemoryCopy> copies;
  for (int layer = layer_begin; layer < layer_end; ++layer) {
    for (const int32_t block : blocks) {
      const std::span<uint8_t> host = Cell(layer, block);
      if (!to_host && on_device_[CellIndex(layer, block)].exchange(false)) continue;
      uint8_t* const device = device_.get() + CellOffset(layer, block);
      // Neighbours in one copy.
      if (!copies.empty()) {
        MemoryCopy& last = copies.back();
        if ((to_host ? last.from : last.to) == device - last.bytes) {
          last.bytes += host.size();
          continue;
        }
      }
      copies.push_back(to_host ? MemoryCopy{host.data(), device, host.size()} : MemoryCopy{device, host.data(), host.size()});
    }
  }
  return copies;
}

CopyTicket KvPool::StartToHost(int layer_begin, int layer_end, std::span<const int32_t> blocks) const {
  return device_ == nullptr ? 0 : backend_->StartCopyToHost(Copies(layer_begin, layer_end, blocks, true));
}

CopyTicket KvPool::StartToDevice(std::span<const int32_t> blocks) const {
  if (device_ == nullptr) return 0;
  const std::vector<MemoryCopy> copies = Copies(0, layout_.num_layers, blocks, false);
  return copies.empty() ? 0 : backend_->StartCopyFromHost(copies);
}

void KvPool::SetOnDevice(int layer, std::span<const int32_t> blocks, bool on_device) const {
  if (device_ == nullptr) return;
  for (const int32_t block : blocks) on_device_[CellIndex(layer, block)].store(on_device);
}

void KvPool::KeepDeviceMemory() const {
  static Mutex* const mutex = new Mutex;
  static auto* const kept = new std::vector<std::shared_ptr<uint8_t[]>>;
  MutexLock lock(mutex);
  kept->push_back(device_);
}

// A cell is, for K, per head head_dim runs of block_size elements, of which a token range is a slice of each; for V, per head one run
// of block_size rows of head_dim elements, again a slice of each; and behind each head's runs one of its scales, where there are any.
// `copy(cell_offset, wire_offset, bytes)` is called per slice.
template <typename Copy>
static void ForEachSlice(const KvLayout& layout, int offset, int num_tokens, Copy copy) {
  BATON_CHECK(offset >= 0 && num_tokens >= 0 && offset + num_tokens <= layout.block_size)
      << "offset " << offset << ", tokens " << num_tokens;
  const size_t element = layout.element_bytes(), scale = layout.scale_bytes();
  const size_t tokens = static_cast<size_t>(num_tokens), first = static_cast<size_t>(offset);
  const size_t heads = static_cast<size_t>(layout.num_kv_heads), dim = static_cast<size_t>(layout.head_dim);
  const size_t block = static_cast<size_t>(layout.block_size);
  size_t run = 0, wire = 0;
  // The slice of a run of `token_bytes` per token, and the run behind it.
  const auto slice = [&](size_t token_bytes) {
    if (token_bytes == 0) return;
    copy(run + first * token_bytes, wire, tokens * token_bytes);
    run += block * token_bytes;
    wire += tokens * token_bytes;
  };
  for (size_t h = 0; h < heads; ++h) {
    for (size_t d = 0; d < dim; ++d) slice(element);
    slice(scale);
  }
  for (size_t h = 0; h < heads; ++h) {
    slice(dim * element);
    slice(scale);
  }
}

void KvPool::ReadTokens(int layer, int32_t block, int offset, int num_tokens, std::span<uint8_t> out) const {
  const std::span<const uint8_t> cell = Cell(layer, block);
  BATON_CHECK_EQ(out.size(), static_cast<size_t>(num_tokens) * layout_.token_layer_bytes());
  if (num_tokens == layout_.block_size) {
    BATON_CHECK_EQ(offset, 0);
    std::memcpy(out.data(), cell.data(), cell.size());
    return;
  }
  ForEachSlice(layout_, offset, num_tokens, [&](size_t at, size_t wire, size_t bytes) {
    std::memcpy(out.data() + wire, cell.data() + at, bytes);
  });
}

void KvPool::WriteTokens(int layer, int32_t block, int offset, int num_tokens, std::span<const uint8_t> in) const {
  const std::span<uint8_t> cell = Cell(layer, block);
  BATON_CHECK_EQ(in.size(), static_cast<size_t>(num_tokens) * layout_.token_layer_bytes());
  if (num_tokens == layout_.block_size) {
    BATON_CHECK_EQ(offset, 0);
    std::memcpy(cell.data(), in.data(), cell.size());
    return;
  }
  ForEachSlice(layout_, offset, num_tokens, [&](size_t at, size_t wire, size_t bytes) {
    std::memcpy(cell.data() + at, in.data() + wire, bytes);
  });
}

void KvPool::CopyBlock(int32_t from, int32_t to) const {
  if (from == to) return;
  if (device_ != nullptr) {
    std::vector<MemoryCopy> copies;
    for (int layer = 0; layer < layout_.num_layers; ++layer) {
      copies.push_back({device_.get() + CellOffset(layer, to), device_.get() + CellOffset(layer, from), layout_.block_layer_bytes()});
    }
    return backend_->CopyWithin(copies);
  }
  for (int layer = 0; layer < layout_.num_layers; ++layer) {
    const std::span<const uint8_t> source = Cell(layer, from);
    std::memcpy(Cell(layer, to).data(), source.data(), source.size());
  }
}

}  // namespace baton
