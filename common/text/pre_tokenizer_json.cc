// SPDX-License-Identifier: Apache-2.0
// The "pre_tokenizer" of a tokenizer.json as steps.
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/text/json_fields.h"
#include "common/text/pre_tokenizer.h"
#include "common/text/unicode.h"

namespace baton {
namespace {

using nlohmann::json;
using Behavior = PreTokenizer::Behavior;
using Step = PreTokenizer::Step;

// Sequences in sequences; real files have one level.
constexpr int kMaxNesting = 8;

absl::StatusOr<Behavior> ParseBehavior(const json& value, absl::string_view fallback, const std::string& key) {
  BATON_ASSIGN_OR_RETURN(const std::string name, StringField(value, "behavior", fallback, key));
  static constexpr std::pair<absl::string_view, Behavior> kBehaviors[] = {
      {"Removed", Behavior::kRemoved},
      {"Isolated", Behavior::kIsolated},
      {"MergedWithPrevious", Behavior::kMergedWithPrevious},
      {"MergedWithNext", Behavior::kMergedWithNext},
      {"Contiguous", Behavior::kContiguous},
  };
  for (const auto& [known, behavior] : kBehaviors) {
    if (name == known) return behavior;
  }
  return absl::InvalidArgumentError(absl::StrCat(key, ".behavior: unknown behavior '", name, "'"));
}

absl::Status AppendRegexSplit(absl::string_view regex, Behavior behavior, bool invert, std::vector<Step>* steps) {
  BATON_ASSIGN_OR_RETURN(Pattern pattern, Pattern::FromRegex(regex));
  steps->push_back(PreTokenizer::Split{std::move(pattern), behavior, invert});
  return absl::OkStatus();
}

absl::Status AppendSplit(const json& value, const std::string& key, std::vector<Step>* steps) {
  BATON_ASSIGN_OR_RETURN(Pattern pattern,
                         Pattern::FromJson(value.value("pattern", json()), absl::StrCat(key, ".pattern")));
  BATON_ASSIGN_OR_RETURN(const Behavior behavior, ParseBehavior(value, "", key));
  BATON_ASSIGN_OR_RETURN(const bool invert, BoolField(value, "invert", false, key));
  steps->push_back(PreTokenizer::Split{std::move(pattern), behavior, invert});
  return absl::OkStatus();
}

absl::Status AppendByteLevel(const json& value, const std::string& key, std::vector<Step>* steps) {
  BATON_ASSIGN_OR_RETURN(const bool prefix, BoolField(value, "add_prefix_space", true, key));
  BATON_ASSIGN_OR_RETURN(const bool use_regex, BoolField(value, "use_regex", true, key));
  if (prefix) steps->push_back(PreTokenizer::SpacePrefix{});
  if (use_regex) BATON_RETURN_IF_ERROR(AppendRegexSplit(kGpt2WordPattern, Behavior::kIsolated, false, steps));
  steps->push_back(PreTokenizer::ByteAlphabet{});
  return absl::OkStatus();
}

absl::Status AppendMetaspace(const json& value, const std::string& key, std::vector<Step>* steps) {
  using Prepend = PreTokenizer::Metaspace::Prepend;
  PreTokenizer::Metaspace step;
  BATON_ASSIGN_OR_RETURN(step.replacement, StringField(value, "replacement", step.replacement, key));
  BATON_ASSIGN_OR_RETURN(step.split, BoolField(value, "split", true, key));
  // Older files have add_prefix_space instead of prepend_scheme.
  BATON_ASSIGN_OR_RETURN(const bool prefix, BoolField(value, "add_prefix_space", true, key));
  BATON_ASSIGN_OR_RETURN(const std::string scheme,
                         StringField(value, "prepend_scheme", prefix ? "always" : "never", key));
  if (scheme == "always") {
    step.prepend = Prepend::kAlways;
  } else if (scheme == "first") {
    step.prepend = Prepend::kFirst;
  } else if (scheme == "never") {
    step.prepend = Prepend::kNever;
  } else {
    return absl::InvalidArgumentError(absl::StrCat(key, ".prepend_scheme: unknown scheme '", scheme, "'"));
  }
  steps->push_back(std::move(step));
  return absl::OkStatus();
}

absl::Status AppendSteps(const json& value, const std::string& key, int depth, std::vector<Step>* steps) {
  if (value.is_null()) return absl::OkStatus();
  BATON_ASSIGN_OR_RETURN(const std::string type, StepType(value, key));
  if (type == "Sequence") {
    const auto list = value.find("pretokenizers");
    if (list == value.end() || !list->is_array()) {
      return absl::InvalidArgumentError(absl::StrCat(key, ".pretokenizers: needs a list"));
    }
    if (depth >= kMaxNesting)
      return absl::InvalidArgumentError(absl::StrCat(key, ": nested deeper than ", kMaxNesting));
    for (size_t i = 0; i < list->size(); ++i) {
      BATON_RETURN_IF_ERROR(AppendSteps((*list)[i], absl::StrCat(key, ".pretokenizers[", i, "]"), depth + 1, steps));
    }
    return absl::OkStatus();
  }
  if (type == "Split") return AppendSplit(value, key, steps);
  if (type == "ByteLevel") return AppendByteLevel(value, key, steps);
  if (type == "Metaspace") return AppendMetaspace(value, key, steps);
  if (type == "Digits") {
    BATON_ASSIGN_OR_RETURN(const bool individual, BoolField(value, "individual_digits", false, key));
    return AppendRegexSplit(R"(\p{N})", individual ? Behavior::kIsolated : Behavior::kContiguous, false, steps);
  }
  if (type == "Punctuation") {
    BATON_ASSIGN_OR_RETURN(const Behavior behavior, ParseBehavior(value, "Isolated", key));
    return AppendRegexSplit(R"([\p{P}!-/:-@\[-`{-~])", behavior, false, steps);
  }
  if (type == "Whitespace") {
    return AppendRegexSplit(R"([\w\x{200C}\x{200D}]+|[^\w\x{200C}\x{200D}\s]+)", Behavior::kRemoved, true, steps);
  }
  if (type == "WhitespaceSplit") return AppendRegexSplit(R"(\s)", Behavior::kRemoved, false, steps);
  if (type == "CharDelimiterSplit") {
    BATON_ASSIGN_OR_RETURN(std::string delimiter, StringField(value, "delimiter", "", key));
    steps->push_back(PreTokenizer::Split{Pattern::Literal(std::move(delimiter)), Behavior::kRemoved, false});
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(key, ": unknown pre-tokenizer type '", type, "'"));
}

}  // namespace

absl::StatusOr<PreTokenizer> PreTokenizer::FromJson(const json& value) {
  std::vector<Step> steps;
  BATON_RETURN_IF_ERROR(AppendSteps(value, "pre_tokenizer", 0, &steps));
  return PreTokenizer(std::move(steps));
}

}  // namespace baton
