// SPDX-License-Identifier: Apache-2.0
#include "router/dispatcher.h"

#include <utility>

namespace baton {

Dispatcher::Dispatcher(const AdmissionOptions& options, std::unique_ptr<RoutePolicy> policy, uint64_t seed, TaskPool* tasks)
    : tasks_(tasks), admission_(options, std::move(policy), seed) {}

uint64_t Dispatcher::Acquire(RouteRequest request, Answer answer) {
  std::vector<std::pair<Answer, absl::StatusOr<Route>>> answers;
  uint64_t ticket = 0;
  {
    MutexLock lock(&mutex_);
    ticket = next_ticket_++;
    request.ticket = ticket;
    answers_.emplace(ticket, std::move(answer));
    std::vector<Grant> grants;  // Enqueue decides about nobody else.
    admission_.Enqueue(std::move(request), Clock::Real()->Now(), &grants);
    answers = Match(std::move(grants));
  }
  for (auto& [callback, route] : answers) callback(std::move(route));
  return ticket;
}

void Dispatcher::Forget(uint64_t ticket) {
  Answer dropped;
  MutexLock lock(&mutex_);
  auto it = answers_.find(ticket);
  if (it == answers_.end()) return;
  dropped = std::move(it->second);
  answers_.erase(it);
  admission_.Forget(ticket);
}

void Dispatcher::Release(const WorkerRef& worker, int64_t num_tokens, bool refused) {
  std::vector<std::pair<Answer, absl::StatusOr<Route>>> answers;
  {
    MutexLock lock(&mutex_);
    std::vector<Grant> grants;
    admission_.Release(worker, num_tokens, refused, Clock::Real()->Now(), &grants);
    answers = Match(std::move(grants));
  }
  AnswerOthers(std::move(answers));
}

void Dispatcher::EndRecovery(const WorkerRef& decode) {
  std::vector<std::pair<Answer, absl::StatusOr<Route>>> answers;
  {
    MutexLock lock(&mutex_);
    std::vector<Grant> grants;
    admission_.EndRecovery(decode, Clock::Real()->Now(), &grants);
    answers = Match(std::move(grants));
  }
  AnswerOthers(std::move(answers));
}

void Dispatcher::SetView(std::shared_ptr<const ClusterView> view) {
  std::vector<std::pair<Answer, absl::StatusOr<Route>>> answers;
  {
    MutexLock lock(&mutex_);
    std::vector<Grant> grants;
    admission_.SetView(std::move(view), Clock::Real()->Now(), &grants);
    answers = Match(std::move(grants));
  }
  AnswerOthers(std::move(answers));
}

void Dispatcher::Tick() {
  std::vector<std::pair<Answer, absl::StatusOr<Route>>> answers;
  {
    MutexLock lock(&mutex_);
    std::vector<Grant> grants;
    admission_.Tick(Clock::Real()->Now(), &grants);
    answers = Match(std::move(grants));
  }
  AnswerOthers(std::move(answers));
}

size_t Dispatcher::num_waiting() const {
  MutexLock lock(&mutex_);
  return admission_.num_waiting();
}

size_t Dispatcher::num_recoveries_waiting() const {
  MutexLock lock(&mutex_);
  return admission_.num_recoveries_waiting();
}

size_t Dispatcher::num_waiting_for(internal::WorkerRole role) const {
  MutexLock lock(&mutex_);
  return admission_.num_waiting_for(role);
}

int Dispatcher::open_calls(const WorkerRef& worker) const {
  MutexLock lock(&mutex_);
  return admission_.open_calls(worker);
}

std::vector<std::pair<Dispatcher::Answer, absl::StatusOr<Route>>> Dispatcher::Match(std::vector<Grant> grants) {
  std::vector<std::pair<Answer, absl::StatusOr<Route>>> answers;
  for (Grant& grant : grants) {
    auto it = answers_.find(grant.ticket);
    answers.emplace_back(std::move(it->second), std::move(grant.route));
    answers_.erase(it);
  }
  return answers;
}

// Not on this thread: one release would start the next request inside the end of another, and so on, in depth.
void Dispatcher::AnswerOthers(std::vector<std::pair<Answer, absl::StatusOr<Route>>> answers) {
  for (auto& entry : answers) {
    tasks_->Post([answer = std::move(entry.first), route = std::move(entry.second)]() mutable { answer(std::move(route)); });
  }
}

}  // namespace baton
