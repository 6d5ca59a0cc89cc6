// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <filesystem>
#include <memory>
#include <set>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/host_port.h"
#include "common/base/logging.h"
#include "common/base/shutdown_signals.h"
#include "common/base/status_macros.h"
#include "common/rpc/cluster_tls.h"
#include "common/trace/trace_flags.h"
#include "deploy/cli/cluster_plan.h"
#include "deploy/cli/command.h"
#include "deploy/cli/control_socket.h"
#include "deploy/cli/flags.h"
#include "deploy/cli/router_client.h"
#include "deploy/cli/scale_message.h"
#include "deploy/cli/supervisor.h"
#include "deploy/cli/tls.h"

ABSL_DECLARE_FLAG(std::string, tls_cert);
ABSL_DECLARE_FLAG(std::string, cluster_tls_cert);

namespace baton::cli {
namespace {

constexpr absl::Duration kPoll = absl::Milliseconds(100);

absl::StatusOr<std::string> ProgramFolder() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return absl::FailedPreconditionError(absl::StrCat("/proc/self/exe: ", error.message()));
  return self.parent_path().string();
}

absl::StatusOr<ClusterPlan> PlanFromFlags(const ConfigResult& config) {
  ClusterPlan plan;
  for (const auto& [flag, value] : {std::pair("--grace", absl::GetFlag(FLAGS_grace)),
                                    std::pair("--start-timeout", absl::GetFlag(FLAGS_start_timeout))}) {
    if (value < absl::ZeroDuration()) {
      return absl::InvalidArgumentError(absl::StrCat(flag, " ", absl::FormatDuration(value), " is negative"));
    }
  }
  BATON_ASSIGN_OR_RETURN(plan.program_folder, ProgramFolder());
  plan.model = absl::GetFlag(FLAGS_model);
  const auto api_key = ApiKey();
  // A wrong argument, whatever is wrong with the file: nothing has been tried.
  if (!api_key.ok()) return absl::InvalidArgumentError(api_key.status().message());
  plan.access.api_key = *api_key;
  if (!absl::GetFlag(FLAGS_tls_cert).empty()) {
    BATON_ASSIGN_OR_RETURN(plan.access.tls, OwnRouterTls());
  }
  BATON_RETURN_IF_ERROR(TracerOptionsFromFlags("").status());
  plan.num_prefill = absl::GetFlag(FLAGS_prefill);
  plan.num_decode = absl::GetFlag(FLAGS_decode);
  plan.local_prefill = absl::GetFlag(FLAGS_local_prefill);
  plan.disaggregate = absl::GetFlag(FLAGS_disaggregate);
  BATON_ASSIGN_OR_RETURN(plan.grpc, WithFreePort("--grpc", absl::GetFlag(FLAGS_grpc)));
  plan.http = absl::GetFlag(FLAGS_http);
  if (!plan.http.empty()) {
    BATON_ASSIGN_OR_RETURN(plan.http, WithFreePort("--http", plan.http));
  }
  BATON_ASSIGN_OR_RETURN(plan.status, WithFreePort("--status", absl::GetFlag(FLAGS_status)));
  if (plan.access.tls != nullptr || !absl::GetFlag(FLAGS_cluster_tls_cert).empty()) {
    BATON_ASSIGN_OR_RETURN(plan.registry, WithFreePort("--registry", "127.0.0.1:0"));
  }
  plan.router_flags = absl::StrSplit(absl::GetFlag(FLAGS_router_flags), ' ', absl::SkipEmpty());
  plan.prefill_flags = absl::StrSplit(absl::GetFlag(FLAGS_prefill_flags), ' ', absl::SkipEmpty());
  plan.decode_flags = absl::StrSplit(absl::GetFlag(FLAGS_decode_flags), ' ', absl::SkipEmpty());
  std::set<std::string> forwarded;
  for (const char* program : {"router", "prefill", "decode"}) {
    forwarded.insert(ForwardedTo(program).begin(), ForwardedTo(program).end());
  }
  for (const auto& [name, source] : config.sources) {
    if (source == ConfigSource::kDefault || !forwarded.count(name)) continue;
    plan.options[name] = absl::FindCommandLineFlag(name)->CurrentValue();
  }
  std::error_code error;
  if (!std::filesystem::exists(plan.model, error)) {
    return absl::NotFoundError(absl::StrCat("--model ", plan.model, ": there is no such file or folder"));
  }
  return plan;
}

// The cluster in the foreground.
class Serving {
 public:
  Serving(const ClusterPlan& plan, ShutdownSignals* signals)
      : plan_(plan),
        num_prefill_(plan.local_prefill ? 0 : plan.num_prefill),
        signals_(signals),
        supervisor_({.without_environment = {"BATON_CONFIG", "BATON_ADVERTISE"},
                     .sink = [](absl::string_view line) {
                       const std::string text = absl::StrCat(line, "\n");
                       std::fwrite(text.data(), 1, text.size(), stderr);
                     }}) {}

  int Run(std::vector<ChildSpec> specs) {
    if (const absl::Status started = supervisor_.Start(std::move(specs)); !started.ok()) {
      return Fail("serve", started, /*json=*/false);
    }
    const absl::Status ready = WaitUntilReady();
    if (!ready.ok()) {
      supervisor_.KillAll();
      while (!supervisor_.ended()) supervisor_.Turn(kPoll);
      // Our programs say with this code that a value they were handed is wrong.
      const bool usage = supervisor_.failure() && supervisor_.failure_exit().code == kExitUsage;
      return Fail("serve", ready, /*json=*/false, usage ? kExitUsage : kExitFailure);
    }
    supervisor_.KeepAlive();
    OpenControl();
    while (!supervisor_.draining()) {
      supervisor_.Turn(absl::Seconds(1));
      CheckSignals();
      if (control_ != nullptr) control_->Serve([this](absl::string_view request) { return WriteScaleReply(Scale(request)); });
    }
    supervisor_.WakeBy(-1);
    control_ = nullptr;
    while (!supervisor_.ended()) {
      supervisor_.Turn(kPoll);
      CheckSignals();
    }
    return supervisor_.clean() ? kExitOk : kExitFailure;
  }

 private:
  // For `baton scale`. A cluster serves without it too.
  void OpenControl() {
    const auto address = ParseHostPort(plan_.grpc);
    auto control = address.ok() ? ControlSocket::Open(address->port) : address.status();
    if (!control.ok()) {
      BATON_LOG(WARNING) << "`baton scale` will not work: " << control.status().message();
      return;
    }
    control_ = *std::move(control);
    supervisor_.WakeBy(control_->fd());
  }

  absl::StatusOr<ScaleReply> Scale(absl::string_view text) {
    BATON_ASSIGN_OR_RETURN(const ScaleRequest request, ReadScaleRequest(text));
    if (plan_.local_prefill && request.prefill.value_or(0) > 0) {
      return absl::InvalidArgumentError(absl::StrCat("--prefill ", *request.prefill,
                                                     ": this cluster was started with --local-prefill and has no prefill workers"));
    }
    ClusterPlan next = plan_;
    next.num_prefill = request.prefill.value_or(plan_.num_prefill);
    next.num_decode = request.decode.value_or(plan_.num_decode);
    BATON_ASSIGN_OR_RETURN(std::vector<ChildSpec> specs, PlanCluster(next));
    const absl::Status added = AddAll(specs);
    if (added.ok()) plan_ = std::move(next);
    // When one does not start, those that came with it go: the cluster is as it was.
    if (!added.ok()) {
      BATON_ASSIGN_OR_RETURN(specs, PlanCluster(plan_));
    }
    ScaleReply reply;
    std::set<std::string> wanted;
    for (const ChildSpec& spec : specs) {
      wanted.insert(spec.name);
      if (spec.stage > 0) reply.workers.push_back(WorkerId(spec.name));
    }
    for (const std::string& name : supervisor_.names()) {
      if (wanted.count(name)) continue;
      reply.ending.push_back(WorkerId(name));
      supervisor_.Retire(name, absl::GetFlag(FLAGS_grace) + absl::Seconds(5));
    }
    if (!added.ok()) return added;
    BATON_LOG(INFO) << "scaled to " << (plan_.local_prefill ? 0 : plan_.num_prefill) << " prefill and " << plan_.num_decode
                    << " decode workers";
    return reply;
  }
  absl::Status AddAll(const std::vector<ChildSpec>& specs) {
    for (const ChildSpec& spec : specs) BATON_RETURN_IF_ERROR(supervisor_.Add(spec));
    return absl::OkStatus();
  }
  // "decode d-2": d-2.
  static std::string WorkerId(const std::string& name) { return name.substr(name.rfind(' ') + 1); }

  // First signal: drain; second: kill.
  void CheckSignals() {
    while (signals_->Wait(absl::ZeroDuration())) {
      if (!supervisor_.draining()) {
        BATON_LOG(INFO) << "draining: running requests have " << absl::FormatDuration(absl::GetFlag(FLAGS_grace))
                        << "; a second signal ends everything at once";
        // The programs keep to the grace themselves; killing is for the one that does not.
        supervisor_.BeginDrain(absl::GetFlag(FLAGS_grace) + absl::Seconds(5));
      } else {
        BATON_LOG(WARNING) << "second signal: ending at once";
        supervisor_.KillAll();
      }
    }
  }

  // OK when all workers serve, or when a signal came in the meantime (then the supervisor is draining).
  absl::Status WaitUntilReady() {
    const absl::Duration limit = absl::GetFlag(FLAGS_start_timeout);
    const MonotonicTime deadline = Clock::Real()->Now() + limit;
    std::string missing = "the router has not answered";
    while (true) {
      supervisor_.Turn(kPoll);
      CheckSignals();
      if (supervisor_.draining()) return absl::OkStatus();
      if (supervisor_.failure()) return absl::AbortedError(*supervisor_.failure());
      // A new connection each time: one that was refused before would wait longer each time to try again.
      RouterClient client(ReachableAddress(plan_.grpc), plan_.access);
      if (const auto cluster = client.GetCluster(absl::Milliseconds(500)); cluster.ok()) {
        missing = Missing(*cluster);
        if (missing.empty()) {
          SayReady(*cluster);
          return absl::OkStatus();
        }
      }
      if (Clock::Real()->Now() > deadline) {
        return absl::DeadlineExceededError(
            absl::StrCat("not ready after ", absl::FormatDuration(limit), " (--start-timeout): ", missing));
      }
    }
  }

  // What the cluster still lacks; empty when nothing.
  std::string Missing(const v1::GetClusterResponse& cluster) const {
    int prefill = 0;
    int decode = 0;
    std::string reason;
    for (const v1::Worker& worker : cluster.workers()) {
      if (!worker.ready()) {
        reason = absl::StrCat("; ", worker.id(), " is not ready: ", worker.reason());
      } else {
        ++(worker.role() == "prefill" ? prefill : decode);
      }
    }
    if (prefill < num_prefill_ || decode < plan_.num_decode) {
      return absl::StrCat(prefill, " of ", num_prefill_, " prefill and ", decode, " of ", plan_.num_decode,
                          " decode workers are ready", reason);
    }
    return cluster.router().ready() ? "" : absl::StrCat("the router is not ready: ", cluster.router().reason());
  }

  void SayReady(const v1::GetClusterResponse& cluster) const {
    const std::string line = absl::StrCat(
        "ready: ", cluster.workers(0).model(), " on ", num_prefill_, " prefill and ", plan_.num_decode, " decode ",
        plan_.num_decode == 1 ? "worker" : "workers", "; grpc ", plan_.grpc, plan_.http.empty() ? "" : ", http ", plan_.http,
        ", status ", plan_.status, "\n");
    std::fputs(line.c_str(), stderr);
    std::fflush(stderr);
  }

  ClusterPlan plan_;  // As it is now.
  const int num_prefill_;
  ShutdownSignals* const signals_;
  Supervisor supervisor_;
  std::unique_ptr<ControlSocket> control_;  // Null: it could not be opened, or all ends.
};

int RunServe(const ConfigResult& config) {
  ShutdownSignals signals;
  SetLogOptions({.format = absl::GetFlag(FLAGS_log_format) == "json" ? LogFormat::kJson : LogFormat::kText, .process = "serve"});
  const auto plan = PlanFromFlags(config);
  if (!plan.ok()) {
    return Fail("serve", plan.status(), false, absl::IsInvalidArgument(plan.status()) ? kExitUsage : kExitFailure);
  }
  auto specs = PlanCluster(*plan);
  if (!specs.ok()) return Fail("serve", specs.status(), false, kExitUsage);
  return Serving(*plan, &signals).Run(*std::move(specs));
}

}  // namespace

Command ServeCommand() {
  std::vector<std::string> tls = {"tls_cert", "tls_key", "tls_client_ca", "cert", "key"};
  for (std::string& name : ClusterTlsFlags()) tls.push_back(std::move(name));
  return {
      .name = "serve",
      .summary = "start a cluster on this machine and keep it running",
      .spec = {.summary = "Starts one router with prefill and decode workers on this machine, in the foreground. Says 'ready' "
                          "on standard error when requests are served, starts again what dies, and drains on Ctrl-C or "
                          "SIGTERM: running requests end first. A second Ctrl-C ends everything at once.",
               .examples = "  baton serve --model model.gguf --prefill 1 --decode 1\n"
                           "  baton serve --model model.gguf --local-prefill --grpc 0.0.0.0:9000 --http 0.0.0.0:8000 --insecure\n"
                           "  baton serve --model folder/ --prefill 2 --decode 1 --threads 4 --kv-memory 2G\n",
               .groups = {{"Cluster", {"model", "prefill", "decode", "local_prefill", "disaggregate", "served_model_name"}},
                          {"Addresses", {"grpc", "http", "status", "api_keys", "api_key_file", "insecure", "transport"}},
                          {"TLS", tls},
                          {"Workers", {"threads", "kv_memory", "max_context", "kv_dtype", "kv_wire", "prefix_cache", "cache_dir",
                                       "device", "isa", "activations", "chunk_tokens", "max_running"}},
                          {"Router", {"max_request_bytes"}},
                          {"Time", {"start_timeout", "grace"}},
                          {"Tracing", TraceFlags()},
                          {"Everything else", {"router_flags", "prefill_flags", "decode_flags", "log_level", "log_format"}}},
               .required = {"model"}},
      .run = RunServe,
  };
}

}  // namespace baton::cli
