// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_ROUTER_KEY_ACCOUNT_H_
#define BATON_ROUTER_KEY_ACCOUNT_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/metrics.h"
#include "common/base/mutex.h"

namespace baton {

// What the line of a key says of its requests; 0: no limit.
struct KeyLimits {
  int64_t max_concurrent = 0;       // Requests that are open at once.
  int64_t requests_per_minute = 0;
  int64_t tokens_per_minute = 0;    // Prompt and completion.
  int weight = 1;                   // Its share of the queue against other keys'; at most kMaxKeyWeight.
  std::optional<int> priority;      // Of requests that name none, and the most that they may name.
};

inline constexpr int kMaxKeyWeight = 1000;

// A minute's allowance, full at the start, that refills all the time. What is taken may be more than is left: the debt has to be
// paid before anything is taken again, so that nothing is too large for ever. Pure.
class MinuteBucket {
 public:
  // 0: no limit. A new bound begins full; a changed one keeps what was used.
  void SetRate(int64_t per_minute, MonotonicTime now);
  int64_t rate() const { return per_minute_; }
  // Until there are `least`; zero: there are.
  absl::Duration WaitFor(double least, MonotonicTime now);
  void Take(double amount, MonotonicTime now);

 private:
  void Refill(MonotonicTime now);

  int64_t per_minute_ = 0;
  double level_ = 0;
  MonotonicTime filled_ = absl::ZeroDuration();
};

// What the holder of a key uses at this router. Thread-safe. Errors name the key's name, never the key, the limit and its value.
class KeyAccount {
 public:
  // `clock` outlives it.
  KeyAccount(std::string name, const KeyLimits& limits, const Clock* clock);
  // Refusals are counted there, from 0 on; it outlives this.
  void ExportTo(MetricRegistry* metrics);

  const std::string& name() const { return name_; }
  KeyLimits limits() const;
  // What is open goes on.
  void SetLimits(const KeyLimits& limits);

  // Opens a request: one of requests_per_minute, and a place of max_concurrent.
  //   RESOURCE_EXHAUSTED  over a limit; with a retry-after.
  absl::Status Begin();
  // So many more of a call that has begun one, all or none; requests_per_minute may get into debt by it.
  //   RESOURCE_EXHAUSTED  as above.
  //   INVALID_ARGUMENT    all of the call together are over max_concurrent.
  absl::Status Extend(int64_t num_requests);
  void End(int64_t num_requests, absl::Duration took);

  // RESOURCE_EXHAUSTED  tokens_per_minute is used up; with a retry-after. Else the prompt is taken off, whatever its length.
  absl::Status TakePrompt(int64_t num_tokens);
  void TakeCompletion(int64_t num_tokens);

  // What a request that asks for `asked` (0: for nothing) has.
  //   INVALID_ARGUMENT  more than the key may ask for.
  absl::StatusOr<int> Priority(int asked) const;

 private:
  absl::Status TakePlaces(int64_t num_requests) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status TooMany(int64_t num_requests) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status RefuseTokens(absl::Duration wait) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Refuse(const char* limit, absl::string_view what, absl::Duration retry_after) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CountRefused(const std::string& limit, uint64_t by) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ExportLimits() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string name_;
  const Clock* const clock_;
  std::atomic<bool> counts_tokens_{false};
  mutable Mutex mutex_;
  MetricRegistry* metrics_ ABSL_GUARDED_BY(mutex_) = nullptr;
  KeyLimits limits_ ABSL_GUARDED_BY(mutex_);
  int64_t open_ ABSL_GUARDED_BY(mutex_) = 0;
  MinuteBucket requests_ ABSL_GUARDED_BY(mutex_);
  MinuteBucket tokens_ ABSL_GUARDED_BY(mutex_);
  absl::Duration mean_time_ ABSL_GUARDED_BY(mutex_) = absl::Seconds(1);  // That a request is open, exponential mean.
};

// The requests that one call has open on an account; what has not ended ends with its last holder. Thread-safe.
class KeyUse {
 public:
  // Codes of KeyAccount::Begin.
  static absl::StatusOr<std::shared_ptr<KeyUse>> Begin(std::shared_ptr<KeyAccount> account, const Clock* clock);
  ~KeyUse();
  KeyUse(const KeyUse&) = delete;
  KeyUse& operator=(const KeyUse&) = delete;

  // The call is so many requests more: the prompts of a batch. Before it is shared.
  absl::Status Extend(int64_t num_requests);
  // One of them has its answer, or all have.
  void EndOne() { End(1); }
  void EndAll() { End(num_open_.load()); }
  KeyAccount& account() const { return *account_; }

 private:
  KeyUse(std::shared_ptr<KeyAccount> account, const Clock* clock) : account_(std::move(account)), clock_(clock), began_(clock->Now()) {}
  void End(int64_t num_requests);

  const std::shared_ptr<KeyAccount> account_;
  const Clock* const clock_;
  const MonotonicTime began_;
  std::atomic<int64_t> num_open_{1};
};

}  // namespace baton

#endif  // BATON_ROUTER_KEY_ACCOUNT_H_
