// SPDX-License-Identifier: Apache-2.0
// The client of tests/bench/router (driver.h): the same calls to a router and to a bare gRPC service (stub_cluster).
//   router_client --router HOST:PORT --bare HOST:PORT
// {"kind": "latency", "repeat", "prompt"}: a bare unary call and a request of one token, in turns: seconds of each, "bare", "end", and
// "added", which is "end" without the phases prefill and first step of the request's timeline. {"kind": "open", "target": "router" | "bare", "streams", "connections", "prompt"}: opens them and waits for
// the first token of each. {"kind": "count", "seconds"}: what comes meanwhile, over all of them. {"kind": "close"}: cancels them.
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "baton/v1/generation.grpc.pb.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/rpc/callback_threads.h"
#include "common/rpc/channel.h"
#include "common/rpc/status_conversion.h"
#include "tests/bench/driver.h"

ABSL_FLAG(std::string, router, "", "HOST:PORT of the router's gRPC service");
ABSL_FLAG(std::string, bare, "", "HOST:PORT of the bare one");
ABSL_FLAG(int, workers, 1, "Workers to wait for at first");

namespace baton::bench {
namespace {

using nlohmann::json;

constexpr absl::Duration kPatience = absl::Seconds(120);
constexpr int64_t kEndless = 1 << 20;
constexpr size_t kOpening = 256;  // Streams without a first token at a time: a router's queue has a bound.

// What all streams of a run have in common.
struct Progress {
  Mutex mutex;
  CondVar changed;
  size_t first_tokens ABSL_GUARDED_BY(mutex) = 0;
  size_t ended ABSL_GUARDED_BY(mutex) = 0;
  absl::Status failure ABSL_GUARDED_BY(mutex);  // The first one that was not ours.
  std::atomic<bool> closing{false};
};

class StreamCall : public grpc::ClientReadReactor<v1::GenerateResponse> {
 public:
  StreamCall(v1::Generation::Stub* stub, v1::GenerateRequest request, Progress* progress)
      : progress_(progress), request_(std::move(request)) {
    stub->async()->Generate(&context_, &request_, this);
    StartRead(&response_);
    StartCall();
  }
  void Cancel() { context_.TryCancel(); }
  int64_t tokens() const { return tokens_.load(std::memory_order_relaxed); }
  int64_t messages() const { return messages_.load(std::memory_order_relaxed); }
  // The longest time between two messages since this was asked last.
  int64_t TakeLongestGapNs() { return longest_gap_ns_.exchange(0, std::memory_order_relaxed); }

  // After its end.
  MonotonicTime ended_at() const { return ended_at_; }
  absl::Duration worked() const { return worked_; }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) return;
    int64_t tokens = 0;
    for (const v1::ChoiceDelta& delta : response_.deltas()) tokens += delta.token_ids_size();
    if (tokens > 0) {
      const MonotonicTime now = Clock::Real()->Now();
      if (messages() > 0) {
        longest_gap_ns_.store(std::max(longest_gap_ns_.load(std::memory_order_relaxed), absl::ToInt64Nanoseconds(now - last_)), std::memory_order_relaxed);
      }
      last_ = now;
      if (messages() == 0) NoteFirstToken();
      tokens_.fetch_add(tokens, std::memory_order_relaxed);
      messages_.fetch_add(1, std::memory_order_relaxed);
    }
    if (response_.has_timeline()) worked_ = absl::Milliseconds(response_.timeline().prefill_ms() + response_.timeline().first_step_ms());
    StartRead(&response_);
  }
  void NoteFirstToken() {
    MutexLock lock(&progress_->mutex);
    ++progress_->first_tokens;
    progress_->changed.NotifyAll();
  }
  void OnDone(const grpc::Status& status) override {
    ended_at_ = Clock::Real()->Now();
    MutexLock lock(&progress_->mutex);
    ++progress_->ended;
    if (!status.ok() && !progress_->closing && progress_->failure.ok()) progress_->failure = FromGrpcStatus(status);
    progress_->changed.NotifyAll();
  }

  Progress* const progress_;
  const v1::GenerateRequest request_;
  grpc::ClientContext context_;
  v1::GenerateResponse response_;
  std::atomic<int64_t> tokens_{0}, messages_{0}, longest_gap_ns_{0};
  MonotonicTime last_, ended_at_;
  absl::Duration worked_;
};

class Client {
 public:
  absl::Status WaitForWorkers() {
    const auto router = Connect(absl::GetFlag(FLAGS_router));
    const MonotonicTime deadline = Clock::Real()->Now() + kPatience;
    while (Clock::Real()->Now() < deadline) {
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(5));
      v1::GetClusterResponse cluster;
      BATON_RETURN_IF_ERROR(FromGrpcStatus(router->GetCluster(&context, {}, &cluster)));
      const auto ready = std::count_if(cluster.workers().begin(), cluster.workers().end(), [](const auto& worker) { return worker.ready(); });
      if (ready >= absl::GetFlag(FLAGS_workers)) return absl::OkStatus();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return absl::DeadlineExceededError("the workers did not register");
  }
  absl::StatusOr<json> Measure(const json& c) {
    const std::string kind = c.value("kind", "");
    if (kind == "latency") return MeasureLatency(c.value("repeat", 100), c.value("prompt", 32));
    if (kind == "open") return Open(c);
    if (kind == "count") return Count(c.value("seconds", 1.0));
    if (kind == "close") return Close();
    return absl::InvalidArgumentError(absl::StrCat("kind \"", kind, "\" is none of latency, open, count, close"));
  }

 private:
  std::unique_ptr<v1::Generation::Stub> Connect(const std::string& address) {
    auto channel = CreateChannel(address);
    channel->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds(10));
    return v1::Generation::NewStub(channel);
  }

  v1::GenerateRequest Request(int prompt, int64_t tokens) {
    v1::GenerateRequest request;
    for (int i = 0; i < prompt; ++i) request.mutable_token_ids()->add_ids(static_cast<int32_t>(rng_() % 40000 + 300));
    request.set_max_tokens(tokens);
    request.set_ignore_eos(true);
    request.mutable_sampling()->set_temperature(0);
    return request;
  }

  absl::StatusOr<json> MeasureLatency(int repeat, int prompt) {
    const auto router = Connect(absl::GetFlag(FLAGS_router)), bare = Connect(absl::GetFlag(FLAGS_bare));
    json bare_s = json::array(), added_s = json::array(), end_s = json::array();
    for (int i = 0; i < repeat; ++i) {
      BATON_ASSIGN_OR_RETURN(const double unary, UnarySeconds(bare.get()));
      bare_s.push_back(unary);
      Progress progress;
      v1::GenerateRequest request = Request(prompt, 1);
      const MonotonicTime begin = Clock::Real()->Now();
      StreamCall call(router.get(), std::move(request), &progress);
      BATON_RETURN_IF_ERROR(WaitFor(&progress, [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return progress.ended == 1; }));
      end_s.push_back(absl::ToDoubleSeconds(call.ended_at() - begin));
      added_s.push_back(absl::ToDoubleSeconds(call.ended_at() - begin - call.worked()));
    }
    return json{{"bare", bare_s}, {"added", added_s}, {"end", end_s}};
  }

  // By the callback API, as everything here: a thread that blocks in a call is woken otherwise.
  static absl::StatusOr<double> UnarySeconds(v1::Generation::Stub* stub) {
    Progress progress;
    grpc::ClientContext context;
    const v1::ListModelsRequest request;
    v1::ListModelsResponse response;
    const MonotonicTime begin = Clock::Real()->Now();
    MonotonicTime end;
    stub->async()->ListModels(&context, &request, &response, [&](const grpc::Status& status) {
      end = Clock::Real()->Now();
      MutexLock lock(&progress.mutex);
      progress.failure = FromGrpcStatus(status);
      progress.ended = 1;
      progress.changed.NotifyAll();
    });
    BATON_RETURN_IF_ERROR(WaitFor(&progress, [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return progress.ended == 1; }));
    return absl::ToDoubleSeconds(end - begin);
  }

  template <class Done>
  static absl::Status WaitFor(Progress* progress, const Done& done) {
    const MonotonicTime deadline = Clock::Real()->Now() + kPatience;
    MutexLock lock(&progress->mutex);
    while (!done()) {
      if (!progress->failure.ok()) return progress->failure;
      const absl::Duration left = deadline - Clock::Real()->Now();
      if (left <= absl::ZeroDuration()) {
        return absl::DeadlineExceededError(absl::StrCat("only ", progress->first_tokens, " streams have begun, ", progress->ended, " have ended"));
      }
      progress->changed.WaitFor(&progress->mutex, left);
    }
    return progress->failure;
  }

  absl::StatusOr<json> Open(const json& c) {
    if (!calls_.empty()) return absl::FailedPreconditionError("streams are open already");
    const std::string target = c.value("target", "router");
    const std::string address = target == "bare" ? absl::GetFlag(FLAGS_bare) : absl::GetFlag(FLAGS_router);
    const size_t streams = c.value("streams", size_t{1}), connections = c.value("connections", size_t{1});
    for (size_t i = 0; i < connections; ++i) stubs_.push_back(Connect(address));
    progress_ = std::make_unique<Progress>();
    for (size_t i = 0; i < streams; ++i) {
      const size_t enough = i < kOpening ? 0 : i - kOpening;
      BATON_RETURN_IF_ERROR(WaitFor(progress_.get(), [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return progress_->first_tokens >= enough; }));
      calls_.push_back(std::make_unique<StreamCall>(stubs_[i % connections].get(), Request(c.value("prompt", 32), kEndless), progress_.get()));
    }
    BATON_RETURN_IF_ERROR(WaitFor(progress_.get(), [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return progress_->first_tokens == streams; }));
    return json::object();
  }

  absl::StatusOr<json> Count(double seconds) {
    std::vector<int64_t> before;
    int64_t messages = 0, tokens = 0, least = std::numeric_limits<int64_t>::max();
    for (const auto& call : calls_) {
      before.push_back(call->tokens());
      messages -= call->messages();
      call->TakeLongestGapNs();
    }
    const MonotonicTime begin = Clock::Real()->Now();
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    const double elapsed = absl::ToDoubleSeconds(Clock::Real()->Now() - begin);
    std::vector<double> gaps;
    for (size_t i = 0; i < calls_.size(); ++i) {
      const int64_t came = calls_[i]->tokens() - before[i];
      tokens += came;
      least = std::min(least, came);
      messages += calls_[i]->messages();
      gaps.push_back(static_cast<double>(calls_[i]->TakeLongestGapNs()) / 1e6);
    }
    std::sort(gaps.begin(), gaps.end());
    MutexLock lock(&progress_->mutex);
    if (progress_->ended > 0) {
      return absl::InternalError(absl::StrCat(progress_->ended, " streams have ended: ", std::string(progress_->failure.message())));
    }
    return json{{"seconds", elapsed}, {"tokens", tokens}, {"messages", messages}, {"least", least},
                {"gap_ms_median", gaps[gaps.size() / 2]}, {"gap_ms_max", gaps.back()}};
  }

  absl::StatusOr<json> Close() {
    if (progress_ == nullptr) return json::object();
    progress_->closing = true;
    {
      MutexLock lock(&progress_->mutex);
      progress_->failure = absl::OkStatus();  // What failed before has been told.
    }
    for (const auto& call : calls_) call->Cancel();
    const size_t all = calls_.size();
    BATON_RETURN_IF_ERROR(WaitFor(progress_.get(), [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return progress_->ended == all; }));
    calls_.clear();
    stubs_.clear();
    progress_ = nullptr;
    return json::object();
  }

  std::mt19937 rng_{std::random_device{}()};
  std::vector<std::unique_ptr<v1::Generation::Stub>> stubs_;
  std::unique_ptr<Progress> progress_;
  std::vector<std::unique_ptr<StreamCall>> calls_;
};

}  // namespace
}  // namespace baton::bench

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  if (absl::GetFlag(FLAGS_router).empty() || absl::GetFlag(FLAGS_bare).empty()) {
    std::fprintf(stderr, "--router HOST:PORT and --bare HOST:PORT are needed\n");
    return 2;
  }
  baton::KeepCallbackThreads();
  baton::bench::Client client;
  if (const absl::Status ready = client.WaitForWorkers(); !ready.ok()) {
    std::fprintf(stderr, "%s\n", ready.ToString().c_str());
    return 1;
  }
  baton::bench::ServeCases({}, [&](const nlohmann::json& c) { return client.Measure(c); });
  return 0;
}
