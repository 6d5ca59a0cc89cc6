// SPDX-License-Identifier: Apache-2.0
#include "tests/support/faulty_kv_link.h"

#include <algorithm>

#include "common/base/clock.h"
#include "common/base/status_macros.h"

namespace baton::testing {

absl::Status FaultyKvLink::Cut() {
  if (!std::exchange(cut_, true)) inner_->Close(absl::ZeroDuration());
  return absl::UnavailableError("the link was cut");
}

absl::Status FaultyKvLink::Wait(absl::Duration time, const Interrupted& interrupted) {
  const MonotonicTime until = Clock::Real()->Now() + time;
  Mutex mutex;
  CondVar never;
  while (true) {
    BATON_RETURN_IF_ERROR(interrupted());
    const absl::Duration left = until - Clock::Real()->Now();
    if (left <= absl::ZeroDuration()) return absl::OkStatus();
    MutexLock lock(&mutex);
    never.WaitFor(&mutex, std::min(left, absl::Milliseconds(5)));
  }
}

absl::Status FaultyKvLink::SendOpen(const TransferId& transfer, int attempt, const WriteToken& token) {
  return cut_ ? Cut() : inner_->SendOpen(transfer, attempt, token);
}

absl::Status FaultyKvLink::SendBytes(const OutgoingFrame& frame, std::span<const uint8_t> bytes,
                                     const Interrupted& interrupted) {
  OutgoingFrame copy = frame;
  copy.payload = std::span<const std::span<const uint8_t>>(&bytes, 1);
  copy.lasting = false;
  return inner_->SendFrame(copy, interrupted);
}

absl::Status FaultyKvLink::SendFrame(const OutgoingFrame& frame, const Interrupted& interrupted) {
  if (cut_) return Cut();
  const int number = num_frames_++;
  std::vector<uint8_t> bytes;
  for (const auto& piece : frame.payload) bytes.insert(bytes.end(), piece.begin(), piece.end());
  if (faults_.stall_after_bytes && num_bytes_ >= *faults_.stall_after_bytes) {
    BATON_RETURN_IF_ERROR(Wait(faults_.stall_timeout, interrupted));
    return absl::DeadlineExceededError("the link stalled");
  }
  num_bytes_ += static_cast<int64_t>(bytes.size());
  if (faults_.cut_after_bytes && num_bytes_ > *faults_.cut_after_bytes) return Cut();
  BATON_RETURN_IF_ERROR(Wait(faults_.delay, interrupted));
  if (faults_.bytes_per_second > 0) {
    BATON_RETURN_IF_ERROR(Wait(absl::Seconds(static_cast<double>(bytes.size()) / static_cast<double>(faults_.bytes_per_second)), interrupted));
  }
  if (number == faults_.drop_frame) return absl::OkStatus();
  if (number == faults_.truncate_frame) bytes.resize(bytes.size() / 2);
  if (number == faults_.flip_frame) bytes[faults_.flip_bit / 8 % bytes.size()] ^= static_cast<uint8_t>(1u << (faults_.flip_bit % 8));
  OutgoingFrame sent = frame;
  if (faults_.change_frame) faults_.change_frame(&sent.header, &bytes);
  if (faults_.reorder && !held_) {
    held_ = Held{sent, std::move(bytes), frame.grant == nullptr ? std::nullopt : std::make_optional(*frame.grant)};
    return absl::OkStatus();
  }
  BATON_RETURN_IF_ERROR(SendBytes(sent, bytes, interrupted));
  if (number == faults_.duplicate_frame) BATON_RETURN_IF_ERROR(SendBytes(sent, bytes, interrupted));
  return SendHeld(interrupted);
}

absl::Status FaultyKvLink::SendHeld(const Interrupted& interrupted) {
  if (!held_) return absl::OkStatus();
  const Held held = *std::exchange(held_, std::nullopt);
  OutgoingFrame frame = held.frame;
  frame.grant = held.grant ? &*held.grant : nullptr;
  return SendBytes(frame, held.bytes, interrupted);
}

absl::Status FaultyKvLink::Flush(const Interrupted& interrupted) { return cut_ ? Cut() : inner_->Flush(interrupted); }

absl::Status FaultyKvLink::SendManifest(const TransferId& transfer, int attempt, const Manifest& manifest,
                                        const Interrupted& interrupted) {
  if (cut_) return Cut();
  BATON_RETURN_IF_ERROR(SendHeld(interrupted));
  Manifest sent = manifest;
  if (faults_.change_manifest) faults_.change_manifest(&sent);
  return inner_->SendManifest(transfer, attempt, sent, interrupted);
}

void FaultyKvLink::SendAborted(const TransferId& transfer, int attempt) {
  if (!cut_) inner_->SendAborted(transfer, attempt);
}

void FaultyKvLink::Settle() {
  held_.reset();
  if (!cut_) inner_->Settle();
}

void FaultyKvLink::Close(absl::Duration flush_timeout) {
  if (!std::exchange(cut_, true)) inner_->Close(flush_timeout);
}

}  // namespace baton::testing
