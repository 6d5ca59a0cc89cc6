// SPDX-License-Identifier: Apache-2.0
#include "tests/support/stub_workers.h"

#include <algorithm>
#include <atomic>

#include "absl/strings/str_cat.h"
#include "baton/internal/text.grpc.pb.h"
#include "tests/support/sanitizers.h"

namespace baton::testing {
namespace {

std::atomic<uint64_t> next_incarnation{1000};

// KV that arrives: prefill stubs tell the decode stub that is meant.
Mutex hub_mutex;
std::map<std::string, StubWorker*>& Hub() {
  static auto* hub = new std::map<std::string, StubWorker*>;
  return *hub;
}

internal::Error MakeError(absl::StatusCode code, const std::string& message) {
  internal::Error error;
  error.set_code(static_cast<int>(code));
  error.set_message(message);
  return error;
}

}  // namespace

struct StubWorker::DecodeCall {
  std::shared_ptr<ServerCall<internal::DecodeRequest, internal::DecodeEvent>> stream;
  StubScript script;
  internal::DecodeStart start;
  std::atomic<bool> refused{false};
  Mutex mutex;
  int attempt ABSL_GUARDED_BY(mutex) = 1;
  bool landed ABSL_GUARDED_BY(mutex) = false;
  bool over ABSL_GUARDED_BY(mutex) = false;

  void Send(internal::DecodeEvent&& event) { stream->SendLast(std::move(event)); }
  void End() {
    {
      MutexLock lock(&mutex);
      over = true;
    }
    stream->Finish(absl::OkStatus());
  }
};

struct StubWorker::PrefillCall {
  std::shared_ptr<ServerEventStream<internal::PrefillRequest, internal::PrefillEvent>> stream;
  void End(internal::PrefillEvent&& event) {
    stream->SendLast(std::move(event));
    stream->Finish(absl::OkStatus());
  }
};

class StubWorker::DecodeService : public internal::DecodeWorker::CallbackService {
 public:
  explicit DecodeService(StubWorker* worker) : worker_(worker) {}
  using Stream = ServerCall<internal::DecodeRequest, internal::DecodeEvent>;
  using Streams = MultiplexedServerCalls<internal::DecodeRequest, internal::DecodeEvent, internal::DecodeCallRequests, internal::DecodeCallEvents>;

  grpc::ServerBidiReactor<internal::DecodeRequest, internal::DecodeEvent>* Decode(grpc::CallbackServerContext*) override {
    auto call = std::make_shared<DecodeCall>();
    auto stream = ServerEventStream<internal::DecodeRequest, internal::DecodeEvent>::Create(Begin(call));
    call->stream = stream;
    return stream->reactor();
  }
  grpc::ServerBidiReactor<internal::DecodeCallRequests, internal::DecodeCallEvents>* DecodeMany(grpc::CallbackServerContext*) override {
    const auto accept = [this](const internal::CallOpening&, std::shared_ptr<Stream> stream) {
      auto call = std::make_shared<DecodeCall>();
      call->stream = std::move(stream);
      return Begin(call);
    };
    worker_->Note(&StubWorker::num_streams_);
    return Streams::Create(accept, [worker = worker_] { worker->Note(&StubWorker::num_streams_, -1); })->reactor();
  }

 private:
  Stream::Callbacks Begin(const std::shared_ptr<DecodeCall>& call) {
    worker_->Note(&StubWorker::num_open_);
    return {.on_message = [this, call](internal::DecodeRequest&& r) { worker_->OnDecode(call, std::move(r)); },
            .on_peer_closed = [call] { call->End(); },
            // The stream stays with the call: another worker's thread may be delivering to it just now. It lets go of the call itself.
            .on_done =
                [this, call] {
                  if (call->refused) worker_->SendLoad();
                  worker_->Note(&StubWorker::num_open_, -1);
                }};
  }

  StubWorker* const worker_;
};

class StubWorker::PrefillService : public internal::PrefillWorker::CallbackService {
 public:
  explicit PrefillService(StubWorker* worker) : worker_(worker) {}
  grpc::ServerBidiReactor<internal::PrefillRequest, internal::PrefillEvent>* Prefill(grpc::CallbackServerContext*) override {
    auto call = std::make_shared<PrefillCall>();
    worker_->Note(&StubWorker::num_open_);
    call->stream = ServerEventStream<internal::PrefillRequest, internal::PrefillEvent>::Create(
        {.on_message = [this, call](internal::PrefillRequest&& r) { worker_->OnPrefill(call, std::move(r)); },
         .on_peer_closed = [call] { call->stream->Finish(absl::OkStatus()); },
         .on_done = [this, call] { worker_->Note(&StubWorker::num_open_, -1); }});
    return call->stream->reactor();
  }

 private:
  StubWorker* const worker_;
};

class StubWorker::TextService : public internal::ModelText::CallbackService {
 public:
  explicit TextService(std::map<std::string, std::string> files) : files_(std::move(files)) {}
  grpc::ServerWriteReactor<internal::TextPart>* Read(grpc::CallbackServerContext*, const internal::ReadTextRequest*) override {
    auto stream = ServerWriteStream<internal::TextPart>::Create({});
    for (const auto& [name, bytes] : files_) {
      for (const char byte : bytes) {  // In the smallest parts that there are.
        internal::TextPart part;
        part.set_file(name);
        part.set_data(std::string(1, byte));
        stream->SendLast(std::move(part));
      }
    }
    stream->Finish(absl::OkStatus());
    return stream->reactor();
  }

 private:
  const std::map<std::string, std::string> files_;
};

std::unique_ptr<StubWorker> StubWorker::Start(const Options& options) {
  auto worker = std::unique_ptr<StubWorker>(new StubWorker(options));
  worker->decode_ = std::make_unique<DecodeService>(worker.get());
  worker->prefill_ = std::make_unique<PrefillService>(worker.get());
  std::vector<grpc::Service*> services = {worker->decode_.get(), worker->prefill_.get()};
  if (!options.text.empty()) {
    worker->text_ = std::make_unique<TextService>(options.text);
    services.push_back(worker->text_.get());
  }
  auto server = RpcServer::Start({}, services);
  if (!server.ok()) return nullptr;
  worker->server_ = *std::move(server);
  {
    MutexLock lock(&hub_mutex);
    Hub()[options.id] = worker.get();
  }
  worker->Register();
  return worker;
}

StubWorker::StubWorker(const Options& options) : options_(options), script_(options.script) {}
StubWorker::~StubWorker() { Kill(); }

void StubWorker::Register() {
  router_ = CreateChannel(options_.router);
  registration_ = ClientEventStream<internal::WorkerReport, internal::RouterReply>::Create(
      {.on_message =
           [this](internal::RouterReply&& reply) {
             MutexLock lock(&mutex_);
             registered_ = true;
             drain_ = drain_ || reply.drain();
             changed_.NotifyAll();
           },
       .on_done =
           [this](absl::Status) {
             MutexLock lock(&mutex_);
             left_ = true;
             changed_.NotifyAll();
           }});
  if (!options_.api_key.empty()) registration_->context()->AddMetadata("authorization", "Bearer " + options_.api_key);
  internal::Registry::Stub(router_).async()->Register(registration_->context(), registration_->reactor());
  registration_->Start();
  internal::WorkerReport report;
  internal::WorkerIdentity* identity = report.mutable_identity();
  identity->set_id(options_.id);
  identity->set_incarnation(next_incarnation++);
  identity->set_role(options_.role);
  identity->set_address(server_->address());
  identity->set_model("stub");
  identity->set_model_fingerprint(options_.fingerprint);
  identity->set_kv_layout(options_.kv_layout);
  identity->set_context_length(options_.context_length);
  identity->set_vocab_size(options_.vocab_size);
  identity->add_transports("grpc");
  identity->set_tokenizer_fingerprint(options_.tokenizer_fingerprint);
  identity->set_multiplexes(options_.multiplexes);
  registration_->Send(std::move(report));
  SendLoad();
  WaitFor([this] { return registered_; });
}

void StubWorker::SendLoad() {
  internal::WorkerReport report;
  report.mutable_load()->set_credit_slots(options_.slots);
  report.mutable_load()->set_block_size(16);
  report.mutable_load()->set_credit_blocks(1000);
  registration_->Send(std::move(report));
}

void StubWorker::SetScript(const StubScript& script) {
  MutexLock lock(&mutex_);
  script_ = script;
}

void StubWorker::Kill() {
  if (server_ == nullptr) return;
  {
    MutexLock lock(&hub_mutex);
    auto it = Hub().find(options_.id);
    if (it != Hub().end() && it->second == this) Hub().erase(it);
  }
  registration_->Cancel();
  server_.reset();
  WaitFor([this] { return left_ && num_open_ == 0 && num_streams_ == 0; });
}

void StubWorker::OnDecode(const std::shared_ptr<DecodeCall>& call, internal::DecodeRequest&& request) {
  internal::DecodeEvent event;
  if (request.has_start()) {
    call->start = request.start();
    bool refuse = false;
    {
      MutexLock lock(&mutex_);
      refuse = script_.refuse > 0;
      if (refuse) --script_.refuse;
      call->script = script_;
      if (script_.die_after_tokens >= 0) script_.die_after_tokens = -1;
      starts_.push_back(request.start());
      calls_[request.start().transfer().stream()] = call;
    }
    Note(&StubWorker::num_calls_);
    if (refuse) {
      // The load follows once the router has let go of the call, so that it is newer than the refusal.
      call->refused = true;
      *event.mutable_refused() = MakeError(absl::StatusCode::kResourceExhausted, "no blocks");
      call->Send(std::move(event));
    } else if (call->script.cached) {
      Land(call, 0, true);
    } else if (request.start().prefill_locally()) {
      Land(call, 1, true);
    } else if (const int cached = CachedTokens(request.start()); cached > 0 && cached == request.start().tokens_size() - 1) {
      Land(call, 0, true);
    } else {
      event.mutable_landing()->set_attempt(1);
      event.mutable_landing()->set_kv_address(options_.id);
      event.mutable_landing()->set_first_missing_token(cached);
      call->Send(std::move(event));
    }
    return;
  }
  if (request.has_stop()) {
    event.mutable_stopped();
    call->Send(std::move(event));
    call->End();
    return Note(&StubWorker::num_stops_);
  }
  const int attempt = request.has_attempt() ? request.attempt().attempt() : request.prefill_locally().attempt();
  bool landed = false;
  {
    MutexLock lock(&call->mutex);
    landed = call->landed;
    if (!landed) call->attempt = attempt;
  }
  if (request.has_prefill_locally()) return Land(call, attempt, true);
  if (landed) {
    event.mutable_landed()->set_attempt(attempt);
  } else {
    event.mutable_landing()->set_attempt(attempt);
    event.mutable_landing()->set_kv_address(options_.id);
  }
  call->Send(std::move(event));
}

int StubWorker::CachedTokens(const internal::DecodeStart& start) {
  MutexLock lock(&mutex_);
  return landed_.contains({start.tokens().begin(), start.tokens().end()}) ? (start.tokens_size() - 1) / 16 * 16 : 0;
}

void StubWorker::Land(const std::shared_ptr<DecodeCall>& call, int attempt, bool local) {
  {
    MutexLock lock(&call->mutex);
    if (call->landed || call->over || (!local && call->attempt != attempt)) return;
    call->landed = true;
  }
  if (call->script.caches) {
    MutexLock lock(&mutex_);
    landed_.emplace(call->start.tokens().begin(), call->start.tokens().end());
  }
  if (local && call->script.knows_prompt_logprobs) SendPromptLogprobs(call);
  internal::DecodeEvent event;
  event.mutable_landed()->set_attempt(attempt);
  event.mutable_landed()->set_knows_formats(call->script.knows_formats);
  event.mutable_landed()->set_knows_prompt_logprobs(call->script.knows_prompt_logprobs);
  if (!local) {
    event.mutable_landed()->set_transport("grpc");
    event.mutable_landed()->set_kv_bytes(4096);
  }
  call->Send(std::move(event));
  Generate(call);
}

// Token i has -i, and the one after it in the alphabet is likelier by a half. Three to a message.
void StubWorker::SendPromptLogprobs(const std::shared_ptr<DecodeCall>& call) {
  if (call->start.prompt_logprobs() == 0) return;
  const int end = call->start.num_prompt_tokens() - call->script.lost_prompt_logprobs;
  for (int first = 1; first < end; first += 3) {
    internal::DecodeEvent event;
    event.mutable_prompt_logprobs()->set_first(first);
    for (int i = first; i < std::min(end, first + 3); ++i) {
      internal::ScoredToken* const token = event.mutable_prompt_logprobs()->add_tokens();
      token->set_token_id(call->start.tokens(i));
      token->set_logprob(static_cast<float>(-i));
      if (call->start.prompt_logprobs() == 1) continue;
      internal::TokenLogprobEntry* const top = token->add_top();
      top->set_token_id(call->start.tokens(i) + 1);
      top->set_logprob(static_cast<float>(-i) + 0.5f);
    }
    call->Send(std::move(event));
  }
}

void StubWorker::Generate(const std::shared_ptr<DecodeCall>& call) {
  const StubScript& script = call->script;
  const int emitted = call->start.tokens_size() - call->start.num_prompt_tokens();
  const int count = std::min<int>(static_cast<int>(script.tokens.size()), call->start.sampling().max_tokens());
  for (int index = emitted; index < count; ++index) {
    if (index - emitted == script.die_after_tokens) {
      call->stream->Finish(absl::UnavailableError("died"));
      return;
    }
    if (index - emitted == script.stall_after_tokens) return;
    {
      MutexLock lock(&call->mutex);
      if (call->over) return;
    }
    internal::DecodeEvent event;
    internal::GeneratedToken* token = event.mutable_tokens()->add_tokens();
    token->set_index(index);
    token->set_token_id(script.tokens[index]);
    token->set_logprob(-0.5f);
    if (index == count - 1) {
      token->set_finish_reason(count < static_cast<int>(script.tokens.size()) ? internal::LENGTH : script.finish);
    }
    call->Send(std::move(event));
    Note(&StubWorker::num_tokens_);
  }
  call->End();
}

void StubWorker::OnPrefill(const std::shared_ptr<PrefillCall>& call, internal::PrefillRequest&& request) {
  internal::PrefillEvent event;
  if (request.has_cancel()) {
    *event.mutable_failed() = MakeError(absl::StatusCode::kCancelled, "cancelled");
    call->End(std::move(event));
    return Note(&StubWorker::num_cancels_);
  }
  bool fail = false, stall = false;
  {
    MutexLock lock(&mutex_);
    prefills_.push_back(request.start());
    fail = script_.fail_prefill > 0;
    if (fail) --script_.fail_prefill;
    stall = script_.stall_prefill;
  }
  Note(&StubWorker::num_calls_);
  if (stall) return;
  if (fail) {
    *event.mutable_failed() = MakeError(absl::StatusCode::kUnavailable, "link down");
    return call->End(std::move(event));
  }
  Deliver(request.start().kv_address(), request.start().transfer().stream(), request.start().attempt());
  event.mutable_done()->set_computed_tokens(request.start().tokens_size() - 1);
  event.mutable_done()->set_cached_tokens(0);
  call->End(std::move(event));
}

void StubWorker::Deliver(const std::string& worker, uint64_t stream, int attempt) {
  std::shared_ptr<DecodeCall> call;
  StubWorker* decode = nullptr;
  {
    MutexLock lock(&hub_mutex);
    auto it = Hub().find(worker);
    if (it == Hub().end()) return;
    decode = it->second;
    MutexLock worker_lock(&decode->mutex_);
    call = decode->calls_[stream].lock();
  }
  if (call != nullptr) decode->Land(call, attempt, false);
}

void StubWorker::Note(int StubWorker::*counter, int by) {
  MutexLock lock(&mutex_);
  this->*counter += by;
  changed_.NotifyAll();
}

bool StubWorker::WaitFor(const std::function<bool()>& condition) {
  const MonotonicTime deadline = Clock::Real()->Now() + absl::Seconds(30 * kSlowness);
  MutexLock lock(&mutex_);
  while (!condition()) {
    if (Clock::Real()->Now() > deadline) return false;
    changed_.WaitFor(&mutex_, absl::Seconds(1));
  }
  return true;
}

bool StubWorker::WaitForDrain() {
  return WaitFor([&] { return drain_; });
}
bool StubWorker::WaitForTokensSent(int count) {
  return WaitFor([&] { return num_tokens_ >= count; });
}
bool StubWorker::WaitForStops(int count) {
  return WaitFor([&] { return num_stops_ >= count; });
}
bool StubWorker::WaitForCancels(int count) {
  return WaitFor([&] { return num_cancels_ >= count; });
}
bool StubWorker::WaitForCalls(int count) {
  return WaitFor([&] { return num_calls_ >= count; });
}
bool StubWorker::WaitForOpenCalls(int count) {
  return WaitFor([&] { return num_open_ == count; });
}

int StubWorker::num_streams() const {
  MutexLock lock(&mutex_);
  return num_streams_;
}
std::vector<internal::DecodeStart> StubWorker::starts() const {
  MutexLock lock(&mutex_);
  return starts_;
}
std::vector<internal::PrefillStart> StubWorker::prefills() const {
  MutexLock lock(&mutex_);
  return prefills_;
}

}  // namespace baton::testing
