// SPDX-License-Identifier: Apache-2.0
#include "router/key_account.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "router/status_details.h"

namespace baton {
namespace {

constexpr char kMaxConcurrent[] = "max-concurrent", kRequestsPerMinute[] = "requests-per-minute", kTokensPerMinute[] = "tokens-per-minute";
constexpr double kRounding = 1e-6;  // Of a token: who waited as long as was said is not sent away again.
constexpr absl::Duration kLeastWait = absl::Milliseconds(100), kMostWait = absl::Seconds(60);

}  // namespace

void MinuteBucket::SetRate(int64_t per_minute, MonotonicTime now) {
  Refill(now);
  level_ = per_minute_ == 0 ? static_cast<double>(per_minute) : level_ + static_cast<double>(per_minute - per_minute_);
  per_minute_ = per_minute;
  filled_ = now;
}

void MinuteBucket::Refill(MonotonicTime now) {
  const double full = static_cast<double>(per_minute_);
  level_ = std::min(full, level_ + full * absl::FDivDuration(std::max(now - filled_, absl::ZeroDuration()), absl::Minutes(1)));
  filled_ = now;
}

absl::Duration MinuteBucket::WaitFor(double least, MonotonicTime now) {
  if (per_minute_ == 0) return absl::ZeroDuration();
  Refill(now);
  return level_ + kRounding >= least ? absl::ZeroDuration() : absl::Minutes(1) * ((least - level_) / static_cast<double>(per_minute_));
}

void MinuteBucket::Take(double amount, MonotonicTime now) {
  if (per_minute_ == 0) return;
  Refill(now);
  level_ -= amount;
}

KeyAccount::KeyAccount(std::string name, const KeyLimits& limits, const Clock* clock) : name_(std::move(name)), clock_(clock) {
  SetLimits(limits);
}

void KeyAccount::ExportTo(MetricRegistry* metrics) {
  MutexLock lock(&mutex_);
  metrics_ = metrics;
  ExportLimits();
}

KeyLimits KeyAccount::limits() const {
  MutexLock lock(&mutex_);
  return limits_;
}

void KeyAccount::SetLimits(const KeyLimits& limits) {
  MutexLock lock(&mutex_);
  limits_ = limits;
  requests_.SetRate(limits.requests_per_minute, clock_->Now());
  tokens_.SetRate(limits.tokens_per_minute, clock_->Now());
  counts_tokens_.store(limits.tokens_per_minute > 0, std::memory_order_relaxed);
  ExportLimits();
}

// From the start: a series that appears with its first event has no rate for it.
void KeyAccount::ExportLimits() const {
  const std::pair<const char*, int64_t> series[] = {{kMaxConcurrent, limits_.max_concurrent},
                                                    {kRequestsPerMinute, limits_.requests_per_minute},
                                                    {kTokensPerMinute, limits_.tokens_per_minute}};
  for (const auto& [limit, value] : series) {
    if (value > 0) CountRefused(limit, 0);
  }
}

void KeyAccount::CountRefused(const std::string& limit, uint64_t by) const {
  if (metrics_ == nullptr) return;
  metrics_->GetCounter("baton_key_requests_refused_total", "Requests over a limit of their API key.", {{"key", name_}, {"limit", limit}})
      ->Increment(by);
}

absl::Status KeyAccount::Refuse(const char* limit, absl::string_view what, absl::Duration retry_after) const {
  CountRefused(limit, 1);
  const absl::Status status = absl::ResourceExhaustedError(absl::StrCat("API key ", name_, ": ", what));
  return WithRetryAfter(WithErrorCode(status, "rate_limit_exceeded"), absl::Ceil(std::max(retry_after, kLeastWait), absl::Milliseconds(1)));
}

absl::Status KeyAccount::TakePlaces(int64_t num_requests) {
  const int64_t most = limits_.max_concurrent;
  if (most == 0 || open_ + num_requests <= most) {
    open_ += num_requests;
    return absl::OkStatus();
  }
  // One ends in about so long.
  const absl::Duration wait = std::min(mean_time_ / static_cast<double>(std::max<int64_t>(1, open_)), kMostWait);
  return Refuse(kMaxConcurrent, absl::StrCat(open_, " requests are open, ", kMaxConcurrent, " is ", most), wait);
}

absl::Status KeyAccount::TooMany(int64_t num_requests) const {
  return absl::InvalidArgumentError(absl::StrCat("API key ", name_, ": a batch of ", num_requests, " prompts is over ", kMaxConcurrent, ", which is ",
                                                 limits_.max_concurrent));
}

absl::Status KeyAccount::Begin() {
  MutexLock lock(&mutex_);
  const MonotonicTime now = clock_->Now();
  if (const absl::Duration wait = requests_.WaitFor(1, now); wait > absl::ZeroDuration()) {
    return Refuse(kRequestsPerMinute, absl::StrCat("its ", kRequestsPerMinute, ", ", requests_.rate(), ", are used up"), wait);
  }
  if (const absl::Duration wait = tokens_.WaitFor(1, now); wait > absl::ZeroDuration()) return RefuseTokens(wait);
  BATON_RETURN_IF_ERROR(TakePlaces(1));
  requests_.Take(1, now);
  return absl::OkStatus();
}

absl::Status KeyAccount::Extend(int64_t num_requests) {
  MutexLock lock(&mutex_);
  if (limits_.max_concurrent > 0 && num_requests + 1 > limits_.max_concurrent) return TooMany(num_requests + 1);
  BATON_RETURN_IF_ERROR(TakePlaces(num_requests));
  requests_.Take(static_cast<double>(num_requests), clock_->Now());
  return absl::OkStatus();
}

void KeyAccount::End(int64_t num_requests, absl::Duration took) {
  MutexLock lock(&mutex_);
  open_ -= num_requests;
  mean_time_ = mean_time_ * 0.8 + took * 0.2;
}

absl::Status KeyAccount::RefuseTokens(absl::Duration wait) const {
  return Refuse(kTokensPerMinute, absl::StrCat("its ", kTokensPerMinute, ", ", tokens_.rate(), ", are used up"), wait);
}

absl::Status KeyAccount::TakePrompt(int64_t num_tokens) {
  MutexLock lock(&mutex_);
  const MonotonicTime now = clock_->Now();
  if (const absl::Duration wait = tokens_.WaitFor(1, now); wait > absl::ZeroDuration()) return RefuseTokens(wait);
  tokens_.Take(static_cast<double>(num_tokens), now);
  return absl::OkStatus();
}

void KeyAccount::TakeCompletion(int64_t num_tokens) {
  if (!counts_tokens_.load(std::memory_order_relaxed)) return;
  MutexLock lock(&mutex_);
  tokens_.Take(static_cast<double>(num_tokens), clock_->Now());
}

absl::StatusOr<int> KeyAccount::Priority(int asked) const {
  MutexLock lock(&mutex_);
  if (!limits_.priority || asked == 0) return limits_.priority.value_or(asked);
  if (asked <= *limits_.priority) return asked;
  return InvalidField("priority", absl::StrCat(asked, " is over ", *limits_.priority, ", the most that API key ", name_, " may ask for"));
}

absl::StatusOr<std::shared_ptr<KeyUse>> KeyUse::Begin(std::shared_ptr<KeyAccount> account, const Clock* clock) {
  BATON_RETURN_IF_ERROR(account->Begin());
  return std::shared_ptr<KeyUse>(new KeyUse(std::move(account), clock));
}

KeyUse::~KeyUse() { EndAll(); }

void KeyUse::End(int64_t num_requests) {
  if (num_requests == 0) return;
  num_open_ -= num_requests;
  account_->End(num_requests, clock_->Now() - began_);
}

absl::Status KeyUse::Extend(int64_t num_requests) {
  if (num_requests == 0) return absl::OkStatus();
  BATON_RETURN_IF_ERROR(account_->Extend(num_requests));
  num_open_ += num_requests;
  return absl::OkStatus();
}

}  // namespace baton
