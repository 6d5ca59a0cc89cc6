// SPDX-License-Identifier: Apache-2.0
#include "deploy/bench_kv/raw_grpc_service.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/rpc/channel.h"
#include "common/rpc/event_stream.h"
#include "common/rpc/monotonic_deadline.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"

namespace baton::bench {
namespace {

constexpr size_t kMessageBytes = 1 << 20;
constexpr size_t kQueuedBytes = 4 << 20;  // As a KV link has.
constexpr absl::Duration kPatience = absl::Seconds(60);

class RawGrpc final : public RawWay {
 public:
  using Client = ClientEventStream<grpc::ByteBuffer, grpc::ByteBuffer>;
  using Server = ServerEventStream<grpc::ByteBuffer, grpc::ByteBuffer>;

  absl::Status Start() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.SetMaxReceiveMessageSize(64 << 20);
    service_.owner = this;
    builder.RegisterCallbackGenericService(&service_);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) return absl::UnavailableError("cannot listen for a raw gRPC stream");
    stub_ = std::make_unique<grpc::GenericStub>(CreateChannel(absl::StrCat("127.0.0.1:", port)));
    client_ = Client::Create({.on_done =
                                  [this](absl::Status) {
                                    MutexLock lock(&mutex_);
                                    over_ = true;
                                    changed_.NotifyAll();
                                  }},
                             {.max_queued_messages = 1 << 16, .max_queued_bytes = 2 * kQueuedBytes});
    stub_->PrepareBidiStreamingCall(client_->context(), "/baton.bench/Raw", {}, client_->reactor());
    client_->Start();
    return absl::OkStatus();
  }

  ~RawGrpc() override {
    if (client_ != nullptr) {
      client_->Cancel();
      MutexLock lock(&mutex_);
      while (!over_) changed_.WaitFor(&mutex_, kPatience);
    }
    if (server_ != nullptr) server_->Shutdown(MonotonicDeadline(absl::ZeroDuration()));
  }

  absl::StatusOr<absl::Duration> Send(std::span<const uint8_t> source, std::span<uint8_t>) override {
    const MonotonicTime begin = Clock::Real()->Now();
    {
      MutexLock lock(&mutex_);
      received_ = 0;
      wanted_ = static_cast<int64_t>(source.size());
    }
    while (!source.empty()) {
      const std::span<const uint8_t> piece = source.first(std::min(source.size(), kMessageBytes));
      source = source.subspan(piece.size());
      // Not copied: the memory outlives the stream.
      const grpc::Slice slice(piece.data(), piece.size(), grpc::Slice::STATIC_SLICE);
      if (!client_->WaitBelow(kQueuedBytes, kPatience) || !client_->SendLast(grpc::ByteBuffer(&slice, 1))) {
        return absl::UnavailableError("the raw gRPC stream broke");
      }
    }
    MutexLock lock(&mutex_);
    while (received_ < wanted_) {
      if (over_ || Clock::Real()->Now() - begin > kPatience) return absl::UnavailableError("the raw gRPC stream does not end");
      changed_.WaitFor(&mutex_, kPatience);
    }
    return Clock::Real()->Now() - begin;
  }

 private:
  class Service final : public grpc::CallbackGenericService {
   public:
    RawGrpc* owner = nullptr;

   private:
    // gRPC's generic reactor is a type of its own.
    class Reactor final : public grpc::ServerGenericBidiReactor {
     public:
      explicit Reactor(RawGrpc* owner) : owner_(owner) { StartRead(&message_); }
      void OnReadDone(bool ok) override {
        if (!ok) return Finish(grpc::Status::OK);
        owner_->OnMessage(message_.Length());
        message_.Clear();
        StartRead(&message_);
      }
      void OnDone() override { delete this; }

     private:
      RawGrpc* const owner_;
      grpc::ByteBuffer message_;
    };
    grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override { return new Reactor(owner); }
  };

  void OnMessage(size_t bytes) {
    MutexLock lock(&mutex_);
    received_ += static_cast<int64_t>(bytes);
    if (received_ >= wanted_) changed_.NotifyAll();
  }

  Service service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<grpc::GenericStub> stub_;
  std::shared_ptr<Client> client_;
  Mutex mutex_;
  CondVar changed_;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t received_ ABSL_GUARDED_BY(mutex_) = 0, wanted_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RawWay>> MakeRawGrpc() {
  auto raw = std::make_unique<RawGrpc>();
  BATON_RETURN_IF_ERROR(raw->Start());
  return std::unique_ptr<RawWay>(std::move(raw));
}

}  // namespace baton::bench
