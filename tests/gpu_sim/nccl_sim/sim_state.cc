// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu_sim/nccl_sim/sim_state.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <set>

#include "absl/strings/str_join.h"

namespace baton::nccl_sim {
namespace {

constexpr size_t kMaxFindings = 100;
const std::set<std::string>& Failures() {
  static const auto* const names = new std::set<std::string>{"stall_send", "stall_recv", "error_send", "error_recv",
                                                             "kill_send",  "kill_recv",  "flip_recv",  "short_send",
                                                             "fail_init"};
  return *names;
}

}  // namespace

SimState& SimState::Get() {
  static SimState* const state = [] {
    auto* const made = new SimState;
    made->TakePlan();
    return made;
  }();
  return *state;
}

// Every process reads it; the one that comes to grief takes it away, so that whoever replaces it works.
void SimState::TakePlan() {
  const char* const path = std::getenv("BATON_NCCL_SIM_PLAN");
  if (path == nullptr) return;
  std::ifstream in(path);
  std::string name;
  int64_t value = 0;
  while (in >> name >> value) Set(name, value);
  MutexLock lock(&mutex_);
  plan_ = path;
}

void SimState::Reset() {
  MutexLock lock(&mutex_);
  due_.clear();
  findings_.clear();
  const int64_t living = counts_["communicators"];
  counts_.clear();
  counts_["communicators"] = living;
  deaf_ = false;
  patience_ms_ = kPatienceMs;
}

int SimState::Set(const std::string& name, int64_t value) {
  MutexLock lock(&mutex_);
  if (name == "deaf") deaf_ = value != 0;
  else if (name == "patience_ms") patience_ms_ = value;
  else if (Failures().count(name) > 0) due_[name] = value;
  else return 1;
  return 0;
}

bool SimState::Due(const std::string& name) {
  MutexLock lock(&mutex_);
  const auto found = due_.find(name);
  if (found == due_.end() || found->second <= 0) return false;
  if (--found->second > 0) return false;
  if (!plan_.empty()) std::remove(plan_.c_str());
  return true;
}

bool SimState::deaf() const {
  MutexLock lock(&mutex_);
  return deaf_;
}

absl::Duration SimState::patience() const {
  MutexLock lock(&mutex_);
  return absl::Milliseconds(patience_ms_);
}

void SimState::Count(const std::string& name, int64_t amount) {
  MutexLock lock(&mutex_);
  counts_[name] += amount;
}

int64_t SimState::count(const std::string& name) const {
  MutexLock lock(&mutex_);
  if (name == "findings") return static_cast<int64_t>(findings_.size());
  const auto found = counts_.find(name);
  if (found != counts_.end()) return found->second;
  return name == "communicators" || name == "inits" || name == "sends" || name == "recvs" || name == "received_bytes" ? 0 : -1;
}

void SimState::Find(const std::string& finding) {
  std::fprintf(stderr, "libnccl_sim: %s\n", finding.c_str());
  MutexLock lock(&mutex_);
  if (findings_.size() < kMaxFindings) findings_.push_back(finding);
}

std::string SimState::findings() const {
  MutexLock lock(&mutex_);
  return absl::StrJoin(findings_, "\n");
}

}  // namespace baton::nccl_sim
