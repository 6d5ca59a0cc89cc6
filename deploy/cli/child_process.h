// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_DEPLOY_CLI_CHILD_PROCESS_H_
#define BATON_DEPLOY_CLI_CHILD_PROCESS_H_

#include <sys/types.h>

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace baton::cli {

// How a process ended.
struct ChildExit {
  int code = 0;    // Exit code, when `signal` is 0.
  int signal = 0;  // The signal that ended it.
  bool clean() const { return code == 0 && signal == 0; }
};
// "exit code 2", "signal 9 (Killed)".
std::string Describe(const ChildExit& exit);

// One process with its output read line by line. In a process group of its own, so that Ctrl-C at the terminal reaches only
// the parent; killed by the kernel when the thread that started it ends. One thread.
class ChildProcess {
 public:
  // Called with each line of its output, without the newline.
  using LineSink = std::function<void(absl::string_view line)>;

  // Standard input is /dev/null; standard output and error come to `sink`. The environment is this process's, without
  // `without_environment`.
  //   NOT_FOUND    argv[0] is no executable file.
  //   UNAVAILABLE  the system gives no process or pipe.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(const std::vector<std::string>& argv,
                                                             const std::vector<std::string>& without_environment,
                                                             LineSink sink);
  // Kills it and its group when it still runs, and waits for its end.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  // For poll(): readable when there is output. -1 once the output has ended.
  int output_fd() const { return fd_; }
  // Hands what output there is to the sink; never blocks.
  void ReadOutput();
  // Whether it has ended; never blocks. The rest of its output has been handed out before it says so.
  std::optional<ChildExit> Reap();

  void Signal(int signal_number);       // To the process alone; nothing once it has ended.
  void SignalGroup(int signal_number);  // And to what it started.

 private:
  ChildProcess(pid_t pid, int fd, LineSink sink) : pid_(pid), fd_(fd), sink_(std::move(sink)) {}
  void CloseOutput();

  const pid_t pid_;
  int fd_;
  LineSink sink_;
  std::string line_;  // Without its end so far.
  std::optional<ChildExit> exit_;
};

}  // namespace baton::cli

#endif  // BATON_DEPLOY_CLI_CHILD_PROCESS_H_
