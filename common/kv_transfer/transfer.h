// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_TRANSFER_TRANSFER_H_
#define BATON_COMMON_KV_TRANSFER_TRANSFER_H_

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/kv_transfer/transport_kind.h"

namespace baton {

// Names one Decode stream, which is one transfer: attempts count within it.
struct TransferId {
  uint64_t router_incarnation = 0;
  uint64_t stream = 0;

  friend bool operator==(const TransferId&, const TransferId&) = default;
  friend bool operator<(const TransferId& a, const TransferId& b) {
    return std::tie(a.router_incarnation, a.stream) < std::tie(b.router_incarnation, b.stream);
  }
  template <typename H>
  friend H AbslHashValue(H h, const TransferId& id) {
    return H::combine(std::move(h), id.router_incarnation, id.stream);
  }
  std::string ToString() const { return absl::StrFormat("%08x-%d", router_incarnation & 0xffffffff, stream); }
};

// One process at the other end of a KV link of one kind. A restart has another incarnation; what is heard of a link of one
// kind says nothing about a writer that uses another.
struct PeerId {
  std::string worker;
  uint64_t incarnation = 0;
  TransportKind transport = TransportKind::kGrpc;

  friend bool operator==(const PeerId&, const PeerId&) = default;
  friend bool operator<(const PeerId& a, const PeerId& b) {
    return std::tie(a.worker, a.incarnation, a.transport) < std::tie(b.worker, b.incarnation, b.transport);
  }
  template <typename H>
  friend H AbslHashValue(H h, const PeerId& peer) {
    return H::combine(std::move(h), peer.worker, peer.incarnation, peer.transport);
  }
};

// What two peers must agree on before any KV moves between them.
struct KvCompatibility {
  std::string model_fingerprint;
  std::string kv_layout;  // KvLayout::fingerprint()
  std::string numerics;   // Recorded, never a reason to refuse.
  // Of a receiver: the layout of frames that come through the host's memory, where it has them in another type than its pool.
  // Empty: kv_layout.
  std::string kv_wire_layout = {};
};

}  // namespace baton

#endif  // BATON_COMMON_KV_TRANSFER_TRANSFER_H_
