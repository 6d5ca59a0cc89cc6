// SPDX-License-Identifier: Apache-2.0
#include "deploy/cli/cluster_plan.h"

#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "common/base/host_port.h"
#include "common/base/status_macros.h"
#include "common/trace/trace_flags.h"

namespace baton::cli {
namespace {

constexpr int kMaxWorkers = 64;

// --name=value for each option that `program` takes.
void AppendOptions(const ClusterPlan& plan, absl::string_view program, std::vector<std::string>* argv) {
  for (const std::string& name : ForwardedTo(program)) {
    const auto found = plan.options.find(name);
    if (found == plan.options.end()) continue;
    argv->push_back(absl::StrCat("--", absl::StrReplaceAll(name, {{"_", "-"}}), "=", found->second));
  }
}

ChildSpec Router(const ClusterPlan& plan) {
  const std::string fallback = plan.local_prefill ? "never" : "adaptive";
  ChildSpec spec = {.name = "router", .stage = 0};
  spec.argv = {plan.program_folder + "/baton_router",
               "--model=" + plan.model,
               "--grpc=" + plan.grpc,
               "--http=" + plan.http,
               "--status=" + plan.status,
               "--disaggregate=" + (plan.disaggregate.empty() ? fallback : plan.disaggregate)};
  if (!plan.registry.empty()) spec.argv.push_back("--registry=" + plan.registry);
  AppendOptions(plan, "router", &spec.argv);
  spec.argv.insert(spec.argv.end(), plan.router_flags.begin(), plan.router_flags.end());
  return spec;
}

int NumPrefill(const ClusterPlan& plan) { return plan.local_prefill ? 0 : plan.num_prefill; }

ChildSpec Worker(const ClusterPlan& plan, const std::string& role, int number) {
  const std::string id = absl::StrCat(role.substr(0, 1), "-", number);
  ChildSpec spec = {.name = absl::StrCat(role, " ", id), .stage = 1};
  spec.argv = {absl::StrCat(plan.program_folder, "/baton_", role, "_worker"),
               "--model=" + plan.model,
               "--id=" + id,
               "--listen=127.0.0.1:0",
               "--status=127.0.0.1:0",
               "--router=" + ReachableAddress(plan.registry.empty() ? plan.grpc : plan.registry),
               // The workers share this machine's memory; each alone would take half of it.
               absl::StrFormat("--kv-memory-share=%.4g", 0.5 / (NumPrefill(plan) + plan.num_decode))};
  AppendOptions(plan, role, &spec.argv);
  const std::vector<std::string>& more = role == "prefill" ? plan.prefill_flags : plan.decode_flags;
  spec.argv.insert(spec.argv.end(), more.begin(), more.end());
  return spec;
}

void SetPort(sockaddr* address, uint16_t port) {
  (address->sa_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(address)->sin6_port
                                  : reinterpret_cast<sockaddr_in*>(address)->sin_port) = htons(port);
}

// Binds `address` and lets go of it: the port that it had.
absl::StatusOr<uint16_t> BoundPort(const addrinfo& address) {
  const int fd = socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::UnavailableError(absl::StrCat("no socket: ", strerror(errno)));
  // As the servers do: connections that linger in TIME_WAIT are no hindrance, a listener is.
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_storage bound = {};
  socklen_t size = sizeof bound;
  const bool ok = bind(fd, address.ai_addr, address.ai_addrlen) == 0 && listen(fd, 1) == 0 &&
                  getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size) == 0;
  const int error = errno;
  close(fd);
  if (!ok) return absl::UnavailableError(absl::StrCat("this machine cannot listen there: ", strerror(error)));
  return ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port
                                           : reinterpret_cast<sockaddr_in*>(&bound)->sin_port);
}

// Ports that the system gives to whoever asks for any, from this one on.
int FirstSystemPort() {
  std::ifstream file("/proc/sys/net/ipv4/ip_local_port_range");  // Of IPv6 too.
  int first = 0;
  return file >> first ? first : 0;
}

// A port that is free at `address` and is not the system's to give: the router's is chosen some time before it listens, and the workers that
// start beside it take any. 0, for the system's choice, where there is no room below those. Changes the port in `address`.
uint16_t ChoosePort(const addrinfo& address) {
  constexpr int kLowest = 10000, kTries = 64;
  const int end = FirstSystemPort();
  if (end <= kLowest + kTries) return 0;
  std::random_device random;
  for (int i = 0; i < kTries; ++i) {
    const auto port = static_cast<uint16_t>(kLowest + random() % static_cast<unsigned>(end - kLowest));
    SetPort(address.ai_addr, port);
    if (BoundPort(address).ok()) return port;
  }
  return 0;
}

absl::Status CheckCount(absl::string_view flag, int value, int low) {
  if (value >= low && value <= kMaxWorkers) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(flag, " ", value, " is outside ", low, " to ", kMaxWorkers));
}

}  // namespace

const std::vector<std::string>& ForwardedTo(absl::string_view program) {
  static const auto with_traces = [](std::vector<std::string> names) {
    for (std::string& name : TraceFlags()) names.push_back(std::move(name));
    return new std::vector<std::string>(std::move(names));
  };
  static const auto* const router =
      with_traces({"served_model_name", "api_keys", "insecure", "max_request_bytes", "grace", "log_level", "log_format",
                   "tls_cert", "tls_key", "tls_client_ca", "cluster_tls_cert", "cluster_tls_key", "cluster_tls_ca", "cluster_tls_name"});
  static const auto* const worker = with_traces(
      {"served_model_name", "api_key_file", "transport", "device", "threads", "isa", "activations", "kv_memory", "max_context",
       "kv_dtype", "kv_wire", "cache_dir", "chunk_tokens", "max_running", "prefix_cache", "grace", "log_level", "log_format",
       "cluster_tls_cert", "cluster_tls_key", "cluster_tls_ca", "cluster_tls_name"});
  return program == "router" ? *router : *worker;
}

absl::StatusOr<std::vector<ChildSpec>> PlanCluster(const ClusterPlan& plan) {
  BATON_RETURN_IF_ERROR(CheckCount("--prefill", plan.num_prefill, 0));
  BATON_RETURN_IF_ERROR(CheckCount("--decode", plan.num_decode, 1));
  if (!plan.disaggregate.empty() && plan.disaggregate != "always" && plan.disaggregate != "adaptive" &&
      plan.disaggregate != "never") {
    return absl::InvalidArgumentError(absl::StrCat("--disaggregate ", plan.disaggregate, " is none of always, adaptive, never"));
  }
  const bool needs_prefill = !plan.local_prefill && plan.disaggregate != "never";
  if (needs_prefill && plan.num_prefill == 0) {
    return absl::InvalidArgumentError("--prefill 0 needs --local-prefill or --disaggregate never");
  }
  if (plan.local_prefill && !plan.disaggregate.empty() && plan.disaggregate != "never") {
    return absl::InvalidArgumentError(
        absl::StrCat("--local-prefill has no prefill workers, so --disaggregate ", plan.disaggregate, " cannot be"));
  }
  std::vector<ChildSpec> specs = {Router(plan)};
  for (int i = 1; i <= NumPrefill(plan); ++i) specs.push_back(Worker(plan, "prefill", i));
  for (int i = 1; i <= plan.num_decode; ++i) specs.push_back(Worker(plan, "decode", i));
  return specs;
}

absl::StatusOr<std::string> WithFreePort(absl::string_view flag, absl::string_view address) {
  auto parsed = ParseHostPort(address);
  if (!parsed.ok()) return Annotate(parsed.status(), flag);
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(parsed->host.c_str(), std::to_string(parsed->port).c_str(), &hints, &found); error != 0) {
    return absl::UnavailableError(absl::StrCat(flag, " ", address, ": ", gai_strerror(error)));
  }
  if (parsed->port == 0) SetPort(found->ai_addr, ChoosePort(*found));
  const absl::StatusOr<uint16_t> port = BoundPort(*found);
  freeaddrinfo(found);
  if (!port.ok()) return Annotate(port.status(), absl::StrCat(flag, " ", address));
  return FormatHostPort(parsed->host, *port);
}

std::string ReachableAddress(const std::string& address) {
  const auto parsed = ParseHostPort(address);
  if (!parsed.ok()) return address;
  if (parsed->host == "0.0.0.0") return FormatHostPort("127.0.0.1", parsed->port);
  if (parsed->host == "::") return FormatHostPort("::1", parsed->port);
  return address;
}

}  // namespace baton::cli
