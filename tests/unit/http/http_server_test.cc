// SPDX-License-Identifier: Apache-2.0
#include "common/http/http_server.h"

#include <future>

#include "absl/strings/str_cat.h"
#include "common/base/bounded_queue.h"
#include "common/base/thread.h"
#include "common/http/http_client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/http/raw_client.h"

namespace baton {
namespace {

using ::baton::testing::RawClient;
using ::baton::testing::StatusIs;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr absl::Duration kLong = absl::Seconds(20);

struct Call {
  HttpRequest request;
  std::shared_ptr<HttpResponseWriter> writer;
};

// A server whose requests wait in a queue for the test to answer, except /echo, which answers at once.
class HttpServerTest : public ::testing::Test {
 protected:
  void StartServer(HttpServerOptions options = {}) {
    options.address = "127.0.0.1:0";
    auto server = HttpServer::Start(options, [this](HttpRequest request, std::shared_ptr<HttpResponseWriter> writer) {
      if (request.path == "/echo") {
        writer->Send(200, "text/plain", absl::StrCat(request.method, " ", request.query, " ", request.body));
      } else {
        calls_.TryPush({std::move(request), std::move(writer)});
      }
    });
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  Call NextCall() {
    std::optional<Call> call = calls_.Pop(kLong);
    EXPECT_TRUE(call.has_value());
    return call ? *std::move(call) : Call{};
  }
  uint16_t port() const { return server_->port(); }

  BoundedQueue<Call> calls_{100000};
  std::unique_ptr<HttpServer> server_;
};

std::string Get(absl::string_view target) { return absl::StrCat("GET ", target, " HTTP/1.1\r\nHost: x\r\n\r\n"); }

TEST_F(HttpServerTest, AnswersAndKeepsTheConnection) {
  StartServer();
  RawClient client(port());
  for (int i = 0; i < 3; ++i) {
    client.Send(absl::StrCat("POST /echo?q=", i, " HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"));
    const std::string head = client.ReadUntil("\r\n\r\n");
    EXPECT_THAT(head, StartsWith("HTTP/1.1 200 OK\r\n"));
    EXPECT_THAT(head, HasSubstr("Content-Length: 12\r\n"));
    EXPECT_THAT(head, ::testing::Not(HasSubstr("Connection:")));
    EXPECT_EQ(client.ReadUntil("abc"), absl::StrCat("POST q=", i, " abc"));
  }
  EXPECT_EQ(server_->num_connections(), 1);
}

TEST_F(HttpServerTest, ClientAndServerAgree) {
  StartServer();
  ASSERT_OK_AND_ASSIGN(const HttpResponse response,
                       HttpFetch({.address = server_->address(), .method = "POST", .target = "/echo?a", .body = std::string(3 << 20, 'x')}));
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.body.size(), 7 + (3u << 20));
  EXPECT_EQ(FindHeader(response.headers, "content-type"), "text/plain");
  ASSERT_OK_AND_ASSIGN(const HttpResponse head, HttpFetch({.address = server_->address(), .method = "HEAD", .target = "/echo"}));
  EXPECT_EQ(head.body, "");
  EXPECT_THAT(HttpGet(server_->address(), "/wait", absl::Milliseconds(20)),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr(server_->address())));
  const std::string address = server_->address();
  server_.reset();
  EXPECT_THAT(HttpGet(address, "/echo"), StatusIs(absl::StatusCode::kUnavailable, HasSubstr(address)));
  EXPECT_THAT(HttpGet("nonsense", "/"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("HOST:PORT")));
}

TEST_F(HttpServerTest, StreamsChunkByChunk) {
  StartServer();
  RawClient client(port());
  client.Send(Get("/stream"));
  Call call = NextCall();
  EXPECT_TRUE(call.writer->StartStream(200, "text/event-stream", {{"Cache-Control", "no-cache"}, {"X-Evil", "a\r\nB: c"}}));
  const std::string head = client.ReadUntil("\r\n\r\n");
  EXPECT_THAT(head, HasSubstr("Transfer-Encoding: chunked\r\n"));
  EXPECT_THAT(head, HasSubstr("Content-Type: text/event-stream\r\n"));
  EXPECT_THAT(head, HasSubstr("X-Evil: a  B: c\r\n"));
  // Each piece arrives before the next is written.
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(call.writer->Write(absl::StrCat("data: ", i, "\n\n")));
    EXPECT_EQ(client.ReadUntil("\n\n\r\n"), absl::StrCat("9\r\ndata: ", i, "\n\n\r\n"));
  }
  EXPECT_TRUE(call.writer->Finish());
  EXPECT_EQ(client.ReadUntil("0\r\n\r\n"), "0\r\n\r\n");
  EXPECT_FALSE(call.writer->Write("late"));
  EXPECT_FALSE(call.writer->Finish());
  EXPECT_FALSE(call.writer->Send(200, "text/plain", "again"));
  client.Send(Get("/echo"));
  EXPECT_THAT(client.ReadUntil("GET  "), HasSubstr("200 OK"));
}

TEST_F(HttpServerTest, Http10StreamsEndWithTheConnection) {
  StartServer();
  RawClient client(port());
  client.Send("GET /s HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  Call call = NextCall();
  call.writer->StartStream(200, "text/plain");
  call.writer->Write("a");
  call.writer->Write("b");
  call.writer->Finish();
  const std::string all = client.ReadAll();
  EXPECT_THAT(all, HasSubstr("Connection: close\r\n"));
  EXPECT_THAT(all, EndsWith("\r\n\r\nab"));
}

// B19 (iv): two requests in one packet, two answers in order, even if the second would be ready first.
TEST_F(HttpServerTest, PipelinedRequestsAreAnsweredInOrder) {
  StartServer();
  RawClient client(port());
  client.Send(Get("/slow") + Get("/echo?second") + Get("/slow2"));
  Call call = NextCall();
  call.writer->Send(200, "text/plain", "first!");
  EXPECT_THAT(client.ReadUntil("first!"), EndsWith("first!"));
  EXPECT_THAT(client.ReadUntil("GET second "), StartsWith("HTTP/1.1 200"));
  NextCall().writer->Send(200, "text/plain", "third!");
  EXPECT_THAT(client.ReadUntil("third!"), EndsWith("third!"));
}

TEST_F(HttpServerTest, PipelinedRequestsBeforeFinAreAnswered) {
  StartServer();
  RawClient client(port());
  client.Send(Get("/echo?1") + Get("/echo?2"));
  client.SendFin();
  EXPECT_THAT(client.ReadAll(), ::testing::AllOf(HasSubstr("GET 1 "), HasSubstr("GET 2 ")));
}

class ClientLeaves : public HttpServerTest, public ::testing::WithParamInterface<bool> {};

TEST_P(ClientLeaves, IsNoticedWhileNothingFlows) {
  StartServer();
  for (bool streaming : {false, true}) {
    RawClient client(port());
    client.Send(Get("/wait"));
    Call call = NextCall();
    if (streaming) {
      call.writer->StartStream(200, "text/plain");
      client.ReadUntil("\r\n\r\n");
    }
    std::promise<void> closed;
    call.writer->OnClosed([&] { closed.set_value(); });
    EXPECT_FALSE(call.writer->closed());
    if (GetParam()) {
      client.Reset();
    } else {
      client.Close();
    }
    ASSERT_EQ(closed.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
    EXPECT_TRUE(call.writer->closed());
    EXPECT_FALSE(call.writer->Write("x"));
    bool at_once = false;
    call.writer->OnClosed([&] { at_once = true; });
    EXPECT_TRUE(at_once);
  }
}
INSTANTIATE_TEST_SUITE_P(ByFinAndReset, ClientLeaves, ::testing::Bool());

TEST_F(HttpServerTest, OnClosedDoesNotFireAfterACompleteResponse) {
  StartServer();
  bool fired = false;
  {
    RawClient client(port());
    client.Send(Get("/a"));
    Call call = NextCall();
    call.writer->OnClosed([&] { fired = true; });
    call.writer->Send(200, "text/plain", "done!");
    client.ReadUntil("done!");
    client.Send(Get("/b"));
    Call next = NextCall();  // The first response is over for the server as well.
    call.writer->OnClosed([&] { fired = true; });
    EXPECT_FALSE(call.writer->closed());
    next.writer->Send(200, "text/plain", "done!");
    client.ReadUntil("done!");
  }
  server_->Stop();
  EXPECT_FALSE(fired);
}

TEST_F(HttpServerTest, ADroppedWriterAnswers500OrCutsTheStream) {
  StartServer();
  RawClient client(port());
  client.Send(Get("/a"));
  NextCall().writer.reset();
  EXPECT_THAT(client.ReadUntil("answer"), StartsWith("HTTP/1.1 500"));
  client.ReadUntil("}}");
  client.Send(Get("/b"));
  Call call = NextCall();
  call.writer->StartStream(200, "text/plain");
  call.writer->Write("part");
  client.ReadUntil("part\r\n");
  call.writer.reset();
  EXPECT_EQ(client.ReadAll(), "");  // No last chunk: the client can tell.
}

TEST_F(HttpServerTest, TheCallbackMayOwnTheWriter) {
  StartServer();
  auto done = std::make_shared<std::promise<void>>();
  std::future<void> destroyed = done->get_future();
  RawClient client(port());
  client.Send(Get("/a"));
  Call call = NextCall();
  struct Owner {
    std::shared_ptr<std::promise<void>> done;
    std::shared_ptr<HttpResponseWriter> writer;
    ~Owner() { done->set_value(); }
  };
  std::shared_ptr<Owner> owner(new Owner{done, call.writer});
  call.writer->OnClosed([owner] {});
  owner.reset();
  call.writer->Send(200, "text/plain", "ok");
  call.writer.reset();
  ASSERT_EQ(destroyed.wait_for(std::chrono::seconds(20)), std::future_status::ready);
}

TEST_F(HttpServerTest, ThousandsOfStreamsFromManyThreads) {
  HttpServerOptions options;
  options.threads = 2;
  StartServer(options);
  constexpr int kStreams = 400, kChunks = 20;
  std::vector<std::unique_ptr<RawClient>> clients;
  std::vector<Call> calls;
  for (int i = 0; i < kStreams; ++i) {
    clients.push_back(std::make_unique<RawClient>(port()));
    ASSERT_TRUE(clients.back()->connected());
    clients.back()->Send(Get(absl::StrCat("/s?", i)));
    calls.push_back(NextCall());
    ASSERT_TRUE(calls.back().writer->StartStream(200, "text/plain"));
  }
  {
    std::vector<Thread> writers;
    for (int t = 0; t < 4; ++t) {
      writers.emplace_back("writer", [&, t] {
        for (int chunk = 0; chunk < kChunks; ++chunk) {
          for (int i = t; i < kStreams; i += 4) calls[i].writer->Write(absl::StrCat(calls[i].request.query, ".", chunk, "|"));
        }
        for (int i = t; i < kStreams; i += 4) calls[i].writer->Finish();
      });
    }
  }
  for (int i = 0; i < kStreams; ++i) {
    const std::string text = clients[i]->ReadUntil("\r\n0\r\n\r\n");
    size_t at = 0;
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      at = text.find(absl::StrCat("\r\n", i, ".", chunk, "|\r\n"), at);
      ASSERT_NE(at, std::string::npos) << "stream " << i << " chunk " << chunk;
    }
  }
}

TEST_F(HttpServerTest, DrainLetsRunningResponsesFinish) {
  StartServer();
  RawClient idle(port()), running(port()), half(port());
  idle.Send(Get("/echo"));
  idle.ReadUntil("GET  ");
  half.Send("GET /wai");
  running.Send(Get("/stream"));
  Call call = NextCall();
  call.writer->StartStream(200, "text/plain");
  running.ReadUntil("\r\n\r\n");
  EXPECT_FALSE(server_->Drain(absl::ZeroDuration()));
  EXPECT_EQ(idle.ReadAll(), "");  // Closed at once.
  half.Send("t HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(half.ReadAll(), StartsWith("HTTP/1.1 503"));
  half.Close();
  call.writer->Write("last words");
  call.writer->Finish();
  EXPECT_THAT(running.ReadAll(), HasSubstr("last words\r\n0\r\n\r\n"));
  running.Close();
  EXPECT_TRUE(server_->Drain(kLong));
  EXPECT_FALSE(RawClient(port()).connected());
}

TEST_F(HttpServerTest, StopCutsWhatIsLeftAndWritersStaySafe) {
  StartServer();
  RawClient client(port());
  client.Send(Get("/a"));
  Call call = NextCall();
  std::promise<void> closed;
  call.writer->OnClosed([&] { closed.set_value(); });
  server_->Stop();
  server_->Stop();
  EXPECT_EQ(closed.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
  server_.reset();
  EXPECT_TRUE(call.writer->closed());
  EXPECT_FALSE(call.writer->Send(200, "text/plain", "x"));
}

TEST(HttpServer, BindFailuresNameTheAddress) {
  const HttpHandler none = [](HttpRequest, std::shared_ptr<HttpResponseWriter>) {};
  HttpServerOptions options;
  options.address = "127.0.0.1:0";
  ASSERT_OK_AND_ASSIGN(const auto first, HttpServer::Start(options, none));
  EXPECT_NE(first->port(), 0);
  options.address = first->address();
  EXPECT_THAT(HttpServer::Start(options, none),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("cannot listen on " + first->address() + ": Address already in use")));
  options.address = "192.0.2.1:0";  // A documentation address: not of this machine.
  EXPECT_THAT(HttpServer::Start(options, none), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("192.0.2.1:0")));
  for (const char* bad : {"", "localhost", "127.0.0.1:x", "127.0.0.1:70000", "::1:80", "[::1:80"}) {
    options.address = bad;
    EXPECT_THAT(HttpServer::Start(options, none), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'"))) << bad;
  }
}

}  // namespace
}  // namespace baton
