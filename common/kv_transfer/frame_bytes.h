// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_TRANSFER_FRAME_BYTES_H_
#define BATON_COMMON_KV_TRANSFER_FRAME_BYTES_H_

#include <cstddef>

#include "common/kv_transfer/transport_kind.h"

namespace baton {

// Payload of a frame, where nothing else is said. One thread checksums a frame and then copies it, itself or by the kernel: it should
// lie in the core's own cache meanwhile. gRPC has much to do per message, and a GPU per copy, whatever its size.
constexpr size_t FrameBytesFor(TransportKind kind) {
  return kind == TransportKind::kGrpc || kind == TransportKind::kCudaIpc ? 1 << 20 : 128 << 10;
}

}  // namespace baton

#endif  // BATON_COMMON_KV_TRANSFER_FRAME_BYTES_H_
