// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BASE_QUANTITY_H_
#define BATON_COMMON_BASE_QUANTITY_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace baton {

// "512MiB", "2G", "1.5 GB", "4096": a number and an optional unit, in bytes. K, M, G, T and KiB ... TiB are powers of 1024;
// KB ... TB powers of 1000. Case does not matter.
//   INVALID_ARGUMENT  no number, unknown unit, negative, or over 2^62.
absl::StatusOr<int64_t> ParseBytes(absl::string_view text);
// The shortest exact form: 536870912 -> "512MiB", 1000 -> "1000B".
std::string FormatBytes(int64_t bytes);

// A flag type: ABSL_FLAG(baton::ByteSize, kv_memory, ...). Durations are absl::Duration ("500ms", "2s").
struct ByteSize {
  int64_t bytes = 0;
};
bool AbslParseFlag(absl::string_view text, ByteSize* size, std::string* error);
std::string AbslUnparseFlag(const ByteSize& size);

// A flag type that also takes "auto": the program decides.
struct AutoByteSize {
  std::optional<int64_t> bytes;  // Nothing: auto.
};
bool AbslParseFlag(absl::string_view text, AutoByteSize* size, std::string* error);
std::string AbslUnparseFlag(const AutoByteSize& size);

}  // namespace baton

#endif  // BATON_COMMON_BASE_QUANTITY_H_
