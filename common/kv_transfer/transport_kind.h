// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_TRANSFER_TRANSPORT_KIND_H_
#define BATON_COMMON_KV_TRANSFER_TRANSPORT_KIND_H_

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace baton {

// How KV gets from one worker's pool into another's. In order of preference: the lower the better where both ends can.
enum class TransportKind { kInproc, kCudaIpc, kShm, kNccl, kTcp, kGrpc };

struct TransportInfo {
  TransportKind kind;
  const char* name;
  enum class Reach { kProcess, kMachine, kNetwork } reach;  // How far apart the two ends may be.
  bool one_sided;      // The writer itself writes into the receiver's pool, so that it needs a grant.
  bool needs_device;   // Moves memory of a GPU: both ends must compute on one. Not part of every build.
};

// All kinds, best first.
std::span<const TransportInfo> Transports();
const TransportInfo& TransportOf(TransportKind kind);
const char* TransportName(TransportKind kind);  // "shm"
// INVALID_ARGUMENT lists the names; FAILED_PRECONDITION: a kind that this build does not have.
absl::StatusOr<TransportKind> ParseTransportKind(absl::string_view name);
// "auto" is every kind of this build that workers in two processes may use, best first; else the one kind.
absl::StatusOr<std::vector<TransportKind>> ParseTransportFlag(absl::string_view value);

// One way to reach a worker's pool. Two ends can use a kind when both offer it with the same host.
struct TransportOffer {
  TransportKind kind = TransportKind::kGrpc;
  std::string host;     // Where it works: a process, a machine with user and network namespace, or "" for anywhere.
  std::string address;  // Where the receiver listens. Empty in a writer's offer.

  friend bool operator==(const TransportOffer&, const TransportOffer&) = default;
};

// What `host` says for this process and that kind. Machines are told apart by boot id, user and network namespace: one that
// cannot be read makes a host of its own, which is equal to nobody's.
std::string TransportHost(TransportKind kind);

// The peer's offers that this end can use too, best first.
std::vector<TransportOffer> CommonTransports(std::span<const TransportKind> own, std::span<const TransportOffer> peers);

}  // namespace baton

#endif  // BATON_COMMON_KV_TRANSFER_TRANSPORT_KIND_H_
