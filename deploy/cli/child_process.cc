// SPDX-License-Identifier: Apache-2.0
#include "deploy/cli/child_process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace baton::cli {
namespace {

constexpr size_t kMaxLineBytes = 64 << 10;

std::vector<char*> Pointers(std::vector<std::string>* strings) {
  std::vector<char*> pointers;
  for (std::string& text : *strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> EnvironmentWithout(const std::vector<std::string>& names) {
  std::vector<std::string> kept;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const bool dropped = std::any_of(names.begin(), names.end(), [entry](const std::string& name) {
      return absl::StartsWith(*entry, name + "=");
    });
    if (!dropped) kept.emplace_back(*entry);
  }
  return kept;
}

// Between fork and exec: only calls that are safe there.
[[noreturn]] void BecomeChild(pid_t parent, int output, char* const* argv, char* const* environment) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // It ended before the line above.
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  const int input = open("/dev/null", O_RDONLY);
  dup2(input, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  execve(argv[0], argv, environment);
  static constexpr char kMessage[] = "cannot be run\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kMessage, sizeof kMessage - 1);
  _exit(127);
}

}  // namespace

std::string Describe(const ChildExit& exit) {
  if (exit.signal != 0) return absl::StrCat("signal ", exit.signal, " (", strsignal(exit.signal), ")");
  return absl::StrCat("exit code ", exit.code);
}

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Start(const std::vector<std::string>& argv,
                                                                  const std::vector<std::string>& without_environment,
                                                                  LineSink sink) {
  if (argv.empty() || access(argv[0].c_str(), X_OK) != 0) {
    return absl::NotFoundError(absl::StrCat(argv.empty() ? "" : argv[0], " is no program that can be run"));
  }
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return absl::UnavailableError(absl::StrCat("no pipe: ", strerror(errno)));
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  std::vector<std::string> arguments = argv;
  std::vector<std::string> environment = EnvironmentWithout(without_environment);
  const std::vector<char*> argument_pointers = Pointers(&arguments);
  const std::vector<char*> environment_pointers = Pointers(&environment);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) BecomeChild(parent, ends[1], argument_pointers.data(), environment_pointers.data());
  const int fork_error = errno;
  close(ends[1]);
  if (pid < 0) {
    close(ends[0]);
    return absl::UnavailableError(absl::StrCat("no process for ", argv[0], ": ", strerror(fork_error)));
  }
  setpgid(pid, pid);  // Here too: a signal to the group may come before the child has run.
  return std::unique_ptr<ChildProcess>(new ChildProcess(pid, ends[0], std::move(sink)));
}

ChildProcess::~ChildProcess() {
  if (!exit_) {
    SignalGroup(SIGKILL);
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
  }
  CloseOutput();
}

void ChildProcess::CloseOutput() {
  if (!line_.empty()) sink_(std::exchange(line_, std::string()));
  if (fd_ >= 0) close(std::exchange(fd_, -1));
}

void ChildProcess::ReadOutput() {
  char buffer[1 << 14];
  // Bounded, so that one chatterer does not keep the others waiting.
  for (int round = 0; round < 16 && fd_ >= 0; ++round) {
    const ssize_t count = read(fd_, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count <= 0) return CloseOutput();
    absl::string_view rest(buffer, count);
    while (!rest.empty()) {
      const size_t end = rest.find('\n');
      line_.append(rest.data(), std::min(end, rest.size()));
      rest.remove_prefix(end == absl::string_view::npos ? rest.size() : end + 1);
      if (end == absl::string_view::npos && line_.size() < kMaxLineBytes) break;
      sink_(std::exchange(line_, std::string()));
    }
  }
}

std::optional<ChildExit> ChildProcess::Reap() {
  if (exit_) return exit_;
  int status = 0;
  const pid_t reaped = waitpid(pid_, &status, WNOHANG);
  if (reaped != pid_) return std::nullopt;
  ReadOutput();
  CloseOutput();
  exit_ = WIFSIGNALED(status) ? ChildExit{.signal = WTERMSIG(status)} : ChildExit{.code = WEXITSTATUS(status)};
  return exit_;
}

void ChildProcess::Signal(int signal_number) {
  if (!exit_) kill(pid_, signal_number);
}

void ChildProcess::SignalGroup(int signal_number) {
  if (!exit_) kill(-pid_, signal_number);
}

}  // namespace baton::cli
