// SPDX-License-Identifier: Apache-2.0
// A router that was given no model: one of its workers tells it.
#include <fstream>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/router/service_fixture.h"

namespace baton::testing {
namespace {

using ::testing::HasSubstr;

class ModelSeekerTest : public ServiceTest {
 protected:
  void SetUp() override {
    change_model_ = [](ServedModel* model) { *model = ServedModel(); };
    RouterOptions options;
    options.core.load_model = [](const std::string& path, const std::string& name) -> absl::StatusOr<ServedModel> {
      std::ifstream file(path + "/tokenizer.json");
      const std::string text((std::istreambuf_iterator<char>(file)), {});
      if (text != "right") return absl::InvalidArgumentError(absl::StrCat("tokenizer.json says ", text));
      return ServedModel{.name = name, .tokenizer = std::make_shared<FakeTokenizer>()};
    };
    StartRouter(options);
  }
  void Add(StubWorker::Options options) {
    options.router = router_->grpc_address();
    options.script = {.tokens = Bytes("hello")};
    workers_.push_back(StubWorker::Start(options));
    ASSERT_NE(workers_.back(), nullptr);
  }
  bool Says(const std::string& reason) {
    return WaitUntil([&] { return absl::StrContains(router_->core()->Ready().message(), reason); });
  }
  void ExpectNotYet(const std::string& reason) {
    for (const char* path : {"/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"}) {
      const HttpResponse response = Post(path, R"({"prompt":"abc"})");
      EXPECT_EQ(response.status, 503) << path;
      EXPECT_THAT(response.body, HasSubstr(reason));
    }
    EXPECT_EQ(Get("/v1/models").status, 503);
    EXPECT_EQ(Get("/health").status, 200);
    EXPECT_EQ(Get("/ready").status, 503);
    EXPECT_EQ(Get("/metrics").status, 200);
    const Answer answer = Generate(Text("abc"));
    EXPECT_EQ(answer.status.error_code(), grpc::UNAVAILABLE);
    EXPECT_FALSE(answer.retry_after.empty());
  }
};

TEST_F(ModelSeekerTest, ServesOnceAWorkerHasToldItsModel) {
  ExpectNotYet("no model yet: no worker has registered");
  Add({.id = "p-1", .role = internal::PREFILL});  // Of an older release.
  ASSERT_TRUE(Says("worker p-1: its release does not tell a model's tokenizer; give --model"));
  Add({.id = "d-1", .text = {{"../tokenizer.json", "right"}}});
  ASSERT_TRUE(Says("worker d-1: a file of another name"));
  Add({.id = "d-2", .text = {{"tokenizer.json", "wrong"}}});
  ASSERT_TRUE(Says("worker d-2: tokenizer.json says wrong"));
  Add({.id = "d-3", .tokenizer_fingerprint = "fake-other", .text = {{"tokenizer.json", "right"}}});
  ASSERT_TRUE(Says("worker d-3: tokenizer mismatch: it registered with 'fake-other' and sent fake"));
  ExpectNotYet("no model yet: worker d-3");
  Add({.id = "d-4", .tokenizer_fingerprint = "fake", .text = {{"tokenizer.json", "right"}, {"config.json", "{}"}}});
  ASSERT_TRUE(WaitUntil([&] { return router_->core()->Ready().ok(); }));
  EXPECT_EQ(Generate(Text("abc")).text, "hello");
  EXPECT_THAT(Get("/v1/models").body, HasSubstr(R"("id":"stub")"));  // As its workers call it.
  // From now on workers are held to it.
  for (const auto& worker : router_->core()->registry.View()->workers) {
    EXPECT_EQ(worker->ready(), worker->ref.id != "d-3") << worker->reason;
  }
}

TEST_F(ModelSeekerTest, EndsWhileItSeeks) {
  Add({.id = "d-1"});
  ASSERT_TRUE(Says("worker d-1: "));
}

}  // namespace
}  // namespace baton::testing
