// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_TRANSFER_GRPC_WIRE_H_
#define BATON_COMMON_KV_TRANSFER_GRPC_WIRE_H_

#include <vector>

#include "baton/internal/kv.pb.h"
#include "baton/internal/types.pb.h"
#include "common/kv_transfer/kv_link.h"
#include "common/kv_transfer/landing_zone.h"
#include "common/kv_transfer/transfer.h"

namespace baton {

// Between the wire's messages and the plain types.
inline TransferId FromProto(const internal::TransferId& id) { return {id.router_incarnation(), id.stream()}; }

inline internal::TransferId ToProto(const TransferId& id) {
  internal::TransferId proto;
  proto.set_router_incarnation(id.router_incarnation);
  proto.set_stream(id.stream);
  return proto;
}

inline LinkHello FromProto(const internal::KvHello& proto) {
  return {{proto.worker(), proto.incarnation(), TransportKind::kGrpc},
          {proto.model_fingerprint(), proto.kv_layout(), proto.numerics()}};
}

inline internal::KvHello ToProto(const LinkHello& hello) {
  internal::KvHello proto;
  proto.set_worker(hello.self.worker);
  proto.set_incarnation(hello.self.incarnation);
  proto.set_model_fingerprint(hello.compatibility.model_fingerprint);
  proto.set_kv_layout(hello.compatibility.kv_layout);
  proto.set_numerics(hello.compatibility.numerics);
  return proto;
}

inline Manifest FromProto(const internal::KvManifest& proto) {
  Manifest manifest;
  manifest.model_fingerprint = proto.model_fingerprint();
  manifest.kv_layout = proto.kv_layout();
  manifest.numerics = proto.numerics();
  manifest.first_token = proto.first_token();
  manifest.num_tokens = proto.num_tokens();
  manifest.token_hash = proto.token_hash();
  manifest.checksum = proto.checksum();
  manifest.payload_bytes = proto.payload_bytes();
  manifest.num_frames = proto.num_frames();
  return manifest;
}

inline internal::KvManifest ToProto(const Manifest& manifest) {
  internal::KvManifest proto;
  proto.set_model_fingerprint(manifest.model_fingerprint);
  proto.set_kv_layout(manifest.kv_layout);
  proto.set_numerics(manifest.numerics);
  proto.set_first_token(manifest.first_token);
  proto.set_num_tokens(manifest.num_tokens);
  proto.set_token_hash(manifest.token_hash);
  proto.set_checksum(manifest.checksum);
  proto.set_payload_bytes(manifest.payload_bytes);
  proto.set_num_frames(manifest.num_frames);
  return proto;
}

inline internal::KvEndpoint ToProto(const TransportOffer& offer) {
  internal::KvEndpoint proto;
  proto.set_transport(TransportName(offer.kind));
  proto.set_host(offer.host);
  proto.set_address(offer.address);
  return proto;
}

// Those of kinds that this build has.
template <class Endpoints>
std::vector<TransportOffer> OffersFromProto(const Endpoints& protos) {
  std::vector<TransportOffer> offers;
  for (const internal::KvEndpoint& proto : protos) {
    if (const auto kind = ParseTransportKind(proto.transport()); kind.ok()) {
      offers.push_back({*kind, proto.host(), proto.address()});
    }
  }
  return offers;
}

}  // namespace baton

#endif  // BATON_COMMON_KV_TRANSFER_GRPC_WIRE_H_
