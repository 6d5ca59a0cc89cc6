// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_GRAMMAR_JSON_SCHEMA_H_
#define BATON_COMMON_GRAMMAR_JSON_SCHEMA_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/grammar/program.h"

namespace baton {

inline constexpr size_t kMaxSchemaBytes = 256 * 1024;
inline constexpr int kMaxSchemas = 20000;  // Of one compilation: subschemas, counted as often as they are used.

// The JSON texts that are valid under a schema (draft 2020-12, or 7), or rather enough of them: members come in the order of
// `properties`, whitespace is bounded, and where README.md says so a schema is taken more narrowly. Never a text that is not
// valid. `lenient`: a keyword that is not supported is left out instead of refused.
//   INVALID_ARGUMENT  not JSON, not a schema, a keyword or combination that is not supported, nothing can be valid, or over a
//                     bound; the message begins with the JSON pointer of the place, "#/properties/a: ...".
absl::StatusOr<Program> CompileJsonSchema(absl::string_view schema, bool lenient = false);

// Any JSON object.
Program AnyJsonObject();

}  // namespace baton

#endif  // BATON_COMMON_GRAMMAR_JSON_SCHEMA_H_
