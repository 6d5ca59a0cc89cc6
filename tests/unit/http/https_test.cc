// SPDX-License-Identifier: Apache-2.0
#include <future>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/bounded_queue.h"
#include "common/base/clock.h"
#include "common/http/http_client.h"
#include "common/http/http_server.h"
#include "common/http/status_server.h"
#include "common/tls/tls_session.h"
#include "common/tls/tls_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_certificates.h"
#include "tests/unit/http/raw_client.h"

namespace baton {
namespace {

using ::baton::testing::CertificateSpec;
using ::baton::testing::Overwrite;
using ::baton::testing::RawClient;
using ::baton::testing::StatusIs;
using ::baton::testing::TestCa;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr absl::Duration kLong = absl::Seconds(20);
constexpr char kGet[] = "GET /wait HTTP/1.1\r\nHost: x\r\n\r\n";

std::shared_ptr<const TlsContext> ClientContext(const std::string& ca, const testing::IssuedCertificate& own = {}) {
  return *TlsContext::Client({.identity = own.cert + own.key, .ca = ca});
}

// A TLS client that a test holds by the hand.
class TlsClient {
 public:
  TlsClient(uint16_t port, std::shared_ptr<const TlsContext> context)
      : wire_(port), session_(std::move(context), TlsSession::Role::kClient, "localhost") {
    session_.Begin();
    Flush();
    while (!session_.established() && Hear()) {
    }
  }

  void Send(absl::string_view plain) {
    session_.Send(plain);
    Flush();
  }
  void SayClose() {
    session_.Close();
    Flush();
  }
  // As RawClient's; what there was when the stream or the session ended.
  std::string ReadUntil(absl::string_view end) {
    size_t at;
    while ((at = plain_.find(end.data(), 0, end.size())) == std::string::npos && status_.ok() && !session_.peer_closed()) {
      if (!Hear()) break;
    }
    at = at == std::string::npos ? plain_.size() : at + end.size();
    const std::string text = plain_.substr(0, at);
    plain_.erase(0, at);
    return text;
  }
  const absl::Status& status() const { return status_; }
  bool told_of_the_end() const { return session_.peer_closed(); }
  RawClient& wire() { return wire_; }

 private:
  void Flush() { wire_.Send(session_.TakeOutput()); }
  bool Hear() {
    const std::string bytes = wire_.ReadSome();
    if (!bytes.empty()) status_ = session_.Receive(bytes, &plain_);
    Flush();
    return !bytes.empty() && status_.ok();
  }

  RawClient wire_;
  TlsSession session_;
  std::string plain_;
  absl::Status status_;
};

struct Call {
  HttpRequest request;
  std::shared_ptr<HttpResponseWriter> writer;
};

// /echo answers at once; others wait for the test.
class HttpsTest : public ::testing::Test {
 protected:
  void StartServer(const TlsFiles& files, HttpServerOptions options = {}) {
    ASSERT_OK_AND_ASSIGN(store_, TlsStore::Open(files));
    options.address = "127.0.0.1:0";
    options.tls = store_;
    auto server = HttpServer::Start(options, [this](HttpRequest request, std::shared_ptr<HttpResponseWriter> writer) {
      if (request.path == "/echo") {
        writer->Send(200, "text/plain", request.body);
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
  absl::StatusOr<HttpResponse> Echo(std::shared_ptr<const TlsContext> tls, std::string body = "x", const std::string& host = "localhost") {
    return HttpFetch({.address = absl::StrCat(host, ":", server_->port()), .method = "POST", .target = "/echo", .body = std::move(body), .tls = std::move(tls)});
  }

  const TestCa ca_;
  std::shared_ptr<TlsStore> store_;
  BoundedQueue<Call> calls_{1000};
  std::unique_ptr<HttpServer> server_;
};

TlsFiles WithoutClients(TlsFiles files) {
  files.ca.clear();
  return files;
}

TEST_F(HttpsTest, AnswersWhomItIsTrustedBy) {
  StartServer(WithoutClients(ca_.WriteFiles()));
  const std::string large(3 << 20, 'x');
  ASSERT_OK_AND_ASSIGN(const HttpResponse response, Echo(ClientContext(ca_.pem()), large));
  EXPECT_EQ(response.status, 200);
  EXPECT_TRUE(response.body == large);
  ASSERT_OK_AND_ASSIGN(const HttpResponse by_address, Echo(ClientContext(ca_.pem()), "x", "127.0.0.1"));
  EXPECT_EQ(by_address.body, "x");
  const TestCa stranger("another CA");
  EXPECT_THAT(Echo(ClientContext(stranger.pem())),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("TLS: unable to get local issuer certificate")));
}

TEST_F(HttpsTest, AsksClientsForTheirCertificate) {
  StartServer(ca_.WriteFiles());
  ASSERT_OK_AND_ASSIGN(const HttpResponse response, Echo(ClientContext(ca_.pem(), ca_.Issue())));
  EXPECT_EQ(response.body, "x");
  const TestCa stranger("another CA");
  EXPECT_THAT(Echo(ClientContext(ca_.pem())), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("certificate required")));
  EXPECT_THAT(Echo(ClientContext(ca_.pem(), stranger.Issue())), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("unknown ca")));
  EXPECT_THAT(Echo(ClientContext(ca_.pem(), ca_.Issue({.begins = -absl::Hours(3), .ends = -absl::Hours(1)}))),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("certificate expired")));
  ASSERT_OK_AND_ASSIGN(const HttpResponse still, Echo(ClientContext(ca_.pem(), ca_.Issue())));
  EXPECT_EQ(still.status, 200);
}

TEST_F(HttpsTest, APlainClientIsToldWhatThisIs) {
  StartServer(WithoutClients(ca_.WriteFiles()));
  RawClient client(server_->port());
  client.Send("GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
  bool reset = true;
  const std::string answer = client.ReadAll(&reset);
  EXPECT_FALSE(reset);
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 400 Bad Request\r\n"));
  EXPECT_THAT(answer, HasSubstr("this address speaks HTTPS"));
  RawClient rubbish(server_->port());
  rubbish.Send(absl::StrCat("\x16\x03\x01", std::string(300, 'z')));
  EXPECT_THAT(rubbish.ReadAll(), Not(HasSubstr("HTTP")));  // An alert, and the end.
}

TEST_F(HttpsTest, StreamsKeepAliveAndPipelining) {
  StartServer(WithoutClients(ca_.WriteFiles()));
  TlsClient client(server_->port(), ClientContext(ca_.pem()));
  client.Send(absl::StrCat(kGet, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"));
  const Call call = NextCall();
  ASSERT_TRUE(call.writer->StartStream(200, "text/event-stream"));
  for (const char* piece : {"one", "two", "three"}) {
    ASSERT_TRUE(call.writer->Write(piece));
    EXPECT_THAT(client.ReadUntil(piece), EndsWith(piece));  // Before the next is written.
  }
  // The client may have it all before the server's thread has heard that it is written.
  const MonotonicTime deadline = Clock::Real()->Now() + absl::Seconds(20);
  while (call.writer->buffered_bytes() > 0 && Clock::Real()->Now() < deadline) std::this_thread::yield();
  EXPECT_EQ(call.writer->buffered_bytes(), 0u);
  ASSERT_TRUE(call.writer->Finish());
  EXPECT_THAT(client.ReadUntil("0\r\n\r\n"), EndsWith("0\r\n\r\n"));
  EXPECT_THAT(client.ReadUntil("abc"), StartsWith("HTTP/1.1 200 OK"));
  EXPECT_EQ(server_->num_connections(), 1);
  EXPECT_TRUE(server_->Drain(kLong));
  client.ReadUntil("never");
  EXPECT_TRUE(client.told_of_the_end());
}

// By TLS's own word as by FIN.
TEST_F(HttpsTest, AClientThatLeavesIsNoticed) {
  StartServer(WithoutClients(ca_.WriteFiles()));
  for (const bool by_word : {true, false}) {
    SCOPED_TRACE(by_word);
    TlsClient client(server_->port(), ClientContext(ca_.pem()));
    client.Send(kGet);
    const Call call = NextCall();
    ASSERT_TRUE(call.writer->StartStream(200, "text/event-stream"));
    client.ReadUntil("\r\n\r\n");
    std::promise<void> gone;
    call.writer->OnClosed([&gone] { gone.set_value(); });
    by_word ? client.SayClose() : client.wire().SendFin();
    EXPECT_EQ(gone.get_future().wait_for(absl::ToChronoSeconds(kLong)), std::future_status::ready);
    EXPECT_FALSE(call.writer->Write("x"));
  }
}

TEST_F(HttpsTest, ASlowReaderIsBounded) {
  HttpServerOptions options;
  options.max_buffered_bytes = 256 << 10;
  StartServer(WithoutClients(ca_.WriteFiles()), options);
  TlsClient client(server_->port(), ClientContext(ca_.pem()));
  client.Send(kGet);
  const Call call = NextCall();
  ASSERT_TRUE(call.writer->StartStream(200, "text/event-stream"));
  const std::string piece(16 << 10, 'x');
  int written = 0;
  while (call.writer->Write(piece) && written < 10000) ++written;
  EXPECT_LT(written, 10000);  // What the kernel's buffers and ours take.
}

TEST_F(HttpsTest, HandshakesHaveADeadline) {
  HttpServerOptions options;
  options.read_timeout = absl::Milliseconds(100);
  StartServer(WithoutClients(ca_.WriteFiles()), options);
  RawClient client(server_->port());
  client.Send("\x16");
  EXPECT_EQ(client.ReadAll(), "");
}

TEST_F(HttpsTest, NewFilesAreForTheNextHandshake) {
  const TlsFiles files = ca_.WriteFiles();
  StartServer(files);
  TlsClient running(server_->port(), ClientContext(ca_.pem(), ca_.Issue()));
  running.Send(kGet);
  const Call call = NextCall();
  ASSERT_TRUE(call.writer->StartStream(200, "text/event-stream"));
  ASSERT_TRUE(call.writer->Write("before"));
  EXPECT_THAT(running.ReadUntil("before"), EndsWith("before"));

  const TestCa next("the next CA");
  const auto issued = next.Issue();
  Overwrite(files.cert, issued.cert);
  store_->Reload();  // The key does not fit yet: the old ones stay.
  ASSERT_OK_AND_ASSIGN(const HttpResponse old, Echo(ClientContext(ca_.pem(), ca_.Issue())));
  EXPECT_EQ(old.status, 200);
  Overwrite(files.key, issued.key);
  Overwrite(files.ca, next.pem());
  store_->Reload();
  ASSERT_OK_AND_ASSIGN(const HttpResponse response, Echo(ClientContext(next.pem(), next.Issue())));
  EXPECT_EQ(response.status, 200);
  EXPECT_THAT(Echo(ClientContext(next.pem(), ca_.Issue())), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("unknown ca")));

  ASSERT_TRUE(call.writer->Write("after"));
  EXPECT_THAT(running.ReadUntil("after"), EndsWith("after"));
  ASSERT_TRUE(call.writer->Finish());
}

TEST_F(HttpsTest, StatusPages) {
  ASSERT_OK_AND_ASSIGN(const auto store, TlsStore::Open(WithoutClients(ca_.WriteFiles())));
  ASSERT_OK_AND_ASSIGN(const auto server, StatusServer::Start({.address = "127.0.0.1:0", .tls = store}));
  ASSERT_OK_AND_ASSIGN(const HttpResponse health, HttpGet(server->address(), "/health", kLong, ClientContext(ca_.pem())));
  EXPECT_EQ(health.status, 200);
}

}  // namespace
}  // namespace baton
