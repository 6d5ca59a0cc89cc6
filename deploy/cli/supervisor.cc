// SPDX-License-Identifier: Apache-2.0
#include "deploy/cli/supervisor.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"

namespace baton::cli {
namespace {

// Our programs' log lines name their process near the beginning, in text and in JSON.
bool Names(absl::string_view line, absl::string_view name) {
  const absl::string_view head = line.substr(0, 160);
  return absl::StrContains(head, absl::StrCat(" ", name, ": ")) ||
         absl::StrContains(head, absl::StrCat("\"process\":\"", name, "\""));
}

}  // namespace

Supervisor::Supervisor(SupervisorOptions options) : options_(std::move(options)) {
  // Only to wake up: the signals stay pending for whoever asks for them.
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  signal_fd_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

Supervisor::~Supervisor() {
  children_.clear();
  if (signal_fd_ >= 0) close(signal_fd_);
}

absl::Status Supervisor::Start(std::vector<ChildSpec> specs) {
  for (ChildSpec& spec : specs) {
    auto child = std::make_unique<Child>();
    child->spec = std::move(spec);
    child->backoff = options_.first_backoff;
    last_stage_ = std::max(last_stage_, child->spec.stage);
    children_.push_back(std::move(child));
    if (const absl::Status started = StartChild(children_.back().get()); !started.ok()) {
      const absl::Status status = Annotate(started, children_.back()->spec.name);
      if (keep_alive_) {
        children_.pop_back();
      } else {
        children_.clear();
      }
      return status;
    }
  }
  return absl::OkStatus();
}

absl::Status Supervisor::Add(ChildSpec spec) {
  for (const auto& child : children_) {
    if (child->spec.name != spec.name) continue;
    child->spec = std::move(spec);   // For its next start.
    child->retired_by.reset();       // One that is about to end is started again then.
    return absl::OkStatus();
  }
  return Start({std::move(spec)});
}

void Supervisor::Retire(absl::string_view name, absl::Duration patience) {
  for (const auto& child : children_) {
    if (child->spec.name != name || child->retired_by) continue;
    child->retired_by = Clock::Real()->Now() + patience;
    child->restart_at.reset();
    child->forgotten = child->process == nullptr;
    Tell(child.get());
  }
  AdvanceRetirements();
}

// To end. Once: a second SIGTERM would cut what it still runs.
void Supervisor::Tell(Child* child) {
  if (child->process == nullptr || child->told) return;
  child->told = true;
  child->process->Signal(SIGTERM);
}

std::vector<std::string> Supervisor::names() const {
  std::vector<std::string> names;
  for (const auto& child : children_) names.push_back(child->spec.name);
  return names;
}

void Supervisor::AdvanceRetirements() {
  std::erase_if(children_, [](const auto& child) { return child->forgotten; });
  const MonotonicTime now = Clock::Real()->Now();
  for (const auto& child : children_) {
    if (!child->retired_by || now < *child->retired_by || child->process == nullptr) continue;
    BATON_LOG(WARNING) << child->spec.name << " is not done in time: killed";
    child->process->SignalGroup(SIGKILL);
    child->retired_by = now + absl::Seconds(1);  // Killed again, should that be needed.
  }
}

absl::Status Supervisor::StartChild(Child* child) {
  child->restart_at.reset();
  BATON_ASSIGN_OR_RETURN(child->process,
                         ChildProcess::Start(child->spec.argv, options_.without_environment,
                                             [this, child](absl::string_view line) { OnLine(child, line); }));
  child->started_at = Clock::Real()->Now();
  child->told = false;
  return absl::OkStatus();
}

void Supervisor::OnLine(Child* child, absl::string_view line) {
  child->tail.emplace_back(line);
  if (child->tail.size() > options_.tail_lines) child->tail.pop_front();
  if (!options_.sink) return;
  if (Names(line, child->spec.name)) {
    options_.sink(line);
  } else {
    options_.sink(absl::StrCat("[", child->spec.name, "] ", line));
  }
}

void Supervisor::Wait(absl::Duration timeout) {
  const MonotonicTime now = Clock::Real()->Now();
  if (draining_ && stage_ <= last_stage_) timeout = std::min(timeout, stage_deadline_ - now);
  std::vector<pollfd> fds;
  if (signal_fd_ >= 0) fds.push_back({.fd = signal_fd_, .events = POLLIN});
  if (wake_fd_ >= 0) fds.push_back({.fd = wake_fd_, .events = POLLIN});
  for (const auto& child : children_) {
    if (child->restart_at) timeout = std::min(timeout, *child->restart_at - now);
    if (child->retired_by) timeout = std::min(timeout, *child->retired_by - now);
    if (child->process == nullptr) continue;
    if (child->process->output_fd() >= 0) fds.push_back({.fd = child->process->output_fd(), .events = POLLIN});
    // Its end shows as the end of its output, unless somebody else holds that open: then it is found in passing.
    timeout = std::min(timeout, child->process->output_fd() >= 0 ? absl::Milliseconds(250) : absl::Milliseconds(10));
  }
  poll(fds.data(), fds.size(), static_cast<int>(std::max<int64_t>(0, absl::ToInt64Milliseconds(timeout))));
}

void Supervisor::Turn(absl::Duration timeout) {
  Wait(timeout);
  for (const auto& child : children_) {
    if (child->process != nullptr) {
      child->process->ReadOutput();
      if (const std::optional<ChildExit> exit = child->process->Reap()) OnExit(child.get(), *exit);
    } else if (child->restart_at && *child->restart_at <= Clock::Real()->Now()) {
      ++child->num_restarts;
      if (const absl::Status started = StartChild(child.get()); !started.ok()) {
        BATON_LOG(ERROR) << child->spec.name << " does not start: " << started.message();
        child->restart_at = Clock::Real()->Now() + options_.max_backoff;
      }
    }
  }
  AdvanceRetirements();
  if (draining_) AdvanceDrain();
}

void Supervisor::OnExit(Child* child, const ChildExit& exit) {
  child->process.reset();
  if (child->retired_by) {
    child->forgotten = true;
    BATON_LOG(INFO) << child->spec.name << " ended with " << Describe(exit) << ", as it was told to";
    if (!exit.clean()) clean_ = false;
    return;
  }
  if (draining_) {
    if (!exit.clean()) {
      if (exit.signal != SIGKILL || !killed_all_) BATON_LOG(WARNING) << child->spec.name << " ended with " << Describe(exit);
      clean_ = false;
    }
    return;
  }
  if (!keep_alive_) {
    if (!failure_) {
      failure_exit_ = exit;
      failure_ = absl::StrCat(child->spec.name, " ended with ", Describe(exit), "; its last lines:\n  ",
                              child->tail.empty() ? "(none)" : absl::StrJoin(child->tail, "\n  "));
    }
    return;
  }
  const MonotonicTime now = Clock::Real()->Now();
  if (now - child->started_at >= options_.steady_after) child->backoff = options_.first_backoff;
  BATON_LOG(WARNING) << child->spec.name << " ended with " << Describe(exit) << "; starting it again in "
                     << absl::FormatDuration(child->backoff);
  child->restart_at = now + child->backoff;
  child->backoff = std::min(child->backoff * 2, options_.max_backoff);
}

void Supervisor::BeginDrain(absl::Duration stage_timeout) {
  if (draining_) return;
  draining_ = true;
  stage_timeout_ = stage_timeout;
  stage_ = -1;
  for (const auto& child : children_) child->restart_at.reset();
  AdvanceDrain();
}

bool Supervisor::StageRuns(int stage) const {
  return std::any_of(children_.begin(), children_.end(),
                     [stage](const auto& child) { return child->spec.stage == stage && child->process != nullptr; });
}

void Supervisor::AdvanceDrain() {
  const MonotonicTime now = Clock::Real()->Now();
  if (stage_ >= 0 && StageRuns(stage_)) {
    if (now < stage_deadline_) return;
    clean_ = false;
    for (const auto& child : children_) {
      if (child->spec.stage != stage_ || child->process == nullptr) continue;
      BATON_LOG(WARNING) << child->spec.name << " is not done after " << absl::FormatDuration(stage_timeout_) << ": killed";
      child->process->SignalGroup(SIGKILL);
    }
    stage_deadline_ = now + absl::Seconds(1);  // Killed again, should that be needed.
    return;
  }
  while (stage_ <= last_stage_ && (stage_ < 0 || !StageRuns(stage_))) ++stage_;
  stage_deadline_ = now + stage_timeout_;
  for (const auto& child : children_) {
    if (child->spec.stage == stage_) Tell(child.get());
  }
}

void Supervisor::KillAll() {
  draining_ = killed_all_ = true;
  clean_ = false;
  stage_ = last_stage_ + 1;
  for (const auto& child : children_) {
    child->restart_at.reset();
    if (child->process != nullptr) child->process->SignalGroup(SIGKILL);
  }
}

bool Supervisor::ended() const {
  return std::all_of(children_.begin(), children_.end(),
                     [](const auto& child) { return child->process == nullptr && !child->restart_at; });
}

const Supervisor::Child* Supervisor::Find(absl::string_view name) const {
  for (const auto& child : children_) {
    if (child->spec.name == name) return child.get();
  }
  return nullptr;
}

pid_t Supervisor::pid(absl::string_view name) const {
  const Child* child = Find(name);
  return child == nullptr || child->process == nullptr ? -1 : child->process->pid();
}

int Supervisor::num_restarts(absl::string_view name) const {
  const Child* child = Find(name);
  return child == nullptr ? 0 : child->num_restarts;
}

}  // namespace baton::cli
