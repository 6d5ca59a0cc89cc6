// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <memory>
#include <string>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "common/base/build_info.h"
#include "common/base/config.h"
#include "common/base/host_port.h"
#include "common/base/logging.h"
#include "common/base/metrics.h"
#include "common/base/quantity.h"
#include "common/base/service_notifier.h"
#include "common/base/status_macros.h"
#include "common/trace/trace_flags.h"
#include "router/router.h"
#include "router/text_loader.h"
#include "router/tls_flags.h"

ABSL_FLAG(std::string, grpc, "127.0.0.1:9000", "HOST:PORT for clients (baton.v1), and for workers that register where there is no --registry.");
ABSL_FLAG(std::string, registry, "", "HOST:PORT where workers register; needed with --tls-cert or --cluster-tls-cert. Empty: at --grpc.");
ABSL_FLAG(std::string, http, "127.0.0.1:8000", "HOST:PORT of the OpenAI-compatible API; empty: none.");
ABSL_FLAG(std::string, api_keys, "", "File of the keys that clients and workers need, a line each: NAME KEY [client|worker|admin] [LIMIT=VALUE ...]. "
          "Read again when it changes.");
ABSL_FLAG(bool, insecure, false, "Serve other machines without asking anybody for a key or a certificate.");
ABSL_FLAG(std::string, allowed_origins, "", "Web pages that may read answers of --http (CORS): origins like https://chat.example.org, with commas between, or *; empty: none.");
ABSL_FLAG(std::string, status, "", "HOST:PORT of /health, /ready and /metrics; empty: none.");
ABSL_FLAG(bool, vllm_metrics, false, "Also export metrics under vLLM's names, for its dashboards and for inference gateways.");
ABSL_FLAG(absl::Duration, sse_keepalive, absl::Seconds(15), "A stream of events that is silent for so long gets a comment; 0: never.");
ABSL_FLAG(int, http_threads, 2, "Threads of the HTTP server.");
ABSL_FLAG(absl::Duration, http_idle_timeout, absl::Seconds(75), "A client's HTTP connection without a request for so long is closed; longer than proxies in front of it keep theirs.");
ABSL_FLAG(baton::ByteSize, max_request_bytes, baton::ByteSize{64 << 20}, "Largest request of a client, gRPC or HTTP; larger ones are refused.");
ABSL_FLAG(baton::ByteSize, max_preparing_bytes, baton::ByteSize{0},
          "Of requests together that are read, rendered or tokenised; more are refused. 0: twice --max-request-bytes.");
ABSL_FLAG(std::string, model, "", "GGUF file, model folder or tokenizer.json: where the tokenizer and chat template are. Empty: its workers tell them.");
ABSL_FLAG(std::string, served_model_name, "", "What requests call the model; empty: a short name from the file's, or what workers call it.");
ABSL_FLAG(int, template_processes, 2, "Processes that render chat templates.");
ABSL_FLAG(std::string, disaggregate, "adaptive",
          "Where prompts are prefilled: adaptive (where it is sooner), always (on prefill workers) or never (on decode workers).");
ABSL_FLAG(absl::Duration, handoff_time, absl::Milliseconds(4), "What a handoff costs, for --disaggregate adaptive: what decode computes within it "
          "is never sent to a prefill worker. More where they are on machines apart.");
ABSL_FLAG(std::string, policy, "prefix_aware", "How workers are chosen: prefix_aware, least_loaded, power_of_two or round_robin.");
ABSL_FLAG(int, max_queue, 1024, "Requests that may wait for a worker; more are refused.");
ABSL_FLAG(absl::Duration, queue_timeout, absl::Seconds(30), "How long a request waits for a worker.");
ABSL_FLAG(absl::Duration, landing_timeout, absl::Seconds(10), "For a decode worker to reserve blocks.");
ABSL_FLAG(absl::Duration, transfer_timeout, absl::Seconds(120), "For a prompt to be computed and to arrive at the decode worker.");
ABSL_FLAG(absl::Duration, token_timeout, absl::Seconds(60), "Between two tokens.");
ABSL_FLAG(absl::Duration, recovery_timeout, absl::Milliseconds(1500), "How long a request that lost its worker waits while there is none.");
ABSL_FLAG(double, recovery_share, 0.25, "Of a decode worker's slots, the part that streams which lost their worker may have at once until they have landed there, over 0 to 1.");
ABSL_FLAG(absl::Duration, heartbeat, absl::Milliseconds(500), "Workers silent for two of these are out.");
ABSL_FLAG(int, prefill_attempts, 2, "Prefill workers tried for one landing before the decode worker computes the prompt.");
ABSL_FLAG(absl::Duration, grace, absl::Seconds(30), "After SIGTERM, for running requests to finish.");
ABSL_FLAG(std::string, log_format, "text", "text or json.");
ABSL_FLAG(std::string, log_level, "info", "debug, info, warning or error.");

namespace {

const baton::ConfigSpec& Spec() {
  static const baton::ConfigSpec* const spec = new baton::ConfigSpec{
      .program = "baton_router",
      .summary = "Takes requests, sends prompts to prefill workers and streams from decode workers.",
      .examples = "  baton_router --model SmolLM2-135M-Instruct.Q4_1.gguf --grpc 0.0.0.0:9000 --http 0.0.0.0:8000 --api-keys keys\n",
      .groups = {{"Addresses", {"grpc", "http", "registry", "api_keys", "insecure", "allowed_origins", "status", "vllm_metrics", "http_threads", "http_idle_timeout", "sse_keepalive", "max_request_bytes", "max_preparing_bytes"}},
                 {"TLS", baton::RouterTlsFlags()},
                 {"Model", {"model", "served_model_name", "template_processes"}},
                 {"Routing", {"disaggregate", "handoff_time", "policy", "max_queue", "queue_timeout"}},
                 {"Trouble",
                  {"heartbeat", "landing_timeout", "transfer_timeout", "token_timeout", "recovery_timeout", "recovery_share", "prefill_attempts",
                   "grace"}},
                 {"Logging", {"log_format", "log_level"}},
                 {"Tracing", baton::TraceFlags()}}};
  return *spec;
}

bool SetLogging() {
  baton::LogOptions options;
  options.process = "router";
  const std::string format = absl::GetFlag(FLAGS_log_format), level = absl::GetFlag(FLAGS_log_level);
  if (format == "json") {
    options.format = baton::LogFormat::kJson;
  } else if (format != "text") {
    std::fprintf(stderr, "baton_router: --log-format %s is not text or json\n", format.c_str());
    return false;
  }
  const std::pair<const char*, baton::LogSeverity> levels[] = {{"debug", baton::LogSeverity::kDEBUG},
                                                               {"info", baton::LogSeverity::kINFO},
                                                               {"warning", baton::LogSeverity::kWARNING},
                                                               {"error", baton::LogSeverity::kERROR}};
  for (const auto& [name, severity] : levels) {
    if (level != name) continue;
    options.min_severity = severity;
    baton::SetLogOptions(options);
    return true;
  }
  std::fprintf(stderr, "baton_router: --log-level %s is not debug, info, warning or error\n", level.c_str());
  return false;
}

absl::Status CheckExposure(absl::string_view flag, const std::string& address, bool asks_for_certificates) {
  if (address.empty() || absl::GetFlag(FLAGS_insecure) || !absl::GetFlag(FLAGS_api_keys).empty()) return absl::OkStatus();
  if (asks_for_certificates || baton::IsLoopbackAddress(address)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(flag, " ", address, " can be reached from other machines, where nobody is asked for a "
                                                 "key: give --api-keys FILE, or --tls-client-ca FILE for certificates, or --insecure on a network of your own"));
}

absl::Status CheckValues() {
  if (const absl::Status policy = baton::CreateRoutePolicy(absl::GetFlag(FLAGS_policy)).status(); !policy.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--policy: ", policy.message()));
  }
  BATON_RETURN_IF_ERROR(baton::CheckAddress("--grpc", absl::GetFlag(FLAGS_grpc)));
  const std::string registry = absl::GetFlag(FLAGS_registry);
  for (const auto& [flag, address] : {std::pair("--http", absl::GetFlag(FLAGS_http)), std::pair("--registry", registry),
                                      std::pair("--status", absl::GetFlag(FLAGS_status))}) {
    if (!address.empty()) BATON_RETURN_IF_ERROR(baton::CheckAddress(flag, address));
  }
  const bool certificates = baton::ClientsShowCertificates();
  BATON_RETURN_IF_ERROR(CheckExposure("--grpc", absl::GetFlag(FLAGS_grpc), certificates));
  BATON_RETURN_IF_ERROR(CheckExposure("--http", absl::GetFlag(FLAGS_http), certificates));
  const std::pair<const char*, absl::Duration> timeouts[] = {{"--handoff-time", absl::GetFlag(FLAGS_handoff_time)},
                                                             {"--queue-timeout", absl::GetFlag(FLAGS_queue_timeout)},
                                                             {"--landing-timeout", absl::GetFlag(FLAGS_landing_timeout)},
                                                             {"--transfer-timeout", absl::GetFlag(FLAGS_transfer_timeout)},
                                                             {"--token-timeout", absl::GetFlag(FLAGS_token_timeout)},
                                                             {"--recovery-timeout", absl::GetFlag(FLAGS_recovery_timeout)},
                                                             {"--grace", absl::GetFlag(FLAGS_grace)},
                                                             {"--sse-keepalive", absl::GetFlag(FLAGS_sse_keepalive)}};
  for (const auto& [flag, value] : timeouts) {
    if (value < absl::ZeroDuration()) {
      return absl::InvalidArgumentError(absl::StrCat(flag, " ", absl::FormatDuration(value), " is negative"));
    }
  }
  const double share = absl::GetFlag(FLAGS_recovery_share);
  if (!(share > 0 && share <= 1)) return absl::InvalidArgumentError(absl::StrCat("--recovery-share ", share, " is outside (0, 1]"));
  const int processes = absl::GetFlag(FLAGS_template_processes);
  if (processes < 1) return absl::InvalidArgumentError(absl::StrCat("--template-processes ", processes, " is below 1"));
  return absl::OkStatus();
}

absl::StatusOr<baton::RouterOptions> OptionsFromFlags() {
  baton::RouterOptions options;
  const std::string mode = absl::GetFlag(FLAGS_disaggregate);
  if (mode == "never") {
    options.core.disaggregate = baton::Disaggregate::kNever;
  } else if (mode == "adaptive") {
    options.core.disaggregate = baton::Disaggregate::kAdaptive;
  } else if (mode != "always") {
    return absl::InvalidArgumentError(absl::StrCat("--disaggregate ", mode, " is not one of always, adaptive, never"));
  }
  BATON_RETURN_IF_ERROR(CheckValues());
  const int max_queue = absl::GetFlag(FLAGS_max_queue), attempts = absl::GetFlag(FLAGS_prefill_attempts);
  const int http_threads = absl::GetFlag(FLAGS_http_threads);
  if (max_queue < 0) return absl::InvalidArgumentError(absl::StrCat("--max-queue ", max_queue, " is below 0"));
  if (attempts < 1) return absl::InvalidArgumentError(absl::StrCat("--prefill-attempts ", attempts, " is below 1"));
  if (const absl::Duration idle = absl::GetFlag(FLAGS_http_idle_timeout); idle < absl::Milliseconds(1)) {
    return absl::InvalidArgumentError(absl::StrCat("--http-idle-timeout ", absl::FormatDuration(idle), " is below 1ms"));
  }
  if (http_threads < 1) return absl::InvalidArgumentError(absl::StrCat("--http-threads ", http_threads, " is below 1"));
  if (absl::GetFlag(FLAGS_heartbeat) < absl::Milliseconds(10)) {
    return absl::InvalidArgumentError(absl::StrCat("--heartbeat ", absl::FormatDuration(absl::GetFlag(FLAGS_heartbeat)), " is below 10ms"));
  }
  if (const std::string keys = absl::GetFlag(FLAGS_api_keys); !keys.empty()) {
    BATON_ASSIGN_OR_RETURN(options.core.api_keys, baton::ApiKeys::Load(keys));
  }
  BATON_ASSIGN_OR_RETURN(options.core.cors, baton::Cors::Parse(absl::GetFlag(FLAGS_allowed_origins)));
  options.core.vllm_metrics = absl::GetFlag(FLAGS_vllm_metrics);
  BATON_ASSIGN_OR_RETURN(options.core.trace, baton::TracerOptionsFromFlags("baton-router"));
  options.core.policy = absl::GetFlag(FLAGS_policy);
  options.core.admission.max_queue = static_cast<size_t>(max_queue);
  options.core.admission.outage_timeout = absl::GetFlag(FLAGS_recovery_timeout);
  options.core.admission.recovery_share = absl::GetFlag(FLAGS_recovery_share);
  options.core.flow.placement.handoff_ms = absl::ToDoubleMilliseconds(absl::GetFlag(FLAGS_handoff_time));
  options.core.flow.queue_timeout = absl::GetFlag(FLAGS_queue_timeout);
  options.core.flow.landing_timeout = absl::GetFlag(FLAGS_landing_timeout);
  options.core.flow.transfer_timeout = absl::GetFlag(FLAGS_transfer_timeout);
  options.core.flow.token_timeout = absl::GetFlag(FLAGS_token_timeout);
  options.core.flow.prefill_attempts = attempts;
  options.core.sse_keepalive = absl::GetFlag(FLAGS_sse_keepalive);
  options.core.load_model = [called = absl::GetFlag(FLAGS_served_model_name), processes = absl::GetFlag(FLAGS_template_processes)](
                                const std::string& path, const std::string& name) {
    return baton::LoadServedModel(path, called.empty() ? name : called, processes);
  };
  options.core.heartbeat = absl::GetFlag(FLAGS_heartbeat);
  options.registry_address = absl::GetFlag(FLAGS_registry);
  BATON_RETURN_IF_ERROR(baton::ReadTlsFlags(&options));
  const bool mutual = options.core.cluster_tls != nullptr;
  BATON_RETURN_IF_ERROR(CheckExposure("--registry", options.registry_address, mutual));
  options.grpc_address = absl::GetFlag(FLAGS_grpc);
  options.http_address = absl::GetFlag(FLAGS_http);
  options.status_address = absl::GetFlag(FLAGS_status);
  options.http_threads = http_threads;
  options.http_idle_timeout = absl::GetFlag(FLAGS_http_idle_timeout);
  const baton::ByteSize max_request = absl::GetFlag(FLAGS_max_request_bytes), preparing = absl::GetFlag(FLAGS_max_preparing_bytes);
  if (preparing.bytes != 0 && preparing.bytes < max_request.bytes) {
    return absl::InvalidArgumentError(absl::StrCat("--max-preparing-bytes ", preparing.bytes, " is below --max-request-bytes ",
                                                   max_request.bytes));
  }
  options.core.max_request_bytes = static_cast<size_t>(max_request.bytes);
  // Of several renderers one is free for short chats.
  options.core.preparation.max_long = std::max(1, absl::GetFlag(FLAGS_template_processes) - 1);
  options.core.preparation.max_bytes = preparing.bytes != 0 ? preparing.bytes : 2 * max_request.bytes;
  return options;
}

int Run() {
  // Signals are taken by sigwait on this thread alone; threads started from here on inherit the mask.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  auto fail = [](const absl::Status& status) {
    std::fprintf(stderr, "baton_router: %s\n", std::string(status.message()).c_str());
    return 1;
  };
  const absl::StatusOr<baton::RouterOptions> options = OptionsFromFlags();
  if (!options.ok()) return fail(options.status()) + 1;
  baton::MetricRegistry metrics;
  absl::StatusOr<baton::ServedModel> model = baton::ServedModel();
  if (const std::string path = absl::GetFlag(FLAGS_model); !path.empty()) model = options->core.load_model(path, "");
  if (!model.ok()) return fail(model.status());
  BATON_LOG(INFO) << baton::BuildDescription() << ", model " << (model->tokenizer == nullptr ? "of its workers" : model->name);
  absl::StatusOr<std::unique_ptr<baton::Router>> router = baton::Router::Start(*options, *std::move(model), &metrics);
  if (!router.ok()) return fail(router.status());
  BATON_LOG(INFO) << "listening: grpc " << (*router)->grpc_address() << ", http " << (*router)->http_address() << ", status "
                  << (*router)->status_address() << ", workers " << (*router)->registry_address() << "; clients by "
                  << (options->grpc_tls != nullptr ? "TLS" : "plain text") << ", workers by "
                  << (options->core.cluster_tls != nullptr ? "mutual TLS" : "plain text");
  baton::ServiceNotifier notifier;
  notifier.Started("listening");
  const timespec interval = absl::ToTimespec(notifier.interval());
  while (sigtimedwait(&signals, nullptr, &interval) <= 0) {
    // Whoever gets this answer has taken the locks that requests take. A router without workers is no broken one.
    const absl::Status ready = (*router)->core()->Ready();
    notifier.Alive(ready.ok() ? absl::StrCat("ready, ", (*router)->core()->num_running(), " requests") : std::string(ready.message()));
  }
  notifier.Stopping("draining");
  BATON_LOG(INFO) << "draining " << (*router)->core()->num_running() << " requests";
  // A second signal ends the process at once; the kernel closes what is open, which every peer takes for an end.
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  for (const int quick : {SIGTERM, SIGINT}) {
    std::signal(quick, [](int) { _exit(0); });
  }
  const bool idle = (*router)->Drain(absl::GetFlag(FLAGS_grace));
  if (!idle) BATON_LOG(WARNING) << "requests that outlasted the grace period were cut";
  router->reset();
  BATON_LOG(INFO) << "drained";
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  baton::ParseConfigOrExit(Spec(), argc, argv);
  if (!SetLogging()) return 2;
  return Run();
}
