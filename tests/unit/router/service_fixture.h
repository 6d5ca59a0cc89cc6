// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_UNIT_ROUTER_SERVICE_FIXTURE_H_
#define BATON_TESTS_UNIT_ROUTER_SERVICE_FIXTURE_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "baton/v1/generation.grpc.pb.h"
#include "common/base/json.h"
#include "common/http/http_client.h"
#include "common/rpc/channel.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "router/router.h"
#include "tests/support/sanitizers.h"
#include "tests/support/stub_workers.h"
#include "tests/unit/router/fake_tokenizer.h"

namespace baton::testing {

inline constexpr absl::Duration kHttpTimeout = absl::Seconds(10 * kSlowness);  // Only a failure, or work that grows with a square, reaches it.

// A router over loopback with stub workers. Heartbeats are an hour: silence is the registry's test.
class ServiceTest : public ::testing::Test {
 protected:
  void SetUp() override { StartRouter({}); }
  void TearDown() override {
    stub_.reset();
    workers_.clear();
    router_.reset();
  }

  void StartRouter(RouterOptions options, std::vector<std::string> more_tokens = {}) {
    router_.reset();
    options.grpc_address = options.http_address = "127.0.0.1:0";
    options.status_address = "127.0.0.1:0";
    options.core.heartbeat = absl::Hours(1);
    ServedModel model{.name = "stub", .tokenizer = std::make_shared<FakeTokenizer>(std::move(more_tokens))};
    model.render_chat = [](const v1::ChatPrompt& chat) -> absl::StatusOr<std::string> {
      std::string text;
      std::string before;
      for (const auto& message : chat.messages()) {
        if (message.role() == before) return absl::InvalidArgumentError("Conversation roles must alternate");
        before = message.role();
        text += message.role() + ":" + message.content() + "\n";
      }
      return text;
    };
    if (change_model_) change_model_(&model);
    metrics_ = std::make_unique<MetricRegistry>();
    auto router = Router::Start(options, std::move(model), metrics_.get());
    ASSERT_TRUE(router.ok()) << router.status().ToString();
    router_ = *std::move(router);
    stub_ = v1::Generation::NewStub(CreateChannel(router_->grpc_address()));
  }

  StubWorker* AddWorker(const std::string& id, internal::WorkerRole role, const StubScript& script = {},
                        const std::string& layout = "layout-a") {
    workers_.push_back(StubWorker::Start(
        {.id = id, .role = role, .router = router_->grpc_address(), .kv_layout = layout, .multiplexes = multiplexes_, .script = script}));
    EXPECT_NE(workers_.back(), nullptr);
    WaitUntil([&] {
      for (const auto& worker : router_->core()->registry.View()->workers) {
        if (worker->ref.id == id && worker->has_load) return true;
      }
      return false;
    });
    return workers_.back().get();
  }

  // A bounded wait for what other threads bring about.
  static bool WaitUntil(const std::function<bool()>& condition) {
    const MonotonicTime deadline = Clock::Real()->Now() + absl::Seconds(30 * kSlowness);
    Mutex mutex;
    CondVar never;
    MutexLock lock(&mutex);
    while (!condition()) {
      if (Clock::Real()->Now() > deadline) return false;
      never.WaitFor(&mutex, absl::Milliseconds(2));
    }
    return true;
  }
  bool Idle() {
    return WaitUntil([&] {
      const RouterMetrics& metrics = router_->core()->metrics;
      return metrics.running->value() == 0 && metrics.waiting->value() == 0;
    });
  }

  struct Answer {
    grpc::Status status;
    std::string text, finish_reason, retry_after;
    std::vector<int32_t> ids;
    v1::GenerateResponse last;
  };
  // `on_response` sees the answer so far after every response.
  Answer Generate(const v1::GenerateRequest& request, const std::function<void(const Answer&)>& on_response = nullptr) {
    Answer answer;
    grpc::ClientContext context;
    auto reader = stub_->Generate(&context, request);
    v1::GenerateResponse response;
    while (reader->Read(&response)) {
      for (const auto& delta : response.deltas()) {
        answer.text += delta.text();
        answer.ids.insert(answer.ids.end(), delta.token_ids().begin(), delta.token_ids().end());
        if (!delta.finish_reason().empty()) answer.finish_reason = delta.finish_reason();
      }
      answer.last = response;
      if (on_response) on_response(answer);
    }
    answer.status = reader->Finish();
    const auto& trailing = context.GetServerTrailingMetadata();
    if (auto it = trailing.find("retry-after-ms"); it != trailing.end()) {
      answer.retry_after = std::string(it->second.data(), it->second.size());
    }
    return answer;
  }
  static v1::GenerateRequest Text(const std::string& text, int max_tokens = 8) {
    v1::GenerateRequest request;
    request.set_text(text);
    request.set_max_tokens(max_tokens);
    return request;
  }
  static std::vector<int32_t> Bytes(const std::string& text) {
    std::vector<int32_t> ids;
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }

  HttpResponse Post(const std::string& path, const std::string& body) {
    auto response = HttpFetch({.address = router_->http_address(), .method = "POST", .target = path, .body = body, .timeout = kHttpTimeout});
    EXPECT_TRUE(response.ok()) << response.status().ToString();
    return response.ok() ? *response : HttpResponse();
  }
  HttpResponse Get(const std::string& path) {
    auto response = HttpGet(router_->http_address(), path, kHttpTimeout);
    EXPECT_TRUE(response.ok()) << response.status().ToString();
    return response.ok() ? *response : HttpResponse();
  }

  bool multiplexes_ = true;  // What workers added from now on do.
  std::function<void(ServedModel*)> change_model_;  // Before StartRouter.
  std::unique_ptr<MetricRegistry> metrics_;
  std::unique_ptr<Router> router_;
  std::unique_ptr<v1::Generation::Stub> stub_;
  std::vector<std::unique_ptr<StubWorker>> workers_;
};

}  // namespace baton::testing

#endif  // BATON_TESTS_UNIT_ROUTER_SERVICE_FIXTURE_H_
