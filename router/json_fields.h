// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_ROUTER_JSON_FIELDS_H_
#define BATON_ROUTER_JSON_FIELDS_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace baton {

using Json = nlohmann::ordered_json;

// Reads the members of a JSON object that a client wrote; null is absent. Errors are INVALID_ARGUMENT with the field's name,
// what it is and what it should be. Remembers which members were asked for. One thread; `object` outlives this.
class JsonFields {
 public:
  explicit JsonFields(const Json& object) : object_(object) {}

  const Json* Find(absl::string_view name);
  absl::StatusOr<std::optional<double>> GetDouble(absl::string_view name);
  // Whole numbers, also written as 1e3 or 5.0.
  absl::StatusOr<std::optional<int64_t>> GetInt(absl::string_view name, int64_t low, int64_t high);
  absl::StatusOr<std::optional<bool>> GetBool(absl::string_view name);
  absl::StatusOr<std::optional<std::string>> GetString(absl::string_view name);

  // Known, and of no effect here.
  void Ignore(absl::string_view name) { known_.emplace(name); }
  int CountUnknown() const;

 private:
  const Json& object_;
  // Of an object with many members, made at the first question: Json's own look-up tries one after the other.
  absl::flat_hash_map<absl::string_view, const Json*> index_;
  std::set<std::string> known_;
};

// "a string", "the number 7", "an array": for messages; never a client's text.
std::string DescribeJson(const Json& value);
// The whole number that `value` is, if it is one that fits.
std::optional<int64_t> ToWholeNumber(const Json& value);

}  // namespace baton

#endif  // BATON_ROUTER_JSON_FIELDS_H_
