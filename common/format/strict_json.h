// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_FORMAT_STRICT_JSON_H_
#define BATON_COMMON_FORMAT_STRICT_JSON_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace baton {

// ParseJson (common/base/json.h) for the headers of model files, where a key that occurs twice in one object is a
// defect: two readers would see two different files.
//   INVALID_ARGUMENT  as ParseJson, or a duplicate key.
absl::StatusOr<nlohmann::json> ParseStrictJson(absl::string_view text, int max_depth = 64);

}  // namespace baton

#endif  // BATON_COMMON_FORMAT_STRICT_JSON_H_
