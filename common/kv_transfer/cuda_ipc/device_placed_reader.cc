// SPDX-License-Identifier: Apache-2.0
#include "common/kv_transfer/cuda_ipc/device_placed_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "common/base/status_macros.h"
#include "common/kv_transfer/cuda_ipc/copy_stream.h"

namespace baton {
namespace {

constexpr size_t kLeastBytes = 1 << 20;
constexpr size_t kMostBytes = 64 << 20;  // As of frames that come by the socket.

class DevicePlacedReader final : public PlacedReader {
 public:
  DevicePlacedReader(std::shared_ptr<CudaIpcRuntime> runtime, absl::Duration stall_timeout, const KvPool* pool, std::unique_ptr<KvPool> cell,
                     std::unique_ptr<CopyStream> stream)
      : runtime_(std::move(runtime)), stall_timeout_(stall_timeout), pool_(pool), cell_(std::move(cell)), stream_(std::move(stream)) {}
  ~DevicePlacedReader() override {
    if (!failed_) return;
    // Of a copy that was given up: until it ends, the driver writes to memory of the stream's.
    const bool marked = stream_->Mark().ok();
    runtime_->LeaveBehind([left = std::shared_ptr<CopyStream>(std::move(stream_)), marked] {
      const absl::StatusOr<uint64_t> reached = left->Reached();
      return marked && reached.ok() && *reached == left->marks();
    });
  }

  absl::StatusOr<std::span<const std::span<const uint8_t>>> Read(const LandingZone& zone, const FrameHeader& header,
                                                                 const Interrupted& interrupted) override;

 private:
  bool Fits(const LandingZone& zone, const FrameHeader& header) const;
  absl::Status Fetch(const LandingZone& zone, const FrameHeader& header, size_t num_cells, const Interrupted& interrupted);

  const std::shared_ptr<CudaIpcRuntime> runtime_;
  const absl::Duration stall_timeout_;
  const KvPool* const pool_;
  const std::unique_ptr<KvPool> cell_;  // One block of one layer, to take tokens out of a cell.
  std::unique_ptr<CopyStream> stream_;
  bool failed_ = false;
  uint8_t* staging_ = nullptr;
  size_t staging_bytes_ = 0;
  std::vector<uint8_t> partial_;  // The cell that is not filled to its end, in wire form.
  std::vector<std::span<const uint8_t>> pieces_;
};

// So far that there are blocks for it; whether it is a frame of the zone's is the zone's to say.
bool DevicePlacedReader::Fits(const LandingZone& zone, const FrameHeader& header) const {
  const KvLayout& layout = pool_->layout();
  const int64_t end = static_cast<int64_t>(zone.blocks().size()) * layout.block_size;
  if (header.layer < 0 || header.layer >= layout.num_layers) return false;
  if (header.token_begin < 0 || header.token_begin % layout.block_size != 0 || header.token_end <= header.token_begin) return false;
  const size_t bytes = static_cast<size_t>(header.token_end - header.token_begin) * layout.token_layer_bytes();
  return header.token_end <= end && bytes <= std::max(kMostBytes, layout.block_layer_bytes());
}

absl::StatusOr<std::span<const std::span<const uint8_t>>> DevicePlacedReader::Read(const LandingZone& zone, const FrameHeader& header,
                                                                                   const Interrupted& interrupted) {
  pieces_.clear();
  if (!Fits(zone, header)) return std::span<const std::span<const uint8_t>>();
  const KvLayout& layout = pool_->layout();
  const size_t num_tokens = static_cast<size_t>(header.token_end - header.token_begin), block_size = static_cast<size_t>(layout.block_size);
  const size_t num_whole = num_tokens / block_size, rest = num_tokens % block_size;
  BATON_RETURN_IF_ERROR(Fetch(zone, header, num_whole + (rest > 0 ? 1 : 0), interrupted));
  const size_t cell_bytes = layout.block_layer_bytes();
  if (num_whole > 0) pieces_.push_back({staging_, num_whole * cell_bytes});
  if (rest > 0) {
    std::memcpy(cell_->Cell(0, 0).data(), staging_ + num_whole * cell_bytes, cell_bytes);
    partial_.resize(rest * layout.token_layer_bytes());
    cell_->ReadTokens(0, 0, 0, static_cast<int>(rest), partial_);
    pieces_.push_back(partial_);
  }
  return std::span<const std::span<const uint8_t>>(pieces_);
}

absl::Status DevicePlacedReader::Fetch(const LandingZone& zone, const FrameHeader& header, size_t num_cells, const Interrupted& interrupted) {
  if (failed_) return absl::UnavailableError("the GPU has not ended an earlier copy of this link");
  const size_t cell_bytes = pool_->layout().block_layer_bytes();
  if (staging_bytes_ < num_cells * cell_bytes) {
    const size_t bytes = std::max(kLeastBytes, num_cells * cell_bytes);
    BATON_ASSIGN_OR_RETURN(staging_, stream_->AllocateHost(bytes));
    staging_bytes_ = bytes;
  }
  const size_t first = static_cast<size_t>(header.token_begin / pool_->layout().block_size);
  const std::span<const BlockId> blocks = zone.blocks().subspan(first, num_cells);
  const CUdeviceptr base = DeviceAddressOf(*pool_);
  const size_t layer = static_cast<size_t>(header.layer) * static_cast<size_t>(pool_->num_blocks());
  failed_ = true;  // Until all has ended.
  for (size_t i = 0; i < num_cells;) {
    size_t count = 1;  // Neighbours in one copy.
    while (i + count < num_cells && blocks[i + count] == blocks[i] + static_cast<BlockId>(count)) ++count;
    const size_t cell = layer + static_cast<size_t>(blocks[i]);
    BATON_RETURN_IF_ERROR(stream_->ToHost(staging_ + i * cell_bytes, base + cell * cell_bytes, count * cell_bytes));
    i += count;
  }
  BATON_RETURN_IF_ERROR(stream_->Mark());
  BATON_RETURN_IF_ERROR(stream_->WaitFor(stream_->marks(), stall_timeout_, interrupted));
  failed_ = false;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<PlacedReader>> OpenDevicePlacedReader(std::shared_ptr<CudaIpcRuntime> runtime, absl::Duration stall_timeout,
                                                                     const KvPool* pool) {
  KvLayout one_layer = pool->layout();
  one_layer.num_layers = 1;
  BATON_ASSIGN_OR_RETURN(auto cell, KvPool::CreateShared(one_layer, 1));
  BATON_ASSIGN_OR_RETURN(auto stream, CopyStream::Create(runtime, 2));
  return std::make_unique<DevicePlacedReader>(std::move(runtime), stall_timeout, pool, std::move(cell), std::move(stream));
}

}  // namespace baton
