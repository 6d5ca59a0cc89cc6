// SPDX-License-Identifier: Apache-2.0
#include "common/kv_transfer/cuda_ipc/device_placed_reader.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/status_macros.h"
#include "common/kv_transfer/checksum.h"
#include "common/kv_transfer/cuda_ipc/copy_stream.h"

namespace baton {
namespace {

constexpr size_t kLeastBytes = 1 << 20;
constexpr size_t kMostBytes = 64 << 20;  // As of frames that come by the socket.

class DevicePlacedReader final : public PlacedReader {
 public:
  DevicePlacedReader(std::shared_ptr<CudaIpcRuntime> runtime, absl::Duration stall_timeout, const KvPool* pool, std::unique_ptr<KvPool> cell,
                     std::unique_ptr<CopyStream> stream, std::unique_ptr<cuda::DeviceChecksums> checksums)
      : runtime_(std::move(runtime)),
        stall_timeout_(stall_timeout),
        pool_(pool),
        cell_(std::move(cell)),
        stream_(std::move(stream)),
        checksums_(std::move(checksums)) {}
  ~DevicePlacedReader() override {
    if (!failed_) {
      runtime_->GiveBack(std::move(checksums_));
      return;
    }
    // Of work that was given up: until it ends, the driver writes to memory of the stream's and the checksums'.
    const bool marked = stream_->Mark().ok();
    runtime_->LeaveBehind(
        [left = std::shared_ptr<CopyStream>(std::move(stream_)), sums = std::shared_ptr<cuda::DeviceChecksums>(std::move(checksums_)), marked] {
          const absl::StatusOr<uint64_t> reached = left->Reached();
          return marked && reached.ok() && *reached == left->marks();
        });
  }

  absl::StatusOr<std::vector<std::optional<uint64_t>>> Checksums(std::span<const PlacedFrame> frames, const Interrupted& interrupted) override;

 private:
  bool Fits(const LandingZone& zone, const FrameHeader& header) const;
  // The blocks that a frame lies in.
  std::span<const BlockId> BlocksOf(const PlacedFrame& frame) const;
  CUdeviceptr AddressOf(int layer, BlockId block) const;
  // Adds a frame to the batch on the device; false: it is the host's to do.
  bool AddOnDevice(const PlacedFrame& frame);
  absl::StatusOr<uint64_t> ChecksumOnHost(const PlacedFrame& frame, const Interrupted& interrupted);
  absl::Status Fetch(const PlacedFrame& frame, const Interrupted& interrupted);
  absl::Status WaitForAll(const Interrupted& interrupted);

  const std::shared_ptr<CudaIpcRuntime> runtime_;
  const absl::Duration stall_timeout_;
  const KvPool* const pool_;
  const std::unique_ptr<KvPool> cell_;  // One block of one layer, to take tokens out of a cell.
  std::unique_ptr<CopyStream> stream_;
  std::unique_ptr<cuda::DeviceChecksums> checksums_;
  bool failed_ = false;  // Something that was ordered has not ended, as far as is known.
  uint8_t* staging_ = nullptr;
  size_t staging_bytes_ = 0;
  std::vector<uint8_t> partial_;  // The cell that is not filled to its end, in wire form.
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

std::span<const BlockId> DevicePlacedReader::BlocksOf(const PlacedFrame& frame) const {
  const int block_size = pool_->layout().block_size;
  const size_t first = static_cast<size_t>(frame.header.token_begin / block_size);
  const size_t end = static_cast<size_t>((frame.header.token_end - 1) / block_size) + 1;
  return frame.zone->blocks().subspan(first, end - first);
}

CUdeviceptr DevicePlacedReader::AddressOf(int layer, BlockId block) const {
  const size_t cell = static_cast<size_t>(layer) * static_cast<size_t>(pool_->num_blocks()) + static_cast<size_t>(block);
  return DeviceAddressOf(*pool_) + cell * pool_->layout().block_layer_bytes();
}

absl::StatusOr<std::vector<std::optional<uint64_t>>> DevicePlacedReader::Checksums(std::span<const PlacedFrame> frames,
                                                                                   const Interrupted& interrupted) {
  if (failed_) return absl::UnavailableError("the GPU has not ended earlier work of this link");
  std::vector<std::optional<uint64_t>> found(frames.size());
  std::vector<size_t> on_device, on_host;
  checksums_->Clear();
  for (size_t i = 0; i < frames.size(); ++i) {
    if (Fits(*frames[i].zone, frames[i].header)) (AddOnDevice(frames[i]) ? on_device : on_host).push_back(i);
  }
  if (!on_device.empty()) {
    failed_ = true;
    BATON_RETURN_IF_ERROR(stream_->Sum(*checksums_));
    BATON_RETURN_IF_ERROR(WaitForAll(interrupted));
    for (size_t i = 0; i < on_device.size(); ++i) found[on_device[i]] = checksums_->results()[i];
  }
  for (const size_t i : on_host) {
    BATON_ASSIGN_OR_RETURN(found[i], ChecksumOnHost(frames[i], interrupted));
  }
  return found;
}

// Whole cells are in wire form as they lie.
bool DevicePlacedReader::AddOnDevice(const PlacedFrame& frame) {
  if (frame.header.token_end % pool_->layout().block_size != 0) return false;
  std::vector<CUdeviceptr> cells;
  for (const BlockId block : BlocksOf(frame)) cells.push_back(AddressOf(frame.header.layer, block));
  const size_t cell_bytes = pool_->layout().block_layer_bytes();
  return checksums_->Add(cells, cell_bytes, cells.size() * cell_bytes);
}

absl::StatusOr<uint64_t> DevicePlacedReader::ChecksumOnHost(const PlacedFrame& frame, const Interrupted& interrupted) {
  const KvLayout& layout = pool_->layout();
  BATON_RETURN_IF_ERROR(Fetch(frame, interrupted));
  const size_t num_tokens = static_cast<size_t>(frame.header.token_end - frame.header.token_begin), block_size = static_cast<size_t>(layout.block_size);
  const size_t num_whole = num_tokens / block_size, rest = num_tokens % block_size, cell_bytes = layout.block_layer_bytes();
  std::vector<std::span<const uint8_t>> pieces;
  if (num_whole > 0) pieces.push_back({staging_, num_whole * cell_bytes});
  if (rest > 0) {
    std::memcpy(cell_->Cell(0, 0).data(), staging_ + num_whole * cell_bytes, cell_bytes);
    partial_.resize(rest * layout.token_layer_bytes());
    cell_->ReadTokens(0, 0, 0, static_cast<int>(rest), partial_);
    pieces.push_back(partial_);
  }
  return FrameChecksum(pieces);
}

absl::Status DevicePlacedReader::Fetch(const PlacedFrame& frame, const Interrupted& interrupted) {
  const std::span<const BlockId> blocks = BlocksOf(frame);
  const size_t cell_bytes = pool_->layout().block_layer_bytes();
  if (staging_bytes_ < blocks.size() * cell_bytes) {
    const size_t bytes = std::max(kLeastBytes, blocks.size() * cell_bytes);
    BATON_ASSIGN_OR_RETURN(staging_, stream_->AllocateHost(bytes));
    staging_bytes_ = bytes;
  }
  failed_ = true;
  for (size_t i = 0; i < blocks.size();) {
    size_t count = 1;  // Neighbours in one copy.
    while (i + count < blocks.size() && blocks[i + count] == blocks[i] + static_cast<BlockId>(count)) ++count;
    BATON_RETURN_IF_ERROR(stream_->ToHost(staging_ + i * cell_bytes, AddressOf(frame.header.layer, blocks[i]), count * cell_bytes));
    i += count;
  }
  return WaitForAll(interrupted);
}

absl::Status DevicePlacedReader::WaitForAll(const Interrupted& interrupted) {
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
  BATON_ASSIGN_OR_RETURN(auto checksums, runtime->TakeChecksums());
  return std::make_unique<DevicePlacedReader>(std::move(runtime), stall_timeout, pool, std::move(cell), std::move(stream), std::move(checksums));
}

}  // namespace baton
