// SPDX-License-Identifier: Apache-2.0
#include "common/base/config.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <set>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/reflection.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "common/base/build_info.h"
#include "common/base/config_names.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "yaml-cpp/yaml.h"

namespace baton {
namespace {

using config_internal::CanonicalName;
using config_internal::EnvironmentName;
using config_internal::ShownName;

// The listed flags by canonical name (underscores).
using Flags = std::map<std::string, absl::CommandLineFlag*>;

Flags FindFlags(const ConfigSpec& spec) {
  Flags flags;
  for (const ConfigGroup& group : spec.groups) {
    for (const std::string& name : group.flags) {
      absl::CommandLineFlag* flag = absl::FindCommandLineFlag(name);
      BATON_CHECK(flag != nullptr) << spec.program << " lists '" << name << "', for which there is no ABSL_FLAG";
      BATON_CHECK(flags.emplace(name, flag).second) << spec.program << " lists '" << name << "' twice";
    }
  }
  return flags;
}

absl::Status Unknown(absl::string_view what, absl::string_view shown, absl::string_view name, const Flags& flags) {
  std::vector<std::string> known = {"config", "help", "version"};
  for (const auto& entry : flags) known.push_back(entry.first);
  const std::optional<std::string> nearest = NearestName(CanonicalName(name), known);
  const bool flag = absl::StartsWith(shown, "-");
  return absl::InvalidArgumentError(
      absl::StrCat("unknown ", what, " ", shown,
                   nearest ? absl::StrCat("; did you mean ", flag ? "--" : "", ShownName(*nearest), "?")
                           : std::string("; --help lists them")));
}

// `place`: where the value stood, "--top-k", "BATON_TOP_K in the environment", "x.yaml:3: top-k".
absl::Status Set(absl::CommandLineFlag* flag, absl::string_view value, absl::string_view place) {
  std::string error;
  if (flag->ParseFrom(value, &error)) return absl::OkStatus();
  // Abseil says "Illegal value 'x' specified for flag 'y'; reason", the reason only from types that give one.
  const size_t at = error.find("; ");
  const std::string reason = at == std::string::npos ? "" : error.substr(at + 2);
  std::string expected = reason;
  if (expected.empty() && flag->IsOfType<bool>()) expected = "expected true or false";
  if (expected.empty() && (flag->IsOfType<float>() || flag->IsOfType<double>())) expected = "expected a number";
  if (expected.empty() && flag->IsOfType<absl::Duration>()) expected = "expected a duration like 500ms or 2s";
  if (expected.empty()) expected = "expected an integer in range";
  return absl::InvalidArgumentError(absl::StrCat(place, ": bad value '", value, "': ", expected));
}

// --- YAML file -------------------------------------------------------------------------------------------------------

absl::StatusOr<std::string> ScalarText(const YAML::Node& node, const std::string& place) {
  if (node.IsScalar()) return node.Scalar();
  if (node.IsNull()) return absl::InvalidArgumentError(absl::StrCat(place, ": no value"));
  if (node.IsSequence()) {  // For list flags, which take comma-separated text.
    std::vector<std::string> items;
    for (const YAML::Node& item : node) {
      if (!item.IsScalar()) return absl::InvalidArgumentError(absl::StrCat(place, ": list items must be plain values"));
      items.push_back(item.Scalar());
    }
    return absl::StrJoin(items, ",");
  }
  return absl::InvalidArgumentError(absl::StrCat(place, ": expected a value, not a mapping"));
}

absl::Status ApplyEntries(const std::string& path, const YAML::Node& top, const Flags& flags, ConfigResult* result) {
  if (top.IsNull()) return absl::OkStatus();  // An empty file.
  if (!top.IsMap()) return absl::InvalidArgumentError(absl::StrCat(path, ": expected lines of the form 'name: value'"));
  std::set<std::string> seen;
  for (const auto& entry : top) {
    const std::string key = entry.first.IsScalar() ? entry.first.Scalar() : "?";
    const std::string place = absl::StrCat(path, ":", entry.first.Mark().line + 1, ": ", key);
    const std::string name = CanonicalName(key);
    const auto found = flags.find(name);
    if (found == flags.end()) {
      return Annotate(Unknown("key", key, key, flags), absl::StrCat(path, ":", entry.first.Mark().line + 1));
    }
    if (!seen.insert(name).second) return absl::InvalidArgumentError(absl::StrCat(place, ": given twice"));
    BATON_ASSIGN_OR_RETURN(const std::string value, ScalarText(entry.second, place));
    BATON_RETURN_IF_ERROR(Set(found->second, value, place));
    result->sources[name] = ConfigSource::kFile;
  }
  return absl::OkStatus();
}

absl::Status ApplyFile(const std::string& path, const Flags& flags, ConfigResult* result) {
  // yaml-cpp reports by exceptions; none leaves this function.
  try {
    return ApplyEntries(path, YAML::LoadFile(path), flags, result);
  } catch (const YAML::BadFile&) {
    return absl::InvalidArgumentError(absl::StrCat("--config ", path, ": cannot read the file"));
  } catch (const YAML::Exception& exception) {
    return absl::InvalidArgumentError(absl::StrCat(path, ":", exception.mark.line + 1, ": ", exception.msg));
  } catch (const std::exception& exception) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", exception.what()));
  }
}

// --- Command line ----------------------------------------------------------------------------------------------------

struct Given {
  std::string name;   // Canonical.
  std::string value;
  std::string place;  // As typed, without the value.
};

// What the command line says, before anything is set: the file's and the environment's values come first.
struct CommandLine {
  std::vector<Given> given;
  std::optional<std::string> config;
};

class CommandLineReader {
 public:
  CommandLineReader(const ConfigSpec& spec, const Flags& flags, const std::vector<std::string>& args)
      : spec_(spec), flags_(flags), args_(args) {}

  absl::StatusOr<CommandLine> Read(ConfigResult* result) {
    for (; next_ < args_.size() && !result->help && !result->version; ++next_) {
      const std::string& arg = args_[next_];
      if (arg == "--") {
        result->positional.insert(result->positional.end(), args_.begin() + next_ + 1, args_.end());
        break;
      }
      if (arg == "-h") {
        result->help = true;
      } else if (absl::StartsWith(arg, "--")) {
        BATON_RETURN_IF_ERROR(ReadFlag(arg, result));
      } else if (arg.size() > 1 && arg[0] == '-') {
        return absl::InvalidArgumentError(absl::StrCat("unknown flag ", arg, "; flags begin with --"));
      } else {
        result->positional.push_back(arg);
      }
    }
    if (!result->help && !result->version && !spec_.allow_positional && !result->positional.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("unexpected argument '", result->positional[0], "'"));
    }
    return std::move(line_);
  }

 private:
  absl::Status ReadFlag(const std::string& arg, ConfigResult* result) {
    const size_t equals = arg.find('=');
    const std::string typed = arg.substr(0, equals);
    const std::string name = CanonicalName(typed.substr(2));
    if (equals == std::string::npos && name == "help") {
      result->help = true;
      return absl::OkStatus();
    }
    if (equals == std::string::npos && name == "version") {
      result->version = true;
      return absl::OkStatus();
    }
    const auto found = flags_.find(name);
    if (found == flags_.end() && name != "config") return ReadNegated(typed, name, equals != std::string::npos);
    std::string value;
    if (equals != std::string::npos) {
      value = arg.substr(equals + 1);
    } else if (found != flags_.end() && found->second->IsOfType<bool>()) {
      value = "true";
    } else if (next_ + 1 < args_.size()) {
      value = args_[++next_];
    } else {
      return absl::InvalidArgumentError(absl::StrCat(typed, ": a value must follow"));
    }
    if (found == flags_.end()) {
      line_.config = value;
    } else {
      line_.given.push_back({name, value, typed});
    }
    return absl::OkStatus();
  }

  // --no-name and --noname for a bool.
  absl::Status ReadNegated(const std::string& typed, absl::string_view name, bool has_value) {
    absl::string_view rest = name;
    if (!has_value && absl::ConsumePrefix(&rest, "no")) {
      absl::ConsumePrefix(&rest, "_");
      const auto found = flags_.find(std::string(rest));
      if (found != flags_.end() && found->second->IsOfType<bool>()) {
        line_.given.push_back({found->first, "false", typed});
        return absl::OkStatus();
      }
    }
    return Unknown("flag", typed, name, flags_);
  }

  const ConfigSpec& spec_;
  const Flags& flags_;
  const std::vector<std::string>& args_;
  size_t next_ = 0;
  CommandLine line_;
};

absl::Status CheckRequired(const ConfigSpec& spec, const Flags& flags, const ConfigResult& result) {
  for (const std::string& name : spec.required) {
    const auto found = flags.find(name);
    BATON_CHECK(found != flags.end()) << spec.program << " requires '" << name << "', which it does not list";
    if (result.sources.at(name) != ConfigSource::kDefault && !found->second->CurrentValue().empty()) continue;
    return absl::InvalidArgumentError(absl::StrCat("--", ShownName(name), " is needed (or ", EnvironmentName(name),
                                                   " in the environment, or '", ShownName(name), ":' in --config FILE)"));
  }
  return absl::OkStatus();
}

}  // namespace

Environment ProcessEnvironment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::make_optional<std::string>(value);
  };
}

absl::StatusOr<ConfigResult> ParseConfig(const ConfigSpec& spec, const std::vector<std::string>& args,
                                         const Environment& environment) {
  const Flags flags = FindFlags(spec);
  ConfigResult result;
  for (const auto& entry : flags) result.sources[entry.first] = ConfigSource::kDefault;
  CommandLineReader reader(spec, flags, args);
  BATON_ASSIGN_OR_RETURN(const CommandLine line, reader.Read(&result));
  if (result.help || result.version) return result;

  std::optional<std::string> file = line.config;
  if (!file) file = environment("BATON_CONFIG");
  if (file && !file->empty()) BATON_RETURN_IF_ERROR(ApplyFile(*file, flags, &result));
  for (const auto& [name, flag] : flags) {
    const auto& hidden = spec.not_from_environment;
    if (std::find(hidden.begin(), hidden.end(), name) != hidden.end()) continue;
    const std::optional<std::string> value = environment(EnvironmentName(name));
    if (!value) continue;
    BATON_RETURN_IF_ERROR(Set(flag, *value, absl::StrCat(EnvironmentName(name), " in the environment")));
    result.sources[name] = ConfigSource::kEnvironment;
  }
  for (const Given& given : line.given) {
    BATON_RETURN_IF_ERROR(Set(flags.at(given.name), given.value, given.place));
    result.sources[given.name] = ConfigSource::kFlag;
  }
  BATON_RETURN_IF_ERROR(CheckRequired(spec, flags, result));
  return result;
}

ConfigResult ParseConfigOrExit(const ConfigSpec& spec, const std::vector<std::string>& args) {
  absl::StatusOr<ConfigResult> result = ParseConfig(spec, args, ProcessEnvironment());
  if (!result.ok()) {
    const std::string text = absl::StrCat(spec.program, ": ", result.status().message(), "\nTry '", spec.program, " --help'.\n");
    std::fputs(text.c_str(), stderr);
    std::exit(2);
  }
  if (result->help || result->version) {
    std::fputs(result->help ? HelpText(spec).c_str() : (BuildDescription() + "\n").c_str(), stdout);
    std::exit(std::fflush(stdout) == 0 ? 0 : 1);
  }
  return *std::move(result);
}

ConfigResult ParseConfigOrExit(const ConfigSpec& spec, int argc, char** argv) {
  return ParseConfigOrExit(spec, std::vector<std::string>(argv + std::min(argc, 1), argv + argc));
}

}  // namespace baton
