// SPDX-License-Identifier: Apache-2.0
#include "common/grammar/schema_merge.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

using Json = nlohmann::ordered_json;

// Cut between characters.
std::string Shortened(std::string text, size_t most) {
  if (text.size() <= most) return text;
  while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xC0) == 0x80) --most;
  text.resize(most);
  return text + "...";
}

Json Both(const Json& a, const Json& b) {
  if (a == b) return a;
  if (a == Json(true)) return b;
  if (b == Json(true)) return a;
  if (a == Json(false) || b == Json(false)) return false;
  return Json{{"allOf", Json::array({a, b})}};
}

const Json* Find(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it == object.end() ? nullptr : &*it;
}

// What `schema` says of the member `name`; null: nothing.
const Json* OfMember(const Json& schema, const std::string& name) {
  const Json* properties = Find(schema, "properties");
  if (properties != nullptr && properties->is_object() && properties->contains(name)) return &(*properties)[name];
  return Find(schema, "additionalProperties");
}

void MergeMembers(const Json& a, const Json& b, Json* merged) {
  Json properties = Json::object();
  for (const Json* side : {&a, &b}) {
    const Json* named = Find(*side, "properties");
    if (named == nullptr || !named->is_object()) continue;
    for (const auto& [name, schema] : named->items()) {
      if (properties.contains(name)) continue;
      const Json* of_a = OfMember(a, name);
      const Json* of_b = OfMember(b, name);
      properties[name] = of_a == nullptr ? *of_b : of_b == nullptr ? *of_a : Both(*of_a, *of_b);
    }
  }
  if (!properties.empty()) (*merged)["properties"] = std::move(properties);
  const Json* extra_a = Find(a, "additionalProperties");
  const Json* extra_b = Find(b, "additionalProperties");
  if (extra_a == nullptr && extra_b == nullptr) return;
  (*merged)["additionalProperties"] = extra_a == nullptr ? *extra_b : extra_b == nullptr ? *extra_a : Both(*extra_a, *extra_b);
}

// What `schema` says of the item at `place`; null: nothing. "items" is about what comes after the part's own "prefixItems".
const Json* OfItem(const Json& schema, size_t place) {
  const Json* prefix = Find(schema, "prefixItems");
  if (prefix != nullptr && place < prefix->size()) return &(*prefix)[place];
  return Find(schema, "items");
}

absl::Status MergeItems(const Json& a, const Json& b, Json* merged) {
  size_t size = 0;
  for (const Json* side : {&a, &b}) {
    const Json* items = Find(*side, "items");
    const Json* prefix = Find(*side, "prefixItems");
    if (items != nullptr && !items->is_object() && !items->is_boolean()) {
      return absl::InvalidArgumentError("\"items\" that is no schema is not supported where schemas are brought together");
    }
    if (prefix != nullptr && !prefix->is_array()) return absl::InvalidArgumentError("\"prefixItems\" is no array");
    if (prefix != nullptr) size = std::max(size, prefix->size());
  }
  const auto both = [](const Json* of_a, const Json* of_b) {
    if (of_a != nullptr && of_b != nullptr) return Both(*of_a, *of_b);
    return of_a != nullptr ? *of_a : of_b != nullptr ? *of_b : Json(true);
  };
  Json prefix = Json::array();
  for (size_t i = 0; i < size; ++i) prefix.push_back(both(OfItem(a, i), OfItem(b, i)));
  if (size > 0) (*merged)["prefixItems"] = std::move(prefix);
  const Json *items_a = Find(a, "items"), *items_b = Find(b, "items");
  if (items_a != nullptr || items_b != nullptr) (*merged)["items"] = both(items_a, items_b);
  return absl::OkStatus();
}

// "additionalProperties" is about the keys that its own part's "properties" and "patternProperties" leave over. No one schema
// says that of two parts with different patterns.
absl::Status CheckPatternsMerge(const Json& a, const Json& b) {
  const auto same = [&](const char* key) {
    const Json *of_a = Find(a, key), *of_b = Find(b, key);
    return of_a == nullptr ? of_b == nullptr : of_b != nullptr && *of_a == *of_b;
  };
  if (same("patternProperties") && same("properties") && same("additionalProperties")) return absl::OkStatus();
  for (const auto& [one, other] : {std::pair(&a, &b), std::pair(&b, &a)}) {
    if (!one->contains("patternProperties")) continue;
    for (const char* key : {"additionalProperties", "properties", "patternProperties"}) {
      if (other->contains(key)) {
        return absl::InvalidArgumentError(absl::StrCat("\"patternProperties\" and the \"", key,
                                                       "\" of another schema (of \"allOf\", \"anyOf\" or \"$ref\") for one thing are not supported"));
      }
    }
  }
  return absl::OkStatus();
}

Json Intersection(const Json& a, const Json& b) {
  Json result = Json::array();
  for (const Json& value : a) {
    if (std::ranges::find(b, value) != b.end() && std::ranges::find(result, value) == result.end()) result.push_back(value);
  }
  return result;
}

Json MergeTypes(const Json& a, const Json& b) {
  const std::vector<std::string> left = TypesOf({{"type", a}}), right = TypesOf({{"type", b}});
  const auto has = [](const std::vector<std::string>& types, const char* type) { return std::ranges::count(types, type) > 0; };
  Json result = Json::array();
  for (const std::string& type : left) {
    if (has(right, type.c_str())) {
      result.push_back(type);
    } else if ((type == "integer" && has(right, "number")) || (type == "number" && has(right, "integer"))) {
      result.push_back("integer");
    }
  }
  return result;
}

Json ValuesOf(const Json& schema) { return schema.contains("const") ? Json::array({schema["const"]}) : schema["enum"]; }
bool HasValues(const Json& schema) { return schema.contains("const") || schema.contains("enum"); }

absl::Status MergeKeyword(const std::string& key, const Json& a, const Json& b, Json* merged) {
  Json& result = (*merged)[key];
  if (a == b || IsAnnotation(key)) {
    result = a;
  } else if (key == "type") {
    result = MergeTypes(a, b);
  } else if (key == "required" && a.is_array() && b.is_array()) {
    result = a;
    for (const Json& name : b) {
      if (std::ranges::find(result, name) == result.end()) result.push_back(name);
    }
  } else if (key == "anyOf") {
    Json alternatives = Json::array();
    for (const Json& one : a) alternatives.push_back(Json{{"allOf", Json::array({one, Json{{"anyOf", b}}})}});
    result = std::move(alternatives);
  } else if (a.is_number() && b.is_number() && key != "multipleOf") {
    const bool low = key.rfind("min", 0) == 0 || key == "exclusiveMinimum";
    const bool b_is_larger = a.get<double>() < b.get<double>();
    result = b_is_larger == low ? b : a;
  } else {
    return absl::InvalidArgumentError(absl::StrCat("two different values of \"", key, "\" for one thing are not supported"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status SchemaError(absl::string_view path, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(Shortened(std::string(path), 400), ": ", what));
}

std::string Quoted(const Json& value) { return Shortened(DumpJson(value), 200); }

bool IsAnnotation(const std::string& keyword) {
  static const auto* const names = new std::set<std::string>{
      "title",       "description", "default",         "examples",         "example",          "deprecated",
      "readOnly",    "writeOnly",   "$comment",        "$schema",          "$id",              "id",
      "$defs",       "definitions", "$anchor",         "contentMediaType", "contentEncoding",  "contentSchema",
      "$vocabulary", "nullable",    "discriminator",   "externalDocs",     "xml",              "strict"};
  return names->count(keyword) > 0 || keyword.rfind("x-", 0) == 0;
}

bool Restricts(const Json& schema) {
  if (!schema.is_object()) return schema != Json(true);
  return std::ranges::any_of(schema.items(), [](const auto& item) { return !IsAnnotation(item.key()); });
}

std::vector<std::string> TypesOf(const Json& schema) {
  const Json* type = Find(schema, "type");
  if (type == nullptr) return {"object", "array", "string", "number", "boolean", "null"};
  std::vector<std::string> types;
  if (type->is_string()) types.push_back(type->get<std::string>());
  if (type->is_array()) {
    for (const Json& one : *type) {
      if (one.is_string() && std::ranges::count(types, one.get<std::string>()) == 0) types.push_back(one.get<std::string>());
    }
  }
  if (std::ranges::count(types, "number") > 0) std::erase(types, "integer");
  return types;
}

absl::StatusOr<Json> MergeSchemas(const Json& a, const Json& b) {
  BATON_RETURN_IF_ERROR(CheckPatternsMerge(a, b));
  const auto apart = [](const std::string& key) {
    return key == "properties" || key == "additionalProperties" || key == "items" || key == "prefixItems";
  };
  Json merged = Json::object();
  for (const auto& [key, value] : a.items()) {
    if (apart(key)) continue;
    const Json* other = Find(b, key.c_str());
    if (other == nullptr) {
      merged[key] = value;
    } else {
      BATON_RETURN_IF_ERROR(MergeKeyword(key, value, *other, &merged));
    }
  }
  for (const auto& [key, value] : b.items()) {
    if (!apart(key) && !a.contains(key)) merged[key] = value;
  }
  if (HasValues(a) && HasValues(b)) {
    const Json values_a = ValuesOf(a), values_b = ValuesOf(b);
    if (!values_a.is_array() || !values_b.is_array()) return absl::InvalidArgumentError("\"enum\" is no array");
    merged.erase("const");
    merged["enum"] = Intersection(values_a, values_b);
  }
  BATON_RETURN_IF_ERROR(MergeItems(a, b, &merged));
  MergeMembers(a, b, &merged);
  return merged;
}

}  // namespace baton
