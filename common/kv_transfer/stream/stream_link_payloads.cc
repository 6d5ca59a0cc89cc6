// SPDX-License-Identifier: Apache-2.0
// The part of a stream link that brings payloads to the receiver beside its sockets.
#include <poll.h>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/kv_transfer/stream/stream_link.h"

namespace baton {
namespace {

constexpr absl::Duration kLastWords = absl::Seconds(1);  // For a receiver that does not read.
constexpr size_t kPlacedBytes = 384 << 10;  // So much is placed before the receiver hears of it and begins to verify.

}  // namespace

// ---- Into the receiver's pool.

absl::Status StreamLink::PlaceFrame(const OutgoingFrame& frame, size_t bytes, const Interrupted& interrupted) {
  const absl::Status placed = peer_pool_->Place(frame, WhileAlive(interrupted));
  if (absl::IsInternal(placed)) return placed;  // A frame that is not the grant's: the link is none the worse for it.
  BATON_RETURN_IF_ERROR(OfPayloads(placed, interrupted));
  const MessageHeader said = {.type = MessageType::kPlacedFrame, .transfer = frame.transfer, .attempt = frame.attempt, .frame = frame.header};
  placed_.emplace_back(said, frame.checksum);
  placed_bytes_ += bytes;
  if (placed_bytes_ < kPlacedBytes) return absl::OkStatus();
  placed_bytes_ = 0;
  BATON_RETURN_IF_ERROR(AnnouncePlaced(/*all=*/false, interrupted));
  return WaitUntil([this] { return connections_[0]->out.empty(); }, interrupted);
}

absl::Status StreamLink::AnnouncePlaced(bool all, const Interrupted& interrupted) {
  if (placed_.empty()) return absl::OkStatus();
  if (all) BATON_RETURN_IF_ERROR(OfPayloads(peer_pool_->Finish(WhileAlive(interrupted)), interrupted));
  const absl::StatusOr<size_t> arrived = peer_pool_->Arrived();
  BATON_RETURN_IF_ERROR(OfPayloads(arrived.status(), interrupted));
  for (size_t i = 0; i < *arrived; ++i) {
    auto& [header, checksum] = placed_.front();
    if (checksum != nullptr) header.frame.checksum = *checksum;
    connections_[0]->out.Append(EncodeHeader(header));
    placed_.pop_front();
  }
  return absl::OkStatus();
}

// The receiver may have closed its half of the connection already, to hear this.
void StreamLink::ReleasePool() {
  if (peer_pool_ == nullptr) return;
  const bool settled = peer_pool_->Settle();
  peer_pool_ = nullptr;
  if (!settled) return;
  OutBuffer& out = connections_[0]->out;
  out.Append(EncodeMessage(MessageType::kReleased, {}, 0));
  const MonotonicTime deadline = Clock::Real()->Now() + kLastWords;
  while (!out.empty() && SendSome().ok() && Clock::Real()->Now() < deadline) {
    if (!out.empty()) WaitFor(connections_[0]->socket.get(), POLLOUT, -1, deadline);
  }
}

// ---- By a payload channel.

absl::Status StreamLink::AddToBatch(const OutgoingFrame& frame, const Interrupted& interrupted) {
  BATON_RETURN_IF_ERROR(OpenPayloads(interrupted));
  while (true) {
    // Room for it there must be before it is begun.
    if (batch_.frames.empty()) BATON_RETURN_IF_ERROR(SendBatches(/*all=*/ended_.size() >= PayloadWriter::kMaxEnded, interrupted));
    const absl::StatusOr<bool> added = payloads_->Add(frame, WhileAlive(interrupted));
    BATON_RETURN_IF_ERROR(OfPayloads(added.status(), interrupted));
    if (*added) break;
    BATON_RETURN_IF_ERROR(EndBatch());
  }
  size_t bytes = 0;
  for (const auto& piece : frame.payload) bytes += piece.size();
  batch_.frames.push_back({frame.transfer, frame.attempt, frame.header, static_cast<uint32_t>(bytes)});
  batch_.checksums.push_back(frame.checksum);
  return batch_.frames.size() < kMaxBatchFrames ? absl::OkStatus() : EndBatch();
}

absl::Status StreamLink::OpenPayloads(const Interrupted& interrupted) {
  if (payloads_ == nullptr) {
    payloads_ = options_.make_payloads();
    const absl::StatusOr<std::vector<uint8_t>> invitation = payloads_->Invite();
    BATON_RETURN_IF_ERROR(OfPayloads(invitation.status(), interrupted));
    connections_[0]->out.Append(EncodeMessage(MessageType::kInvite, {}, 0, *invitation));
  }
  return OfPayloads(payloads_->Connect(WhileAlive(interrupted)), interrupted);
}

absl::Status StreamLink::EndBatch() {
  if (batch_.frames.empty()) return absl::OkStatus();
  ended_.push_back(std::exchange(batch_, {}));
  return OfPayloads(payloads_->EndBatch(), [] { return absl::OkStatus(); });
}

// The announcement first: the other end can only take what it knows of. The checksums are part of it.
absl::Status StreamLink::SendBatches(bool all, const Interrupted& interrupted) {
  for (; !ended_.empty(); ended_.pop_front()) {
    const absl::StatusOr<bool> ready = payloads_->Ready(all, WhileAlive(interrupted));
    BATON_RETURN_IF_ERROR(OfPayloads(ready.status(), interrupted));
    if (!*ready) return absl::OkStatus();
    Batch& batch = ended_.front();
    for (size_t i = 0; i < batch.frames.size(); ++i) {
      if (batch.checksums[i] != nullptr) batch.frames[i].frame.checksum = *batch.checksums[i];
    }
    connections_[0]->out.Append(EncodeMessage(MessageType::kBatch, {}, 0, EncodeBatch(batch.frames)));
    BATON_RETURN_IF_ERROR(SendSome().status());
    BATON_RETURN_IF_ERROR(OfPayloads(payloads_->SendBatch(), [] { return absl::OkStatus(); }));
  }
  return absl::OkStatus();
}

KvLink::Interrupted StreamLink::WhileAlive(const Interrupted& interrupted) {
  return [this, interrupted]() -> absl::Status {
    BATON_RETURN_IF_ERROR(interrupted());
    if (!alive()) return Broken("the receiver closed it");
    return SendSome().status();
  };
}

absl::Status StreamLink::OfPayloads(const absl::Status& status, const Interrupted& interrupted) {
  if (status.ok()) return status;
  BATON_RETURN_IF_ERROR(interrupted());
  broken_.store(true);
  if (absl::StartsWith(status.message(), "KV link to ")) return status;
  if (absl::IsDeadlineExceeded(status)) {
    return absl::DeadlineExceededError(absl::StrCat("KV link to ", options_.address, ": ", status.message()));
  }
  return Broken(status.message());
}

}  // namespace baton
