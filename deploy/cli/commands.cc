// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/build_info.h"
#include "deploy/cli/command.h"
#include "deploy/cli/flags.h"
#include "deploy/cli/role.h"
#include "deploy/cli/scale.h"

namespace baton::cli {
namespace {

using CommandFactory = Command (*)();

constexpr CommandFactory kCommands[] = {ServeCommand,    GenerateCommand, ChatCommand, StatusCommand, DrainCommand, ScaleCommand, RoleCommand,
                                        TokenizeCommand, TemplateCommand, LogitsCommand,
                                        BenchServeCommand, BenchKvCommand, DoctorCommand};

std::string Overview() {
  std::string text =
      "Serves language models with prefill and decode on separate workers.\n\n"
      "Usage: baton COMMAND [flags]\n\nCommands:\n";
  for (const CommandFactory factory : kCommands) {
    const Command command = factory();
    absl::StrAppendFormat(&text, "  %-12s %s\n", command.name, command.summary);
  }
  absl::StrAppend(&text,
                  "\nExamples:\n"
                  "  baton serve --model model.gguf --prefill 1 --decode 1\n"
                  "  baton generate --prompt 'The capital of France is' --max-tokens 16\n"
                  "  baton chat\n\n",
                  ExitCodesHelp(), "\nFlags of a command: baton COMMAND --help. Release: baton --version.\n");
  return text;
}

std::optional<Command> FindCommand(absl::string_view name) {
  for (const CommandFactory factory : kCommands) {
    if (Command command = factory(); command.name == name) return command;
  }
  return std::nullopt;
}

int UnknownCommand(const std::string& name) {
  std::vector<std::string> names = {"help"};
  for (const CommandFactory factory : kCommands) names.push_back(factory().name);
  const std::optional<std::string> nearest = NearestName(name, names);
  const bool flag = !name.empty() && name[0] == '-';
  const std::string text = absl::StrCat("baton: ", flag ? "unknown flag " : "there is no command '", name, flag ? "" : "'",
                                        nearest && !flag ? absl::StrCat("; did you mean ", *nearest, "?") : "",
                                        "\nTry 'baton --help'.\n");
  std::fputs(text.c_str(), stderr);
  return kExitUsage;
}

// `baton bench` by itself.
int Bench(const std::vector<std::string>& rest) {
  const bool help = !rest.empty() && (rest[0] == "--help" || rest[0] == "-h");
  std::string text = "Usage: baton bench COMMAND [flags]\n\nCommands:\n";
  for (const CommandFactory factory : kCommands) {
    const Command command = factory();
    if (absl::StartsWith(command.name, "bench ")) absl::StrAppendFormat(&text, "  %-12s %s\n", command.name, command.summary);
  }
  absl::StrAppend(&text, "\nFlags of one: baton bench COMMAND --help.\n");
  if (help) return Print(text) ? kExitOk : kExitFailure;
  std::fputs(text.c_str(), stderr);
  return kExitUsage;
}

}  // namespace

std::string ExitCodesHelp() { return "Exit codes: 0 done, 1 it did not work, 2 wrong arguments.\n"; }

int RunCommandLine(const std::vector<std::string>& args) {
  if (args.empty()) {
    std::fputs(Overview().c_str(), stderr);
    return kExitUsage;
  }
  std::string name = args[0];
  std::vector<std::string> rest(args.begin() + 1, args.end());
  if (name == "--help" || name == "-h" || name == "help") {
    if (rest.empty()) return Print(Overview()) ? kExitOk : kExitFailure;
    name = rest[0];
    rest[0] = "--help";
    if (name == "bench" && rest.size() > 1) rest = {rest[1], "--help"};
  }
  if (name == "--version" || name == "version") return Print(BuildDescription() + "\n") ? kExitOk : kExitFailure;
  // Two words: "bench serve".
  if (name == "bench" && !rest.empty() && rest[0][0] != '-') {
    absl::StrAppend(&name, " ", rest[0]);
    rest.erase(rest.begin());
  }
  if (name == "bench") return Bench(rest);
  SetCurrentCommand(name);
  std::optional<Command> command = FindCommand(name);
  if (!command) return UnknownCommand(name);
  command->spec.program = "baton " + name;
  absl::StrAppend(&command->spec.examples, "\n", ExitCodesHelp());
  const ConfigResult config = ParseConfigOrExit(command->spec, rest);
  return command->run(config);
}

}  // namespace baton::cli
