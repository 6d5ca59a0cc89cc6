// SPDX-License-Identifier: Apache-2.0
#include "deploy/cli/command.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/json.h"

namespace baton::cli {

int Fail(absl::string_view command, const absl::Status& status, bool json, int exit_code) {
  const std::string text = absl::StrCat("baton ", command, ": ", status.message(), "\n");
  std::fputs(text.c_str(), stderr);
  if (json) {
    nlohmann::ordered_json error = {{"code", CodeName(status.code())}, {"message", std::string(status.message())}};
    if (const auto retry_after = status.GetPayload("retry-after-ms")) {
      int64_t ms = 0;
      if (absl::SimpleAtoi(std::string(*retry_after), &ms)) error["retry_after_ms"] = ms;
    }
    Print(DumpJson(nlohmann::ordered_json{{"error", error}}) + "\n");
  }
  return exit_code;
}

std::string CodeName(absl::StatusCode code) {
  return code == absl::StatusCode::kOk ? "OK" : absl::StatusCodeToString(code);
}

bool Print(absl::string_view text) {
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
}

absl::StatusOr<std::string> ReadStandardInput() {
  constexpr size_t kMaxBytes = 64 << 20;
  std::string text;
  char buffer[1 << 16];
  while (const size_t count = std::fread(buffer, 1, sizeof buffer, stdin)) {
    text.append(buffer, count);
    if (text.size() > kMaxBytes) return absl::ResourceExhaustedError("standard input is over 64 MiB");
  }
  return text;
}

absl::StatusOr<std::vector<int>> ParseIntList(absl::string_view flag, absl::string_view text) {
  absl::string_view items = absl::StripAsciiWhitespace(text);
  if (absl::ConsumePrefix(&items, "[") && !absl::ConsumeSuffix(&items, "]")) {
    return absl::InvalidArgumentError(absl::StrCat(flag, ": '[' without ']'"));
  }
  std::vector<int> values;
  if (absl::StripAsciiWhitespace(items).empty()) return values;
  for (absl::string_view item : absl::StrSplit(items, ',')) {
    int value = 0;
    if (!absl::SimpleAtoi(item, &value)) {
      return absl::InvalidArgumentError(
          absl::StrCat(flag, ": item ", values.size(), " is '", item, "', expected integers like 1,2,3"));
    }
    values.push_back(value);
  }
  return values;
}

double ShortestDouble(float value) {
  if (!std::isfinite(value)) return value;
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer - 1, value).ptr;
  *end = '\0';
  return std::strtod(buffer, nullptr);
}

}  // namespace baton::cli
