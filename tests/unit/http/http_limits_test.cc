// SPDX-License-Identifier: Apache-2.0
// What the server refuses and whom it cuts off.
#include <future>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/bounded_queue.h"
#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/http/http_server.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/http/raw_client.h"

namespace baton {
namespace {

using ::baton::testing::RawClient;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class HttpLimitsTest : public ::testing::Test {
 protected:
  void StartServer(HttpServerOptions options) {
    options.address = "127.0.0.1:0";
    auto server = HttpServer::Start(options, [this](HttpRequest request, std::shared_ptr<HttpResponseWriter> writer) {
      if (request.path == "/echo") {
        writer->Send(200, "text/plain", absl::StrCat("[", request.body.size(), "]"));
      } else {
        writers_.TryPush(std::move(writer));
      }
    });
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  std::shared_ptr<HttpResponseWriter> NextWriter() { return writers_.Pop(absl::Seconds(20)).value_or(nullptr); }
  uint16_t port() const { return server_->port(); }

  BoundedQueue<std::shared_ptr<HttpResponseWriter>> writers_{1000};
  std::unique_ptr<HttpServer> server_;
};

std::string PostHead(const std::string& headers) { return absl::StrCat("POST /echo HTTP/1.1\r\nHost: x\r\n", headers, "\r\n"); }

// B19 (i)
TEST_F(HttpLimitsTest, OneByteChunksWithATrailer) {
  StartServer({});
  RawClient client(port());
  std::string text = PostHead("Transfer-Encoding: chunked\r\n");
  for (int i = 0; i < 5000; ++i) text += "1\r\nx\r\n";
  client.Send(text + "0\r\nX-Trailer: 1\r\n\r\n" + PostHead("Content-Length: 1\r\n") + "y");
  EXPECT_THAT(client.ReadUntil("[5000]"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(client.ReadUntil("[1]"), StartsWith("HTTP/1.1 200"));
}

// B19 (ii)
TEST_F(HttpLimitsTest, ExpectContinue) {
  HttpServerOptions options;
  options.max_body_bytes = 2 << 20;
  StartServer(options);
  RawClient client(port());
  client.Send(PostHead("Expect: 100-continue\r\nContent-Length: 2097152\r\n"));
  EXPECT_EQ(client.ReadUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.Send(std::string(2 << 20, 'x'));
  EXPECT_THAT(client.ReadUntil("[2097152]"), StartsWith("HTTP/1.1 200"));
  // A client that does not wait gets no interim answer.
  client.Send(PostHead("Expect: 100-continue\r\nContent-Length: 2\r\n") + "xy");
  EXPECT_THAT(client.ReadUntil("[2]"), StartsWith("HTTP/1.1 200"));
  // Too large: refused before the body is asked for.
  client.Send(PostHead("Expect: 100-continue\r\nContent-Length: 2097153\r\n"));
  EXPECT_THAT(client.ReadUntil("\r\n\r\n"), StartsWith("HTTP/1.1 413"));
}

// The client that sends a too large body all the same reads the whole answer and then a clean end.
TEST_F(HttpLimitsTest, TooLargeABodyIsRefusedCleanly) {
  HttpServerOptions options;
  options.max_body_bytes = 1000;
  StartServer(options);
  for (const std::string headers : {"Content-Length: 8388608\r\n", "Transfer-Encoding: chunked\r\n"}) {
    RawClient client(port());
    client.Send(PostHead(headers));
    if (headers[0] == 'T') client.Send("800000\r\n");
    EXPECT_TRUE(client.Send(std::string(8 << 20, 'x')));
    client.SendFin();
    bool reset = true;
    const std::string answer = client.ReadAll(&reset);
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 413"));
    EXPECT_THAT(answer, HasSubstr("Connection: close"));
    EXPECT_FALSE(reset);
    const auto body = ParseJson(answer.substr(answer.find("\r\n\r\n") + 4));
    ASSERT_TRUE(body.ok()) << body.status();
    EXPECT_EQ((*body)["error"]["type"], "invalid_request_error");
  }
}

// B19 (iii) and other malformed requests, over a socket; request_reader_test has the table.
TEST_F(HttpLimitsTest, MalformedRequestsAreAnsweredAndClosed) {
  HttpServerOptions options;
  options.max_header_bytes = 2000;
  StartServer(options);
  const std::pair<std::string, std::string> cases[] = {
      {PostHead("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n") + "0\r\n\r\n", "HTTP/1.1 400"},
      {PostHead("X: " + std::string(4000, 'x') + "\r\n"), "HTTP/1.1 431"},
      {"\xFF\xFE\r\n\r\n", "HTTP/1.1 400"},
      {"GET / HTTP/3.0\r\n\r\n", "HTTP/1.1 505"}};
  for (const auto& [text, answer] : cases) {
    RawClient client(port());
    client.Send(text);
    EXPECT_THAT(client.ReadUntil("\r\n\r\n"), StartsWith(answer));
    client.SendFin();
    client.ReadAll();
  }
  RawClient fine(port());
  fine.Send(PostHead("Content-Length: 0\r\n"));
  EXPECT_THAT(fine.ReadUntil("[0]"), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpLimitsTest, SlowRequestsGet408AndIdleConnectionsEnd) {
  HttpServerOptions options;
  options.read_timeout = absl::Milliseconds(50);
  options.idle_timeout = absl::Milliseconds(50);
  StartServer(options);
  RawClient half_header(port()), half_body(port()), idle(port()), between(port());
  half_header.Send("GET /echo HT");
  half_body.Send(PostHead("Content-Length: 5\r\n") + "ab");
  between.Send(PostHead("Content-Length: 0\r\n"));
  EXPECT_THAT(half_header.ReadUntil("\r\n\r\n"), StartsWith("HTTP/1.1 408"));
  EXPECT_THAT(half_body.ReadUntil("\r\n\r\n"), StartsWith("HTTP/1.1 408"));
  EXPECT_EQ(idle.ReadAll(), "");
  between.ReadUntil("[0]");
  EXPECT_EQ(between.ReadAll(), "");
}

TEST_F(HttpLimitsTest, AResponseMayTakeLongerThanTheReadTimeout) {
  HttpServerOptions options;
  options.read_timeout = options.idle_timeout = options.write_timeout = absl::Milliseconds(20);
  StartServer(options);
  RawClient waiting(port());
  waiting.Send("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n");
  auto writer = NextWriter();
  ASSERT_NE(writer, nullptr);
  // Time passes for certain: another connection runs into its idle timeout, several times over.
  for (int i = 0; i < 3; ++i) RawClient(port()).ReadAll();
  EXPECT_TRUE(writer->Send(200, "text/plain", "late"));
  EXPECT_THAT(waiting.ReadUntil("late"), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpLimitsTest, ASlowReaderIsBoundedAndCut) {
  HttpServerOptions options;
  options.max_buffered_bytes = 64 << 10;
  StartServer(options);
  RawClient client(port(), /*receive_buffer=*/4096);
  client.Send("GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
  auto writer = NextWriter();
  ASSERT_NE(writer, nullptr);
  std::promise<void> closed;
  writer->OnClosed([&] { closed.set_value(); });
  ASSERT_TRUE(writer->StartStream(200, "text/plain"));
  const std::string chunk(8 << 10, 'x');
  size_t most = 0;
  int writes = 0;
  while (writer->Write(chunk)) {
    most = std::max(most, writer->buffered_bytes());
    ASSERT_LT(++writes, 100000);
  }
  EXPECT_LE(most, options.max_buffered_bytes + 100);
  ASSERT_EQ(closed.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_TRUE(writer->closed());
  EXPECT_FALSE(writer->Finish());
}

TEST_F(HttpLimitsTest, AReaderThatStopsIsCutAfterTheTimeout) {
  HttpServerOptions options;
  options.write_timeout = absl::Milliseconds(50);
  StartServer(options);
  RawClient client(port(), /*receive_buffer=*/4096);
  client.Send("GET /big HTTP/1.1\r\nHost: x\r\n\r\n");
  auto writer = NextWriter();
  ASSERT_NE(writer, nullptr);
  std::promise<void> closed;
  writer->OnClosed([&] { closed.set_value(); });
  EXPECT_TRUE(writer->Send(200, "text/plain", std::string(32 << 20, 'x')));
  EXPECT_EQ(closed.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
}

TEST_F(HttpLimitsTest, TooManyRequestsAndConnections) {
  HttpServerOptions options;
  options.max_requests = 1;
  options.max_connections = 2;
  StartServer(options);
  RawClient first(port());
  first.Send("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n");
  auto writer = NextWriter();
  ASSERT_NE(writer, nullptr);
  RawClient second(port());
  second.Send(PostHead("Content-Length: 0\r\n"));
  EXPECT_THAT(second.ReadUntil("\r\n\r\n"), ::testing::AllOf(StartsWith("HTTP/1.1 503"), HasSubstr("Retry-After: 1")));
  second.ReadUntil("}}");
  RawClient third(port());
  EXPECT_THAT(third.ReadUntil("\r\n\r\n"), ::testing::AllOf(StartsWith("HTTP/1.1 503"), HasSubstr("Connection: close")));
  writer->Send(200, "text/plain", "done");
  first.ReadUntil("done");
  first.Send(PostHead("Content-Length: 0\r\n"));
  EXPECT_THAT(first.ReadUntil("[0]"), StartsWith("HTTP/1.1 200"));
  second.Send(PostHead("Content-Length: 0\r\n"));
  EXPECT_THAT(second.ReadUntil("[0]"), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpLimitsTest, BodiesInFlightAreBoundedTogether) {
  HttpServerOptions options;
  options.max_total_body_bytes = 1000;
  StartServer(options);
  RawClient first(port()), second(port());
  first.Send(PostHead("Expect: 100-continue\r\nContent-Length: 800\r\n"));
  first.ReadUntil("\r\n\r\n");
  first.Send(std::string(799, 'x'));
  // Refused as soon as the server has read from both what together is too much; retried until it has.
  std::string answer;
  for (int i = 0; i < 1000 && !absl::StartsWith(answer, "HTTP/1.1 503"); ++i) {
    RawClient other(port());
    other.Send(PostHead("Content-Length: 900\r\n") + std::string(900, 'x'));
    answer = other.ReadUntil("\r\n\r\n");
  }
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 503"));
  first.Send("x");
  EXPECT_THAT(first.ReadUntil("[800]"), StartsWith("HTTP/1.1 200"));
  second.Send(PostHead("Content-Length: 900\r\n") + std::string(900, 'x'));
  EXPECT_THAT(second.ReadUntil("[900]"), StartsWith("HTTP/1.1 200"));
}

}  // namespace
}  // namespace baton
