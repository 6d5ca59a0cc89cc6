// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_GRAMMAR_SCHEMA_MERGE_H_
#define BATON_COMMON_GRAMMAR_SCHEMA_MERGE_H_

#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace baton {

// INVALID_ARGUMENT: what is wrong at the place `path`; a long path is cut.
absl::Status SchemaError(absl::string_view path, absl::string_view what);
// JSON text for a message, cut after some 200 bytes.
std::string Quoted(const nlohmann::ordered_json& value);
// Keywords that restrict nothing: titles, descriptions, ...
bool IsAnnotation(const std::string& keyword);
// Whether a schema says more than annotations and definitions.
bool Restricts(const nlohmann::ordered_json& schema);
// The names of its types, all seven where it names none; "number" stands for "integer" as well.
std::vector<std::string> TypesOf(const nlohmann::ordered_json& schema);

// A schema of what both objects allow. Neither has $ref, allOf or oneOf. What has to hold for one thing twice is left as an
// allOf within.
//   INVALID_ARGUMENT  two values of one keyword cannot be made one; names it.
absl::StatusOr<nlohmann::ordered_json> MergeSchemas(const nlohmann::ordered_json& a, const nlohmann::ordered_json& b);

}  // namespace baton

#endif  // BATON_COMMON_GRAMMAR_SCHEMA_MERGE_H_
