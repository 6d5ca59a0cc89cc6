// SPDX-License-Identifier: Apache-2.0
#include "common/kv_transfer/transport_kind.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/ids.h"

namespace baton {
namespace {

using Reach = TransportInfo::Reach;

constexpr std::array<TransportInfo, 6> kTransports = {{
    {TransportKind::kInproc, "inproc", Reach::kProcess, false, false},
    {TransportKind::kCudaIpc, "cuda_ipc", Reach::kMachine, true, true},
    {TransportKind::kShm, "shm", Reach::kMachine, true, false},
    {TransportKind::kNccl, "nccl", Reach::kNetwork, false, true},
    {TransportKind::kTcp, "tcp", Reach::kNetwork, false, false},
    {TransportKind::kGrpc, "grpc", Reach::kNetwork, false, false},
}};

// The others are named so that they can be refused by name.
bool Built(const TransportInfo& info) {
  if (info.kind == TransportKind::kCudaIpc) return BATON_CUDA_IPC_TRANSPORT != 0;
  return info.kind != TransportKind::kNccl || BATON_NCCL_TRANSPORT != 0;
}

// Boot id, user and network namespace: abstract sockets live in the last, and the first tells machines apart that have
// namespaces of one number.
std::string MachineHost() {
  std::ifstream boot_file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(boot_file, boot);
  char net[64];
  const ssize_t length = readlink("/proc/self/ns/net", net, sizeof(net));
  if (boot.empty() || length <= 0) return absl::StrFormat("process %016x", ProcessIncarnation());
  return absl::StrCat(absl::StripAsciiWhitespace(boot), " uid ", geteuid(), " ",
                      absl::string_view(net, static_cast<size_t>(length)));
}

}  // namespace

std::span<const TransportInfo> Transports() { return kTransports; }

const TransportInfo& TransportOf(TransportKind kind) { return kTransports[static_cast<size_t>(kind)]; }

const char* TransportName(TransportKind kind) { return TransportOf(kind).name; }

absl::StatusOr<TransportKind> ParseTransportKind(absl::string_view name) {
  std::string names;
  for (const TransportInfo& info : kTransports) {
    if (name == info.name) {
      if (Built(info)) return info.kind;
      return absl::FailedPreconditionError(absl::StrCat("transport ", name, " is not part of this build"));
    }
    if (Built(info)) absl::StrAppend(&names, names.empty() ? "" : ", ", info.name);
  }
  return absl::InvalidArgumentError(absl::StrCat("transport ", name, " is none of ", names));
}

absl::StatusOr<std::vector<TransportKind>> ParseTransportFlag(absl::string_view value) {
  std::vector<TransportKind> kinds;
  if (value != "auto") {
    const absl::StatusOr<TransportKind> kind = ParseTransportKind(value);
    if (!kind.ok()) return kind.status();
    return std::vector<TransportKind>{*kind};
  }
  for (const TransportInfo& info : kTransports) {
    if (Built(info) && info.reach != Reach::kProcess) kinds.push_back(info.kind);
  }
  return kinds;
}

std::string TransportHost(TransportKind kind) {
  switch (TransportOf(kind).reach) {
    case Reach::kProcess:
      return absl::StrFormat("process %016x", ProcessIncarnation());
    case Reach::kMachine:
      return MachineHost();
    case Reach::kNetwork:
      return "";
  }
  return "";
}

std::vector<TransportOffer> CommonTransports(std::span<const TransportKind> own, std::span<const TransportOffer> peers) {
  std::vector<TransportOffer> common;
  for (const TransportOffer& offer : peers) {
    if (std::find(own.begin(), own.end(), offer.kind) == own.end()) continue;
    if (offer.host != TransportHost(offer.kind)) continue;
    common.push_back(offer);
  }
  std::stable_sort(common.begin(), common.end(),
                   [](const TransportOffer& a, const TransportOffer& b) { return a.kind < b.kind; });
  return common;
}

}  // namespace baton
