// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/base/config.h"
#include "common/base/config_names.h"
#include "common/base/logging.h"

namespace baton {
namespace config_internal {

std::string CanonicalName(absl::string_view name) { return absl::StrReplaceAll(name, {{"-", "_"}}); }
std::string ShownName(absl::string_view name) { return absl::StrReplaceAll(name, {{"_", "-"}}); }
std::string EnvironmentName(absl::string_view name) {
  return absl::StrCat("BATON_", absl::AsciiStrToUpper(CanonicalName(name)));
}

}  // namespace config_internal

namespace {

constexpr size_t kWidth = 100;

// Appends `text`, its words wrapped at kWidth, every line indented.
void AppendWrapped(absl::string_view text, size_t indent, std::string* out) {
  const std::string margin(indent, ' ');
  for (absl::string_view paragraph : absl::StrSplit(text, '\n')) {
    std::string line = margin;
    for (absl::string_view word : absl::StrSplit(paragraph, ' ', absl::SkipEmpty())) {
      if (line.size() > indent && line.size() + 1 + word.size() > kWidth) {
        absl::StrAppend(out, line, "\n");
        line = margin;
      }
      absl::StrAppend(&line, line.size() > indent ? " " : "", word);
    }
    absl::StrAppend(out, line.size() > indent ? line : "", "\n");
  }
}

void AppendFlag(absl::string_view shown, absl::string_view help, absl::string_view note, std::string* out) {
  absl::StrAppend(out, "  --", shown, "\n");
  AppendWrapped(absl::StrCat(help, " ", note), 6, out);
}

// Optimal string alignment distance: insertions, deletions, substitutions, swaps of neighbours.
size_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<std::vector<size_t>> cost(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) cost[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) cost[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost[a.size()][b.size()];
}

}  // namespace

std::optional<std::string> NearestName(absl::string_view name, const std::vector<std::string>& candidates) {
  if (name.size() > 64) return std::nullopt;  // No name of ours is near it, and the distance is quadratic.
  const std::string wanted = absl::AsciiStrToLower(config_internal::CanonicalName(name));
  std::optional<std::string> best;
  size_t best_distance = std::max<size_t>(2, wanted.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const std::string known = absl::AsciiStrToLower(config_internal::CanonicalName(candidate));
    size_t distance = EditDistance(wanted, known);
    // The beginning or the end of a name is near as well: --threads for --compute-threads.
    if (wanted.size() >= 3 && (absl::StartsWith(known, wanted) || absl::EndsWith(known, wanted))) {
      distance = std::min<size_t>(distance, 2);
    }
    if (distance < std::min(best_distance, std::max(wanted.size(), known.size()))) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string HelpText(const ConfigSpec& spec) {
  std::string out;
  AppendWrapped(spec.summary, 0, &out);
  absl::StrAppend(&out, "\nUsage: ", spec.usage.empty() ? absl::StrCat(spec.program, " [flags]") : spec.usage, "\n");
  if (!spec.examples.empty()) absl::StrAppend(&out, "\nExamples:\n", absl::StripTrailingAsciiWhitespace(spec.examples), "\n");
  for (const ConfigGroup& group : spec.groups) {
    absl::StrAppend(&out, "\n", group.title, ":\n");
    for (const std::string& name : group.flags) {
      const absl::CommandLineFlag* flag = absl::FindCommandLineFlag(name);
      BATON_CHECK(flag != nullptr) << spec.program << " lists '" << name << "', for which there is no ABSL_FLAG";
      const bool required = std::find(spec.required.begin(), spec.required.end(), name) != spec.required.end();
      const std::string fallback = flag->DefaultValue();
      const auto& hidden = spec.not_from_environment;
      const bool from_environment = std::find(hidden.begin(), hidden.end(), name) == hidden.end();
      const std::string note =
          absl::StrCat("[", required ? "needed" : absl::StrCat("default ", fallback.empty() ? "none" : fallback),
                       from_environment ? absl::StrCat("; ", config_internal::EnvironmentName(name)) : "", "]");
      const bool is_bool = flag->IsOfType<bool>();
      AppendFlag(absl::StrCat(config_internal::ShownName(name), is_bool ? "" : " VALUE"), flag->Help(), note, &out);
    }
  }
  absl::StrAppend(&out, "\nGeneral:\n");
  AppendFlag("config FILE", "YAML file with lines 'name: value', names as above. A flag wins over the environment, the "
             "environment over the file.", "[default none; BATON_CONFIG]", &out);
  AppendFlag("help", "This text.", "", &out);
  AppendFlag("version", "Release and build.", "", &out);
  return out;
}

}  // namespace baton
