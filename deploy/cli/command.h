// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_DEPLOY_CLI_COMMAND_H_
#define BATON_DEPLOY_CLI_COMMAND_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/base/config.h"

namespace baton::cli {

// What `baton` exits with; every subcommand's help names them.
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailure = 1;  // Tried, and it did not work: no router, no such model, refused request.
inline constexpr int kExitUsage = 2;    // Wrong arguments: nothing was tried.

// A subcommand. Its file defines `Command XxxCommand()`; commands.cc lists them all.
struct Command {
  std::string name;
  std::string summary;  // A few words for `baton --help`.
  ConfigSpec spec;
  int (*run)(const ConfigResult& config) = nullptr;  // After the flags are set; returns the exit code.
};

Command ServeCommand();
Command GenerateCommand();
Command ChatCommand();
Command StatusCommand();
Command DoctorCommand();
Command DrainCommand();
Command TokenizeCommand();
Command TemplateCommand();
Command LogitsCommand();
Command BenchKvCommand();
Command BenchServeCommand();

// What a subcommand's spec says under "Exit codes".
std::string ExitCodesHelp();

// Runs `baton ARGS...`; `args` is without the program's name. Returns the exit code.
int RunCommandLine(const std::vector<std::string>& args);

// Tells a person what went wrong ("baton generate: ...") on standard error; with --json also a program, as one line
// {"error":{"code":...,"message":...}} on standard output. Returns `exit_code`.
int Fail(absl::string_view command, const absl::Status& status, bool json, int exit_code = kExitFailure);

// "NOT_FOUND", ...
std::string CodeName(absl::StatusCode code);

// Writes to standard output and flushes. False when that failed (disk full, reader gone).
bool Print(absl::string_view text);

// All of standard input. RESOURCE_EXHAUSTED when it is over 64 MiB.
absl::StatusOr<std::string> ReadStandardInput();

// "1,2,3", also with spaces or in brackets. INVALID_ARGUMENT names `flag` and the item.
absl::StatusOr<std::vector<int>> ParseIntList(absl::string_view flag, absl::string_view text);

// The shortest decimal that reads back as the same float, as a double that JSON prints that way.
double ShortestDouble(float value);

}  // namespace baton::cli

#endif  // BATON_DEPLOY_CLI_COMMAND_H_
