// SPDX-License-Identifier: Apache-2.0
#include "common/text/json_fields.h"

#include "absl/strings/str_cat.h"

namespace baton {
namespace {

using nlohmann::json;

const json* Member(const json& object, absl::string_view name) {
  const auto it = object.find(std::string(name));
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

absl::Status TypeError(absl::string_view key, absl::string_view name, absl::string_view wanted, const json& found) {
  return absl::InvalidArgumentError(absl::StrCat(key, ".", name, ": needs ", wanted, ", is ", found.type_name()));
}

}  // namespace

absl::StatusOr<bool> BoolField(const json& object, absl::string_view name, bool fallback, absl::string_view key) {
  const json* member = Member(object, name);
  if (member == nullptr) return fallback;
  if (!member->is_boolean()) return TypeError(key, name, "a boolean", *member);
  return member->get<bool>();
}

absl::StatusOr<std::string> StringField(const json& object, absl::string_view name, absl::string_view fallback,
                                        absl::string_view key) {
  const json* member = Member(object, name);
  if (member == nullptr) return std::string(fallback);
  if (!member->is_string()) return TypeError(key, name, "a string", *member);
  return member->get<std::string>();
}

absl::StatusOr<int64_t> IntField(const json& object, absl::string_view name, int64_t fallback, absl::string_view key) {
  const json* member = Member(object, name);
  if (member == nullptr) return fallback;
  if (!member->is_number_integer()) return TypeError(key, name, "an integer", *member);
  if (member->is_number_unsigned() && member->get<uint64_t>() > INT64_MAX) {
    return absl::InvalidArgumentError(absl::StrCat(key, ".", name, ": over the range of 64-bit integers"));
  }
  return member->get<int64_t>();
}

absl::StatusOr<std::string> StepType(const json& step, absl::string_view key) {
  if (!step.is_object() || !step.contains("type") || !step["type"].is_string()) {
    return absl::InvalidArgumentError(absl::StrCat(key, ": needs an object with a \"type\""));
  }
  return step["type"].get<std::string>();
}

}  // namespace baton
