// SPDX-License-Identifier: Apache-2.0
#include "common/kv_transfer/nccl/nccl_payloads.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/kv/kv_pool.h"
#include "common/kv_transfer/checksum.h"
#include "common/kv_transfer/nccl/nccl_channel.h"

namespace baton {
namespace {

constexpr int kWriterSlots = 4;
constexpr size_t kAlignment = 16;  // Of what the checksum kernel reads.

size_t RoundUp(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

// Of what lies in one piece.
bool AddToSums(const Staging& staging, size_t offset, size_t bytes) {
  const CUdeviceptr at = staging.device + offset;
  return staging.checksums->Add(std::span(&at, 1), RoundUp(bytes, 64), bytes);
}

class NcclPayloadWriter final : public PayloadWriter {
 public:
  NcclPayloadWriter(std::shared_ptr<NcclRuntime> runtime, absl::Duration stall_timeout, const KvPool* source)
      : runtime_(runtime), channel_(std::move(runtime), /*rank=*/0, stall_timeout, kWriterSlots) {
    if (source == nullptr || source->DeviceMemory() == nullptr) return;
    source_ = source->Cell(0, 0).data();
    source_bytes_ = source->bytes();
    source_device_ = reinterpret_cast<CUdeviceptr>(source->DeviceMemory());
  }

  absl::StatusOr<std::vector<uint8_t>> Invite() override {
    BATON_RETURN_IF_ERROR(runtime_->Bind());
    ncclUniqueId id;
    BATON_RETURN_IF_ERROR(runtime_->nccl().ToStatus(runtime_->nccl().ncclGetUniqueId(&id), nullptr, "ncclGetUniqueId"));
    BATON_RETURN_IF_ERROR(channel_.Start(id));
    return std::vector<uint8_t>(std::begin(id.internal), std::end(id.internal));
  }

  absl::Status Connect(const Interrupted& interrupted) override { return channel_.Connect(interrupted); }
  absl::StatusOr<bool> Add(const OutgoingFrame& frame, const Interrupted& interrupted) override;
  absl::Status EndBatch() override;
  absl::StatusOr<bool> Ready(bool wait, const Interrupted& interrupted) override;
  absl::Status SendBatch() override;
  bool Settle() override;

  absl::Status Start(const Interrupted& interrupted) override { return channel_.WaitIssued(interrupted); }

  absl::Status Drain(const Interrupted& interrupted) override {
    for (int slot = 0; slot < kWriterSlots; ++slot) BATON_RETURN_IF_ERROR(channel_.Wait(slot, interrupted));
    return absl::OkStatus();
  }

  void Close(bool orderly) override { channel_.Close(orderly); }

 private:
  struct Batch {
    int slot = 0;
    size_t bytes = 0;
    std::vector<std::shared_ptr<uint64_t>> checksums;  // Where the slot's checksums go.
  };
  // Where on the device the piece of the source pool lies; 0: it is none.
  CUdeviceptr DeviceAddressOf(std::span<const uint8_t> piece) const {
    const size_t offset = reinterpret_cast<uintptr_t>(piece.data()) - reinterpret_cast<uintptr_t>(source_);
    return source_ != nullptr && offset < source_bytes_ && piece.size() <= source_bytes_ - offset ? source_device_ + offset : 0;
  }

  const std::shared_ptr<NcclRuntime> runtime_;
  NcclChannel channel_;
  const uint8_t* source_ = nullptr;  // Cells on the host, and the same ones on the device. Null: there are none.
  size_t source_bytes_ = 0;
  CUdeviceptr source_device_ = 0;
  Batch batch_;             // That is being filled.
  std::deque<Batch> ended_;
};

absl::StatusOr<bool> NcclPayloadWriter::Add(const OutgoingFrame& frame, const Interrupted& interrupted) {
  size_t bytes = 0;
  for (const auto& piece : frame.payload) bytes += piece.size();
  if (bytes == 0) return true;
  if (batch_.bytes == 0) BATON_RETURN_IF_ERROR(channel_.Claim(batch_.slot, bytes, interrupted));
  const Staging& staging = channel_.staging(batch_.slot);
  if (bytes > staging.bytes - batch_.bytes) return false;
  if (frame.checksum != nullptr && !AddToSums(staging, batch_.bytes, bytes)) {
    // For want of room, or behind a frame that ends anywhere: the first of a batch has what it needs.
    if (batch_.bytes > 0) return false;
    return absl::InternalError(absl::StrCat("no checksum can be made on the device of a frame of ", bytes, " bytes"));
  }
  for (const auto& piece : frame.payload) {
    if (piece.empty()) continue;
    const CUdeviceptr to = staging.device + batch_.bytes;
    if (const CUdeviceptr from = DeviceAddressOf(piece); from != 0) {
      BATON_RETURN_IF_ERROR(channel_.Copy(to, from, piece.size()));
    } else {
      std::memcpy(staging.host + batch_.bytes, piece.data(), piece.size());
      BATON_RETURN_IF_ERROR(channel_.Upload(to, staging.host + batch_.bytes, piece.size()));
    }
    batch_.bytes += piece.size();
  }
  if (frame.checksum != nullptr) batch_.checksums.push_back(frame.checksum);
  return true;
}

absl::Status NcclPayloadWriter::EndBatch() {
  const int slot = batch_.slot;
  ended_.push_back(std::exchange(batch_, {.slot = (slot + 1) % kWriterSlots}));
  if (ended_.back().bytes == 0) {
    batch_.slot = slot;  // Frames of nothing.
    return absl::OkStatus();
  }
  BATON_RETURN_IF_ERROR(channel_.Sum(slot));
  return channel_.MarkCopied(slot);
}

absl::StatusOr<bool> NcclPayloadWriter::Ready(bool wait, const Interrupted& interrupted) {
  const Batch& batch = ended_.front();
  if (batch.bytes == 0) return true;
  BATON_ASSIGN_OR_RETURN(const bool copied, channel_.Copied(batch.slot, wait, interrupted));
  if (!copied) return false;
  const std::span<const uint64_t> made = channel_.staging(batch.slot).checksums->results();
  for (size_t i = 0; i < batch.checksums.size(); ++i) *batch.checksums[i] = made[i];
  return true;
}

absl::Status NcclPayloadWriter::SendBatch() {
  const Batch batch = std::move(ended_.front());
  ended_.pop_front();
  return batch.bytes == 0 ? absl::OkStatus() : channel_.Send(batch.slot, batch.bytes);
}

bool NcclPayloadWriter::Settle() {
  for (const Batch& batch : ended_) {
    if (batch.bytes > 0 && !channel_.Copied(batch.slot, /*wait=*/true, [] { return absl::OkStatus(); }).ok()) return false;
  }
  return true;
}

class NcclPayloadReader final : public PayloadReader {
 public:
  NcclPayloadReader(std::shared_ptr<NcclRuntime> runtime, absl::Duration stall_timeout, const KvPool* pool)
      : channel_(std::move(runtime), /*rank=*/1, stall_timeout, static_cast<int>(kMaxBatches)), pool_(pool) {}

  absl::Status Start(const ncclUniqueId& id) { return channel_.Start(id); }
  absl::Status Connect(const Interrupted& interrupted) override { return channel_.Connect(interrupted); }
  absl::Status Receive(std::vector<Announced> frames, const Interrupted& interrupted) override;
  absl::Status Land(const FindZone& find, const Landed& landed, const Interrupted& interrupted) override;
  void Close(bool orderly) override { channel_.Close(orderly); }

 private:
  struct Frame {
    BatchedFrame announced;
    size_t offset = 0;          // In the slot.
    bool on_device = false;     // Its cells go from the slot to their blocks on the device; else by the host.
    std::optional<size_t> sum;  // Of the slot's checksums: its own.
  };
  struct Batch {
    int slot = 0;
    std::vector<Frame> frames;
  };
  bool IsWholeCells(const BatchedFrame& frame) const;
  absl::Status Move(const Frame& frame, const Staging& staging, const LandingZone& zone);

  NcclChannel channel_;
  const KvPool* const pool_;
  std::deque<Batch> batches_;
  int next_slot_ = 0;
};

// So far that it can be moved where it belongs; whether it is a frame of the zone's is the zone's to say.
bool NcclPayloadReader::IsWholeCells(const BatchedFrame& frame) const {
  const KvLayout& layout = pool_->layout();
  const int64_t tokens = int64_t{frame.frame.token_end} - frame.frame.token_begin;
  return pool_->DeviceMemory() != nullptr && tokens > 0 && tokens % layout.block_size == 0 && frame.frame.token_end % layout.block_size == 0 &&
         frame.payload_bytes == static_cast<size_t>(tokens) * layout.token_layer_bytes();
}

absl::Status NcclPayloadReader::Receive(std::vector<Announced> frames, const Interrupted& interrupted) {
  Batch batch{.slot = next_slot_};
  next_slot_ = (next_slot_ + 1) % static_cast<int>(kMaxBatches);
  size_t bytes = 0;
  for (const Announced& frame : frames) bytes += frame.frame.payload_bytes;
  std::vector<std::pair<size_t, size_t>> to_host;
  if (bytes > 0) BATON_RETURN_IF_ERROR(channel_.Claim(batch.slot, bytes, interrupted));
  size_t offset = 0;
  for (const Announced& announced : frames) {
    Frame frame{.announced = announced.frame, .offset = offset};
    const size_t size = announced.frame.payload_bytes;
    frame.on_device = offset % kAlignment == 0 && IsWholeCells(announced.frame);
    if (frame.on_device && announced.verify) {
      const Staging& staging = channel_.staging(batch.slot);
      frame.on_device = AddToSums(staging, offset, size);
      if (frame.on_device) frame.sum = staging.checksums->size() - 1;
    }
    if (!frame.on_device && size > 0) to_host.emplace_back(offset, size);
    offset += size;
    batch.frames.push_back(std::move(frame));
  }
  batches_.push_back(std::move(batch));
  return bytes == 0 ? absl::OkStatus() : channel_.Receive(batches_.back().slot, bytes, std::move(to_host));
}

absl::Status NcclPayloadReader::Land(const FindZone& find, const Landed& landed, const Interrupted& interrupted) {
  const Batch batch = std::move(batches_.front());
  batches_.pop_front();
  BATON_RETURN_IF_ERROR(channel_.Wait(batch.slot, interrupted));
  const Staging& staging = channel_.staging(batch.slot);
  std::vector<std::pair<const Frame*, std::shared_ptr<LandingZone>>> moving;
  absl::Status moved;
  for (const Frame& frame : batch.frames) {
    const auto zone = find(frame.announced);
    if (zone == nullptr) continue;
    const FrameHeader& header = frame.announced.frame;
    if (!frame.on_device) {
      const std::span<const uint8_t> payload(staging.host + frame.offset, frame.announced.payload_bytes);
      landed(frame.announced, zone->Write(header, payload));
      continue;
    }
    const auto checksum = frame.sum.has_value() ? std::optional(staging.checksums->results()[*frame.sum]) : std::nullopt;
    const absl::Status begun = zone->BeginMove(header, frame.announced.payload_bytes, checksum);
    if (!begun.ok()) {
      landed(frame.announced, begun);
      continue;
    }
    moving.emplace_back(&frame, zone);
    moved.Update(Move(frame, staging, *zone));
  }
  if (moving.empty()) return absl::OkStatus();
  // Whatever has failed or been cancelled: a block is let go of when nothing is copied to it any more. If that never comes, it never is.
  BATON_RETURN_IF_ERROR(channel_.MarkCopied(batch.slot));
  BATON_RETURN_IF_ERROR(channel_.Copied(batch.slot, /*wait=*/true, [] { return absl::OkStatus(); }).status());
  for (const auto& [frame, zone] : moving) {
    zone->EndMove(frame->announced.frame, moved);
    landed(frame->announced, moved);
  }
  return moved;
}

// Neighbours in one copy.
absl::Status NcclPayloadReader::Move(const Frame& frame, const Staging& staging, const LandingZone& zone) {
  const KvLayout& layout = pool_->layout();
  const FrameHeader& header = frame.announced.frame;
  const size_t cell_bytes = layout.block_layer_bytes();
  const size_t first = static_cast<size_t>(header.token_begin / layout.block_size), end = static_cast<size_t>(header.token_end / layout.block_size);
  const std::span<const BlockId> blocks = zone.blocks().subspan(first, end - first);
  const CUdeviceptr base = reinterpret_cast<CUdeviceptr>(pool_->DeviceMemory());
  for (size_t i = 0; i < blocks.size();) {
    size_t count = 1;
    while (i + count < blocks.size() && blocks[i + count] == blocks[i] + static_cast<BlockId>(count)) ++count;
    const size_t cell = static_cast<size_t>(header.layer) * static_cast<size_t>(pool_->num_blocks()) + static_cast<size_t>(blocks[i]);
    BATON_RETURN_IF_ERROR(channel_.Copy(base + cell * cell_bytes, staging.device + frame.offset + i * cell_bytes, count * cell_bytes));
    i += count;
  }
  return absl::OkStatus();
}

}  // namespace

bool SumsCellsOnDevice(const KvPool* source) {
  // Of shorter ones the host would have to make them, in whose form the cells need not lie.
  return source != nullptr && source->DeviceMemory() != nullptr && cuda::DeviceChecksums::TakesCells(source->layout().block_layer_bytes());
}

std::unique_ptr<PayloadWriter> MakeNcclPayloadWriter(std::shared_ptr<NcclRuntime> runtime, absl::Duration stall_timeout, const KvPool* source) {
  return std::make_unique<NcclPayloadWriter>(std::move(runtime), stall_timeout, source);
}

absl::StatusOr<std::unique_ptr<PayloadReader>> OpenNcclPayloadReader(std::shared_ptr<NcclRuntime> runtime, absl::Duration stall_timeout,
                                                                     const KvPool* pool, std::span<const uint8_t> invitation) {
  ncclUniqueId id;
  if (invitation.size() != sizeof(id.internal)) {
    return absl::InvalidArgumentError(absl::StrCat("an NCCL id of ", invitation.size(), " bytes, not ", sizeof(id.internal)));
  }
  std::memcpy(id.internal, invitation.data(), sizeof(id.internal));
  auto reader = std::make_unique<NcclPayloadReader>(std::move(runtime), stall_timeout, pool);
  BATON_RETURN_IF_ERROR(reader->Start(id));
  return reader;
}

}  // namespace baton
