// SPDX-License-Identifier: Apache-2.0
#include "common/grammar/schema_compiler.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/grammar/grammar.h"
#include "common/grammar/json_schema.h"
#include "common/grammar/schema_merge.h"

namespace baton {
namespace {

using Json = SchemaCompiler::Json;

constexpr int kMaxNesting = 100;   // Of schemas within schemas, references followed.
constexpr int kMaxEnumValues = 5000;
constexpr int kMaxCopies = 100'000;  // JSON values copied to merge schemas: 0.1 s of it.

// Of which type a keyword says something; of no other.
const std::map<std::string, std::string>& KeywordTypes() {
  static const auto* const types = new std::map<std::string, std::string>{
      {"properties", "object"}, {"required", "object"},         {"additionalProperties", "object"}, {"patternProperties", "object"},
      {"minProperties", "object"}, {"maxProperties", "object"}, {"items", "array"},                 {"prefixItems", "array"},
      {"minItems", "array"},    {"maxItems", "array"},          {"uniqueItems", "array"},           {"minLength", "string"},
      {"maxLength", "string"},  {"pattern", "string"},          {"format", "string"},               {"minimum", "number"},
      {"maximum", "number"},    {"exclusiveMinimum", "number"}, {"exclusiveMaximum", "number"},     {"multipleOf", "number"}};
  return *types;
}

// Of a schema without "type".
std::vector<std::string> MeantTypes(const Json& schema) {
  std::set<std::string> meant;
  for (const auto& [key, value] : schema.items()) {
    const auto it = KeywordTypes().find(key);
    if (it != KeywordTypes().end()) meant.insert(it->second);
  }
  return {meant.begin(), meant.end()};
}

int NumValues(const Json& json) {
  int count = 1;
  if (json.is_structured()) {
    for (const Json& part : json) count += NumValues(part);
  }
  return count;
}

bool IsOfType(const Json& value, const std::string& type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  if (type == "number") return value.is_number();
  return value.is_number_integer() || (value.is_number_float() && std::floor(value.get<double>()) == value.get<double>());
}

}  // namespace

absl::StatusOr<Program> CompileJsonSchema(absl::string_view schema, bool lenient) {
  if (schema.size() > kMaxSchemaBytes) {
    return SchemaError("#", absl::StrCat("the schema has ", schema.size(), " bytes, at most ", kMaxSchemaBytes, " are taken"));
  }
  const absl::StatusOr<Json> json = ParseOrderedJson(schema);
  if (!json.ok()) return SchemaError("#", json.status().message());
  return SchemaCompiler(*json, lenient).Compile();
}

absl::StatusOr<Program> SchemaCompiler::Compile() {
  const Rule root = builder_.NewRule();
  references_["#"] = root;
  BATON_RETURN_IF_ERROR(Write(root, root_, "#"));
  if (builder_.full()) {
    return SchemaError("#", absl::StrCat("the schema needs an automaton of more than ", ProgramBuilder::kMaxStates, " states or ",
                                   ProgramBuilder::kMaxLinks, " links"));
  }
  Program program = builder_.Build();
  if (!program.HasText()) {
    return SchemaError("#", absl::StrCat("nothing that is nested ", Program::kMaxDepth, " deep or less is valid under this schema"));
  }
  if (const absl::Status status = Grammar::CheckAlternatives(program); !status.ok()) return SchemaError("#", status.message());
  return program;
}

absl::Status SchemaCompiler::Unsupported(const std::string& path, absl::string_view what) const {
  if (lenient_) return absl::OkStatus();
  return SchemaError(path, absl::StrCat(what, " is not supported"));
}

absl::Status SchemaCompiler::Charge(const std::string& path) {
  if (++num_schemas_ > kMaxSchemas) return SchemaError(path, absl::StrCat("the schema has more than ", kMaxSchemas, " parts"));
  if (builder_.full()) return SchemaError(path, "the schema is too large here");
  return absl::OkStatus();
}

absl::Status SchemaCompiler::ChargeCopy(const Json& schema, const std::string& path) {
  num_copies_ += NumValues(schema);
  if (num_copies_ > kMaxCopies) return SchemaError(path, "\"allOf\", \"anyOf\" and \"$ref\" beside other keywords repeat too much here");
  return absl::OkStatus();
}

// Members and values are looked up one by one.
absl::Status SchemaCompiler::ChargeMerge(const Json& a, const Json& b, const std::string& path) {
  for (const char* key : {"properties", "required", "enum"}) {
    const auto of_a = a.find(key), of_b = b.find(key);
    const size_t size_a = of_a == a.end() ? 0 : of_a->size(), size_b = of_b == b.end() ? 0 : of_b->size(), size = size_a + size_b;
    if (!budget_.Take(absl::string_view(key) == "properties" ? size * size : size_a * size_b)) {
      return SchemaError(path, absl::StrCat("\"", key, "\" of ", size, " entries is too much to bring schemas together"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<SchemaCompiler::Rule> SchemaCompiler::NewRuleOf(const Json& schema, const std::string& path) {
  const Rule rule = builder_.NewRule();
  BATON_RETURN_IF_ERROR(Write(rule, schema, path));
  return rule;
}

absl::Status SchemaCompiler::Write(Rule rule, const Json& schema, const std::string& path) {
  BATON_RETURN_IF_ERROR(Charge(path));
  if (schema.is_boolean()) {
    if (schema.get<bool>()) builder_.Tail(builder_.Start(rule), AnyValue());
    return absl::OkStatus();  // False: a rule that never ends.
  }
  if (!schema.is_object()) return SchemaError(path, "a schema is an object, true or false");
  if (++depth_ > kMaxNesting) return SchemaError(path, absl::StrCat("schemas are nested deeper than ", kMaxNesting));
  const absl::Status status = WriteObjectForm(rule, schema, path);
  --depth_;
  return status;
}

absl::Status SchemaCompiler::WriteObjectForm(Rule rule, const Json& schema, const std::string& path) {
  BATON_RETURN_IF_ERROR(CheckKeywords(schema, path));
  if (schema.contains("$ref") || schema.contains("allOf") || schema.contains("oneOf")) {
    const bool only_reference = std::ranges::all_of(
        schema.items(), [](const auto& item) { return item.key() == "$ref" || IsAnnotation(item.key()); });
    if (only_reference) return WriteReference(rule, schema, path);
    BATON_ASSIGN_OR_RETURN(const Json flat, Flatten(schema, path, 0));
    if (flat.is_boolean()) return Write(rule, flat, path);
    BATON_RETURN_IF_ERROR(CheckKeywords(flat, path));
    return flat.contains("anyOf") ? WriteAlternatives(rule, flat, path) : WriteTypes(rule, flat, path);
  }
  if (schema.contains("anyOf")) return WriteAlternatives(rule, schema, path);
  return WriteTypes(rule, schema, path);
}

// A schema is written once however often it is referred to: references may go round.
absl::Status SchemaCompiler::WriteReference(Rule rule, const Json& schema, const std::string& path) {
  BATON_ASSIGN_OR_RETURN(const Json* const target, Resolve(schema["$ref"], path));
  const std::string name = schema["$ref"].get<std::string>();
  const auto [it, inserted] = references_.try_emplace(name, 0);
  if (inserted) {
    const Rule target_rule = builder_.NewRule();
    references_[name] = target_rule;
    BATON_RETURN_IF_ERROR(Write(target_rule, *target, name));
  }
  builder_.Tail(builder_.Start(rule), references_[name]);
  return absl::OkStatus();
}

absl::StatusOr<const Json*> SchemaCompiler::Resolve(const Json& ref, const std::string& path) const {
  if (!ref.is_string()) return SchemaError(path, "\"$ref\" is no string");
  const std::string& text = ref.get_ref<const std::string&>();
  if (text != "#" && !absl::StartsWith(text, "#/")) {
    return SchemaError(path, absl::StrCat("\"$ref\" ", Quoted(ref), " is not supported: only \"#\" and \"#/...\" are"));
  }
  const Json* at = &root_;
  if (text == "#") return at;
  for (const absl::string_view part : absl::StrSplit(absl::string_view(text).substr(2), '/')) {
    const std::string name = absl::StrReplaceAll(absl::StrReplaceAll(part, {{"~1", "/"}}), {{"~0", "~"}});
    size_t index = 0;
    if (at->is_object() && at->contains(name)) {
      at = &(*at)[name];
    } else if (at->is_array() && absl::SimpleAtoi(name, &index) && index < at->size()) {
      at = &(*at)[index];
    } else {
      return SchemaError(path, absl::StrCat("\"$ref\" ", Quoted(ref), " names nothing"));
    }
  }
  return at;
}

const Json* SchemaCompiler::Target(const Json& ref) const {
  const absl::StatusOr<const Json*> target = Resolve(ref, "");
  return target.ok() ? *target : nullptr;
}

// Those of oneOf, as they are in anyOf: of which no two have a value in common. What is meant by their keywords (WriteTypes)
// is said by their types, so that what they are merged with makes it no more.
absl::StatusOr<Json> SchemaCompiler::ExclusiveAlternatives(const Json& alternatives, const std::string& path) {
  if (lenient_ || !alternatives.is_array()) return alternatives;
  Json result = alternatives;
  for (Json& one : result) {
    if (!one.is_object()) continue;
    const bool plain = std::ranges::none_of(std::initializer_list<const char*>{"type", "enum", "const", "$ref", "allOf", "anyOf", "oneOf"},
                                            [&](const char* key) { return one.contains(key); });
    const std::vector<std::string> meant = plain ? MeantTypes(one) : std::vector<std::string>();
    if (!meant.empty()) one["type"] = meant;
  }
  for (size_t i = 0; i < result.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (disjoint_.AreDisjoint(result[j], result[i])) continue;
      return SchemaError(path, absl::StrCat("alternatives ", j, " and ", i, " of \"oneOf\" may have a value in common, which is not supported: "
                                            "let them differ in \"type\", \"const\", bounds or a required property, or use \"anyOf\""));
    }
  }
  return result;
}

absl::StatusOr<Json> SchemaCompiler::Flatten(const Json& schema, const std::string& path, int depth) {
  BATON_RETURN_IF_ERROR(Charge(path));
  if (schema.is_boolean()) return schema;
  if (!schema.is_object()) return SchemaError(path, "a schema is an object, true or false");
  if (depth > kMaxNesting) return SchemaError(path, "\"$ref\" and \"allOf\" lead round without an end, or too deep");
  BATON_RETURN_IF_ERROR(CheckKeywords(schema, path));
  BATON_RETURN_IF_ERROR(ChargeCopy(schema, path));
  std::vector<std::pair<Json, std::string>> parts;
  Json own = schema;
  if (schema.contains("$ref")) {
    BATON_ASSIGN_OR_RETURN(const Json* const target, Resolve(schema["$ref"], path));
    parts.emplace_back(*target, schema["$ref"].get<std::string>());
    own.erase("$ref");
  }
  if (schema.contains("allOf")) {
    if (!schema["allOf"].is_array()) return SchemaError(path, "\"allOf\" is no array");
    for (size_t i = 0; i < schema["allOf"].size(); ++i) {
      parts.emplace_back(schema["allOf"][i], absl::StrCat(path, "/allOf/", i));
    }
    own.erase("allOf");
  }
  if (schema.contains("oneOf")) {
    BATON_ASSIGN_OR_RETURN(Json alternatives, ExclusiveAlternatives(schema["oneOf"], path));
    if (schema.contains("anyOf")) {
      parts.emplace_back(Json{{"anyOf", std::move(alternatives)}}, path);
    } else {
      own["anyOf"] = std::move(alternatives);
    }
    own.erase("oneOf");
  }
  for (const auto& [part, where] : parts) {
    BATON_ASSIGN_OR_RETURN(const Json flat, Flatten(part, where, depth + 1));
    if (flat == Json(false)) return Json(false);
    if (!Restricts(flat)) continue;
    BATON_RETURN_IF_ERROR(ChargeCopy(own, path));
    BATON_RETURN_IF_ERROR(ChargeMerge(own, flat, path));
    const absl::StatusOr<Json> merged = MergeSchemas(own, flat);
    if (!merged.ok()) return SchemaError(path, merged.status().message());
    own = *merged;
  }
  return own;
}

absl::Status SchemaCompiler::WriteAlternatives(Rule rule, const Json& schema, const std::string& path) {
  const Json& alternatives = schema["anyOf"];
  if (!alternatives.is_array() || alternatives.empty()) return SchemaError(path, "\"anyOf\" or \"oneOf\" is no array, or empty");
  Json others = Json::object();
  for (const auto& [key, value] : schema.items()) {
    if (key != "anyOf" && key != "$defs" && key != "definitions") others[key] = value;
  }
  const bool merge = Restricts(others);
  for (size_t i = 0; i < alternatives.size(); ++i) {
    const std::string where = absl::StrCat(path, "/anyOf/", i);
    const Json& alternative = alternatives[i];
    if (merge) BATON_RETURN_IF_ERROR(ChargeCopy(others, where));
    BATON_ASSIGN_OR_RETURN(const Rule one,
                           merge ? NewRuleOf(Json{{"allOf", Json::array({others, alternative})}}, where) : NewRuleOf(alternative, where));
    builder_.Tail(builder_.Start(rule), one);
  }
  return absl::OkStatus();
}

absl::Status SchemaCompiler::CheckKeywords(const Json& schema, const std::string& path) const {
  for (const auto& [key, value] : schema.items()) {
    const bool known = IsAnnotation(key) || KeywordTypes().count(key) > 0 || key == "type" || key == "enum" || key == "const" ||
                       key == "anyOf" || key == "oneOf" || key == "allOf" || key == "$ref";
    if (!known) BATON_RETURN_IF_ERROR(Unsupported(path, Quoted(Json(key))));
  }
  return absl::OkStatus();
}

// The values themselves: of those that are of a type that is asked for.
absl::Status SchemaCompiler::WriteValues(Rule rule, const Json& schema, const std::string& path) {
  const Json values = schema.contains("const") ? Json::array({schema["const"]}) : schema["enum"];
  if (!values.is_array() || values.empty()) return SchemaError(path, "\"enum\" is no array, or empty");
  if (values.size() > kMaxEnumValues) {
    return SchemaError(path, absl::StrCat("\"enum\" has ", values.size(), " values, at most ", kMaxEnumValues, " are taken"));
  }
  if (schema.contains("const") && schema.contains("enum")) return SchemaError(path, "\"const\" beside \"enum\" is not supported");
  for (const auto& [key, value] : schema.items()) {
    if (KeywordTypes().count(key) > 0) BATON_RETURN_IF_ERROR(Unsupported(path, absl::StrCat("\"", key, "\" beside \"enum\" or \"const\"")));
  }
  std::vector<std::string> texts;
  const std::vector<std::string> types = TypesOf(schema);
  for (const Json& value : values) {
    if (std::ranges::any_of(types, [&](const std::string& type) { return IsOfType(value, type); })) texts.push_back(DumpJson(value));
  }
  const State end = builder_.NewState(rule);
  builder_.Return(end);
  builder_.Dfa(rule, builder_.Start(rule), OneOfTexts(texts), end);
  return absl::OkStatus();
}

// Without "type", keywords that say something of one type alone mean that type.
absl::Status SchemaCompiler::WriteTypes(Rule rule, const Json& schema, const std::string& path) {
  if (schema.contains("type") && !schema["type"].is_string() && !schema["type"].is_array()) {
    return SchemaError(path, "\"type\" is neither a string nor an array of strings");
  }
  if (schema.contains("enum") || schema.contains("const")) return WriteValues(rule, schema, path);
  std::vector<std::string> types = TypesOf(schema);
  if (!schema.contains("type")) {
    types = MeantTypes(schema);
    if (types.empty()) {
      builder_.Tail(builder_.Start(rule), AnyValue());
      return absl::OkStatus();
    }
  }
  for (const std::string& type : types) {
    const Rule one = builder_.NewRule();
    BATON_RETURN_IF_ERROR(WriteType(one, type, schema, path));
    builder_.Tail(builder_.Start(rule), one);
  }
  return absl::OkStatus();
}

absl::Status SchemaCompiler::WriteType(Rule rule, const std::string& type, const Json& schema, const std::string& path) {
  BATON_RETURN_IF_ERROR(Charge(path));
  if (type == "object") return WriteObject(rule, schema, path);
  if (type == "array") return WriteArray(rule, schema, path);
  if (type == "string") return WriteString(rule, schema, path);
  if (type == "number" || type == "integer") return WriteNumber(rule, type == "integer", schema, path);
  const State end = builder_.NewState(rule);
  builder_.Return(end);
  if (type == "null") {
    builder_.Go(builder_.Text(rule, builder_.Start(rule), "null"), end);
  } else if (type == "boolean") {
    for (const char* literal : {"true", "false"}) builder_.Go(builder_.Text(rule, builder_.Start(rule), literal), end);
  } else {
    return SchemaError(path, absl::StrCat("\"type\" ", Quoted(Json(type)), " is none of object, array, string, number, integer, boolean, null"));
  }
  return absl::OkStatus();
}

}  // namespace baton
