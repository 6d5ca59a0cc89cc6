// SPDX-License-Identifier: Apache-2.0
#include <iostream>
#include <string>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/text/text_bundle.h"
#include "deploy/cli/command.h"
#include "deploy/cli/flags.h"

namespace baton::cli {
namespace {

absl::StatusOr<std::string> TextOfLine(const std::string& line) {
  BATON_ASSIGN_OR_RETURN(const nlohmann::json object, ParseJson(line));
  if (!object.is_object() || !object.contains("text") || !object["text"].is_string()) {
    return absl::InvalidArgumentError("expected an object with a text 'text'");
  }
  return object["text"].get<std::string>();
}

absl::StatusOr<std::string> TokenizeLine(const Tokenizer& tokenizer, const std::string& line, bool json) {
  std::string text = line;
  if (json) {
    BATON_ASSIGN_OR_RETURN(text, TextOfLine(line));
  }
  BATON_ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                         tokenizer.Encode(text, {.add_special = absl::GetFlag(FLAGS_add_special)}));
  if (!json) return absl::StrJoin(ids, " ");
  return DumpJson(nlohmann::ordered_json{{"ids", ids}, {"decoded", tokenizer.Decode(ids, /*keep_special=*/true)}});
}

int RunTokenize(const ConfigResult&) {
  const bool json = absl::GetFlag(FLAGS_json);
  const auto bundle = LoadTextBundle(absl::GetFlag(FLAGS_tokenizer));
  if (!bundle.ok()) return Fail("tokenize", bundle.status(), json);
  int exit_code = kExitOk;
  for (std::string line; std::getline(std::cin, line);) {
    if (json && line.empty()) continue;
    const auto result = TokenizeLine(*bundle->tokenizer, line, json);
    // One line out for each line in, also for one that is wrong.
    const std::string out =
        result.ok() ? *result
        : json      ? DumpJson(nlohmann::ordered_json{{"error", std::string(result.status().message())},
                                                      {"code", CodeName(result.status().code())}})
                    : std::string();
    if (!result.ok() && !json) exit_code = Fail("tokenize", result.status(), false);
    if (!Print(out + "\n")) return kExitFailure;
  }
  return exit_code;
}

}  // namespace

Command TokenizeCommand() {
  return {
      .name = "tokenize",
      .summary = "turn text into token ids, line by line",
      .spec = {.summary = "Reads lines from standard input and writes one line for each: token ids. With --json the input is "
                          "{\"text\"}, the output {\"ids\", \"decoded\"} or {\"error\"}; special tokens stay in the decoded text.",
               .examples = "  echo 'Hello world' | baton tokenize --tokenizer model.gguf\n"
                           "  echo '{\"text\":\"Hello\\nworld\"}' | baton tokenize --tokenizer folder/ --add-special --json\n",
               .groups = {{"Text", {"tokenizer", "add_special"}}, {"Output", {"json"}}},
               .required = {"tokenizer"}},
      .run = RunTokenize,
  };
}

}  // namespace baton::cli
