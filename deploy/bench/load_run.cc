// SPDX-License-Identifier: Apache-2.0
#include "deploy/bench/load_run.h"

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <list>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/host_port.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/http/http_client.h"
#include "deploy/bench/stream_request.h"

namespace baton::bench {
namespace {

using boost::asio::awaitable;
using boost::asio::ip::tcp;
constexpr auto kAwait = boost::asio::as_tuple(boost::asio::use_awaitable);

std::chrono::nanoseconds Chrono(absl::Duration duration) { return absl::ToChronoNanoseconds(duration); }

struct Url {
  std::string host_port, path;
  bool tls = false;
};
absl::StatusOr<Url> ParseUrl(const std::string& url) {
  absl::string_view rest = url;
  const bool tls = absl::ConsumePrefix(&rest, "https://");
  if (!tls && !absl::ConsumePrefix(&rest, "http://")) {
    return absl::InvalidArgumentError(absl::StrCat("--url ", url, " does not begin with http:// or https://"));
  }
  const size_t slash = std::min(rest.find('/'), rest.size());
  absl::string_view path = rest.substr(slash);
  absl::ConsumeSuffix(&path, "/");
  return Url{std::string(rest.substr(0, slash)), path.empty() ? "/v1" : std::string(path), tls};
}

absl::StatusOr<Server> ResolveServer(const LoadOptions& options, boost::asio::io_context& io) {
  BATON_ASSIGN_OR_RETURN(const Url url, ParseUrl(options.url));
  Server server{.model = options.model,
                .api_key = options.api_key,
                .temperature = options.temperature,
                .kind = options.workload.kind,
                .vocab_size = options.workload.vocab_size,
                .timeout = options.timeout};
  if (url.tls) server.tls = options.tls;
  server.host = url.host_port;
  server.base_path = url.path;
  BATON_ASSIGN_OR_RETURN(const HostPort address, ParseHostPort(server.host));
  server.name = address.host;
  boost::system::error_code error;
  for (const auto& entry : tcp::resolver(io).resolve(address.host, std::to_string(address.port), error)) {
    server.endpoints.push_back(entry.endpoint());
  }
  if (error) return absl::UnavailableError(absl::StrCat(address.host, " does not resolve: ", error.message()));
  return server;
}

}  // namespace

// All coroutines run on one thread, in io_.run().
class LoadRun::Impl {
 public:
  explicit Impl(const LoadOptions& options) : options_(options.workload), workload_(options.workload), slot_freed_(io_) {}

  absl::Status Resolve(const LoadOptions& options) {
    BATON_ASSIGN_OR_RETURN(server_, ResolveServer(options, io_));
    return absl::OkStatus();
  }

  LoadResult Run(std::function<void(const LoadProgress&)> progress) {
    progress_ = std::move(progress);
    begin_ = Clock::Real()->Now();
    if (options_.arrival == Arrival::kClosed) {
      for (int user = 0; user < options_.concurrency; ++user) SpawnMain(UserLoop());
    } else {
      SpawnMain(ArrivalLoop());
    }
    if (options_.burst_tokens > 0) Spawn(BurstLoop());
    Spawn(ProgressLoop());
    io_.run();
    Report();
    return std::move(result_);
  }

  void Stop() {
    boost::asio::post(io_, [this] {
      stopped_ = true;
      CancelAll();
    });
  }

 private:
  // A coroutine that Stop, or the end of the plan, cancels.
  struct Running {
    boost::asio::cancellation_signal cancel;
    bool main = false;
  };

  void Spawn(awaitable<void> body, bool main = false) {
    auto it = running_.emplace(running_.end());
    it->main = main;
    num_main_ += main;
    boost::asio::co_spawn(io_, Uninterrupted(std::move(body)), boost::asio::bind_cancellation_slot(it->cancel.slot(), [this, it](std::exception_ptr) {
                            num_main_ -= it->main;
                            running_.erase(it);
                            // Bursts and the progress line end with the plan.
                            if (num_main_ == 0 && !plan_done_) {
                              plan_done_ = true;
                              CancelAll();
                            }
                          }));
  }
  // Cancelled operations say so; without this the coroutine would be torn down, and what it measured lost.
  static awaitable<void> Uninterrupted(awaitable<void> body) {
    co_await boost::asio::this_coro::throw_if_cancelled(false);
    co_await std::move(body);
  }
  void SpawnMain(awaitable<void> body) { Spawn(std::move(body), /*main=*/true); }

  void CancelAll() {
    open_streams_.CancelAll();
    // Posted, as a coroutine that ends erases itself from the list.
    for (Running& running : running_) {
      boost::asio::post(io_, [this, target = &running] {
        for (Running& r : running_) {
          if (&r == target) return r.cancel.emit(boost::asio::cancellation_type::terminal);
        }
      });
    }
  }

  bool MayBegin() const { return !stopped_ && Clock::Real()->Now() - begin_ < options_.duration; }
  std::optional<int> NextConversation() {
    const bool all = options_.num_requests > 0 && int64_t{next_conversation_} * options_.turns >= options_.num_requests;
    if (!all && MayBegin()) return next_conversation_++;
    if (!std::exchange(issue_ended_, true)) result_.issue_end = Clock::Real()->Now();
    return std::nullopt;
  }

  awaitable<void> SleepUntil(MonotonicTime time) {
    boost::asio::steady_timer timer(io_, Chrono(std::max(time - Clock::Real()->Now(), absl::ZeroDuration())));
    co_await timer.async_wait(kAwait);
  }

  awaitable<void> UserLoop() {
    while (const auto conversation = NextConversation()) co_await Converse(*conversation, Clock::Real()->Now());
  }

  awaitable<void> ArrivalLoop() {
    MonotonicTime due = begin_;
    while (const auto conversation = NextConversation()) {
      co_await SleepUntil(due);
      while (num_open_ >= options_.concurrency && !stopped_) {
        slot_freed_.expires_at(std::chrono::steady_clock::time_point::max());
        co_await slot_freed_.async_wait(kAwait);
      }
      if (!MayBegin()) co_return;
      ++num_open_;
      SpawnMain(OpenConversation(*conversation, due));
      due += workload_.NextInterval();
    }
  }

  awaitable<void> OpenConversation(int conversation, MonotonicTime due) {
    co_await Converse(conversation, due);
    --num_open_;
    slot_freed_.cancel();
  }

  awaitable<void> Converse(int conversation, MonotonicTime due) {
    History history;
    for (int turn = 0; turn < options_.turns && MayBegin(); ++turn) {
      const Turn words = workload_.MakeTurn(conversation, turn);
      Measurement m = co_await Send(history, words, due, /*burst=*/false);
      const bool failed = !m.status.ok();
      history.said.push_back(PromptText(words.words));
      history.said.push_back(m.text);
      Keep(std::move(m));
      if (failed) co_return;
      due = Clock::Real()->Now();
    }
  }

  awaitable<void> BurstLoop() {
    MonotonicTime due = begin_ + options_.burst_after;
    for (int n = 0; !plan_done_ && !stopped_; ++n, due += options_.burst_every) {
      co_await SleepUntil(due);
      if (plan_done_ || !MayBegin()) co_return;
      Spawn(Burst(n, due), /*main=*/true);
    }
  }

  awaitable<void> Burst(int n, MonotonicTime due) {
    const Turn words = workload_.MakeBurst(n);
    const History history;
    Measurement m = co_await Send(history, words, due, /*burst=*/true);
    Keep(std::move(m));
  }

  awaitable<Measurement> Send(const History& history, const Turn& turn, MonotonicTime due, bool burst) {
    ++num_running_;
    Measurement m = co_await StreamRequest(server_, RequestBody(server_, history, turn), due, &open_streams_);
    --num_running_;
    m.burst = burst;
    if (m.prompt_tokens == 0) m.prompt_tokens = static_cast<int>(turn.words.size());
    co_return m;
  }

  void Keep(Measurement m) {
    num_failed_ += !m.status.ok();
    num_pieces_ += static_cast<int64_t>(m.pieces.size());
    if (options_.turns == 1) m.text.clear();
    result_.measurements.push_back(std::move(m));
  }

  awaitable<void> ProgressLoop() {
    while (!plan_done_ && !stopped_) {
      co_await SleepUntil(Clock::Real()->Now() + absl::Seconds(1));
      Report();
    }
  }
  void Report() {
    progress_({.elapsed = Clock::Real()->Now() - begin_,
               .num_ended = static_cast<int>(result_.measurements.size()),
               .num_failed = num_failed_,
               .num_running = num_running_,
               .num_pieces = num_pieces_});
  }

  boost::asio::io_context io_{1};
  const WorkloadOptions options_;
  Workload workload_;
  Server server_;
  OpenStreams open_streams_;
  std::function<void(const LoadProgress&)> progress_;
  MonotonicTime begin_;
  std::list<Running> running_;
  int num_main_ = 0;       // Coroutines that the plan is made of.
  int num_open_ = 0;       // Conversations of an open loop.
  int num_running_ = 0;    // Requests.
  int next_conversation_ = 0;
  int num_failed_ = 0;
  int64_t num_pieces_ = 0;
  bool stopped_ = false, plan_done_ = false, issue_ended_ = false;
  boost::asio::steady_timer slot_freed_;
  LoadResult result_;
};

LoadRun::LoadRun(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LoadRun::~LoadRun() = default;

absl::StatusOr<std::unique_ptr<LoadRun>> LoadRun::Create(const LoadOptions& options) {
  BATON_RETURN_IF_ERROR(CheckWorkload(options.workload));
  auto impl = std::make_unique<Impl>(options);
  BATON_RETURN_IF_ERROR(impl->Resolve(options));
  return std::unique_ptr<LoadRun>(new LoadRun(std::move(impl)));
}

absl::StatusOr<std::string> FirstModel(const LoadOptions& options) {
  BATON_ASSIGN_OR_RETURN(const Url url, ParseUrl(options.url));
  HttpFetchRequest request{.address = url.host_port, .target = absl::StrCat(url.path, "/models")};
  if (url.tls) request.tls = options.tls;
  if (!options.api_key.empty()) request.headers.emplace_back("Authorization", absl::StrCat("Bearer ", options.api_key));
  BATON_ASSIGN_OR_RETURN(const HttpResponse response, HttpFetch(request));
  const auto json = ParseJson(response.body);
  if (json.ok() && json->is_object() && json->contains("data") && (*json)["data"].is_array() && !(*json)["data"].empty()) {
    const nlohmann::json& first = (*json)["data"][0];
    if (first.is_object() && first.contains("id") && first["id"].is_string()) return first["id"].get<std::string>();
  }
  return absl::FailedPreconditionError(
      absl::StrCat(options.url, " names no model (status ", response.status, "); give --request-model"));
}

LoadResult LoadRun::Run(std::function<void(const LoadProgress&)> progress) { return impl_->Run(std::move(progress)); }
void LoadRun::Stop() { impl_->Stop(); }

}  // namespace baton::bench
