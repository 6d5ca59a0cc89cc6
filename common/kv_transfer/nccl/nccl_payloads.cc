// SPDX-License-Identifier: Apache-2.0
#include "common/kv_transfer/nccl/nccl_payloads.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/kv_transfer/nccl/nccl_channel.h"

namespace baton {
namespace {

constexpr int kWriterSlots = 4;

class NcclPayloadWriter final : public PayloadWriter {
 public:
  NcclPayloadWriter(std::shared_ptr<NcclRuntime> runtime, absl::Duration stall_timeout)
      : runtime_(runtime), channel_(std::move(runtime), /*rank=*/0, stall_timeout, kWriterSlots) {}

  absl::StatusOr<std::vector<uint8_t>> Invite() override {
    BATON_RETURN_IF_ERROR(runtime_->Bind());
    ncclUniqueId id;
    BATON_RETURN_IF_ERROR(runtime_->nccl().ToStatus(runtime_->nccl().ncclGetUniqueId(&id), nullptr, "ncclGetUniqueId"));
    BATON_RETURN_IF_ERROR(channel_.Start(id));
    return std::vector<uint8_t>(std::begin(id.internal), std::end(id.internal));
  }

  absl::Status Connect(const Interrupted& interrupted) override { return channel_.Connect(interrupted); }

  absl::StatusOr<bool> Add(std::span<const std::span<const uint8_t>> payload, const Interrupted& interrupted) override {
    size_t bytes = 0;
    for (const auto& piece : payload) bytes += piece.size();
    if (filled_ == 0 && bytes > 0) {
      BATON_ASSIGN_OR_RETURN(memory_, channel_.Claim(slot_, bytes, interrupted));
    }
    if (bytes > 0 && filled_ + bytes > channel_.capacity(slot_)) return false;
    for (const auto& piece : payload) {
      if (!piece.empty()) std::memcpy(memory_ + filled_, piece.data(), piece.size());
      filled_ += piece.size();
    }
    return true;
  }

  absl::Status SendBatch() override {
    if (filled_ == 0) return absl::OkStatus();
    const int slot = std::exchange(slot_, (slot_ + 1) % kWriterSlots);
    return channel_.Send(slot, std::exchange(filled_, 0));
  }

  absl::Status Start(const Interrupted& interrupted) override { return channel_.WaitIssued(interrupted); }

  absl::Status Drain(const Interrupted& interrupted) override {
    for (int slot = 0; slot < kWriterSlots; ++slot) BATON_RETURN_IF_ERROR(channel_.Wait(slot, interrupted));
    return absl::OkStatus();
  }

  void Close(bool orderly) override { channel_.Close(orderly); }

 private:
  const std::shared_ptr<NcclRuntime> runtime_;
  NcclChannel channel_;
  int slot_ = 0;         // That is being filled,
  size_t filled_ = 0;    // so far,
  uint8_t* memory_ = nullptr;  // here.
};

class NcclPayloadReader final : public PayloadReader {
 public:
  NcclPayloadReader(std::shared_ptr<NcclRuntime> runtime, absl::Duration stall_timeout)
      : channel_(std::move(runtime), /*rank=*/1, stall_timeout, /*num_slots=*/1) {}

  absl::Status Start(const ncclUniqueId& id) { return channel_.Start(id); }
  absl::Status Connect(const Interrupted& interrupted) override { return channel_.Connect(interrupted); }

  absl::StatusOr<std::span<const uint8_t>> Receive(size_t bytes, const Interrupted& interrupted) override {
    if (bytes == 0) return std::span<const uint8_t>();
    BATON_ASSIGN_OR_RETURN(const uint8_t* const memory, channel_.Claim(0, bytes, interrupted));
    BATON_RETURN_IF_ERROR(channel_.Receive(0, bytes));
    BATON_RETURN_IF_ERROR(channel_.Wait(0, interrupted));
    return std::span<const uint8_t>(memory, bytes);
  }

  void Close(bool orderly) override { channel_.Close(orderly); }

 private:
  NcclChannel channel_;
};

}  // namespace

std::unique_ptr<PayloadWriter> MakeNcclPayloadWriter(std::shared_ptr<NcclRuntime> runtime, absl::Duration stall_timeout) {
  return std::make_unique<NcclPayloadWriter>(std::move(runtime), stall_timeout);
}

absl::StatusOr<std::unique_ptr<PayloadReader>> OpenNcclPayloadReader(std::shared_ptr<NcclRuntime> runtime, absl::Duration stall_timeout,
                                                                     std::span<const uint8_t> invitation) {
  ncclUniqueId id;
  if (invitation.size() != sizeof(id.internal)) {
    return absl::InvalidArgumentError(absl::StrCat("an NCCL id of ", invitation.size(), " bytes, not ", sizeof(id.internal)));
  }
  std::memcpy(id.internal, invitation.data(), sizeof(id.internal));
  auto reader = std::make_unique<NcclPayloadReader>(std::move(runtime), stall_timeout);
  BATON_RETURN_IF_ERROR(reader->Start(id));
  return reader;
}

}  // namespace baton
