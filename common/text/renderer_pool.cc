// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/text/chat_template.h"

namespace baton {

absl::StatusOr<std::shared_ptr<RendererPool>> RendererPool::Create(RendererPoolOptions options) {
  if (options.num_processes < 1) {
    return absl::InvalidArgumentError(absl::StrCat("num_processes: ", options.num_processes, ", needs at least 1"));
  }
  std::shared_ptr<RendererPool> pool(new RendererPool(options));
  MutexLock lock(&pool->mutex_);
  for (int i = 0; i < options.num_processes; ++i) {
    BATON_ASSIGN_OR_RETURN(std::unique_ptr<RendererProcess> process, RendererProcess::Start(options.limits));
    pool->idle_.push_back(std::move(process));
  }
  // The last one started is the first to be used.
  BATON_RETURN_IF_ERROR(pool->idle_.back()->WaitReady(Clock::Real()->Now() + options.start_timeout));
  return pool;
}

RendererPool::~RendererPool() = default;

absl::StatusOr<std::unique_ptr<RendererProcess>> RendererPool::Acquire() {
  const MonotonicTime deadline = Clock::Real()->Now() + options_.queue_timeout;
  {
    MutexLock lock(&mutex_);
    while (idle_.empty() && num_busy_ >= options_.num_processes) {
      const absl::Duration left = deadline - Clock::Real()->Now();
      if (left <= absl::ZeroDuration()) {
        return absl::ResourceExhaustedError(absl::StrCat("all ", options_.num_processes,
                                                         " chat template renderers were busy for ",
                                                         ToMs(options_.queue_timeout), " ms"));
      }
      changed_.WaitFor(&mutex_, left);
    }
    ++num_busy_;
    if (!idle_.empty()) {
      std::unique_ptr<RendererProcess> process = std::move(idle_.back());
      idle_.pop_back();
      return process;
    }
  }
  // A replacement could not be started when one was due.
  absl::StatusOr<std::unique_ptr<RendererProcess>> process = RendererProcess::Start(options_.limits);
  if (!process.ok()) Release(nullptr);
  return process;
}

void RendererPool::Release(std::unique_ptr<RendererProcess> process) {
  {
    MutexLock lock(&mutex_);
    --num_busy_;
    if (process != nullptr) idle_.push_back(std::move(process));
  }
  changed_.NotifyOne();
}

absl::StatusOr<std::string> RendererPool::Call(absl::string_view request) {
  BATON_ASSIGN_OR_RETURN(std::unique_ptr<RendererProcess> process, Acquire());
  const absl::Status ready = process->WaitReady(Clock::Real()->Now() + options_.start_timeout);
  absl::StatusOr<std::string> reply =
      ready.ok() ? process->Call(request, Clock::Real()->Now() + options_.render_timeout) : ready;
  if (reply.ok()) {
    Release(std::move(process));
    return reply;
  }
  // The replacement gets ready while nobody waits for it.
  process.reset();
  absl::StatusOr<std::unique_ptr<RendererProcess>> replacement = RendererProcess::Start(options_.limits);
  if (!replacement.ok()) BATON_LOG(WARNING) << replacement.status().message();
  Release(replacement.ok() ? *std::move(replacement) : nullptr);
  if (ready.ok() && reply.status().code() == absl::StatusCode::kDeadlineExceeded) {
    return absl::DeadlineExceededError(
        absl::StrCat("chat template took longer than ", ToMs(options_.render_timeout), " ms"));
  }
  return reply;
}

}  // namespace baton
