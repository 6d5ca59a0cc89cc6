// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_TRANSFER_STREAM_WIRE_FORMAT_H_
#define BATON_COMMON_KV_TRANSFER_STREAM_WIRE_FORMAT_H_

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/kv_transfer/kv_link.h"
#include "common/kv_transfer/landing_zone.h"
#include "common/kv_transfer/transfer.h"

namespace baton {

// What byte streams (tcp, the sockets of shm and nccl) carry: messages of a header of 64 bytes and a body. Numbers are little-endian. Both
// header and body have a checksum of their own, so that no flipped bit is ever obeyed.
//
//   0 magic u32 | 4 version u8 | 5 type u8 | 6 zero u16 | 8 router incarnation u64 | 16 stream u64 | 24 attempt i32
//   28 layer i32 | 32 token_begin i32 | 36 token_end i32 | 40 body bytes u32 | 44 zero u32 | 48 body checksum u64
//   56 XXH3-64 of bytes 0 to 55
enum class MessageType : uint8_t {
  // Writer to receiver, as proto/baton/internal/kv.proto has them.
  kHello = 1,
  kOpen = 2,         // Body: the write token, or nothing.
  kFrame = 3,        // Body: the payload.
  kPlacedFrame = 4,  // The payload lies in the receiver's pool; its checksum is in the header, the body is empty.
  kManifest = 5,
  kAborted = 6,
  kInvite = 7,  // Body: what the receiver opens its end of the link's payload channel with.
  kBatch = 8,   // Body: the frames whose payloads come next by the payload channel.
  kReleased = 9,  // The link's last: the receiver's pool is not open here any more, and nothing is written to it.
  // Receiver to writer.
  kWelcome = 16,
  kRefused = 17,  // Instead of kWelcome; the connection ends.
  kGrant = 18,
  kDeny = 19,
  kAbort = 20,
};

inline constexpr size_t kHeaderBytes = 64;
inline constexpr uint32_t kMaxPayloadBytes = 64 << 20;  // Of a frame: 1 MiB, or one block's part of a layer.
inline constexpr uint32_t kMaxBodyBytes = 1 << 20;      // Of anything else.

struct MessageHeader {
  MessageType type = MessageType::kHello;
  TransferId transfer;
  int32_t attempt = 0;
  FrameHeader frame;  // Its checksum is the body's.
  uint32_t body_bytes = 0;
};

std::array<uint8_t, kHeaderBytes> EncodeHeader(const MessageHeader& header);
// INVALID_ARGUMENT: no message of this protocol or version, or a body over its bound. DATA_LOSS: the checksum is wrong.
absl::StatusOr<MessageHeader> DecodeHeader(std::span<const uint8_t> bytes);

// A whole message other than a frame.
std::vector<uint8_t> EncodeMessage(MessageType type, const TransferId& transfer, int attempt,
                                   std::span<const uint8_t> body = {});
// DATA_LOSS: `body` is not what the header's checksum says.
absl::Status CheckBody(const MessageHeader& header, std::span<const uint8_t> body);

// kHello and kWelcome. A link may have several connections; all carry frames, the first one everything else.
struct StreamHello {
  LinkHello hello;
  uint64_t link = 0;  // A random number that the connections of one link share.
  uint32_t connection = 0, num_connections = 1;
  uint32_t num_blocks = 0;  // kWelcome with a shared pool: its blocks.
  std::string memory = {};  // And what its memory is opened by, where that is no descriptor. No part of the message where empty.
};
std::vector<uint8_t> EncodeHello(const StreamHello& hello);
absl::StatusOr<StreamHello> DecodeHello(TransportKind kind, std::span<const uint8_t> body);

std::vector<uint8_t> EncodeManifest(const Manifest& manifest);
absl::StatusOr<Manifest> DecodeManifest(std::span<const uint8_t> body);

std::vector<uint8_t> EncodeGrant(const LinkGrant& grant);
absl::StatusOr<LinkGrant> DecodeGrant(std::span<const uint8_t> body);

// kBatch: frames in the order of their payloads, which lie one behind the other.
struct BatchedFrame {
  TransferId transfer;
  int32_t attempt = 0;
  FrameHeader frame;
  uint32_t payload_bytes = 0;
};
inline constexpr size_t kMaxBatchFrames = 4096;
std::vector<uint8_t> EncodeBatch(std::span<const BatchedFrame> frames);
// INVALID_ARGUMENT  malformed, more frames than kMaxBatchFrames, or payloads over kMaxPayloadBytes in all.
absl::StatusOr<std::vector<BatchedFrame>> DecodeBatch(std::span<const uint8_t> body);

// kRefused and kDeny.
std::vector<uint8_t> EncodeError(const absl::Status& status);
absl::Status DecodeError(std::span<const uint8_t> body);  // INVALID_ARGUMENT when it is none; never OK.

}  // namespace baton

#endif  // BATON_COMMON_KV_TRANSFER_STREAM_WIRE_FORMAT_H_
