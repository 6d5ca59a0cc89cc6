// SPDX-License-Identifier: Apache-2.0
// A whole cluster as processes under TLS: towards clients, between router and workers, and for the KV cache.
#include <signal.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/http/http_client.h"
#include "common/rpc/rpc_tls.h"
#include "common/tls/tls_context.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/local_cluster.h"
#include "tests/support/paths.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_certificates.h"
#include "tests/support/tiny_model.h"

namespace baton::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Model() {
  static const auto* const path = new std::string(WriteTempFile("tiny.gguf", TinyModel().Build()));
  return *path;
}

std::vector<int> Prompt(int length) {
  std::vector<int> prompt;
  for (int i = 0; i < length; ++i) prompt.push_back(3 + (i * 37) % 250);
  return prompt;
}

class TlsClusterTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    ca_ = new TestCa;
    node_ = new TlsFiles(ca_->WriteFiles({.name = "node"}));
    client_ = new TlsFiles(ca_->WriteFiles({.name = "client", .hosts = ""}));
    client_->cert_flag = "--cert", client_->key_flag = "--key", client_->ca_flag = "--ca";
    auto tls = OpenRpcTls(*client_);
    ASSERT_THAT(tls, IsOk());
    auto started = LocalCluster::Start(Model(), Flags({"--prefill-flags=--transport=grpc"}), {.api_key = "", .tls = *tls});
    ASSERT_THAT(started, IsOk());
    cluster_ = started->release();
  }
  static void TearDownTestSuite() {
    delete cluster_;
    delete client_;
    delete node_;
    delete ca_;
  }
  void SetUp() override { ASSERT_NE(cluster_, nullptr); }
  void TearDown() override {
    if (HasFailure()) std::fputs(cluster_->log().c_str(), stderr);
  }

  static std::vector<std::string> Flags(std::vector<std::string> more) {
    std::vector<std::string> flags = {"--tls-cert=" + node_->cert,        "--tls-key=" + node_->key,
                                      "--tls-client-ca=" + node_->ca,     "--cluster-tls-cert=" + node_->cert,
                                      "--cluster-tls-key=" + node_->key,  "--cluster-tls-ca=" + node_->ca,
                                      "--cert=" + client_->cert,          "--key=" + client_->key};
    flags.insert(flags.end(), more.begin(), more.end());
    return flags;
  }
  // What a client command needs to reach the cluster.
  static std::vector<std::string> Access() {
    return {"--router=" + cluster_->grpc(), "--ca=" + client_->ca, "--cert=" + client_->cert, "--key=" + client_->key};
  }
  // Where workers register, as the router said.
  static std::string Registry() {
    const std::string log = cluster_->log();
    const size_t at = log.find(", workers ");
    return at == std::string::npos ? "" : log.substr(at + 10, log.find(';', at) - at - 10);
  }

  static TestCa* ca_;
  static TlsFiles* node_;
  static TlsFiles* client_;
  static LocalCluster* cluster_;
};
TestCa* TlsClusterTest::ca_ = nullptr;
TlsFiles* TlsClusterTest::node_ = nullptr;
TlsFiles* TlsClusterTest::client_ = nullptr;
LocalCluster* TlsClusterTest::cluster_ = nullptr;

TEST_F(TlsClusterTest, TheSameTokensAsInTheClear) {
  ASSERT_OK_AND_ASSIGN(const auto plain, LocalCluster::Start(Model(), {}));
  for (const int length : {1, 17, 100, 200}) {
    SCOPED_TRACE(length);
    ASSERT_OK_AND_ASSIGN(const cli::Answer expected, plain->Generate(GreedyRequest(Prompt(length), 24)));
    ASSERT_OK_AND_ASSIGN(const cli::Answer answer, cluster_->Generate(GreedyRequest(Prompt(length), 24)));
    EXPECT_EQ(answer.choices.at(0).token_ids.size(), 24u);
    EXPECT_EQ(answer.choices.at(0).token_ids, expected.choices.at(0).token_ids);
    EXPECT_EQ(answer.timeline.disaggregated(), length > 1);
  }
}

TEST_F(TlsClusterTest, StatusSaysHowKvTravels) {
  ASSERT_OK_AND_ASSIGN(const v1::Worker decode, cluster_->Worker("d-1"));
  EXPECT_THAT(decode.transports(), ElementsAre("shm", "grpc+tls"));  // No tcp: it encrypts nothing.
  ASSERT_OK_AND_ASSIGN(const v1::Worker prefill, cluster_->Worker("p-1"));
  EXPECT_THAT(prefill.transports(), ElementsAre("grpc+tls"));
  std::vector<std::string> args = {"status"};
  for (std::string& flag : Access()) args.push_back(std::move(flag));
  const Finished finished = RunBaton(args);
  EXPECT_EQ(finished.exit.code, 0);
  EXPECT_THAT(finished.output, HasSubstr("grpc+tls to d-1"));
  EXPECT_THAT(finished.output, HasSubstr("shm,grpc+tls"));
  ASSERT_OK_AND_ASSIGN(const auto in_clear, LocalCluster::Start(Model(), {}));
  ASSERT_OK_AND_ASSIGN(const v1::Worker other, in_clear->Worker("d-1"));
  EXPECT_THAT(other.transports(), ElementsAre("shm", "tcp", "grpc"));
}

TEST_F(TlsClusterTest, WhoHasNoCertificateGetsNoAnswer) {
  cli::RouterClient plain(cluster_->grpc());
  const auto refused = plain.GetCluster(absl::Seconds(20));
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("--tls")));
  TlsFiles ca_alone = *client_;
  ca_alone.cert.clear();
  ca_alone.key.clear();
  ASSERT_OK_AND_ASSIGN(const auto nameless, OpenRpcTls(ca_alone));
  EXPECT_THAT(cli::RouterClient(cluster_->grpc(), {.tls = nameless}).GetCluster(absl::Seconds(20)),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("by TLS")));
  ASSERT_OK_AND_ASSIGN(const TlsMaterial material, LoadTlsMaterial(*client_));
  ASSERT_OK_AND_ASSIGN(const auto https, TlsContext::Client(material));
  ASSERT_OK_AND_ASSIGN(const HttpResponse models, HttpGet(cluster_->http(), "/v1/models", kPatience, https));
  EXPECT_EQ(models.status, 200) << models.body;
  ASSERT_OK_AND_ASSIGN(const HttpResponse in_clear, HttpGet(cluster_->http(), "/v1/models"));
  EXPECT_EQ(in_clear.status, 400);
  EXPECT_THAT(in_clear.body, HasSubstr("HTTPS"));
}

// A worker sees prompts: another CA's certificate, or none, does not make one.
TEST_F(TlsClusterTest, AWorkerOfAnotherCaIsNoWorker) {
  const TestCa stranger("another CA");
  TlsFiles files = stranger.WriteFiles();
  const std::string registry = Registry();
  ASSERT_NE(registry, "");
  const std::vector<std::vector<std::string>> ways = {
      {"--cluster-tls-cert=" + files.cert, "--cluster-tls-key=" + files.key, "--cluster-tls-ca=" + node_->ca},
      {"--cluster-tls-cert=" + files.cert, "--cluster-tls-key=" + files.key, "--cluster-tls-ca=" + files.ca},
      {}};
  for (const std::vector<std::string>& way : ways) {
    SCOPED_TRACE(way.empty() ? "in the clear" : way.back());
    std::vector<std::string> argv = {BuildPath("bin/baton_decode_worker"), "--model=" + Model(), "--id=intruder", "--router=" + registry,
                                     "--kv-memory=8MiB", "--threads=1"};
    argv.insert(argv.end(), way.begin(), way.end());
    std::string log;
    auto child = cli::ChildProcess::Start(argv, {}, [&log](absl::string_view line) { absl::StrAppend(&log, line, "\n"); });
    ASSERT_THAT(child, IsOk());
    EXPECT_TRUE(Eventually([&] {
      (*child)->ReadOutput();
      return absl::StrContains(log, "cannot be reached");
    })) << log;
    EXPECT_THAT(log, Not(HasSubstr("registered with router")));
    EXPECT_THAT(cluster_->Worker("intruder"), StatusIs(absl::StatusCode::kNotFound, HasSubstr("intruder")));
    kill((*child)->pid(), SIGTERM);
    EXPECT_TRUE(Eventually([&] { return (*child)->ReadOutput(), (*child)->Reap().has_value(); })) << log;
  }
}

TEST_F(TlsClusterTest, TcpHasToBeAskedFor) {
  const std::vector<std::string> serve = {"serve", "--model=" + Model(), "--grpc=127.0.0.1:0", "--http=", "--kv-memory=8MiB", "--threads=1",
                                          "--transport=tcp"};
  std::vector<std::string> args = serve;
  for (std::string& flag : Flags({})) args.push_back(std::move(flag));
  const Finished refused = RunBaton(args);
  EXPECT_EQ(refused.exit.code, 2) << refused.output;
  EXPECT_THAT(refused.output, HasSubstr("--transport tcp shows KV to the network"));
}

// Certificates are replaced on the running processes: what runs goes on, what comes uses the new ones, and old ones are out.
// A cluster of its own, for its CA goes.
TEST_F(TlsClusterTest, CertificatesAreReplacedWhileItRuns) {
  const TestCa before("before"), after("after");
  const TlsFiles node = before.WriteFiles(), client = before.WriteFiles(), later = after.WriteFiles();
  ASSERT_OK_AND_ASSIGN(const auto tls, OpenRpcTls(client));
  ASSERT_OK_AND_ASSIGN(const auto later_tls, OpenRpcTls(later));
  ASSERT_OK_AND_ASSIGN(const auto cluster,
                       LocalCluster::Start(Model(), {"--tls-cert=" + node.cert, "--tls-key=" + node.key, "--tls-client-ca=" + node.ca,
                                                     "--cluster-tls-cert=" + node.cert, "--cluster-tls-key=" + node.key,
                                                     "--cluster-tls-ca=" + node.ca, "--cert=" + client.cert, "--key=" + client.key},
                                           {.tls = tls}));
  const std::vector<int> prompt = Prompt(60);
  ASSERT_OK_AND_ASSIGN(const cli::Answer expected, cluster->Generate(GreedyRequest(prompt, 60)));
  cli::RouterClient running(cluster->grpc(), {.tls = tls});
  cli::Answer answer;
  bool replaced = false;
  const absl::Status status = running.Generate(GreedyRequest(prompt, 60), kPatience, [&](const v1::GenerateResponse& response) {
    answer.Add(response);
    if (std::exchange(replaced, true)) return;
    const auto issued = after.Issue();
    Overwrite(node.cert, issued.cert);
    Overwrite(node.key, issued.key);
    Overwrite(node.ca, after.pem());
  });
  EXPECT_THAT(status, IsOk());
  EXPECT_EQ(answer.choices.at(0).token_ids, expected.choices.at(0).token_ids);
  absl::StatusOr<v1::GetClusterResponse> seen = absl::UnknownError("");
  EXPECT_TRUE(Eventually([&] { return (seen = cli::RouterClient(cluster->grpc(), {.tls = later_tls}).GetCluster(absl::Seconds(5))).ok(); }))
      << seen.status();
  EXPECT_THAT(cli::RouterClient(cluster->grpc(), {.tls = tls}).GetCluster(absl::Seconds(5)),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("")));
  EXPECT_EQ(seen->workers().size(), 2);
  // A worker that starts anew (the cluster's supervisor does that) comes in with the new certificates.
  const pid_t old = cluster->PidOf("d-1");
  ASSERT_GT(old, 0);
  kill(old, SIGKILL);
  cli::RouterClient client_after(cluster->grpc(), {.tls = later_tls});
  EXPECT_TRUE(Eventually([&] {
    cli::Answer again;
    const absl::Status ok = client_after.Generate(GreedyRequest(prompt, 60), absl::Seconds(20), [&](const v1::GenerateResponse& r) { again.Add(r); });
    return ok.ok() && again.choices.at(0).token_ids == expected.choices.at(0).token_ids && cluster->PidOf("d-1") != old;
  })) << cluster->log();
}

}  // namespace
}  // namespace baton::testing
