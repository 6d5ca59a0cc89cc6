// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BASE_CONFIG_H_
#define BATON_COMMON_BASE_CONFIG_H_

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

// A program's options are Abseil flags, defined in the program (main.cc or its options file) and listed in a ConfigSpec:
//
//   ABSL_FLAG(baton::AutoByteSize, kv_memory, {}, "Memory for keys and values; auto takes what the cgroup leaves.");
//   ABSL_FLAG(std::string, model, "", "Model file or folder.");
//
//   int main(int argc, char** argv) {
//     const baton::ConfigSpec spec = {.program = "baton_decode_worker", .summary = "Generates tokens.",
//         .examples = "  baton_decode_worker --model m.gguf --router 127.0.0.1:9000\n",
//         .groups = {{"Model", {"model"}}, {"Memory", {"kv_memory"}}}};
//     baton::ParseConfigOrExit(spec, argc, argv);
//     ... absl::GetFlag(FLAGS_kv_memory) ...
//
// A value comes from the first of: the flag (--kv-memory 2G, --kv-memory=2G, --kv_memory=2G; for a bool --name, --no-name
// or --name=false), the environment (BATON_KV_MEMORY), the YAML file named by --config or BATON_CONFIG (kv-memory: 2G), the
// default. Only flags that the spec lists exist. What is wrong at any of the levels refuses the start, also where another
// level would win. Environment variables that match no listed flag are left alone: other programs read them.

namespace baton {

struct ConfigGroup {
  std::string title;               // Heading in --help.
  std::vector<std::string> flags;  // Names of ABSL_FLAGs, in the order shown.
};

struct ConfigSpec {
  std::string program;   // "baton_router", or "baton serve".
  std::string summary;   // What it does: a sentence or a few lines.
  std::string usage;     // After "Usage: "; empty: "<program> [flags]".
  std::string examples;  // Shown under "Examples:", as it is; may be empty.
  std::vector<ConfigGroup> groups;
  bool allow_positional = false;       // Else an argument that is no flag refuses the start.
  std::vector<std::string> required;   // Flags that must be given at some level, and not be empty.
  // Flags that the environment does not set: the same name means another thing to other programs (BATON_MODEL is a file).
  std::vector<std::string> not_from_environment;
};

enum class ConfigSource { kDefault, kFile, kEnvironment, kFlag };

struct ConfigResult {
  std::vector<std::string> positional;  // Also everything after "--".
  std::map<std::string, ConfigSource> sources;  // For each listed flag, who set it.
  bool help = false;     // --help or -h was given: nothing was parsed further.
  bool version = false;  // --version.
};

// How to read an environment variable; nothing when unset.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
Environment ProcessEnvironment();

// Sets the listed flags. `args` is without the program's name. Main thread, before other threads read flags.
//   INVALID_ARGUMENT  unknown flag or YAML key (names the nearest known one), bad value (names flag, value, level and
//                     reason), missing value or required flag, unreadable or malformed YAML file.
absl::StatusOr<ConfigResult> ParseConfig(const ConfigSpec& spec, const std::vector<std::string>& args,
                                         const Environment& environment);

// ParseConfig for main(): prints help or version and exits 0; prints an error with the program's name to standard error
// and exits 2.
ConfigResult ParseConfigOrExit(const ConfigSpec& spec, int argc, char** argv);
// The same for a subcommand's arguments, without any program name.
ConfigResult ParseConfigOrExit(const ConfigSpec& spec, const std::vector<std::string>& args);

// The text of --help: groups, each flag with its default and environment variable. 100 columns at most where words allow.
std::string HelpText(const ConfigSpec& spec);

// The candidate closest to `name` (edit distance with transpositions, dashes equal to underscores), if it is close enough
// to be what was meant.
std::optional<std::string> NearestName(absl::string_view name, const std::vector<std::string>& candidates);

}  // namespace baton

#endif  // BATON_COMMON_BASE_CONFIG_H_
