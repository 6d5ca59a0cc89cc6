// SPDX-License-Identifier: Apache-2.0
// Many calls over one stream, between a real client and a real server: what each call sees is what a stream of its own would show it.
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "baton/internal/decode.grpc.pb.h"
#include "common/base/clock.h"
#include "common/base/thread.h"
#include "common/rpc/channel.h"
#include "common/rpc/multiplexed_client_calls.h"
#include "common/rpc/multiplexed_server_calls.h"
#include "common/rpc/server.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/sanitizers.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Server = MultiplexedServerCalls<internal::DecodeRequest, internal::DecodeEvent, internal::DecodeCallRequests, internal::DecodeCallEvents>;
using Client = MultiplexedClientCalls<internal::DecodeRequest, internal::DecodeEvent, internal::DecodeCallRequests, internal::DecodeCallEvents>;
using ServerSide = ServerCall<internal::DecodeRequest, internal::DecodeEvent>;
using ClientSide = ClientCall<internal::DecodeRequest, internal::DecodeEvent>;

internal::DecodeRequest Request(int attempt) {
  internal::DecodeRequest request;
  request.mutable_attempt()->set_attempt(attempt);
  return request;
}
internal::DecodeEvent Event(int attempt) {
  internal::DecodeEvent event;
  event.mutable_landed()->set_attempt(attempt);
  return event;
}

// Waits, bounded, for what other threads bring about.
class Watched {
 public:
  void Do(const std::function<void()>& change) {
    MutexLock lock(&mutex_);
    change();
    changed_.NotifyAll();
  }
  bool Wait(const std::function<bool()>& condition) {
    const MonotonicTime deadline = Clock::Real()->Now() + absl::Seconds(20 * testing::kSlowness);
    MutexLock lock(&mutex_);
    while (!condition()) {
      if (Clock::Real()->Now() > deadline) return false;
      changed_.WaitFor(&mutex_, absl::Milliseconds(200));
    }
    return true;
  }
  void WaitABit() {
    MutexLock lock(&mutex_);
    changed_.WaitFor(&mutex_, absl::Milliseconds(2));
  }

 private:
  Mutex mutex_;
  CondVar changed_;
};

// One end's record of one call.
struct Seen {
  std::vector<int> attempts;
  int closed = 0, done = 0;
  std::optional<absl::Status> status;
  std::string traceparent;
  std::shared_ptr<ServerSide> server;
};

class Service : public internal::DecodeWorker::CallbackService {
 public:
  explicit Service(Watched* watched) : watched_(watched) {}
  grpc::ServerBidiReactor<internal::DecodeCallRequests, internal::DecodeCallEvents>* DecodeMany(grpc::CallbackServerContext*) override {
    auto streams = Server::Create(
        [this](const internal::CallOpening& opening, std::shared_ptr<ServerSide> call) {
          auto seen = std::make_shared<Seen>();
          watched_->Do([&] {
            seen->traceparent = opening.traceparent();
            seen->server = call;
            calls.push_back(seen);
          });
          return ServerSide::Callbacks{
              .on_message =
                  [this, seen, call](internal::DecodeRequest&& request) {
                    watched_->Do([&] { seen->attempts.push_back(request.attempt().attempt()); });
                    if (answer) answer(*call, request.attempt().attempt());
                  },
              .on_peer_closed = [this, seen] { watched_->Do([&] { ++seen->closed; }); },
              .on_done = [this, seen] { watched_->Do([&] { ++seen->done; }); }};
        },
        [this] { watched_->Do([&] { ++streams_done; }); });
    watched_->Do([&] { open.push_back(streams); });
    return streams->reactor();
  }

  std::function<void(ServerSide&, int)> answer;  // Set before the first call.
  std::vector<std::shared_ptr<Seen>> calls;      // This and what follows: with `watched`.
  std::vector<std::shared_ptr<Server>> open;
  int streams_done = 0;

 private:
  Watched* const watched_;
};

class MultiplexedCallsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto server = RpcServer::Start({}, {&service_});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    channel_ = CreateChannel(server_->address());
    stub_ = internal::DecodeWorker::NewStub(channel_);
    NewClient(nullptr);
  }
  void NewClient(Client::Merge merge) {
    client_.emplace(
        "worker d-1",
        [this](Client::Stream* stream) {
          ++streams_opened_;
          stub_->async()->DecodeMany(stream->context(), stream->reactor());
        },
        merge);
  }
  void TearDown() override {
    client_.reset();
    for (const auto& seen : service_.calls) seen->server.reset();
    server_.reset();
    EXPECT_TRUE(watched_.Wait([&] { return service_.streams_done == static_cast<int>(service_.open.size()); }));
    for (const auto& seen : service_.calls) EXPECT_EQ(seen->done, 1);
  }

  std::pair<std::shared_ptr<ClientSide>, std::shared_ptr<Seen>> Open(const std::string& traceparent = "") {
    auto seen = std::make_shared<Seen>();
    internal::CallOpening opening;
    opening.set_traceparent(traceparent);
    auto call = client_->Open(opening, {.on_message = [this, seen](internal::DecodeEvent&& event) {
                                          watched_.Do([&] {
                                            EXPECT_EQ(seen->done, 0);
                                            seen->attempts.push_back(event.landed().attempt());
                                          });
                                        },
                                        .on_done = [this, seen](absl::Status status) {
                                          watched_.Do([&] {
                                            seen->status = std::move(status);
                                            ++seen->done;
                                          });
                                        }});
    return {call, seen};
  }
  bool Done(const std::shared_ptr<Seen>& seen) {
    return watched_.Wait([&] { return seen->done == 1; });
  }
  bool ServerHas(size_t calls) {
    return watched_.Wait([&] { return service_.calls.size() >= calls && !service_.calls.back()->attempts.empty(); });
  }

  Watched watched_;
  Service service_{&watched_};
  std::unique_ptr<RpcServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<internal::DecodeWorker::Stub> stub_;
  std::optional<Client> client_;
  int streams_opened_ = 0;
};

TEST_F(MultiplexedCallsTest, ACallIsAnsweredInOrderAndEndsOnce) {
  service_.answer = [](ServerSide& call, int attempt) {
    if (attempt < 3) {
      EXPECT_TRUE(call.Send(Event(10 * attempt)));
    } else {
      call.FinishWith(Event(30), absl::OkStatus());
      call.Finish(absl::InternalError("late"));
      EXPECT_FALSE(call.Send(Event(31)));
    }
  };
  auto [call, seen] = Open("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
  for (int attempt = 1; attempt <= 3; ++attempt) EXPECT_TRUE(call->Send(Request(attempt)));
  ASSERT_TRUE(Done(seen));
  EXPECT_TRUE(seen->status->ok());
  EXPECT_THAT(seen->attempts, ElementsAre(10, 20, 30));
  EXPECT_FALSE(call->Send(Request(4)));
  call->CloseSending();
  call->Cancel();
  ASSERT_TRUE(watched_.Wait([&] { return service_.calls[0]->done == 1; }));
  EXPECT_THAT(service_.calls[0]->attempts, ElementsAre(1, 2, 3));
  EXPECT_EQ(service_.calls[0]->closed, 1);
  EXPECT_EQ(service_.calls[0]->traceparent, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
}

TEST_F(MultiplexedCallsTest, StatusesKeepTheirCodeAndMessage) {
  service_.answer = [](ServerSide& call, int) { call.Finish(absl::ResourceExhaustedError("no blocks: 3 of 2")); };
  auto [call, seen] = Open();
  call->Send(Request(1));
  ASSERT_TRUE(Done(seen));
  EXPECT_EQ(*seen->status, absl::ResourceExhaustedError("no blocks: 3 of 2"));
}

TEST_F(MultiplexedCallsTest, CancelEndsOneCallAndNoOther) {
  auto [first, first_seen] = Open();
  auto [second, second_seen] = Open();
  first->Send(Request(1));
  ASSERT_TRUE(ServerHas(1));
  second->Send(Request(2));
  ASSERT_TRUE(ServerHas(2));
  first->Cancel();
  EXPECT_EQ(first_seen->done, 1);  // At once.
  EXPECT_TRUE(absl::IsCancelled(*first_seen->status));
  ASSERT_TRUE(watched_.Wait([&] { return service_.calls[0]->done == 1; }));
  EXPECT_EQ(service_.calls[0]->closed, 1);
  EXPECT_FALSE(service_.calls[0]->server->Send(Event(1)));
  EXPECT_TRUE(service_.calls[1]->server->Send(Event(7)));
  service_.calls[1]->server->Finish(absl::OkStatus());
  ASSERT_TRUE(Done(second_seen));
  EXPECT_THAT(second_seen->attempts, ElementsAre(7));
  EXPECT_THAT(first_seen->attempts, IsEmpty());
  EXPECT_EQ(service_.calls[1]->closed, 1);
  EXPECT_EQ(streams_opened_, 1);
}

TEST_F(MultiplexedCallsTest, ClosedSendingIsToldAndTheServerAnswersStill) {
  auto [call, seen] = Open();
  call->Send(Request(1));
  call->CloseSending();
  EXPECT_FALSE(call->Send(Request(2)));
  ASSERT_TRUE(ServerHas(1));
  ASSERT_TRUE(watched_.Wait([&] { return service_.calls[0]->closed == 1; }));
  EXPECT_EQ(service_.calls[0]->done, 0);
  service_.calls[0]->server->FinishWith(Event(5), absl::OkStatus());
  ASSERT_TRUE(Done(seen));
  EXPECT_THAT(seen->attempts, ElementsAre(5));
}

TEST_F(MultiplexedCallsTest, ACallCancelledBeforeItsFirstMessageIsNeverHeardOf) {
  auto [call, seen] = Open();
  call->Cancel();
  EXPECT_TRUE(absl::IsCancelled(*seen->status));
  EXPECT_FALSE(call->Send(Request(1)));
  auto [next, next_seen] = Open();
  next->Send(Request(2));
  ASSERT_TRUE(ServerHas(1));
  EXPECT_EQ(service_.calls.size(), 1u);
  next->Cancel();
}

TEST_F(MultiplexedCallsTest, ABrokenStreamEndsItsCallsAndTheNextCallHasAnother) {
  auto [first, first_seen] = Open();
  auto [second, second_seen] = Open();
  first->Send(Request(1));
  ASSERT_TRUE(ServerHas(1));
  second->Send(Request(1));
  ASSERT_TRUE(ServerHas(2));
  service_.open[0]->Finish(absl::InternalError("a planted end"));
  ASSERT_TRUE(Done(first_seen));
  ASSERT_TRUE(Done(second_seen));
  EXPECT_TRUE(absl::IsUnavailable(*first_seen->status));
  EXPECT_THAT(std::string(second_seen->status->message()), HasSubstr("worker d-1"));
  EXPECT_THAT(std::string(second_seen->status->message()), HasSubstr("a planted end"));
  ASSERT_TRUE(watched_.Wait([&] { return service_.calls[0]->done == 1 && service_.calls[1]->done == 1; }));
  auto [third, third_seen] = Open();
  third->Send(Request(9));
  ASSERT_TRUE(ServerHas(3));
  service_.calls[2]->server->Finish(absl::OkStatus());
  ASSERT_TRUE(Done(third_seen));
  EXPECT_TRUE(third_seen->status->ok());
  EXPECT_EQ(streams_opened_, 2);
}

TEST_F(MultiplexedCallsTest, WhatIsQueuedIsReadBeforeTheStreamEnds) {
  auto [call, seen] = Open();
  call->Send(Request(1));
  ASSERT_TRUE(ServerHas(1));
  std::vector<int> sent;
  for (int i = 0; i < 5000; ++i) {
    sent.push_back(i);
    service_.calls[0]->server->SendLast(Event(i));
  }
  service_.calls[0]->server->Finish(absl::OkStatus());
  service_.open[0]->Finish(absl::OkStatus());
  ASSERT_TRUE(Done(seen));
  EXPECT_TRUE(seen->status->ok());
  EXPECT_EQ(seen->attempts, sent);
}

TEST_F(MultiplexedCallsTest, TheClientsEndLetsOpenCallsGoOn) {
  auto [call, seen] = Open();
  call->Send(Request(1));
  ASSERT_TRUE(ServerHas(1));
  client_.reset();
  EXPECT_TRUE(service_.calls[0]->server->Send(Event(1)));
  service_.calls[0]->server->Finish(absl::OkStatus());
  ASSERT_TRUE(Done(seen));
  EXPECT_THAT(seen->attempts, ElementsAre(1));
  EXPECT_TRUE(watched_.Wait([&] { return service_.streams_done == 1; }));
}

TEST_F(MultiplexedCallsTest, WhatComesForACallThatHasEndedIsNotHeeded) {
  internal::DecodeCallRequests requests;
  auto* entry = requests.add_calls();
  entry->set_call(77);
  *entry->mutable_message() = Request(1);  // No opening.
  entry = requests.add_calls();
  entry->set_call(78);
  entry->mutable_opening();
  *entry->mutable_message() = Request(2);
  grpc::ClientContext context;
  auto stream = stub_->DecodeMany(&context);
  ASSERT_TRUE(stream->Write(requests));
  ASSERT_TRUE(ServerHas(1));
  EXPECT_EQ(service_.calls.size(), 1u);
  EXPECT_THAT(service_.calls[0]->attempts, ElementsAre(2));
  context.TryCancel();
  ASSERT_TRUE(watched_.Wait([&] { return service_.calls[0]->done == 1; }));
  EXPECT_EQ(service_.calls[0]->closed, 1);
  EXPECT_FALSE(stream->Finish().ok());
}

// A client that is busy with one call reads on meanwhile: what comes for the others waits, in order, and messages that can be are merged.
TEST_F(MultiplexedCallsTest, WhatWaitsIsMergedWhereItCanBe) {
  NewClient([](internal::DecodeEvent& before, internal::DecodeEvent& next) {
    if (!before.has_tokens() || !next.has_tokens()) return false;
    before.mutable_tokens()->MergeFrom(next.tokens());
    return true;
  });
  bool busy = false, go_on = false;
  const auto holds = client_->Open({}, {.on_message =
                                      [&](internal::DecodeEvent&&) {
                                        watched_.Do([&] { busy = true; });
                                        watched_.Wait([&] { return go_on; });
                                      },
                                  .on_done = nullptr});
  std::vector<std::vector<int>> messages;
  bool done = false;
  const auto waits = client_->Open({}, {.on_message =
                                      [&](internal::DecodeEvent&& event) {
                                        watched_.Do([&] {
                                          messages.emplace_back();
                                          for (const auto& token : event.tokens().tokens()) messages.back().push_back(token.index());
                                          if (event.has_landed()) messages.back().push_back(-event.landed().attempt());
                                        });
                                      },
                                  .on_done = [&](const absl::Status& status) {
                                    EXPECT_TRUE(status.ok());
                                    watched_.Do([&] { done = true; });
                                  }});
  holds->Send(Request(1));
  ASSERT_TRUE(ServerHas(1));
  waits->Send(Request(1));
  ASSERT_TRUE(ServerHas(2));
  service_.calls[0]->server->Send(Event(1));
  ASSERT_TRUE(watched_.Wait([&] { return busy; }));
  const auto tokens = [](int index) {
    internal::DecodeEvent event;
    event.mutable_tokens()->add_tokens()->set_index(index);
    return event;
  };
  const auto& server = service_.calls[1]->server;
  for (int i = 0; i < 100; ++i) server->SendLast(tokens(i));
  server->SendLast(Event(7));
  for (int i = 100; i < 199; ++i) server->SendLast(tokens(i));
  server->FinishWith(tokens(199), absl::OkStatus());
  // All of it has been read: tokens, what is between, tokens.
  ASSERT_TRUE(watched_.Wait([&] { return service_.calls[1]->done == 1; }));
  const MonotonicTime deadline = Clock::Real()->Now() + absl::Seconds(20 * testing::kSlowness);
  while (client_->num_waiting() != 3) {
    ASSERT_LT(Clock::Real()->Now(), deadline) << client_->num_waiting();
    watched_.WaitABit();
  }
  watched_.Do([&] { go_on = true; });
  ASSERT_TRUE(watched_.Wait([&] { return done; }));
  std::vector<int> first, second;
  for (int i = 0; i < 100; ++i) first.push_back(i), second.push_back(100 + i);
  EXPECT_THAT(messages, ElementsAre(first, ElementsAre(-7), second));
}

// Threads of clients and of the server's answers at once: each call has its own messages, in order, and one end.
TEST_F(MultiplexedCallsTest, ManyCallsOfManyThreads) {
  constexpr int kThreads = 4, kCalls = 60, kMessages = 20;
  service_.answer = [](ServerSide& call, int attempt) {
    if (attempt % kMessages != kMessages - 1) {
      call.SendLast(Event(attempt));
    } else {
      call.FinishWith(Event(attempt), absl::OkStatus());
    }
  };
  std::atomic<int> wrong{0};
  std::vector<std::unique_ptr<Thread>> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.push_back(std::make_unique<Thread>("calls", [&, t] {
      for (int c = 0; c < kCalls; ++c) {
        auto [call, seen] = Open();
        std::vector<int> sent;
        const bool cancel = c % 5 == 4;
        for (int m = 0; m < kMessages; ++m) {
          if (cancel && m == kMessages / 2) {
            call->Cancel();
            break;
          }
          sent.push_back((t * kCalls + c) * kMessages + m);
          call->SendLast(Request(sent.back()));
        }
        if (!Done(seen)) ++wrong;
        if (cancel ? !absl::IsCancelled(*seen->status) : seen->attempts != sent || !seen->status->ok()) ++wrong;
      }
    }));
  }
  for (auto& thread : threads) thread->Join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(streams_opened_, 1);
}

}  // namespace
}  // namespace baton
