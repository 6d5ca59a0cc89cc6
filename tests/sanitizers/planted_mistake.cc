// SPDX-License-Identifier: Apache-2.0
// planted_mistake NAME: makes one mistake on purpose, which the sanitizer of this build must report.
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>

#include "baton/internal/registry.grpc.pb.h"
#include "common/base/mutex.h"
#include "common/rpc/channel.h"
#include "common/rpc/event_stream.h"
#include "common/rpc/server.h"

namespace baton {
namespace {

using Server = ServerEventStream<internal::WorkerReport, internal::RouterReply>;
using Client = ClientEventStream<internal::WorkerReport, internal::RouterReply>;

int shared = 0;  // Without a lock.

void Race() {
  std::thread other([] { ++shared; });
  ++shared;
  other.join();
}

class Answering : public internal::Registry::CallbackService {
 public:
  grpc::ServerBidiReactor<internal::WorkerReport, internal::RouterReply>* Register(grpc::CallbackServerContext*) override {
    auto self = std::make_shared<std::weak_ptr<Server>>();
    auto stream = Server::Create({.on_message =
                                      [self](internal::WorkerReport&&) {
                                        if (auto live = self->lock()) live->SendLast(internal::RouterReply());
                                      },
                                  .on_peer_closed =
                                      [self] {
                                        if (auto live = self->lock()) live->Finish(absl::OkStatus());
                                      },
                                  .on_done = nullptr});
    *self = stream;
    return stream->reactor();
  }
};

// A callback on one of gRPC's threads and this thread, which share no lock after the last Send.
void RaceInCallbacks() {
  Answering service;
  const auto server = RpcServer::Start({}, {&service});
  if (!server.ok()) return;
  Mutex mutex;
  CondVar changed;
  bool done = false;
  auto stream = Client::Create({.on_message = [](internal::RouterReply&&) { ++shared; },
                                .on_done =
                                    [&](absl::Status) {
                                      MutexLock lock(&mutex);
                                      done = true;
                                      changed.NotifyAll();
                                    }});
  internal::Registry::NewStub(CreateChannel((*server)->address()))->async()->Register(stream->context(), stream->reactor());
  stream->Start();
  for (int i = 0; i < 100; ++i) stream->Send(internal::WorkerReport());
  stream->CloseSending();
  for (int i = 0; i < 1000; ++i, std::this_thread::yield()) ++shared;
  MutexLock lock(&mutex);
  while (!done) changed.WaitFor(&mutex, absl::Seconds(1));
}

void UseAfterFree() {
  auto value = std::make_unique<int>(1);
  int* volatile kept = value.get();
  value.reset();
  std::printf("%d\n", *kept);
}

void Leak() {
  for (int i = 0; i < 100; ++i) std::make_unique<std::string>(1000, 'x').release();
}

void Overflow() {
  volatile int most = std::numeric_limits<int>::max();
  most = most + 1;
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  const struct {
    const char* name;
    void (*make)();
  } mistakes[] = {{"race", baton::Race},
                  {"race_in_callbacks", baton::RaceInCallbacks},
                  {"use_after_free", baton::UseAfterFree},
                  {"leak", baton::Leak},
                  {"overflow", baton::Overflow}};
  for (const auto& mistake : mistakes) {
    if (argc == 2 && std::strcmp(argv[1], mistake.name) == 0) {
      mistake.make();
      return 0;
    }
  }
  std::fprintf(stderr, "planted_mistake: not one of race, race_in_callbacks, use_after_free, leak, overflow\n");
  return 2;
}
