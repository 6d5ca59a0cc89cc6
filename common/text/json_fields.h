// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_TEXT_JSON_FIELDS_H_
#define BATON_COMMON_TEXT_JSON_FIELDS_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace baton {

// Typed access to members of a JSON object from a file. An absent or null member is `fallback`; a member of another
// type is INVALID_ARGUMENT naming `key`.name.
absl::StatusOr<bool> BoolField(const nlohmann::json& object, absl::string_view name, bool fallback,
                               absl::string_view key);
absl::StatusOr<std::string> StringField(const nlohmann::json& object, absl::string_view name,
                                        absl::string_view fallback, absl::string_view key);
absl::StatusOr<int64_t> IntField(const nlohmann::json& object, absl::string_view name, int64_t fallback,
                                 absl::string_view key);

// The "type" of one step of a tokenizer file's pipeline. INVALID_ARGUMENT unless `step` is an object with a string
// there.
absl::StatusOr<std::string> StepType(const nlohmann::json& step, absl::string_view key);

}  // namespace baton

#endif  // BATON_COMMON_TEXT_JSON_FIELDS_H_
