// SPDX-License-Identifier: Apache-2.0
#include "common/kv_transfer/stream/stream_session.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

constexpr size_t kReadAhead = 4096;  // Headers are small: several come with one call.

}  // namespace

StreamSession::StreamSession(const ReceiverCore* core, ByteSource* source, StreamSessionOptions options, OnHelloFn on_hello, DenyFn deny)
    : core_(core), source_(source), options_(std::move(options)), on_hello_(std::move(on_hello)), deny_(std::move(deny)), ahead_(kReadAhead) {}

absl::Status StreamSession::Run() {
  const absl::Status status = ReadMessages();
  if (payloads_ != nullptr) payloads_->Close(/*orderly=*/status.ok());
  return status;
}

absl::Status StreamSession::ReadMessages() {
  while (true) {
    uint8_t head[kHeaderBytes];
    // The one place where the end of the stream is no error.
    if (ahead_end_ - ahead_begin_ < kHeaderBytes) BATON_RETURN_IF_ERROR(AcceptPlaced());  // The next one may be long in coming.
    if (ahead_begin_ == ahead_end_) {
      const iovec vector = {.iov_base = ahead_.data(), .iov_len = ahead_.size()};
      auto bytes = source_->ReadNow(std::span(&vector, 1));
      if (!bytes.ok() || *bytes == 0) BATON_RETURN_IF_ERROR(LandBatches());
      if (bytes.ok() && *bytes == 0) bytes = ReadSome(std::span(&vector, 1));
      if (absl::IsOutOfRange(bytes.status())) return absl::OkStatus();
      BATON_RETURN_IF_ERROR(bytes.status());
      ahead_begin_ = 0;
      ahead_end_ = *bytes;
      continue;
    }
    if (ahead_end_ - ahead_begin_ < kHeaderBytes) BATON_RETURN_IF_ERROR(LandBatches());
    BATON_RETURN_IF_ERROR(Read(head));
    BATON_ASSIGN_OR_RETURN(const MessageHeader header, DecodeHeader(head));
    BATON_RETURN_IF_ERROR(Handle(header));
  }
}

absl::Status StreamSession::Handle(const MessageHeader& header) {
  if (!greeted_ && header.type != MessageType::kHello) {
    return absl::InvalidArgumentError("KV link: the first message must be Hello");
  }
  if (header.type != MessageType::kPlacedFrame) BATON_RETURN_IF_ERROR(AcceptPlaced());
  if (header.type != MessageType::kBatch) BATON_RETURN_IF_ERROR(LandBatches());
  if (header.type == MessageType::kFrame) return OnFrame(header);
  body_.resize(header.body_bytes);
  BATON_RETURN_IF_ERROR(Read(body_));
  if (header.type == MessageType::kPlacedFrame) return OnPlacedFrame(header);
  BATON_RETURN_IF_ERROR(CheckBody(header, body_));
  switch (header.type) {
    case MessageType::kHello:
      return OnHello(body_);
    case MessageType::kOpen:
      OnOpen(header);
      return absl::OkStatus();
    case MessageType::kAborted:
      core_->OnAborted(*admissions_, peer_, header.transfer, header.attempt);
      return absl::OkStatus();
    case MessageType::kInvite:
      return OnInvite();
    case MessageType::kBatch:
      return OnBatch();
    case MessageType::kReleased:
      if (!options_.may_place) return absl::InvalidArgumentError("KV link: a pool was released where none can be open");
      if (options_.on_released) options_.on_released();
      return absl::OkStatus();
    case MessageType::kManifest: {
      BATON_ASSIGN_OR_RETURN(const Manifest manifest, DecodeManifest(body_));
      core_->OnManifest(*admissions_, peer_, header.transfer, header.attempt, manifest, in_order_);
      return absl::OkStatus();
    }
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("KV link: message type ", static_cast<int>(header.type), " is not a writer's"));
  }
}

absl::Status StreamSession::OnHello(std::span<const uint8_t> body) {
  if (greeted_) return absl::InvalidArgumentError("KV link: a second Hello");
  BATON_ASSIGN_OR_RETURN(const StreamHello hello, DecodeHello(core_->kind(), body));
  BATON_ASSIGN_OR_RETURN(admissions_, on_hello_(hello));
  peer_ = hello.hello.self;
  in_order_ = hello.num_connections == 1;
  greeted_ = true;
  return absl::OkStatus();
}

void StreamSession::OnOpen(const MessageHeader& header) {
  const WriteToken token(std::string(body_.begin(), body_.end()));
  const absl::Status status = core_->OnOpen(*admissions_, peer_, header.transfer, header.attempt, token);
  if (!status.ok()) deny_(header.transfer, header.attempt, status);
}

absl::Status StreamSession::OnPlacedFrame(const MessageHeader& header) {
  if (!options_.may_place || header.body_bytes != 0) return absl::InvalidArgumentError("KV link: a placed frame where none can be");
  const auto zone = core_->Find(*admissions_, header.transfer, header.attempt);
  if (zone == nullptr) return absl::OkStatus();
  if (options_.open_placed == nullptr) {
    core_->OnFrameResult(peer_, header.transfer, zone->Accept(header.frame));
    return absl::OkStatus();
  }
  if (!zone->verifies_frames()) {
    core_->OnFrameResult(peer_, header.transfer, zone->AcceptOnDevice(header.frame, header.frame.checksum));
    return absl::OkStatus();
  }
  if (placed_ == nullptr) {
    BATON_ASSIGN_OR_RETURN(placed_, options_.open_placed());
  }
  unchecked_.push_back({{zone, header.frame}, header.transfer});
  return unchecked_.size() < PlacedReader::kMaxFrames ? absl::OkStatus() : AcceptPlaced();
}

absl::Status StreamSession::AcceptPlaced() {
  if (unchecked_.empty()) return absl::OkStatus();
  const auto unchecked = std::exchange(unchecked_, {});
  std::vector<PlacedFrame> frames;
  for (const auto& [frame, transfer] : unchecked) frames.push_back(frame);
  BATON_ASSIGN_OR_RETURN(const auto checksums, placed_->Checksums(frames, [this] { return source_->Interrupted(); }));
  for (size_t i = 0; i < frames.size(); ++i) {
    const uint64_t checksum = checksums[i].value_or(~frames[i].header.checksum);
    core_->OnFrameResult(peer_, unchecked[i].second, frames[i].zone->AcceptOnDevice(frames[i].header, checksum));
  }
  return absl::OkStatus();
}

absl::Status StreamSession::OnInvite() {
  if (options_.open_payloads == nullptr || payloads_ != nullptr) {
    return absl::InvalidArgumentError("KV link: an invitation where none can be");
  }
  BATON_ASSIGN_OR_RETURN(payloads_, options_.open_payloads(body_));
  return payloads_->Connect([this] { return source_->Interrupted(); });
}

// Everything announced is received, whatever has become of its transfer: what comes next is told apart by order alone.
absl::Status StreamSession::OnBatch() {
  if (payloads_ == nullptr) return absl::InvalidArgumentError("KV link: a batch before an invitation");
  BATON_ASSIGN_OR_RETURN(const std::vector<BatchedFrame> frames, DecodeBatch(body_));
  std::vector<PayloadReader::Announced> announced;
  for (const BatchedFrame& frame : frames) {
    const auto zone = core_->Find(*admissions_, frame.transfer, frame.attempt);
    announced.push_back({frame, zone == nullptr || zone->verifies_frames()});
  }
  if (num_batches_ == PayloadReader::kMaxBatches) BATON_RETURN_IF_ERROR(LandBatch());
  BATON_RETURN_IF_ERROR(payloads_->Receive(std::move(announced), [this] { return source_->Interrupted(); }));
  ++num_batches_;
  return absl::OkStatus();
}

absl::Status StreamSession::LandBatch() {
  --num_batches_;
  return payloads_->Land([this](const BatchedFrame& frame) { return core_->Find(*admissions_, frame.transfer, frame.attempt); },
                         [this](const BatchedFrame& frame, const absl::Status& status) { core_->OnFrameResult(peer_, frame.transfer, status); },
                         [this] { return source_->Interrupted(); });
}

absl::Status StreamSession::LandBatches() {
  while (num_batches_ > 0) BATON_RETURN_IF_ERROR(LandBatch());
  return absl::OkStatus();
}

absl::Status StreamSession::OnFrame(const MessageHeader& header) {
  const auto zone = core_->Find(*admissions_, header.transfer, header.attempt);
  if (zone == nullptr) return Drop(header.body_bytes);
  auto arrival = zone->Receive(header.frame, header.body_bytes);
  if (!arrival.ok()) {
    core_->OnFrameResult(peer_, header.transfer, arrival.status());
    return Drop(header.body_bytes);
  }
  BATON_RETURN_IF_ERROR(ReceiveFrame(**arrival));
  // A zone that was closed meanwhile takes nothing more.
  if ((*arrival)->missing_bytes() > 0) return Drop((*arrival)->missing_bytes());
  core_->OnFrameResult(peer_, header.transfer, (*arrival)->Commit());
  return absl::OkStatus();
}

absl::Status StreamSession::ReceiveFrame(FrameArrival& arrival) {
  while (arrival.missing_bytes() > 0) {
    const std::span<const iovec> vectors = arrival.Pin();
    if (vectors.empty()) return absl::OkStatus();
    if (ahead_begin_ < ahead_end_) {
      arrival.Unpin(TakeBuffered({static_cast<uint8_t*>(vectors[0].iov_base), vectors[0].iov_len}));
      continue;
    }
    // The next message's header comes with the end of this one's body.
    std::vector<iovec> into(vectors.begin(), vectors.end());
    into.push_back({.iov_base = ahead_.data(), .iov_len = ahead_.size()});
    const size_t missing = arrival.missing_bytes();
    const auto bytes = source_->ReadNow(into);
    arrival.Unpin(bytes.ok() ? std::min(*bytes, missing) : 0);
    BATON_RETURN_IF_ERROR(bytes.status());
    ahead_begin_ = 0;
    ahead_end_ = *bytes > missing ? *bytes - missing : 0;
    if (*bytes == 0) BATON_RETURN_IF_ERROR(source_->WaitReadable());
  }
  return absl::OkStatus();
}

size_t StreamSession::TakeBuffered(std::span<uint8_t> to) {
  const size_t bytes = std::min(to.size(), ahead_end_ - ahead_begin_);
  std::copy_n(ahead_.begin() + static_cast<std::ptrdiff_t>(ahead_begin_), bytes, to.begin());
  ahead_begin_ += bytes;
  return bytes;
}

absl::Status StreamSession::Read(std::span<uint8_t> to) {
  to = to.subspan(TakeBuffered(to));
  while (!to.empty()) {
    const iovec vectors[2] = {{.iov_base = to.data(), .iov_len = to.size()},
                              {.iov_base = ahead_.data(), .iov_len = ahead_.size()}};
    BATON_ASSIGN_OR_RETURN(const size_t bytes, ReadSome(vectors));
    const size_t used = std::min(bytes, to.size());
    to = to.subspan(used);
    ahead_begin_ = 0;
    ahead_end_ = bytes - used;
  }
  return absl::OkStatus();
}

// What is there is read without asking first: a call less per read where the writer is ahead.
absl::StatusOr<size_t> StreamSession::ReadSome(std::span<const iovec> to) {
  while (true) {
    BATON_ASSIGN_OR_RETURN(const size_t bytes, source_->ReadNow(to));
    if (bytes > 0) return bytes;
    BATON_RETURN_IF_ERROR(source_->WaitReadable());
  }
}

absl::Status StreamSession::Drop(size_t bytes) {
  body_.resize(std::min<size_t>(bytes, 1 << 16));
  while (bytes > 0) {
    const size_t part = std::min(bytes, body_.size());
    BATON_RETURN_IF_ERROR(Read(std::span<uint8_t>(body_).first(part)));
    bytes -= part;
  }
  return absl::OkStatus();
}

}  // namespace baton
