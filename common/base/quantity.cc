// SPDX-License-Identifier: Apache-2.0
#include "common/base/quantity.h"

#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace baton {
namespace {

struct Unit {
  absl::string_view name;  // Lower case.
  double bytes;
};
constexpr double kKi = 1024;
constexpr Unit kUnits[] = {{"", 1},          {"b", 1},          {"k", kKi},
                           {"kib", kKi},     {"kb", 1e3},       {"m", kKi * kKi},
                           {"mib", kKi * kKi}, {"mb", 1e6},     {"g", kKi * kKi * kKi},
                           {"gib", kKi * kKi * kKi}, {"gb", 1e9}, {"t", kKi * kKi * kKi * kKi},
                           {"tib", kKi * kKi * kKi * kKi}, {"tb", 1e12}};
constexpr double kMaxBytes = 0x1p62;

}  // namespace

absl::StatusOr<int64_t> ParseBytes(absl::string_view text) {
  const absl::string_view trimmed = absl::StripAsciiWhitespace(text);
  size_t digits = 0;
  while (digits < trimmed.size() && (absl::ascii_isdigit(trimmed[digits]) || trimmed[digits] == '.')) ++digits;
  double number = 0;
  if (digits == 0 || !absl::SimpleAtod(trimmed.substr(0, digits), &number)) {
    return absl::InvalidArgumentError("expected a size like 512MiB, 2G or 4096");
  }
  const std::string unit = absl::AsciiStrToLower(absl::StripAsciiWhitespace(trimmed.substr(digits)));
  for (const Unit& candidate : kUnits) {
    if (candidate.name != unit) continue;
    const double bytes = number * candidate.bytes;
    if (!(bytes <= kMaxBytes)) return absl::InvalidArgumentError("size over 4 EiB");
    return static_cast<int64_t>(std::floor(bytes));
  }
  return absl::InvalidArgumentError(absl::StrCat("unknown unit '", unit, "'; known: B, K, M, G, T, KiB ... TiB, KB ... TB"));
}

std::string FormatBytes(int64_t bytes) {
  static constexpr absl::string_view kNames[] = {"TiB", "GiB", "MiB", "KiB"};
  int shift = 40;
  for (absl::string_view name : kNames) {
    if (bytes != 0 && bytes % (int64_t{1} << shift) == 0) return absl::StrCat(bytes >> shift, name);
    shift -= 10;
  }
  return absl::StrCat(bytes, "B");
}

bool AbslParseFlag(absl::string_view text, ByteSize* size, std::string* error) {
  absl::StatusOr<int64_t> bytes = ParseBytes(text);
  if (!bytes.ok()) {
    *error = std::string(bytes.status().message());
    return false;
  }
  size->bytes = *bytes;
  return true;
}

std::string AbslUnparseFlag(const ByteSize& size) { return FormatBytes(size.bytes); }

bool AbslParseFlag(absl::string_view text, AutoByteSize* size, std::string* error) {
  if (absl::AsciiStrToLower(absl::StripAsciiWhitespace(text)) == "auto") {
    size->bytes = std::nullopt;
    return true;
  }
  ByteSize fixed;
  if (!AbslParseFlag(text, &fixed, error)) {
    absl::StrAppend(error, ", or auto");
    return false;
  }
  size->bytes = fixed.bytes;
  return true;
}

std::string AbslUnparseFlag(const AutoByteSize& size) { return size.bytes ? FormatBytes(*size.bytes) : "auto"; }

}  // namespace baton
