// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_TRANSFER_GRPC_FRAME_MESSAGE_H_
#define BATON_COMMON_KV_TRANSFER_GRPC_FRAME_MESSAGE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "common/kv_transfer/kv_link.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/proto_buffer_reader.h"

namespace baton {

// A KvLinkRequest with a frame, as proto/baton/internal/kv.proto has it, without a message object around the payload: that
// would copy it once more on each side. The payload comes last; other writers may order the fields as they like.
grpc::ByteBuffer EncodeFrameMessage(const OutgoingFrame& frame);

// What came on the writer's stream, read where it lies.
class IncomingMessage {
 public:
  struct Frame {
    TransferId transfer;
    int attempt = 0;
    FrameHeader header;
    std::vector<std::span<const uint8_t>> payload;  // In the buffer that the message was read from.
  };

  // `buffer` outlives the object and is not touched meanwhile.
  explicit IncomingMessage(grpc::ByteBuffer* buffer) : reader_(buffer) {}

  // Nothing when the message is another one: parse it as a KvLinkRequest then.
  //   INVALID_ARGUMENT  it begins as a frame and is none.
  absl::StatusOr<std::optional<Frame>> ReadFrame();

 private:
  grpc::ProtoBufferReader reader_;  // Keeps what it had to decompress.
};

}  // namespace baton

#endif  // BATON_COMMON_KV_TRANSFER_GRPC_FRAME_MESSAGE_H_
