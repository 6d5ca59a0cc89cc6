// SPDX-License-Identifier: Apache-2.0
// D13: KV caches, prompts and answers around and far over the 4 MiB that gRPC takes for a message by default.
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/http/http_client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/local_cluster.h"
#include "tests/integration/worker_pair.h"
#include "tests/support/sanitizers.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tiny_model.h"

namespace baton::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kTooMany = 2'000'000;

// An 8B model's 128 KiB of KV per token: 32 of them are 4 MiB.
std::string WideModel() {
  TinyModelOptions options;
  options.num_layers = 4;
  options.num_heads = options.num_kv_heads = 64;
  options.head_dim = 128;
  options.context_length = 1024;
  return WriteTempFile("large_messages_wide.gguf", TinyModel(options).Build());
}

class LargeKvTest : public ::testing::TestWithParam<TransportKind> {
 protected:
  static WorkerOptions Options(internal::WorkerRole role) {
    static const std::string* const path = new std::string(WideModel());
    WorkerOptions options;
    options.role = role;
    options.model_path = *path;
    options.backend.num_threads = 2;
    options.kv_memory_bytes = 160 << 20;
    options.transports = {GetParam()};
    return options;
  }
};

TEST_P(LargeKvTest, AroundAndFarOverAMessage) {
  TestPrefillWorker p(Options(internal::PREFILL));
  TestDecodeWorker d(Options(internal::DECODE)), alone(Options(internal::DECODE));
  ASSERT_EQ(d.runtime->pool()->layout().token_bytes(), size_t{128 << 10});
  uint64_t id = 0;
  for (const int num_tokens : {31, 32, 33, kSlowness > 1 ? 100 : 512}) {  // Of KV: the last token of the prompt is decode's.
    std::mt19937 rng(static_cast<uint32_t>(num_tokens));
    std::vector<int32_t> prompt(static_cast<size_t>(num_tokens) + 1);
    for (int32_t& token : prompt) token = static_cast<int32_t>(3 + rng() % 256);
    auto decode = OpenDecode(d.server->address());
    const auto start = MakeStart(*d.runtime, ++id, prompt, 4, /*local=*/false);
    decode->Send(start);
    const auto landing = decode->Next();
    ASSERT_TRUE(landing.has_value() && landing->has_landing());
    auto prefill = OpenPrefill(p.server->address());
    prefill->Send(MakePrefill(start, landing->landing()));
    const auto done = prefill->Next();
    ASSERT_TRUE(done.has_value() && done->has_done()) << (done ? done->DebugString() : "nothing");
    EXPECT_EQ(done->done().kv_bytes(), int64_t{num_tokens} << 17);
    auto local = OpenDecode(alone.server->address());
    local->Send(MakeStart(*alone.runtime, ++id, prompt, 4, /*local=*/true));
    EXPECT_EQ(ReadTokens(decode.get()), ReadTokens(local.get())) << num_tokens << " tokens";
  }
}

// A list of ids larger than any message by default is refused for what is wrong with it.
TEST_P(LargeKvTest, TwoMillionIdsAreOverTheContext) {
  if (GetParam() != TransportKind::kGrpc) GTEST_SKIP() << "the same for all";
  TestPrefillWorker p(Options(internal::PREFILL));
  TestDecodeWorker d(Options(internal::DECODE));
  const std::vector<int32_t> prompt(kTooMany, 300);
  auto decode = OpenDecode(d.server->address());
  auto start = MakeStart(*d.runtime, 1, prompt, 4, false);
  decode->Send(start);
  const auto refused = decode->Next();
  ASSERT_TRUE(refused.has_value() && refused->has_refused());
  EXPECT_EQ(refused->refused().code(), static_cast<int>(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(refused->refused().message(), HasSubstr("2000000 are over the context"));
  auto prefill = OpenPrefill(p.server->address());
  prefill->Send(MakePrefill(start, internal::LandingEvent()));
  const auto failed = prefill->Next();
  ASSERT_TRUE(failed.has_value() && failed->has_failed());
  EXPECT_EQ(failed->failed().code(), static_cast<int>(absl::StatusCode::kInvalidArgument));
}

INSTANTIATE_TEST_SUITE_P(Kinds, LargeKvTest, ::testing::Values(TransportKind::kShm, TransportKind::kTcp, TransportKind::kGrpc),
                         [](const auto& info) { return std::string(TransportName(info.param)); });

class LargeTextTest : public ::testing::Test {
 protected:
  void SetUp() override {
    TinyModelOptions options;
    options.context_length = 8192;
    ASSERT_OK_AND_ASSIGN(cluster_, LocalCluster::Start(WriteTempFile("large_messages_tiny.gguf", TinyModel(options).Build()),
                                                       {"--prefill=1", "--decode=1"}));
  }
  void TearDown() override {
    if (HasFailure() && cluster_ != nullptr) std::fputs(cluster_->log().c_str(), stderr);
  }
  absl::StatusOr<HttpResponse> Post(const char* path, std::string body) {
    return HttpFetch({.address = cluster_->http(),
                      .method = "POST",
                      .target = path,
                      .headers = {{"Content-Type", "application/json"}},
                      .body = std::move(body),
                      .timeout = kPatience});
  }
  std::unique_ptr<LocalCluster> cluster_;
};

TEST_F(LargeTextTest, TwoMillionIdsAreOverTheContext) {
  const std::vector<int> prompt(kTooMany, 300);
  EXPECT_THAT(cluster_->Generate(GreedyRequest(prompt, 4)).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("8192")));
  ASSERT_OK_AND_ASSIGN(const HttpResponse response,
                       Post("/v1/completions", absl::StrCat("{\"max_tokens\":4,\"prompt\":[", absl::StrJoin(prompt, ","), "]}")));
  EXPECT_EQ(response.status, 400);
  EXPECT_THAT(response.body, HasSubstr("8192"));
}

TEST_F(LargeTextTest, AnAnswerWithItsLogprobsComesWhole) {
  ASSERT_OK_AND_ASSIGN(const HttpResponse response,
                       Post("/v1/chat/completions",
                            "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"max_tokens\":6000,\"temperature\":0,"
                            "\"ignore_eos\":true,\"logprobs\":true,\"top_logprobs\":20}"));
  EXPECT_EQ(response.status, 200) << response.body.substr(0, 1000);
  EXPECT_GT(response.body.size(), size_t{4 << 20});
  EXPECT_THAT(response.body, HasSubstr("\"completion_tokens\":6000"));
}

}  // namespace
}  // namespace baton::testing
