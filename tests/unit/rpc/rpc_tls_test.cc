// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/rpc_tls.h"

#include <chrono>

#include "common/base/clock.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "gmock/gmock.h"
#include "grpcpp/client_context.h"
#include "grpcpp/generic/generic_stub.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_certificates.h"

namespace baton {
namespace {

using ::baton::testing::CertificateSpec;
using ::baton::testing::Overwrite;
using ::baton::testing::StatusIs;
using ::baton::testing::TestCa;
using ::testing::HasSubstr;

constexpr std::chrono::seconds kPatience(60);

struct Answer {
  grpc::Status status;
  std::string body;
};

// The health service's answer for the whole server: SERVING is {8, 1}.
Answer Check(const RpcServer& server, std::shared_ptr<const RpcTls> tls) {
  grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer> stub(CreateChannel(server.address(), tls));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  grpc::CompletionQueue queue;
  const grpc::Slice empty("", 0);
  auto call = stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check", grpc::ByteBuffer(&empty, 1), &queue);
  call->StartCall();
  Answer answer;
  grpc::ByteBuffer response;
  call->Finish(&response, &answer.status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  grpc::Slice slice;
  if (answer.status.ok() && response.DumpToSingleSlice(&slice).ok()) answer.body.assign(slice.begin(), slice.end());
  return answer;
}
constexpr char kServing[] = "\x08\x01";

std::shared_ptr<const RpcTls> Tls(const TlsFiles& files, const RpcTlsOptions& options = {}) {
  auto tls = OpenRpcTls(files, options);
  EXPECT_TRUE(tls.ok()) << tls.status();
  return *tls;
}

TlsFiles CaAlone(TlsFiles files) {
  files.cert.clear();
  files.key.clear();
  return files;
}

TEST(RpcTls, WhoIsServed) {
  const TestCa ca, stranger("another CA");
  const TlsFiles own = ca.WriteFiles();
  TlsFiles no_clients = own;
  no_clients.ca.clear();
  TlsFiles false_client = stranger.WriteFiles();
  false_client.ca = own.ca;
  const CertificateSpec expired = {.begins = -absl::Hours(3), .ends = -absl::Hours(1)};
  const CertificateSpec elsewhere = {.hosts = "DNS:node.cluster"};
  const struct {
    const char* what;
    std::shared_ptr<const RpcTls> server, client;
    bool served;
  } cases[] = {
      {"in the clear", nullptr, nullptr, true},
      {"clients need no certificate", Tls(no_clients), Tls(CaAlone(own)), true},
      {"mutual", Tls(own), Tls(own), true},
      {"by a name in common", Tls(ca.WriteFiles(elsewhere)), Tls(ca.WriteFiles(elsewhere), {.peer_name = "node.cluster"}), true},
      {"whoever answers", Tls(stranger.WriteFiles(elsewhere)), Tls(stranger.WriteFiles(), {.verify_server = false}), true},
      {"whoever answers, without files", Tls(no_clients), Tls({}, {.verify_server = false}), true},
      {"a server of another name", Tls(ca.WriteFiles(elsewhere)), Tls(own), false},
      {"a server of another CA", Tls(no_clients), Tls(CaAlone(stranger.WriteFiles())), false},
      {"a server that the system does not know", Tls(no_clients), Tls({}), false},
      {"a client without a certificate", Tls(own), Tls(CaAlone(own)), false},
      {"a client of another CA", Tls(own), Tls(false_client), false},
      {"a plain client", Tls(own), nullptr, false},
      {"a plain server", nullptr, Tls(own), false},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.what);
    ASSERT_OK_AND_ASSIGN(const auto server, RpcServer::Start({.tls = c.server}, {}));
    const Answer answer = Check(*server, c.client);
    EXPECT_EQ(answer.status.ok(), c.served) << answer.status.error_message();
    if (c.served) EXPECT_EQ(answer.body, kServing);
    else EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::UNAVAILABLE) << answer.status.error_message();
  }
  EXPECT_THAT(OpenRpcTls(ca.WriteFiles(expired)), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("expired")));
}

// Hears what the health service says of the server, on one stream.
class Watch {
 public:
  Watch(const RpcServer& server, std::shared_ptr<const RpcTls> tls) : stub_(CreateChannel(server.address(), tls)) {
    context_.set_deadline(std::chrono::system_clock::now() + kPatience);
    call_ = stub_.PrepareCall(&context_, "/grpc.health.v1.Health/Watch", &queue_);
    call_->StartCall(this);
    EXPECT_TRUE(Wait());
    const grpc::Slice empty("", 0);
    call_->Write(grpc::ByteBuffer(&empty, 1), this);
    EXPECT_TRUE(Wait());
  }
  ~Watch() {
    context_.TryCancel();
    grpc::Status status;
    call_->Finish(&status, this);
    Wait();
  }
  std::string Next() {
    grpc::ByteBuffer response;
    call_->Read(&response, this);
    grpc::Slice slice;
    if (!Wait() || !response.DumpToSingleSlice(&slice).ok()) return "nothing";
    return std::string(slice.begin(), slice.end());
  }

 private:
  bool Wait() {
    void* tag = nullptr;
    bool ok = false;
    return queue_.Next(&tag, &ok) && ok;
  }
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
};

TEST(RpcTls, NewFilesAreForTheNextHandshake) {
  const TestCa ca, next("the next CA");
  const TlsFiles files = ca.WriteFiles();
  const auto tls = Tls(files);
  ASSERT_OK_AND_ASSIGN(const auto server, RpcServer::Start({.tls = tls}, {}));
  Watch running(*server, tls);
  EXPECT_EQ(running.Next(), kServing);

  const auto issued = next.Issue();
  Overwrite(files.cert, issued.cert);
  Overwrite(files.key, issued.key);
  Overwrite(files.ca, next.pem());
  const auto later = Tls(next.WriteFiles()), before = Tls(ca.WriteFiles());
  const MonotonicTime deadline = Clock::Real()->Now() + absl::Seconds(60);
  Answer answer = Check(*server, later);
  while (!answer.status.ok() && Clock::Real()->Now() < deadline) answer = Check(*server, later);
  EXPECT_EQ(answer.body, kServing) << answer.status.error_message();
  EXPECT_FALSE(Check(*server, before).status.ok());
  // The end that calls has read them too.
  answer = Check(*server, tls);
  while (!answer.status.ok() && Clock::Real()->Now() < deadline) answer = Check(*server, tls);
  EXPECT_EQ(answer.body, kServing) << answer.status.error_message();

  server->SetServing(false);
  EXPECT_EQ(running.Next(), "\x08\x02");  // Of before the change, and alive.
}

}  // namespace
}  // namespace baton
