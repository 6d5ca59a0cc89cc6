// SPDX-License-Identifier: Apache-2.0
#include "common/kv_transfer/confidential_transports.h"
#include "common/kv_transfer/transports/device_transports.h"
#include "common/worker/worker_runtime.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/build_info.h"
#include "common/base/clock.h"
#include "common/base/host_port.h"
#include "common/base/ids.h"
#include "common/base/logging.h"
#include "common/base/memory.h"
#include "common/base/model_name.h"
#include "common/base/quantity.h"
#include "common/base/status_macros.h"
#include "common/base/thread.h"
#include "common/kv_transfer/kv_precision.h"
#include "common/model/checkpoint.h"
#include "common/model/forward.h"
#include "common/worker/performance.h"
#include "common/worker/worker_tokenizer.h"

namespace baton {
namespace {

// More than this many whole contexts is memory that nobody asked for.
constexpr int64_t kMaxDefaultContexts = 64;
// A fair scheduler gives a thread of nice 9 0.13 of the weight of one of nice 0 (1.25 per step): decode keeps 88 % of a core that both
// want. Its threads wait for each other, so that on two cores it loses up to twice what prefill gets. Prefill takes what decode leaves.
constexpr int kPrefillNice = 9;

}  // namespace

absl::StatusOr<std::unique_ptr<WorkerRuntime>> WorkerRuntime::Create(const WorkerOptions& options) {
  // Compute threads inherit the nice value of the thread that starts them. Only a thread of its own can have one for that:
  // without a privilege nobody gets a lower value back.
  absl::StatusOr<std::unique_ptr<WorkerRuntime>> runtime;
  Thread("load", [&] {
    const int nice = options.compute_nice.value_or(options.role == internal::PREFILL ? kPrefillNice : 0);
    if (nice != 0 && !SetThreadNice(nice)) BATON_LOG(WARNING) << "the system refuses --nice " << nice;
    runtime = CreateOnThisThread(options);
  }).Join();
  return runtime;
}

absl::StatusOr<std::unique_ptr<WorkerRuntime>> WorkerRuntime::CreateOnThisThread(const WorkerOptions& options) {
  auto runtime = std::unique_ptr<WorkerRuntime>(new WorkerRuntime);
  runtime->options_ = options;
  {
    MutexLock lock(&runtime->watchdog_mutex_);
    runtime->watchdog_.emplace(options.engine_stuck_after);
  }
  runtime->incarnation_ = ProcessIncarnation();
  if (runtime->options_.id.empty()) {
    runtime->options_.id = NewId(options.role == internal::PREFILL ? "p" : "d");
  }
  runtime->options_.trace.instance = runtime->options_.id;
  BATON_ASSIGN_OR_RETURN(runtime->tracer_, Tracer::Create(runtime->options_.trace, &runtime->metrics_));
  BATON_RETURN_IF_ERROR(runtime->LoadModel());
  BATON_RETURN_IF_ERROR(OpenDeviceTransports({.on_device = !runtime->backend_->host_visible(),
                                              .cuda_driver = options.backend.cuda_driver,
                                              .stall_timeout = options.transfer_timeout},
                                             &runtime->options_.transports));
  BATON_RETURN_IF_ERROR(runtime->CreatePool());
  BATON_RETURN_IF_ERROR(runtime->WarmUp());
  runtime->Calibrate();
  EngineOptions engine_options = options.engine;
  engine_options.context_length = runtime->context_length_;
  BATON_ASSIGN_OR_RETURN(auto core, EngineCore::Create(runtime->model_.get(), runtime->pool_.get(), engine_options,
                                                       Clock::Real()));
  runtime->engine_ = std::make_unique<Engine>(std::move(core), "engine");
  runtime->ExportMetrics();
  return runtime;
}

WorkerRuntime::~WorkerRuntime() {
  callbacks_.clear();
  engine_.reset();
}

absl::Status WorkerRuntime::LoadModel() {
  const MonotonicTime start = Clock::Real()->Now();
  Thread tokenizer("tokenizer", [this] {
    tokenizer_ = ReadWorkerTokenizer(options_.model_path, options_.role == internal::DECODE);
  });
  BATON_ASSIGN_OR_RETURN(auto checkpoint, Checkpoint::Open(options_.model_path));
  BATON_RETURN_IF_ERROR(LoadOnto(checkpoint));
  if (options_.served_model_name.empty()) options_.served_model_name = ShortModelName(options_.model_path);
  const int model_context = model_->config().context_length;
  if (options_.max_context > model_context) {
    return absl::InvalidArgumentError(absl::StrCat("--max-context ", options_.max_context, " is over the model's ",
                                                   model_context));
  }
  context_length_ = options_.max_context > 0 ? options_.max_context : model_context;
  BATON_LOG(INFO) << "loaded " << options_.served_model_name << " (" << FormatBytes(model_->weight_bytes()) << ") for "
                  << backend_->description() << " in " << static_cast<int>(ToMs(Clock::Real()->Now() - start)) << " ms";
  return absl::OkStatus();
}

// The model on the backend that it is served by: under --device auto the CPU, where the GPU has no kernels for its shape.
absl::Status WorkerRuntime::LoadOnto(const std::shared_ptr<const Checkpoint>& checkpoint) {
  options_.backend.prefill_only = options_.role == internal::PREFILL;
  BATON_ASSIGN_OR_RETURN(backend_, CreateBackend(options_.device, options_.backend));
  const LayerShape shape = LayerShapeOf(checkpoint->config());
  absl::Status fits = backend_->CheckShape(shape, options_.kv_dtype);
  if (absl::IsFailedPrecondition(fits) && options_.device == "auto") {
    BATON_LOG(WARNING) << fits.message() << "; staying on the CPU";
    BATON_ASSIGN_OR_RETURN(backend_, CreateBackend("cpu", options_.backend));
    fits = backend_->CheckShape(shape, options_.kv_dtype);
  }
  BATON_RETURN_IF_ERROR(fits);
  BATON_ASSIGN_OR_RETURN(model_, Model::Load(checkpoint, backend_.get(), {}, options_.backend.num_threads));
  return absl::OkStatus();
}

absl::Status WorkerRuntime::CreatePool() {
  const KvLayout layout = model_->kv_layout(options_.kv_dtype, options_.block_size);
  BATON_RETURN_IF_ERROR(layout.Validate());
  const int64_t block_bytes = static_cast<int64_t>(layout.block_bytes());
  const int64_t blocks_per_context = (context_length_ + layout.block_size - 1) / layout.block_size;
  int64_t bytes = 0;
  if (options_.kv_memory_bytes.has_value()) {
    bytes = *options_.kv_memory_bytes;
  } else {
    BATON_ASSIGN_OR_RETURN(const MemoryLimits limits, ReadMemoryLimits());
    const int64_t available = backend_->free_bytes().value_or(limits.available_bytes);
    const double share = static_cast<double>(available) * options_.kv_memory_share;
    bytes = std::min(static_cast<int64_t>(share), kMaxDefaultContexts * blocks_per_context * block_bytes);
  }
  const int64_t blocks = std::min<int64_t>(bytes / block_bytes, INT32_MAX / layout.block_size);
  if (blocks < blocks_per_context) {
    // A smaller pool works, for shorter prompts; one block more than a token is the least that can generate at all.
    if (blocks < 2) {
      return absl::ResourceExhaustedError(absl::StrCat("--kv-memory ", FormatBytes(bytes), " holds ", blocks,
                                                       " KV blocks of ", FormatBytes(block_bytes), "; 2 are needed"));
    }
    const int fits = static_cast<int>(blocks) * layout.block_size;
    BATON_LOG(WARNING) << "KV memory " << FormatBytes(bytes) << " holds " << fits << " tokens: the context is cut from "
                       << context_length_ << " to that";
    context_length_ = fits;
  }
  BATON_RETURN_IF_ERROR(AllocatePool(layout, static_cast<int>(blocks)));
  BATON_LOG(INFO) << "KV pool of " << blocks << " blocks, " << FormatBytes(pool_->bytes()) << " ("
                  << blocks * layout.block_size << " tokens), context " << context_length_;
  return absl::OkStatus();
}

// A decode worker's pool can be mapped by the prefill workers of this machine, where that is one of its transports.
absl::Status WorkerRuntime::AllocatePool(const KvLayout& layout, int num_blocks) {
  std::vector<TransportKind>& kinds = options_.transports;
  const bool shared = options_.role == internal::DECODE && std::count(kinds.begin(), kinds.end(), TransportKind::kShm) > 0;
  if (shared) {
    auto pool = KvPool::CreateShared(layout, num_blocks, backend_.get());
    if (pool.ok()) {
      pool_ = *std::move(pool);
      return absl::OkStatus();
    }
    std::erase(kinds, TransportKind::kShm);
    if (kinds.empty()) return Annotate(pool.status(), "--transport shm");
    BATON_LOG(WARNING) << "KV transport shm is left out: " << pool.status().message();
  }
  BATON_ASSIGN_OR_RETURN(pool_, KvPool::Create(layout, num_blocks, backend_.get()));
  return absl::OkStatus();
}

// The first pass over the weights takes many times a later one's time (pages, tables, threads): not at a client's expense. It
// writes to blocks that nobody has reserved yet.
absl::Status WorkerRuntime::WarmUp() {
  const int block_size = pool_->layout().block_size;
  const int num_tokens = std::min(64, std::min(context_length_, pool_->num_blocks() * block_size));
  BATON_ASSIGN_OR_RETURN(const auto buffers, ForwardBuffers::Create(*model_, num_tokens, 1));
  const std::vector<int32_t> tokens(num_tokens, 0);
  std::vector<int32_t> blocks((num_tokens + block_size - 1) / block_size);
  std::iota(blocks.begin(), blocks.end(), 0);
  ModelInput input;
  input.AddSequence(tokens, 0, blocks, block_size, 1);
  ForwardPass(model_.get(), pool_.get(), &input, buffers.get(), std::max(1, options_.engine.panel_rows)).Finish();
  return backend_->status();
}

void WorkerRuntime::Calibrate() {
  const MonotonicTime start = Clock::Real()->Now();
  peaks_ = backend_->MeasurePeaks(model_->matrices());
  if (peaks_.read_bytes == 0) return;
  const std::string bf16 = peaks_.bf16_flops > 0 ? absl::StrFormat("%.2f Tflop/s in bf16, ", peaks_.bf16_flops * 1e-12) : "";
  BATON_LOG(INFO) << absl::StrFormat("this machine does %.2f Tops in int8, %s%.2f Tflop/s in fp32, and reads %.1f GB/s (%d ms)",
                                     peaks_.int8_ops * 1e-12, bf16, peaks_.fp32_flops * 1e-12, peaks_.read_bytes * 1e-9,
                                     static_cast<int>(ToMs(Clock::Real()->Now() - start)));
}

// The gRPC server has refused what is no address.
std::string WorkerRuntime::listen_host() const {
  const auto parsed = ParseHostPort(options_.listen);
  return parsed.ok() ? parsed->host : "127.0.0.1";
}

KvCompatibility WorkerRuntime::compatibility() const {
  KvPrecision held_in;
  held_in.Add(pool_->layout().dtype);
  KvCompatibility compatibility{model_->fingerprint(), pool_->layout().fingerprint(), held_in.AddTo(backend_->numerics_id())};
  if (options_.int8_wire) {
    KvLayout wire = pool_->layout();
    wire.dtype = KvDtype::kInt8;
    compatibility.kv_wire_layout = wire.fingerprint();
  }
  return compatibility;
}

absl::Status WorkerRuntime::CheckTokens(const std::string& model_fingerprint, std::span<const int32_t> tokens) const {
  if (model_fingerprint != model_->fingerprint()) {
    return absl::FailedPreconditionError(absl::StrCat("model mismatch: request ", model_fingerprint, ", ", id(), " has ",
                                                      model_->fingerprint()));
  }
  if (tokens.empty()) return absl::InvalidArgumentError("tokens: the prompt is empty");
  if (static_cast<int64_t>(tokens.size()) >= context_length_ + int64_t{1}) {
    return absl::InvalidArgumentError(absl::StrCat("tokens: ", tokens.size(), " are over the context of ", context_length_));
  }
  const int vocab = model_->config().vocab_size;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= vocab) {
      return absl::InvalidArgumentError(absl::StrCat("tokens[", i, "]: id ", tokens[i], " is outside the vocabulary of ", vocab));
    }
  }
  return absl::OkStatus();
}

internal::WorkerIdentity WorkerRuntime::Identity(const std::string& address, const std::string& status_address) const {
  internal::WorkerIdentity identity;
  identity.set_id(id());
  identity.set_incarnation(incarnation_);
  identity.set_role(options_.role);
  identity.set_address(options_.advertise.empty() ? address : options_.advertise);
  identity.set_status_address(status_address);
  identity.set_model(options_.served_model_name);
  identity.set_model_fingerprint(model_->fingerprint());
  identity.set_kv_layout(pool_->layout().fingerprint());
  identity.set_numerics(backend_->numerics_id());
  identity.set_context_length(context_length_);
  identity.set_vocab_size(model_->config().vocab_size);
  identity.set_kv_geometry(pool_->layout().geometry());
  for (const TransportKind kind : options_.transports) {
    const std::string name = AnnouncedTransport(kind, options_.cluster_tls != nullptr);
    identity.add_transports(name);
    internal::KvEndpoint* endpoint = identity.add_kv_endpoints();
    endpoint->set_transport(name);
    endpoint->set_host(TransportHost(kind));
  }
  identity.set_version(Version());
  identity.set_multiplexes(options_.role == internal::DECODE);
  identity.set_tokenizer_fingerprint(tokenizer_.fingerprint);
  *identity.mutable_peaks() = PeaksMessage(peaks_);
  return identity;
}

internal::WorkerLoad WorkerRuntime::Load(int num_routers) const {
  const EngineStats stats = engine_->stats();
  internal::WorkerLoad load;
  load.set_blocks_total(stats.blocks.total);
  load.set_blocks_free(stats.blocks.free);
  load.set_blocks_cached(stats.blocks.cached);
  load.set_blocks_quarantined(stats.blocks.quarantined);
  load.set_blocks_used(stats.blocks.used);
  load.set_running(stats.running);
  load.set_waiting(stats.waiting + stats.landing);
  load.set_engine_steps(stats.steps);
  load.set_step_ms(stats.last_step_ms);
  load.set_block_size(pool_->layout().block_size);
  *load.mutable_prefill() = PrefillPerformance(stats, peaks_);
  *load.mutable_decode() = DecodePerformance(stats, peaks_);
  const int routers = std::max(1, num_routers);
  // A prefill worker's own queue is a few requests deep; the rest waits at the router.
  const int slots = options_.role == internal::PREFILL ? 4 : options_.engine.max_running;
  load.set_credit_slots(std::max(1, slots / routers));
  load.set_credit_blocks((stats.blocks.free + stats.blocks.cached) / routers);
  load.set_draining(draining());
  if (const absl::Status ready = Ready(); !ready.ok()) {
    load.set_broken(!draining());
    load.set_reason(std::string(ready.message()));
  }
  return load;
}

absl::Status WorkerRuntime::Ready() const {
  if (draining()) return absl::UnavailableError("draining");
  BATON_RETURN_IF_ERROR(DeviceStatus());
  MutexLock lock(&watchdog_mutex_);
  return watchdog_->Check(engine_->heartbeat(), Clock::Real()->Now());
}

}  // namespace baton
