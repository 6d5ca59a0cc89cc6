// SPDX-License-Identifier: Apache-2.0
#include "common/worker/worker_flags.h"

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "common/base/host_port.h"
#include "common/base/logging.h"
#include "common/base/quantity.h"
#include "common/base/secret_file.h"
#include "common/base/status_macros.h"
#include "common/kv_transfer/confidential_transports.h"
#include "common/kv_transfer/transports/device_transports.h"
#include "common/rpc/cluster_tls.h"
#include "common/trace/trace_flags.h"

ABSL_FLAG(std::string, model, "", "GGUF file, or Hugging Face folder with config.json and safetensors.");
ABSL_FLAG(std::string, served_model_name, "", "Name that requests use; empty takes the first word of the file's name.");
ABSL_FLAG(std::string, cache_dir, "", "Folder where packed weights are kept for the next start, shared by this machine's workers; empty keeps none.");
ABSL_FLAG(baton::ByteSize, cache_size, {int64_t{64} << 30}, "Of --cache-dir at most; the least recently used weights go first.");

ABSL_FLAG(std::string, id, "", "Name of this worker; empty draws one.");
ABSL_FLAG(std::string, listen, "127.0.0.1:0", "HOST:PORT of the gRPC services; port 0 takes a free one.");
ABSL_FLAG(std::string, advertise, "", "HOST:PORT where router and workers reach this one; empty is the listening address, or this "
          "machine's address on the way to the router where that is a wildcard.");
ABSL_FLAG(std::string, status, "", "HOST:PORT of /health, /ready and /metrics; empty serves none.");
ABSL_FLAG(bool, vllm_metrics, false, "Also export metrics under vLLM's names, for its dashboards and for inference gateways.");
ABSL_FLAG(std::string, router, "", "HOST:PORT of the routers to register with, separated by commas.");
ABSL_FLAG(std::string, api_key_file, "", "File with the key that the routers want of workers (their --api-keys); read at each registration.");
ABSL_FLAG(std::string, transport, "auto", "How the KV cache travels: auto, or one kind (cuda_ipc, shm, nccl, tcp, grpc; cuda_ipc and nccl "
          "between GPUs). With TLS in the cluster nccl and tcp need --insecure.");
ABSL_FLAG(bool, insecure, false, "Listen for other machines, or let KV travel between them, in the clear.");
ABSL_FLAG(bool, status_tls, false, "--status speaks TLS as well, with --cluster-tls-cert and without asking for certificates.");

ABSL_FLAG(baton::AutoByteSize, kv_memory, {}, "Memory of the KV pool; auto takes --kv-memory-share.");
ABSL_FLAG(double, kv_memory_share, 0.5, "Of the memory that the cgroup leaves, the part that --kv-memory auto takes.");
ABSL_FLAG(int, max_context, 0, "Tokens of prompt and answer at most; 0 is the model's.");
ABSL_FLAG(std::string, kv_wire, "pool",
          "Form in which KV comes here over tcp and grpc: pool, as --kv-dtype, or int8: half of f16's bytes, for a little accuracy.");
ABSL_FLAG(std::string, kv_dtype, "f16", "Type of cached keys and values: f16, bf16, int8 (with a scale per token and head: half the memory and traffic) or f32.");
ABSL_FLAG(int, block_size, 16, "Tokens per KV block, a multiple of 16.");
ABSL_FLAG(bool, prefix_cache, true, "Keep KV blocks of past requests for prompts that begin alike.");
ABSL_FLAG(std::string, pull_history, "auto", "Whether a prefill worker has the beginning of a prompt sent by the decode worker that has it cached: auto "
          "(when that is sooner than computing it), always or never.");

ABSL_FLAG(std::string, device, "auto", "auto (a GPU where one can serve, else the CPU), cpu, cuda, or reference (plain fp32, slow).");
ABSL_FLAG(std::string, cuda_driver, "libcuda.so.1", "Library of the CUDA driver, by file name or path.");
ABSL_FLAG(std::string, cublas_lt, "", "Library of cuBLASLt, by file name or path; empty: libcublasLt.so of this build's major version.");
ABSL_FLAG(std::string, nccl, "libnccl.so.2", "Library of NCCL, for --transport nccl, by file name or path.");
ABSL_FLAG(int, threads, 0, "Compute threads; 0 takes every CPU this process may use.");
ABSL_FLAG(std::string, isa, "", "Force an instruction set for testing: scalar, avx2, avxvnni, avx512vnni, amx.");
ABSL_FLAG(std::string, activations, "", "Rounding of activations before quantised weights: mixed, one or two.");
ABSL_FLAG(std::string, matmul, "", "Who multiplies the layers' matrices: int8, onednn-bf16 or onednn-f32; on a GPU quant or cublaslt.");
ABSL_FLAG(int, nice, -1, "Nice value of the compute threads, 0 to 19; -1 takes the role's: 9 for prefill, 0 for decode.");
ABSL_FLAG(int, chunk_tokens, 512, "Prompt tokens per forward pass.");
ABSL_FLAG(int, panel_rows, 0, "Rows of a chunk between two looks at the inbox; 0 takes the role's: 192 for prefill, 60 for decode.");
ABSL_FLAG(double, prefill_share, 0.35, "Prefill's part of the time while token steps wait in the same worker, 0 to 0.9.");
ABSL_FLAG(absl::Duration, itl_target, absl::ZeroDuration(),
          "Time between tokens that prefill in the same worker may fill up; 0: --prefill-share decides.");
ABSL_FLAG(absl::Duration, ttft_target, absl::ZeroDuration(),
          "A prompt that waits longer than this gets at least half of the time; 0: none does.");
ABSL_FLAG(int, max_running, 64, "Sequences per decode step.");
ABSL_FLAG(int, max_waiting, 256, "Sequences that wait for prefill here; more are refused.");

ABSL_FLAG(absl::Duration, transfer_timeout, absl::Seconds(10), "A KV transfer without progress for so long has failed.");
ABSL_FLAG(absl::Duration, grace, absl::Seconds(30), "How long a drain waits for what runs.");
ABSL_FLAG(std::string, log_level, "info", "debug, info, warning or error.");
ABSL_FLAG(std::string, log_format, "text", "text or json.");

namespace baton {
namespace {

// Weights are unpacked once per panel, so longer panels cost less, by 5 to 10 % from 64 to 192 rows; the matrix kernels take six
// rows at a time. A decode worker that computes a prompt lets a step in after each panel of a layer (60 rows: under 3 ms of a
// small model); a prefill worker only looks for cancels and orders.
constexpr int kPrefillPanelRows = 192;
constexpr int kDecodePanelRows = 60;

absl::StatusOr<KvDtype> ParseKvDtypeFlag(const std::string& name) {
  absl::StatusOr<KvDtype> dtype = ParseKvDtype(name);
  if (!dtype.ok()) return absl::InvalidArgumentError(absl::StrCat("--kv-dtype ", name, " is none of f16, bf16, int8, f32"));
  return dtype;
}

absl::StatusOr<bool> ParseInt8Wire(const std::string& name) {
  if (name == "pool") return false;
  if (name == "int8") return true;
  return absl::InvalidArgumentError(absl::StrCat("--kv-wire ", name, " is none of pool, int8"));
}

absl::StatusOr<PullHistory> ParsePullHistory(const std::string& name) {
  if (name == "auto") return PullHistory::kAuto;
  if (name == "always") return PullHistory::kAlways;
  if (name == "never") return PullHistory::kNever;
  return absl::InvalidArgumentError(absl::StrCat("--pull-history ", name, " is none of auto, always, never"));
}

absl::Status CheckRange(const char* flag, int value, int low, int high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(flag, " ", value, " is outside ", low, " to ", high));
}

// Of one decode worker between its own prompts and its steps.
absl::Status ReadSharing(SharingOptions* sharing) {
  sharing->prefill_share = absl::GetFlag(FLAGS_prefill_share);
  sharing->itl_target = absl::GetFlag(FLAGS_itl_target);
  sharing->ttft_target = absl::GetFlag(FLAGS_ttft_target);
  if (!(sharing->prefill_share >= 0 && sharing->prefill_share <= kMaxPrefillShare)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--prefill-share ", sharing->prefill_share, " is outside [0, ", kMaxPrefillShare, "]"));
  }
  for (const auto& [flag, value] : {std::pair("--itl-target", sharing->itl_target), {"--ttft-target", sharing->ttft_target}}) {
    if (value < absl::ZeroDuration() || value > absl::Hours(1)) {
      return absl::InvalidArgumentError(absl::StrCat(flag, " ", absl::FormatDuration(value), " is outside 0 to 1h"));
    }
  }
  return absl::OkStatus();
}

// What goes over a network is encrypted, or somebody has said that it need not be.
absl::Status ReadTls(WorkerOptions* options) {
  BATON_ASSIGN_OR_RETURN(options->cluster_tls, OpenClusterTls());
  if (absl::GetFlag(FLAGS_status_tls)) {
    BATON_ASSIGN_OR_RETURN(options->status_tls, OpenClusterStatusTls());
    if (options->status_tls == nullptr) return absl::InvalidArgumentError("--status-tls needs --cluster-tls-cert and --cluster-tls-key");
  }
  if (absl::GetFlag(FLAGS_insecure)) return absl::OkStatus();
  if (options->cluster_tls == nullptr) {
    if (IsLoopbackAddress(options->listen)) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("--listen ", options->listen, " can be reached from other machines, where nobody is asked who he "
                                                   "is: give --cluster-tls-cert, -key and -ca, or --insecure on a network of your own"));
  }
  options->transports = ConfidentialTransports(options->transports);
  if (!options->transports.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--transport ", absl::GetFlag(FLAGS_transport), " shows KV to the network, which --cluster-tls-cert "
                                                 "is there to prevent: use auto, or say --insecure"));
}

absl::Status ApplyLogging(internal::WorkerRole role) {
  LogOptions log;
  const std::string level = absl::GetFlag(FLAGS_log_level);
  if (level == "debug") log.min_severity = LogSeverity::kDEBUG;
  else if (level == "info") log.min_severity = LogSeverity::kINFO;
  else if (level == "warning") log.min_severity = LogSeverity::kWARNING;
  else if (level == "error") log.min_severity = LogSeverity::kERROR;
  else return absl::InvalidArgumentError(absl::StrCat("--log-level ", level, " is none of debug, info, warning, error"));
  const std::string format = absl::GetFlag(FLAGS_log_format);
  if (format == "json") log.format = LogFormat::kJson;
  else if (format != "text") return absl::InvalidArgumentError(absl::StrCat("--log-format ", format, " is none of text, json"));
  const std::string id = absl::GetFlag(FLAGS_id);
  log.process = absl::StrCat(role == internal::PREFILL ? "prefill" : "decode", id.empty() ? "" : " ", id);
  SetLogOptions(log);
  return absl::OkStatus();
}

}  // namespace

std::vector<ConfigGroup> WorkerFlagGroups() {
  std::vector<std::string> tls = ClusterTlsFlags();
  tls.push_back("status_tls");
  return {
      {"Model", {"model", "served_model_name", "cache_dir", "cache_size"}},
      {"Cluster", {"id", "listen", "advertise", "router", "api_key_file", "status", "vllm_metrics", "transport", "insecure"}},
      {"TLS", tls},
      {"Memory", {"kv_memory", "kv_memory_share", "max_context", "kv_dtype", "kv_wire", "block_size", "prefix_cache", "pull_history"}},
      {"Compute", {"device", "cuda_driver", "cublas_lt", "nccl", "threads", "nice", "isa", "activations", "matmul", "chunk_tokens", "panel_rows", "max_running",
                   "max_waiting", "prefill_share", "itl_target", "ttft_target"}},
      {"Time", {"transfer_timeout", "grace"}},
      {"Logging", {"log_level", "log_format"}},
      {"Tracing", TraceFlags()},
  };
}

absl::StatusOr<WorkerOptions> WorkerOptionsFromFlags(internal::WorkerRole role) {
  BATON_RETURN_IF_ERROR(ApplyLogging(role));
  WorkerOptions options;
  options.role = role;
  options.id = absl::GetFlag(FLAGS_id);
  options.model_path = absl::GetFlag(FLAGS_model);
  options.served_model_name = absl::GetFlag(FLAGS_served_model_name);
  options.listen = absl::GetFlag(FLAGS_listen);
  options.advertise = absl::GetFlag(FLAGS_advertise);
  options.status = absl::GetFlag(FLAGS_status);
  options.vllm_metrics = absl::GetFlag(FLAGS_vllm_metrics);
  options.routers = absl::StrSplit(absl::GetFlag(FLAGS_router), ',', absl::SkipWhitespace());
  options.api_key_file = absl::GetFlag(FLAGS_api_key_file);
  if (!options.api_key_file.empty()) BATON_RETURN_IF_ERROR(ReadSecretFile("--api-key-file", options.api_key_file).status());
  options.device = absl::GetFlag(FLAGS_device);
  options.backend.cuda_driver = absl::GetFlag(FLAGS_cuda_driver);
  options.backend.cublas_library = absl::GetFlag(FLAGS_cublas_lt);
  SetNcclLibrary(absl::GetFlag(FLAGS_nccl));
  options.backend.num_threads = absl::GetFlag(FLAGS_threads);
  options.backend.isa = absl::GetFlag(FLAGS_isa);
  options.backend.activations = absl::GetFlag(FLAGS_activations);
  options.backend.matmul = absl::GetFlag(FLAGS_matmul);
  options.backend.cache_dir = absl::GetFlag(FLAGS_cache_dir);
  options.backend.cache_bytes = static_cast<uint64_t>(absl::GetFlag(FLAGS_cache_size).bytes);
  if (absl::GetFlag(FLAGS_nice) != -1) options.compute_nice = absl::GetFlag(FLAGS_nice);
  options.engine.max_step_rows = absl::GetFlag(FLAGS_chunk_tokens);
  options.engine.panel_rows = absl::GetFlag(FLAGS_panel_rows);
  if (options.engine.panel_rows == 0) options.engine.panel_rows = role == internal::PREFILL ? kPrefillPanelRows : kDecodePanelRows;
  options.engine.max_running = absl::GetFlag(FLAGS_max_running);
  options.engine.max_waiting = absl::GetFlag(FLAGS_max_waiting);
  options.engine.enable_prefix_cache = absl::GetFlag(FLAGS_prefix_cache);
  BATON_RETURN_IF_ERROR(ReadSharing(&options.engine.sharing));
  options.kv_memory_bytes = absl::GetFlag(FLAGS_kv_memory).bytes;
  options.kv_memory_share = absl::GetFlag(FLAGS_kv_memory_share);
  if (!(options.kv_memory_share > 0 && options.kv_memory_share <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--kv-memory-share ", options.kv_memory_share, " is outside (0, 1]"));
  }
  for (const std::string& router : options.routers) BATON_RETURN_IF_ERROR(CheckAddress("--router", router));
  BATON_RETURN_IF_ERROR(CheckAddress("--listen", options.listen));
  if (!options.advertise.empty()) BATON_RETURN_IF_ERROR(CheckAddress("--advertise", options.advertise));
  if (!options.status.empty()) BATON_RETURN_IF_ERROR(CheckAddress("--status", options.status));
  options.max_context = absl::GetFlag(FLAGS_max_context);
  BATON_ASSIGN_OR_RETURN(options.kv_dtype, ParseKvDtypeFlag(absl::GetFlag(FLAGS_kv_dtype)));
  BATON_ASSIGN_OR_RETURN(options.int8_wire, ParseInt8Wire(absl::GetFlag(FLAGS_kv_wire)));
  options.block_size = absl::GetFlag(FLAGS_block_size);
  BATON_ASSIGN_OR_RETURN(options.pull_history, ParsePullHistory(absl::GetFlag(FLAGS_pull_history)));
  options.transfer_timeout = absl::GetFlag(FLAGS_transfer_timeout);
  options.grace = absl::GetFlag(FLAGS_grace);
  BATON_ASSIGN_OR_RETURN(options.trace, TracerOptionsFromFlags(role == internal::PREFILL ? "baton-prefill-worker" : "baton-decode-worker"));
  const auto transports = ParseTransportFlag(absl::GetFlag(FLAGS_transport));
  if (!transports.ok()) return Annotate(transports.status(), "--transport");
  options.transports = *transports;
  BATON_RETURN_IF_ERROR(ReadTls(&options));
  BATON_RETURN_IF_ERROR(CheckRange("--max-context", options.max_context, 0, 1 << 24));
  BATON_RETURN_IF_ERROR(CheckRange("--threads", options.backend.num_threads, 0, 1024));
  BATON_RETURN_IF_ERROR(CheckRange("--nice", absl::GetFlag(FLAGS_nice), -1, 19));
  BATON_RETURN_IF_ERROR(CheckRange("--chunk-tokens", options.engine.max_step_rows, 16, 1 << 16));
  BATON_RETURN_IF_ERROR(CheckRange("--panel-rows", absl::GetFlag(FLAGS_panel_rows), 0, 1 << 16));
  BATON_RETURN_IF_ERROR(CheckRange("--max-running", options.engine.max_running, 1, 1 << 12));
  BATON_RETURN_IF_ERROR(CheckRange("--max-waiting", options.engine.max_waiting, 1, 1 << 16));
  // A prefill worker generates nothing: no decode batch, no logits.
  if (role == internal::PREFILL) options.engine.max_running = 0;
  if (options.transfer_timeout < absl::Milliseconds(10)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--transfer-timeout ", absl::FormatDuration(options.transfer_timeout), " is under 10ms"));
  }
  return options;
}

}  // namespace baton
