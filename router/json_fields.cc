// SPDX-License-Identifier: Apache-2.0
#include "router/json_fields.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "router/status_details.h"

namespace baton {
namespace {

constexpr size_t kIndexed = 16;

}  // namespace

const Json* JsonFields::Find(absl::string_view name) {
  known_.emplace(name);
  if (object_.is_object() && object_.size() > kIndexed) {
    if (index_.empty()) {
      for (const auto& [key, value] : object_.get_ref<const Json::object_t&>()) index_.try_emplace(key, &value);
    }
    const auto found = index_.find(name);
    return found == index_.end() || found->second->is_null() ? nullptr : found->second;
  }
  auto it = object_.find(std::string(name));
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

absl::StatusOr<std::optional<double>> JsonFields::GetDouble(absl::string_view name) {
  const Json* value = Find(name);
  if (value == nullptr) return std::optional<double>();
  if (!value->is_number()) return InvalidField(name, absl::StrCat("is ", DescribeJson(*value), ", should be a number"));
  return std::optional<double>(value->get<double>());
}

absl::StatusOr<std::optional<int64_t>> JsonFields::GetInt(absl::string_view name, int64_t low, int64_t high) {
  const Json* value = Find(name);
  if (value == nullptr) return std::optional<int64_t>();
  if (!value->is_number()) return InvalidField(name, absl::StrCat("is ", DescribeJson(*value), ", should be an integer"));
  const std::optional<int64_t> number = ToWholeNumber(*value);
  if (!number || *number < low || *number > high) {
    return InvalidField(name, absl::StrCat(value->dump(), " is not an integer in [", low, ", ", high, "]"));
  }
  return number;
}

absl::StatusOr<std::optional<bool>> JsonFields::GetBool(absl::string_view name) {
  const Json* value = Find(name);
  if (value == nullptr) return std::optional<bool>();
  if (!value->is_boolean()) return InvalidField(name, absl::StrCat("is ", DescribeJson(*value), ", should be true or false"));
  return std::optional<bool>(value->get<bool>());
}

absl::StatusOr<std::optional<std::string>> JsonFields::GetString(absl::string_view name) {
  const Json* value = Find(name);
  if (value == nullptr) return std::optional<std::string>();
  if (!value->is_string()) return InvalidField(name, absl::StrCat("is ", DescribeJson(*value), ", should be a string"));
  return std::optional<std::string>(value->get<std::string>());
}

int JsonFields::CountUnknown() const {
  int unknown = 0;
  for (const auto& [name, value] : object_.items()) unknown += !known_.contains(name);
  return unknown;
}

std::string DescribeJson(const Json& value) {
  if (value.is_number()) return absl::StrCat("the number ", value.dump());
  if (value.is_boolean()) return value.get<bool>() ? "true" : "false";
  if (value.is_string()) return "a string";
  if (value.is_array()) return "an array";
  if (value.is_object()) return "an object";
  return "null";
}

std::optional<int64_t> ToWholeNumber(const Json& value) {
  if (value.is_number_unsigned()) {
    const uint64_t number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const double number = value.get<double>();
  constexpr double kExact = 9007199254740992.0;  // 2^53
  if (std::floor(number) != number || number > kExact || number < -kExact) return std::nullopt;
  return static_cast<int64_t>(number);
}

}  // namespace baton
