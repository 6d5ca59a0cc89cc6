// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_DEPLOY_CLI_SUPERVISOR_H_
#define BATON_DEPLOY_CLI_SUPERVISOR_H_

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "deploy/cli/child_process.h"

namespace baton::cli {

struct ChildSpec {
  std::string name;               // "router", "prefill p-1": as its own log lines call it.
  std::vector<std::string> argv;  // argv[0] is the path.
  int stage = 0;                  // A drain ends stage 0 first, then 1, ...
};

struct SupervisorOptions {
  absl::Duration first_backoff = absl::Milliseconds(200);  // Before a restart; doubled each time, up to max_backoff.
  absl::Duration max_backoff = absl::Seconds(10);
  absl::Duration steady_after = absl::Seconds(30);  // Who ran so long starts again with first_backoff.
  size_t tail_lines = 20;                           // Kept of each child's output.
  std::vector<std::string> without_environment;     // Variables that children do not get.
  std::function<void(absl::string_view line)> sink;  // Where lines go, one at a time, without newline.
};

// Starts children, passes their output on line by line, restarts those that end, and ends them stage by stage. A line that
// does not carry its child's name gets it in front. Nothing blocks but Turn. One thread, which must outlive the object:
// the kernel kills the children when it ends.
class Supervisor {
 public:
  explicit Supervisor(SupervisorOptions options);
  // Kills what still runs.
  ~Supervisor();

  // Starts all. On an error those already started are killed; after KeepAlive only the one that failed is left out.
  //   Codes of ChildProcess::Start.
  absl::Status Start(std::vector<ChildSpec> specs);

  // Starts one more, kept alive as the others are. Where there is one of that name, retiring or not, it stays, and is started by
  // `spec` when it ends. After KeepAlive.
  //   Codes of ChildProcess::Start.
  absl::Status Add(ChildSpec spec);
  // Lets a child end: SIGTERM, SIGKILL after `patience`, and then it is forgotten. Nothing where there is none of that name, or it
  // has been told already.
  void Retire(absl::string_view name, absl::Duration patience);
  // Of all children, those that are being retired too.
  std::vector<std::string> names() const;

  // From now on a child that ends is started again. Until then its end is a failure.
  void KeepAlive() { keep_alive_ = true; }

  // Waits at most `timeout` for output, an end or a pending SIGINT or SIGTERM (which stays pending), and acts on it.
  void Turn(absl::Duration timeout);
  // Turn also returns when `fd` is readable; -1: no such file.
  void WakeBy(int fd) { wake_fd_ = fd; }

  // A child ended before KeepAlive: says which, how, and its last lines.
  std::optional<std::string> failure() const { return failure_; }
  // How that child ended.
  const ChildExit& failure_exit() const { return failure_exit_; }

  // SIGTERM to stage 0; when it has ended, to the next. A stage that is not done after `stage_timeout` is killed.
  void BeginDrain(absl::Duration stage_timeout);
  // SIGKILL to all and what they started.
  void KillAll();
  bool draining() const { return draining_; }
  // No child runs and none will be started.
  bool ended() const;
  // After a drain: everybody ended by itself with exit code 0.
  bool clean() const { return clean_; }

  // For tests: the process of a child that runs, else -1; and how often it was started again.
  pid_t pid(absl::string_view name) const;
  int num_restarts(absl::string_view name) const;

 private:
  struct Child {
    ChildSpec spec;
    std::unique_ptr<ChildProcess> process;  // Null: does not run.
    std::deque<std::string> tail;
    MonotonicTime started_at{};
    std::optional<MonotonicTime> restart_at;
    std::optional<MonotonicTime> retired_by;  // Is to be gone by then.
    bool told = false;       // By a SIGTERM, to end.
    bool forgotten = false;  // To be taken out of the list.
    absl::Duration backoff{};
    int num_restarts = 0;
  };

  absl::Status StartChild(Child* child);
  void OnLine(Child* child, absl::string_view line);
  void OnExit(Child* child, const ChildExit& exit);
  void AdvanceDrain();
  void AdvanceRetirements();
  static void Tell(Child* child);
  bool StageRuns(int stage) const;
  void Wait(absl::Duration timeout);
  const Child* Find(absl::string_view name) const;

  const SupervisorOptions options_;
  std::vector<std::unique_ptr<Child>> children_;
  int signal_fd_ = -1, wake_fd_ = -1;
  bool keep_alive_ = false;
  bool draining_ = false;
  bool killed_all_ = false;
  bool clean_ = true;
  int stage_ = 0;
  int last_stage_ = 0;
  absl::Duration stage_timeout_{};
  MonotonicTime stage_deadline_{};
  std::optional<std::string> failure_;
  ChildExit failure_exit_;
};

}  // namespace baton::cli

#endif  // BATON_DEPLOY_CLI_SUPERVISOR_H_
