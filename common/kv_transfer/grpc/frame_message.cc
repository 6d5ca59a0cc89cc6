// SPDX-License-Identifier: Apache-2.0
#include "common/kv_transfer/grpc/frame_message.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "baton/internal/kv.pb.h"
#include "common/kv_transfer/grpc/wire.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"
#include "grpcpp/support/slice.h"

namespace baton {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;
using Frame = internal::KvFrame;

constexpr uint32_t kFrameTag =
    WireFormatLite::MakeTag(internal::KvLinkRequest::kFrameFieldNumber, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
constexpr uint32_t kPayloadTag = WireFormatLite::MakeTag(Frame::kPayloadFieldNumber, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
constexpr size_t kMaxHead = 128;  // Everything of a frame but its payload takes less: seven numbers.

bool ReadNumber(CodedInputStream* in, int* to) {
  uint64_t value;
  if (!in->ReadVarint64(&value)) return false;
  *to = static_cast<int>(value);
  return true;
}

bool ReadTransfer(CodedInputStream* in, TransferId* to) {
  std::string bytes;
  uint32_t size;
  internal::TransferId id;
  if (!in->ReadVarint32(&size) || size > kMaxHead || !in->ReadString(&bytes, static_cast<int>(size)) || !id.ParseFromString(bytes)) {
    return false;
  }
  *to = FromProto(id);
  return true;
}

bool ReadPayload(CodedInputStream* in, std::vector<std::span<const uint8_t>>* to) {
  uint32_t left;
  if (!in->ReadVarint32(&left)) return false;
  to->clear();  // Of a field that comes twice the last one counts.
  while (left > 0) {
    const void* data;
    int size;
    if (!in->GetDirectBufferPointer(&data, &size) || size <= 0) return false;
    const uint32_t part = std::min(left, static_cast<uint32_t>(size));
    to->push_back({static_cast<const uint8_t*>(data), part});
    if (!in->Skip(static_cast<int>(part))) return false;
    left -= part;
  }
  return true;
}

bool ReadField(CodedInputStream* in, uint32_t tag, IncomingMessage::Frame* frame) {
  const bool varint = WireFormatLite::GetTagWireType(tag) == WireFormatLite::WIRETYPE_VARINT;
  const bool bytes = WireFormatLite::GetTagWireType(tag) == WireFormatLite::WIRETYPE_LENGTH_DELIMITED;
  switch (WireFormatLite::GetTagFieldNumber(tag)) {
    case Frame::kTransferFieldNumber:
      return bytes && ReadTransfer(in, &frame->transfer);
    case Frame::kAttemptFieldNumber:
      return varint && ReadNumber(in, &frame->attempt);
    case Frame::kLayerFieldNumber:
      return varint && ReadNumber(in, &frame->header.layer);
    case Frame::kTokenBeginFieldNumber:
      return varint && ReadNumber(in, &frame->header.token_begin);
    case Frame::kTokenEndFieldNumber:
      return varint && ReadNumber(in, &frame->header.token_end);
    case Frame::kPayloadFieldNumber:
      return bytes && ReadPayload(in, &frame->payload);
    case Frame::kChecksumFieldNumber:
      return varint && in->ReadVarint64(&frame->header.checksum);
    default:
      return WireFormatLite::SkipField(in, tag);
  }
}

}  // namespace

grpc::ByteBuffer EncodeFrameMessage(const OutgoingFrame& frame) {
  Frame proto;
  *proto.mutable_transfer() = ToProto(frame.transfer);
  proto.set_attempt(frame.attempt);
  proto.set_layer(frame.header.layer);
  proto.set_token_begin(frame.header.token_begin);
  proto.set_token_end(frame.header.token_end);
  proto.set_checksum(frame.header.checksum);
  size_t payload_bytes = 0;
  for (const auto& piece : frame.payload) payload_bytes += piece.size();

  const size_t fields = proto.ByteSizeLong();
  const size_t inner = fields + 1 + CodedOutputStream::VarintSize64(payload_bytes) + payload_bytes;
  uint8_t head[kMaxHead];
  uint8_t* end = CodedOutputStream::WriteTagToArray(kFrameTag, head);
  end = CodedOutputStream::WriteVarint64ToArray(inner, end);
  end = proto.SerializeWithCachedSizesToArray(end);
  end = CodedOutputStream::WriteTagToArray(kPayloadTag, end);
  end = CodedOutputStream::WriteVarint64ToArray(payload_bytes, end);

  // The one copy: gRPC lets go of what it has when the socket has taken it, and blocks cannot wait for that.
  const size_t head_bytes = static_cast<size_t>(end - head);
  const grpc::Slice slice(head_bytes + payload_bytes);
  auto* to = const_cast<uint8_t*>(slice.begin());
  std::memcpy(to, head, head_bytes);
  to += head_bytes;
  for (const auto& piece : frame.payload) {
    if (!piece.empty()) std::memcpy(to, piece.data(), piece.size());
    to += piece.size();
  }
  return grpc::ByteBuffer(&slice, 1);
}

absl::StatusOr<std::optional<IncomingMessage::Frame>> IncomingMessage::ReadFrame() {
  CodedInputStream in(&reader_);
  if (in.ReadTag() != kFrameTag) return std::nullopt;
  uint32_t size;
  Frame frame;
  bool good = in.ReadVarint32(&size);
  if (good) {
    const auto limit = in.PushLimit(static_cast<int>(size));
    while (good && in.BytesUntilLimit() > 0) {
      const uint32_t tag = in.ReadTag();
      good = tag != 0 && ReadField(&in, tag, &frame);
    }
    good = good && in.BytesUntilLimit() == 0;
    in.PopLimit(limit);
  }
  // A frame is a message's only field.
  if (!good || in.ReadTag() != 0 || !in.ConsumedEntireMessage()) return absl::InvalidArgumentError("KV link: malformed frame");
  return frame;
}

}  // namespace baton
