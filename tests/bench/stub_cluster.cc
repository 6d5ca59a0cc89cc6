// SPDX-License-Identifier: Apache-2.0
// What tests/bench/router puts behind a router and beside it (driver.h): workers without a model, in which a prompt takes no time
// and tokens come as they are due, and a bare gRPC service of the same messages, for comparison.
//   stub_cluster --router HOST:PORT
// {"kind": "rate", "tokens_per_second": 10}: of every stream from now on; 0: the first token only.
// {"kind": "lateness"}: "ms", how late a step was at worst since it was asked last.
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "baton/internal/decode.grpc.pb.h"
#include "baton/internal/prefill.grpc.pb.h"
#include "baton/internal/registry.grpc.pb.h"
#include "baton/v1/generation.grpc.pb.h"
#include "common/rpc/channel.h"
#include "common/rpc/multiplexed_server_calls.h"
#include "common/rpc/server.h"
#include "tests/bench/driver.h"
#include "tests/bench/token_streams.h"

ABSL_FLAG(std::string, router, "", "HOST:PORT where the workers register");
ABSL_FLAG(int, decode_workers, 8, "Decode workers, each with a connection of its own to the router");

namespace baton::bench {
namespace {

using nlohmann::json;

constexpr int kToken = 300;
constexpr int kContext = 1 << 24;
constexpr int kSlots = 1 << 20;
constexpr absl::Duration kReportEvery = absl::Milliseconds(200);

class DecodeStream;

// KV that arrives: the prefill worker tells the stream that is meant.
class Landings {
 public:
  void Add(uint64_t transfer, const std::shared_ptr<DecodeStream>& stream) {
    MutexLock lock(&mutex_);
    streams_[transfer] = stream;
  }
  std::shared_ptr<DecodeStream> Take(uint64_t transfer) {
    MutexLock lock(&mutex_);
    auto found = streams_.extract(transfer);
    return found.empty() ? nullptr : found.mapped().lock();
  }

 private:
  Mutex mutex_;
  std::map<uint64_t, std::weak_ptr<DecodeStream>> streams_ ABSL_GUARDED_BY(mutex_);
};

// A decode call among the others of its worker's stream. Lives as long as the pacer's step or the call needs it.
class DecodeStream : public PacedStream, public std::enable_shared_from_this<DecodeStream> {
 public:
  using Call = ServerCall<internal::DecodeRequest, internal::DecodeEvent>;

  DecodeStream(Pacer* pacer, Landings* landings, int worker, std::shared_ptr<Call> call)
      : pacer_(pacer), landings_(landings), worker_(worker), call_(std::move(call)) {}
  void OnMessage(const internal::DecodeRequest& request) {
    internal::DecodeEvent event;
    if (request.has_start()) {
      num_tokens_ = request.start().sampling().max_tokens();
      landings_->Add(request.start().transfer().stream(), shared_from_this());
      event.mutable_landing()->set_attempt(1);
      event.mutable_landing()->set_kv_address("stub");
      call_->SendLast(std::move(event));
    } else if (request.has_stop()) {
      event.mutable_stopped();
      call_->FinishWith(std::move(event), absl::OkStatus());
    }
  }
  void Close() { call_->Finish(absl::OkStatus()); }
  void Land(int attempt) {
    internal::DecodeEvent event;
    event.mutable_landed()->set_attempt(attempt);
    event.mutable_landed()->set_knows_formats(true);
    event.mutable_landed()->set_transport("grpc");
    call_->SendLast(std::move(event));
    pacer_->Add(worker_, shared_from_this());
  }
  void Release(int64_t tokens) override {
    MutexLock lock(&mutex_);
    for (; tokens > 0 && sent_ < num_tokens_; --tokens, ++sent_) {
      internal::DecodeEvent event;
      internal::GeneratedToken* token = event.mutable_tokens()->add_tokens();
      token->set_index(static_cast<int32_t>(sent_));
      token->set_token_id(kToken + static_cast<int32_t>(sent_ % 1000));
      token->set_logprob(-0.5f);
      if (sent_ + 1 < num_tokens_) {
        call_->SendLast(std::move(event));
      } else {
        token->set_finish_reason(internal::LENGTH);
        call_->FinishWith(std::move(event), absl::OkStatus());
      }
    }
  }

 private:
  Pacer* const pacer_;
  Landings* const landings_;
  const int worker_;
  const std::shared_ptr<Call> call_;
  std::atomic<int64_t> num_tokens_{0};
  Mutex mutex_;
  int64_t sent_ ABSL_GUARDED_BY(mutex_) = 0;
};

class DecodeService : public internal::DecodeWorker::CallbackService {
 public:
  DecodeService(Pacer* pacer, Landings* landings, int worker) : pacer_(pacer), landings_(landings), worker_(worker) {}
  grpc::ServerBidiReactor<internal::DecodeCallRequests, internal::DecodeCallEvents>* DecodeMany(grpc::CallbackServerContext*) override {
    const auto accept = [this](const internal::CallOpening&, std::shared_ptr<DecodeStream::Call> call) {
      auto stream = std::make_shared<DecodeStream>(pacer_, landings_, worker_, std::move(call));
      return DecodeStream::Call::Callbacks{.on_message = [stream](internal::DecodeRequest&& request) { stream->OnMessage(request); },
                                           .on_peer_closed = [stream] { stream->Close(); },
                                           .on_done = nullptr};
    };
    return Calls::Create(accept, nullptr)->reactor();
  }

 private:
  using Calls = MultiplexedServerCalls<internal::DecodeRequest, internal::DecodeEvent, internal::DecodeCallRequests, internal::DecodeCallEvents>;
  Pacer* const pacer_;
  Landings* const landings_;
  const int worker_;
};

class PrefillCall : public grpc::ServerBidiReactor<internal::PrefillRequest, internal::PrefillEvent> {
 public:
  explicit PrefillCall(Landings* landings) : landings_(landings) { StartRead(&request_); }

 private:
  void OnReadDone(bool ok) override {
    if (finished_) return;
    finished_ = true;
    if (!ok || !request_.has_start()) return Finish(grpc::Status::OK);
    const internal::PrefillStart& start = request_.start();
    if (auto stream = landings_->Take(start.transfer().stream())) stream->Land(start.attempt());
    event_.mutable_done()->set_computed_tokens(start.tokens_size() - 1);
    StartWriteAndFinish(&event_, grpc::WriteOptions(), grpc::Status::OK);
  }
  void OnDone() override { delete this; }

  Landings* const landings_;
  bool finished_ = false;
  internal::PrefillRequest request_;
  internal::PrefillEvent event_;
};

class PrefillService : public internal::PrefillWorker::CallbackService {
 public:
  explicit PrefillService(Landings* landings) : landings_(landings) {}
  grpc::ServerBidiReactor<internal::PrefillRequest, internal::PrefillEvent>* Prefill(grpc::CallbackServerContext*) override {
    return new PrefillCall(landings_);
  }

 private:
  Landings* const landings_;
};

// The messages that a client of the router gets, without the router.
class BareStream : public TokenStream<grpc::ServerWriteReactor<v1::GenerateResponse>, v1::GenerateResponse> {
 public:
  void Begin(int64_t num_tokens) {
    KeepAlive();
    SetNumTokens(num_tokens);
  }

 private:
  void FillToken(int64_t index, bool last, v1::GenerateResponse* response) override {
    response->set_id("req-0123456789abcdef");
    response->set_model("stub");
    v1::ChoiceDelta* delta = response->add_deltas();
    delta->set_text(" token");
    delta->add_token_ids(kToken + static_cast<int32_t>(index % 1000));
    if (last) delta->set_finish_reason("length");
  }
};

class BareService : public v1::Generation::CallbackService {
 public:
  BareService(Pacer* pacer, int num_workers) : pacer_(pacer), num_workers_(num_workers) {}
  grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(grpc::CallbackServerContext*, const v1::GenerateRequest* request) override {
    auto stream = std::make_shared<BareStream>();
    stream->Begin(request->max_tokens());
    pacer_->Add(next_++ % num_workers_, stream);
    return stream.get();
  }
  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context, const v1::ListModelsRequest*, v1::ListModelsResponse*) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

 private:
  Pacer* const pacer_;
  const int num_workers_;
  std::atomic<int> next_{0};
};

// One worker as the router knows it.
class Worker {
 public:
  Worker(const std::string& id, internal::WorkerRole role, std::unique_ptr<grpc::Service> service) : service_(std::move(service)) {
    auto server = RpcServer::Start({}, {service_.get()});
    if (!server.ok()) return;
    server_ = *std::move(server);
    router_ = CreateChannel(absl::GetFlag(FLAGS_router));
    registration_ = ClientEventStream<internal::WorkerReport, internal::RouterReply>::Create({});
    internal::Registry::Stub(router_).async()->Register(registration_->context(), registration_->reactor());
    registration_->Start();
    internal::WorkerReport report;
    internal::WorkerIdentity* identity = report.mutable_identity();
    identity->set_id(id);
    identity->set_incarnation(static_cast<uint64_t>(absl::ToUnixNanos(absl::Now())));
    identity->set_role(role);
    identity->set_address(server_->address());
    identity->set_model("stub");
    identity->set_model_fingerprint("stub");
    identity->set_kv_layout("stub");
    identity->set_context_length(kContext);
    identity->set_vocab_size(1 << 20);
    identity->add_transports("grpc");
    identity->set_multiplexes(true);
    registration_->Send(std::move(report));
  }
  ~Worker() {
    if (registration_ != nullptr) registration_->Cancel();
  }
  bool ok() const { return server_ != nullptr; }
  void SendLoad() {
    internal::WorkerReport report;
    report.mutable_load()->set_credit_slots(kSlots);
    registration_->Send(std::move(report));
  }

 private:
  std::unique_ptr<grpc::Service> service_;
  std::unique_ptr<RpcServer> server_;
  std::shared_ptr<grpc::Channel> router_;
  std::shared_ptr<ClientEventStream<internal::WorkerReport, internal::RouterReply>> registration_;
};

int Run() {
  const int num_workers = absl::GetFlag(FLAGS_decode_workers);
  Pacer pacer(num_workers);
  Landings landings;
  BareService bare(&pacer, num_workers);
  auto bare_server = RpcServer::Start({}, {&bare});
  if (!bare_server.ok()) return 1;
  std::vector<std::unique_ptr<Worker>> workers;
  workers.push_back(std::make_unique<Worker>("p-1", internal::PREFILL, std::make_unique<PrefillService>(&landings)));
  for (int i = 0; i < num_workers; ++i) {
    workers.push_back(std::make_unique<Worker>(absl::StrCat("d-", i + 1), internal::DECODE, std::make_unique<DecodeService>(&pacer, &landings, i)));
  }
  for (const auto& worker : workers) {
    if (!worker->ok()) return 1;
  }
  Mutex mutex;
  CondVar stopped;
  bool stop = false;
  Thread reports("reports", [&] {
    MutexLock lock(&mutex);
    while (!stop) {
      for (const auto& worker : workers) worker->SendLoad();
      stopped.WaitFor(&mutex, kReportEvery);
    }
  });
  ServeCases({{"bare", (*bare_server)->address()}, {"workers", workers.size()}}, [&](const json& c) -> absl::StatusOr<json> {
    const std::string kind = c.value("kind", "");
    if (kind == "lateness") return json{{"ms", absl::ToDoubleMilliseconds(pacer.TakeLateness())}};
    if (kind != "rate") return absl::InvalidArgumentError(absl::StrCat("kind \"", kind, "\" is none of rate, lateness"));
    pacer.SetRate(c.value("tokens_per_second", 0.0));
    return json::object();
  });
  {
    MutexLock lock(&mutex);
    stop = true;
  }
  stopped.NotifyAll();
  reports.Join();
  return 0;
}

}  // namespace
}  // namespace baton::bench

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  if (absl::GetFlag(FLAGS_router).empty()) {
    std::fprintf(stderr, "--router HOST:PORT is needed\n");
    return 2;
  }
  return baton::bench::Run();
}
