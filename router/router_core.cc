// SPDX-License-Identifier: Apache-2.0
#include "router/router_core.h"

#include <algorithm>
#include <utility>

#include "common/base/ids.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "router/generation.h"
#include "router/status_details.h"

namespace baton {
namespace {

constexpr size_t kMaxDispatches = 4096;
constexpr absl::Duration kKeyReload = absl::Seconds(1);
constexpr absl::Duration kMaxTick = absl::Milliseconds(100);

AdmissionOptions MakeAdmissionOptions(const RouterCoreOptions& options) {
  AdmissionOptions admission = options.admission;
  admission.disaggregate = options.disaggregate;
  admission.placement = options.flow.placement;
  return admission;
}

WorkerRegistryOptions MakeRegistryOptions(const RouterCoreOptions& options, const ServedModel& model) {
  const Tokenizer* const tokenizer = model.tokenizer.get();
  return {.view = {.disaggregate = options.disaggregate,
                   .vocab_size = tokenizer == nullptr ? 0 : tokenizer->vocab_size(),
                   .tokenizer_fingerprint = tokenizer == nullptr ? "" : tokenizer->fingerprint()},
          .heartbeat = options.heartbeat};
}

absl::Status NoWorkers(const ClusterView& view) {
  return WithRetryAfter(absl::UnavailableError("no workers for this model: " + view.reason), absl::Seconds(1));
}

}  // namespace

absl::StatusOr<std::unique_ptr<RouterCore>> RouterCore::Create(const RouterCoreOptions& options, ServedModel model,
                                                               MetricRegistry* metrics) {
  BATON_ASSIGN_OR_RETURN(std::unique_ptr<RoutePolicy> policy, CreateRoutePolicy(options.policy));
  std::string router_id = NewId("router");
  TracerOptions trace = options.trace;
  trace.instance = router_id;
  BATON_ASSIGN_OR_RETURN(std::unique_ptr<Tracer> tracer, Tracer::Create(std::move(trace), metrics));
  return std::unique_ptr<RouterCore>(
      new RouterCore(options, std::move(model), metrics, std::move(policy), std::move(router_id), std::move(tracer)));
}

RouterCore::RouterCore(const RouterCoreOptions& options, ServedModel model, MetricRegistry* metrics,
                       std::unique_ptr<RoutePolicy> policy, std::string router_id, std::unique_ptr<Tracer> tracer)
    : options(options),
      router_id(std::move(router_id)),
      incarnation(ProcessIncarnation()),
      model(std::move(model)),
      metric_registry(metrics),
      metrics(metrics),
      tracer(std::move(tracer)),
      preparation(options.preparation),
      dispatch("dispatch", /*num_threads=*/1, kMaxDispatches),
      registry(MakeRegistryOptions(options, this->model)),
      clients(options.cluster_tls),
      dispatcher(MakeAdmissionOptions(options), std::move(policy), RandomUint64(), &dispatch) {
  if (this->model.tokenizer != nullptr) {
    has_model_ = true;
  } else {
    seeker_ = std::make_unique<ModelSeeker>(options.cluster_tls, options.load_model,
                                            [this](ServedModel found) { SetModel(std::move(found)); });
  }
  registry.SetListener({.on_change = [this] { OnViewChange(); },
                        .on_lost = [this](const WorkerRef& worker, const std::string& reason) { OnWorkerLost(worker, reason); }});
  ExportGauges();
  if (has_model() && options.vllm_metrics) AddVllmNames(this->model.name, metrics);
  ScheduleTick();
  if (options.api_keys == nullptr) return;
  options.api_keys->ExportTo(metrics);
  ScheduleKeyReload();
}

void RouterCore::ExportGauges() {
  const auto add = [this](const char* name, const char* help, MetricLabels labels, std::function<double()> read) {
    gauges_.push_back(metric_registry->AddCallback(MetricKind::kGauge, name, help, std::move(labels), std::move(read)));
  };
  for (const internal::WorkerRole role : {internal::PREFILL, internal::DECODE}) {
    const MetricLabels labels = {{"role", std::string(RoleName(role))}};
    add("baton_workers", "Workers that take requests, by role.", labels, [this, role] {
      const auto view = registry.View();
      return static_cast<double>(std::count_if(view->workers.begin(), view->workers.end(),
                                               [&](const auto& w) { return w->ready() && w->identity.role() == role; }));
    });
    add("baton_cached_prefixes", "Prefixes that workers of this role have said to have cached.", labels, [this, role] {
      size_t known = 0;
      for (const auto& worker : registry.View()->workers) {
        if (worker->identity.role() == role && worker->cached != nullptr) known += worker->cached->size();
      }
      return static_cast<double>(known);
    });
    add("baton_queue_blocked", "Requests that wait while the first of them waits for a worker of this role.", labels,
        [this, role] { return static_cast<double>(dispatcher.num_waiting_for(role)); });
  }
  add("baton_kv_usage_ratio", "KV blocks of usable decode workers in use or quarantined, of all, as last reported.", {}, [this] {
    int64_t used = 0, total = 0;
    for (const auto& worker : registry.View()->workers) {
      if (!worker->ready() || worker->identity.role() != internal::DECODE) continue;
      used += worker->load.blocks_used() + worker->load.blocks_quarantined();
      total += worker->load.blocks_total();
    }
    return total == 0 ? 0.0 : static_cast<double>(used) / static_cast<double>(total);
  });
  add("baton_recoveries_waiting", "Streams that lost their decode worker and wait for another.", {},
      [this] { return static_cast<double>(dispatcher.num_recoveries_waiting()); });
  add("baton_preparing_bytes", "Of requests that are read, rendered or tokenised, or wait for it.", {},
      [this] { return static_cast<double>(preparation.bytes_reserved()); });
  add("baton_ready", "1 while this process takes work.", {}, [this] { return Ready().ok() ? 1.0 : 0.0; });
  add("baton_draining", "1 from SIGTERM to the end.", {}, [this] { return draining() ? 1.0 : 0.0; });
}

RouterCore::~RouterCore() {
  if (seeker_ != nullptr) seeker_->Stop();
  StartDraining();
  CutAll();
  const MonotonicTime deadline = Clock::Real()->Now() + 2 * options.flow.stop_timeout + absl::Seconds(10);
  {
    MutexLock lock(&mutex_);
    while (!generations_.empty() && Clock::Real()->Now() < deadline) changed_.WaitFor(&mutex_, absl::Milliseconds(50));
    BATON_CHECK(generations_.empty()) << generations_.size() << " requests have calls that do not end";
  }
  gauges_.clear();
  timers.Stop();
  dispatch.Stop();
  preparation.Stop();
}

absl::Status RouterCore::Ready() const {
  if (draining_) return WithRetryAfter(absl::UnavailableError("router is draining"), absl::Seconds(1));
  BATON_RETURN_IF_ERROR(ModelStatus());
  const auto view = registry.View();
  return view->ready ? absl::OkStatus() : NoWorkers(*view);
}

absl::Status RouterCore::ModelStatus() const {
  if (has_model()) return absl::OkStatus();
  return WithRetryAfter(absl::UnavailableError("no model yet: " + seeker_->reason()), absl::Seconds(1));
}

void RouterCore::SetModel(ServedModel found) {
  model = std::move(found);
  has_model_.store(true, std::memory_order_release);
  if (options.vllm_metrics) AddVllmNames(model.name, metric_registry);
  registry.SetTokenizer(model.tokenizer->vocab_size(), model.tokenizer->fingerprint());  // Tells whoever waits to be ready.
}

absl::StatusOr<ModelLimits> RouterCore::Limits() const {
  BATON_RETURN_IF_ERROR(ModelStatus());
  const auto view = registry.View();
  if (!view->ready) return NoWorkers(*view);
  return ModelLimits{.contexts = view->contexts, .vocab_size = view->vocab_size};
}

void RouterCore::OnReadyChange(std::function<void(bool)> callback) {
  {
    MutexLock lock(&ready_mutex_);
    on_ready_ = std::move(callback);
    told_ready_.reset();
  }
  TellReady();
}

// The callback runs under the lock, so that two changes are told in order; it only sets a flag.
void RouterCore::TellReady() {
  MutexLock lock(&ready_mutex_);
  const bool ready = Ready().ok();
  if (on_ready_ == nullptr || told_ready_ == ready) return;
  told_ready_ = ready;
  on_ready_(ready);
}

void RouterCore::StartDraining() {
  draining_ = true;
  TellReady();
}

bool RouterCore::WaitUntilIdle(absl::Duration timeout) {
  const MonotonicTime deadline = Clock::Real()->Now() + timeout;
  MutexLock lock(&mutex_);
  while (num_unanswered_ > 0) {
    const absl::Duration left = deadline - Clock::Real()->Now();
    if (left <= absl::ZeroDuration()) return false;
    changed_.WaitFor(&mutex_, left);
  }
  return true;
}

void RouterCore::CutAll() {
  for (const auto& generation : Generations()) {
    generation->Cancel(absl::UnavailableError("router is shutting down; the request was not finished"));
  }
}

int RouterCore::num_running() const {
  MutexLock lock(&mutex_);
  return num_unanswered_;
}

void RouterCore::Add(const std::shared_ptr<Generation>& generation) {
  MutexLock lock(&mutex_);
  generations_.emplace(generation.get(), generation);
  ++num_unanswered_;
}

void RouterCore::NoteEnded() {
  {
    MutexLock lock(&mutex_);
    --num_unanswered_;
  }
  changed_.NotifyAll();
}

void RouterCore::Remove(Generation* generation) {
  // Notified with the lock held: the destructor may go on as soon as it is free.
  MutexLock lock(&mutex_);
  generations_.erase(generation);
  changed_.NotifyAll();
}

std::vector<std::shared_ptr<Generation>> RouterCore::Generations() const {
  std::vector<std::shared_ptr<Generation>> generations;
  MutexLock lock(&mutex_);
  generations.reserve(generations_.size());
  for (const auto& [key, weak] : generations_) {
    if (auto generation = weak.lock()) generations.push_back(std::move(generation));
  }
  return generations;
}

void RouterCore::OnViewChange() {
  std::vector<WorkerRef> left;
  {
    // From reading the view to the last use of it: else an older view could overwrite a newer one.
    MutexLock lock(&view_mutex_);
    const auto view = registry.View();
    clients.SetView(*view);
    dispatcher.SetView(view);
    if (seeker_ != nullptr) seeker_->SetView(view);
    std::vector<WorkerRef> present;
    for (const auto& worker : view->workers) present.push_back(worker->ref);
    for (const WorkerRef& worker : present_) {
      if (view->Find(worker) == nullptr) left.push_back(worker);
    }
    present_ = std::move(present);
  }
  TellReady();
  if (left.empty()) return;
  for (const auto& generation : Generations()) {
    for (const WorkerRef& worker : left) generation->NoteWorkerLeft(worker);
  }
}

void RouterCore::OnWorkerLost(const WorkerRef& worker, const std::string& reason) {
  BATON_LOG(WARNING) << "lost worker " << worker.id << ": " << reason;
  for (const auto& generation : Generations()) generation->NoteWorkerLost(worker, reason);
}

absl::StatusOr<std::shared_ptr<KeyAccount>> RouterCore::FindKey(absl::string_view authorization, KeyRole needed) const {
  if (options.api_keys == nullptr || (needed == KeyRole::kWorker && options.cluster_tls != nullptr)) return std::shared_ptr<KeyAccount>();
  return options.api_keys->Find(authorization, needed);
}

absl::StatusOr<std::string> RouterCore::CheckKey(absl::string_view authorization, KeyRole needed) const {
  BATON_ASSIGN_OR_RETURN(const std::shared_ptr<KeyAccount> account, FindKey(authorization, needed));
  return account == nullptr ? std::string() : account->name();
}

// Files may be slow: not on the timers' thread.
void RouterCore::ScheduleKeyReload() {
  timers.Schedule(Clock::Real()->Now() + kKeyReload, [this] {
    (void)preparation.Post(0, [this] { options.api_keys->Reload(); });
    ScheduleKeyReload();
  });
}

void RouterCore::ScheduleTick() {
  timers.Schedule(Clock::Real()->Now() + std::min(options.heartbeat / 4, kMaxTick), [this] {
    registry.Tick(Clock::Real()->Now());
    dispatcher.Tick();
    ScheduleTick();
  });
}

}  // namespace baton
