// SPDX-License-Identifier: Apache-2.0
// Who may call what with which key, and how much of it.
#include <fstream>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "baton/internal/registry.grpc.pb.h"
#include "router/api_keys.h"
#include "tests/issues/router_fixture.h"
#include "tests/support/temp_files.h"

namespace baton::testing {
namespace {

using ::testing::HasSubstr;

class ApiKeysTest : public RouterErrorsTest {
 protected:
  static constexpr char kClient[] = "client-0123456789", kWorkerKey[] = "worker-0123456789";

  void SetUp() override {
    path_ = WriteTempFile("keys", absl::StrCat("alice ", kClient, "\nw ", kWorkerKey, " worker\n"));
    auto keys = ApiKeys::Load(path_);
    ASSERT_TRUE(keys.ok()) << keys.status();
    RouterOptions options;
    options.core.api_keys = *std::move(keys);
    StartRouter(options);
  }
  grpc::Status GetCluster(const std::string& key) {
    grpc::ClientContext context;
    if (!key.empty()) context.AddMetadata("authorization", "Bearer " + key);
    v1::GetClusterResponse response;
    return stub_->GetCluster(&context, {}, &response);
  }
  // Of every method: they agree.
  grpc::StatusCode Call(const std::string& key) {
    const grpc::Status cluster = GetCluster(key);
    grpc::ClientContext second, third;
    if (!key.empty()) second.AddMetadata("authorization", "Bearer " + key);
    if (!key.empty()) third.AddMetadata("authorization", "Bearer " + key);
    v1::ListModelsResponse models;
    EXPECT_EQ(stub_->ListModels(&second, {}, &models).error_code(), cluster.error_code());
    auto reader = stub_->Generate(&third, Text("abc"));
    v1::GenerateResponse ignored;
    while (reader->Read(&ignored)) {
    }
    const grpc::StatusCode generate = reader->Finish().error_code();
    EXPECT_EQ(generate, cluster.ok() ? grpc::UNAVAILABLE : cluster.error_code());  // There are no workers.
    return cluster.error_code();
  }
  grpc::StatusCode Register(const std::string& key) {
    grpc::ClientContext context;
    if (!key.empty()) context.AddMetadata("authorization", "Bearer " + key);
    auto stub = internal::Registry::NewStub(CreateChannel(router_->grpc_address()));
    auto stream = stub->Register(&context);
    internal::WorkerReport report;
    auto* identity = report.mutable_identity();
    identity->set_id("d-1");
    identity->set_incarnation(1);
    identity->set_role(internal::DECODE);
    identity->set_address("127.0.0.1:1");
    identity->set_model_fingerprint("m");
    identity->set_kv_layout("l");
    identity->set_context_length(64);
    identity->set_vocab_size(300);
    stream->Write(report);
    internal::RouterReply reply;
    const bool welcome = stream->Read(&reply);
    stream->WritesDone();
    while (stream->Read(&reply)) {
    }
    const grpc::Status status = stream->Finish();
    EXPECT_EQ(welcome, status.ok()) << status.error_message();
    return status.error_code();
  }

  std::string path_;
};

TEST_F(ApiKeysTest, EveryCallOfAClientNeedsOne) {
  EXPECT_EQ(Call(""), grpc::UNAUTHENTICATED);
  EXPECT_EQ(Call("client-0123456780"), grpc::UNAUTHENTICATED);
  EXPECT_EQ(Call(kWorkerKey), grpc::PERMISSION_DENIED);
  EXPECT_EQ(Call(kClient), grpc::OK);
  const std::string good = absl::StrCat("Bearer ", kClient);
  for (const auto& [method, path, status] :
       {std::tuple("GET", "/v1/models", 200), {"GET", "/metrics", 200}, {"GET", "/version", 200}, {"GET", "/nowhere", 404},
        {"POST", "/tokenize", 400}, {"POST", "/v1/completions", 400}, {"POST", "/v1/chat/completions", 400}}) {
    for (const HttpHeaders& headers : {HttpHeaders(), HttpHeaders{{"Authorization", "Bearer wrong-wrong-wrong"}}}) {
      const HttpResponse refused = Fetch(method, path, headers, "{}");
      EXPECT_EQ(refused.status, 401) << path;
      EXPECT_EQ(Error(refused)["code"], "invalid_api_key") << path;
      EXPECT_EQ(FindHeader(refused.headers, "www-authenticate").value_or(""), "Bearer") << path;
      EXPECT_THAT(refused.body, ::testing::Not(HasSubstr("wrong-wrong"))) << path;
    }
    EXPECT_EQ(Fetch(method, path, {{"Authorization", absl::StrCat("Bearer ", kWorkerKey)}}, "{}").status, 403) << path;
    EXPECT_EQ(Fetch(method, path, {{"Authorization", good}}, "{}").status, status) << path;
  }
  EXPECT_EQ(Get("/health").status, 200);
  EXPECT_EQ(Get("/ready").status, 503);
}

TEST_F(ApiKeysTest, AWorkerNeedsOneOfItsOwn) {
  EXPECT_EQ(Register(""), grpc::UNAUTHENTICATED);
  EXPECT_EQ(Register(kClient), grpc::PERMISSION_DENIED);
  EXPECT_EQ(Register(kWorkerKey), grpc::OK);
}

TEST_F(ApiKeysTest, DrainingAWorkerNeedsAnAdmin) {
  const auto drain = [&](const char* key) {
    grpc::ClientContext context;
    context.AddMetadata("authorization", absl::StrCat("Bearer ", key));
    v1::DrainWorkerRequest request;
    request.set_worker("d-9");
    v1::DrainWorkerResponse response;
    return stub_->DrainWorker(&context, request, &response);
  };
  for (const char* key : {kClient, kWorkerKey}) EXPECT_EQ(drain(key).error_code(), grpc::PERMISSION_DENIED) << key;
  std::ofstream(path_, std::ios::app) << "ops admin-0123456789 admin\n";
  EXPECT_TRUE(WaitUntil([&] { return drain("admin-0123456789").error_code() == grpc::NOT_FOUND; }));
  EXPECT_EQ(drain("admin-0123456789").error_message(), "no worker d-9 is registered here; none is");
}

// The same in both APIs, and for a batch: as many requests as prompts.
TEST_F(ApiKeysTest, LimitsOfAKeyAreKept) {
  std::ofstream(path_, std::ios::trunc) << "alice client-0123456789 max-concurrent=2 priority=3\nbob other-0123456789 requests-per-minute=3\n"
                                        << "carol third-0123456789 tokens-per-minute=10\nw worker-0123456789 worker\n";
  ASSERT_TRUE(WaitUntil([&] { return GetCluster("other-0123456789").ok(); }));
  Workers(64, kWorkerKey);
  const auto post = [&](const char* key, const std::string& body) {
    return Fetch("POST", "/v1/completions", {{"Authorization", absl::StrCat("Bearer ", key)}}, body);
  };
  const auto grpc = [&](const char* key, int priority) {
    grpc::ClientContext context;
    context.AddMetadata("authorization", absl::StrCat("Bearer ", key));
    v1::GenerateRequest request = Text("abc");
    request.set_priority(priority);
    auto reader = stub_->Generate(&context, request);
    v1::GenerateResponse ignored;
    while (reader->Read(&ignored)) {
    }
    const grpc::Status status = reader->Finish();
    const auto& trailing = context.GetServerTrailingMetadata();
    EXPECT_EQ(trailing.find("retry-after-ms") != trailing.end(), status.error_code() == grpc::RESOURCE_EXHAUSTED);
    return status;
  };
  EXPECT_EQ(post(kClient, R"({"prompt":["a","b"]})").status, 200);
  const HttpResponse batch = post(kClient, R"({"prompt":["a","b","c"]})");
  EXPECT_EQ(batch.status, 400);
  EXPECT_EQ(Error(batch)["message"], "API key alice: a batch of 3 prompts is over max-concurrent, which is 2");
  EXPECT_EQ(post(kClient, R"({"prompt":["a","b"]})").status, 200);  // Those have ended.
  EXPECT_EQ(Error(post(kClient, R"({"prompt":"a","priority":4})"))["param"], "priority");
  EXPECT_THAT(grpc(kClient, 4).error_message(), HasSubstr("priority 4 is over 3, the most that API key alice may ask for"));
  EXPECT_TRUE(grpc(kClient, 3).ok());

  EXPECT_EQ(post("other-0123456789", R"({"prompt":"a"})").status, 200);
  EXPECT_TRUE(grpc("other-0123456789", 0).ok());
  EXPECT_EQ(post("other-0123456789", R"({"prompt":7})").status, 400);  // Who asks nonsense asks all the same.
  const HttpResponse third = post("other-0123456789", R"({"prompt":"a"})");
  EXPECT_EQ(third.status, 429);
  EXPECT_EQ(Error(third)["message"], "API key bob: its requests-per-minute, 3, are used up");
  EXPECT_EQ(Error(third)["code"], "rate_limit_exceeded");
  EXPECT_EQ(Error(third)["type"], "rate_limit_error");
  EXPECT_TRUE(FindHeader(third.headers, "retry-after").has_value());
  EXPECT_THAT(third.body, ::testing::Not(HasSubstr("other-")));
  EXPECT_EQ(grpc("other-0123456789", 0).error_code(), grpc::RESOURCE_EXHAUSTED);
  EXPECT_EQ(Fetch("GET", "/v1/models", {{"Authorization", "Bearer other-0123456789"}}).status, 200);  // No request for tokens.

  EXPECT_EQ(post("third-0123456789", R"({"prompt":"0123456789abcdef"})").status, 200);
  const HttpResponse owed = post("third-0123456789", R"({"prompt":"a"})");
  EXPECT_EQ(owed.status, 429);
  EXPECT_THAT(Error(owed)["message"].get<std::string>(), HasSubstr("API key carol: its tokens-per-minute, 10,"));
  EXPECT_THAT(metrics_->RenderPrometheus(), HasSubstr(R"(baton_key_requests_refused_total{key="bob",limit="requests-per-minute"} 2)"));
}

TEST_F(ApiKeysTest, ARevokedKeyEnds) {
  ASSERT_EQ(Call(kClient), grpc::OK);
  std::ofstream(path_, std::ios::trunc) << "bob other-0123456789\n";
  // One call at a time: the file may be read again between two.
  EXPECT_TRUE(WaitUntil([&] { return GetCluster("other-0123456789").ok(); }));
  EXPECT_EQ(Call("other-0123456789"), grpc::OK);
  EXPECT_EQ(Call(kClient), grpc::UNAUTHENTICATED);
}

}  // namespace
}  // namespace baton::testing
