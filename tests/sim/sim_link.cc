// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/sim_link.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "tests/sim/sim_decode.h"

namespace baton::testing {

using Message = SimConnection::Message;

SimKvLink::SimKvLink(SimWorld* world, SimDirectory* directory, TransportKind kind, Events events,
                     std::function<bool(const TransferId&, int)> job_ended)
    : world_(world), directory_(directory), kind_(kind), events_(std::move(events)), job_ended_(std::move(job_ended)) {}

SimKvLink::~SimKvLink() { Close(absl::ZeroDuration()); }

absl::StatusOr<LinkHello> SimKvLink::Open(const LinkHello& self, absl::Duration timeout) {
  if (world_->Trouble(20)) {
    world_->clock.Advance(timeout);
    return absl::UnavailableError("no answer to Hello");
  }
  connection_ = std::make_shared<SimConnection>();
  connection_->peer = self.self;
  connection_->in_order = kind_ != TransportKind::kTcp;
  connection_->events = events_;
  directory_->connections.push_back(connection_);
  SimDecode& decode = *directory_->decode();
  connection_->decode_incarnation = decode.incarnation();
  if (TransportOf(kind_).one_sided) mapping_ = decode.pool();
  return decode.OnHello(connection_);
}

absl::Status SimKvLink::Broken() const { return absl::UnavailableError("KV link broke"); }

void SimKvLink::Put(Message message) {
  if (!connection_->broken && !connection_->cut) connection_->to_decode.push_back(std::move(message));
}

absl::Status SimKvLink::SendOpen(const TransferId& transfer, int attempt, const WriteToken& token) {
  if (!alive()) return Broken();
  if (world_->fault == Fault::kAddressInLanding && mapping_ != nullptr) {
    if (auto grant = directory_->decode()->LandingOf(transfer, attempt)) events_.on_grant(transfer, attempt, *grant);
    return absl::OkStatus();
  }
  Put({.kind = Message::Kind::kOpen, .transfer = transfer, .attempt = attempt, .token = token});
  return absl::OkStatus();
}

absl::Status SimKvLink::SendFrame(const OutgoingFrame& frame, const Interrupted& interrupted) {
  BATON_RETURN_IF_ERROR(interrupted());
  if (!alive()) return Broken();
  if (world_->Trouble(80)) {
    world_->clock.Advance(absl::Seconds(10));
    return absl::DeadlineExceededError("KV link took no data");
  }
  Message message{.kind = Message::Kind::kFrame, .transfer = frame.transfer, .attempt = frame.attempt, .header = frame.header};
  if (mapping_ != nullptr && frame.grant != nullptr && frame.grant->one_sided) {
    BATON_RETURN_IF_ERROR(Place(frame));
    message.kind = Message::Kind::kPlaced;
    Put(std::move(message));
    return absl::OkStatus();
  }
  unsent_.push_back({std::move(message), {frame.payload.begin(), frame.payload.end()}});
  if (!frame.lasting) Own(/*send=*/false);
  if (world_->Pick(3) == 0) Own(/*send=*/true);
  return absl::OkStatus();
}

absl::Status SimKvLink::Place(const OutgoingFrame& frame) {
  const KvLayout layout = SimLayout();
  std::vector<uint8_t> bytes;
  for (const auto& piece : frame.payload) bytes.insert(bytes.end(), piece.begin(), piece.end());
  std::span<const uint8_t> rest = bytes;
  for (int token = frame.header.token_begin; token < frame.header.token_end; token += layout.block_size) {
    const size_t index = static_cast<size_t>(token / layout.block_size);
    const int count = std::min(layout.block_size, frame.header.token_end - token);
    if (index >= frame.grant->blocks.size() || frame.grant->blocks[index] < 0) return absl::InternalError("no block granted");
    const auto part = rest.first(static_cast<size_t>(count) * layout.token_layer_bytes());
    rest = rest.subspan(part.size());
    Copy copy{frame.transfer, frame.attempt, frame.header.layer, frame.grant->blocks[index], count, {part.begin(), part.end()}};
    if (world_->Trouble(100)) copy.bytes[copy.bytes.size() / 2] ^= 4;
    if (world_->fault == Fault::kAckBeforeLastCopy) {
      for (const Copy& late : std::exchange(delayed_, {})) Write(late);
      delayed_.push_back(std::move(copy));
    } else {
      Write(copy);
    }
    // The thread that copies is not alone.
    if (world_->Pick(6) == 0) directory_->Interleave();
    if (world_->Trouble(100)) connection_->cut = true;  // Which it has not noticed: it writes on.
  }
  return absl::OkStatus();
}

void SimKvLink::Write(const Copy& copy) {
  SimDecode& decode = *directory_->decode();
  world_->Note(absl::StrCat("  ", connection_->peer.worker, "/", connection_->peer.incarnation, " writes block ", copy.block,
                            " for ", copy.transfer.stream, " attempt ", copy.attempt));
  if (decode.pool() == mapping_) decode.CheckWrite(copy.block, copy.transfer, copy.attempt);
  mapping_->WriteTokens(copy.layer, copy.block, 0, copy.num_tokens, copy.bytes);
}

void SimKvLink::Own(bool send) {
  for (Unsent& unsent : unsent_) {
    if (!unsent.pieces.empty() && job_ended_(unsent.message.transfer, unsent.message.attempt)) {
      world_->Violate("blocks were read after on_done");
    }
    for (const auto& piece : unsent.pieces) unsent.message.bytes.insert(unsent.message.bytes.end(), piece.begin(), piece.end());
    unsent.pieces.clear();
    if (!send) continue;
    if (world_->Trouble(100)) unsent.message.bytes[unsent.message.bytes.size() / 3] ^= 16;
    Put(std::move(unsent.message));
  }
  if (send) unsent_.clear();
}

absl::Status SimKvLink::Flush(const Interrupted&) {
  if (!alive()) return Broken();
  Own(/*send=*/true);
  return absl::OkStatus();
}

absl::Status SimKvLink::SendManifest(const TransferId& transfer, int attempt, const Manifest& manifest,
                                     const Interrupted& interrupted) {
  BATON_RETURN_IF_ERROR(interrupted());
  if (!alive()) return Broken();
  if (world_->fault == Fault::kAckBeforeLastCopy) {
    for (const Copy& late : std::exchange(delayed_, {})) Write(late);
  }
  Own(/*send=*/true);
  Put({.kind = Message::Kind::kManifest, .transfer = transfer, .attempt = attempt, .manifest = manifest});
  return absl::OkStatus();
}

void SimKvLink::SendAborted(const TransferId& transfer, int attempt) {
  if (!alive()) return;
  Own(/*send=*/true);
  Put({.kind = Message::Kind::kAborted, .transfer = transfer, .attempt = attempt});
}

void SimKvLink::Settle() { Own(/*send=*/false); }

void SimKvLink::Close(absl::Duration) {
  if (connection_ == nullptr) return;
  for (const Copy& late : std::exchange(delayed_, {})) Write(late);
  connection_->broken = true;
  connection_->events.reset();
  connection_ = nullptr;
}

}  // namespace baton::testing
