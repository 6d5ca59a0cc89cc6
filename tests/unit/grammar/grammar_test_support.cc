// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/grammar/grammar_test_support.h"

#include <algorithm>
#include <cmath>
#include <regex>

#include "common/base/logging.h"
#include "common/grammar/json_schema.h"
#include "gtest/gtest.h"

namespace baton::testing {
namespace {

using Json = nlohmann::ordered_json;

bool HasType(const Json& value, const std::string& type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  if (type == "number") return value.is_number();
  return value.is_number_integer() || (value.is_number_float() && std::floor(value.get<double>()) == value.get<double>());
}

size_t NumCharacters(const std::string& text) {
  return std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

// Of valid UTF-8: a wchar_t is a character here, so that patterns are over characters.
std::wstring Wide(const std::string& text) {
  std::wstring wide;
  for (const char c : text) {
    const unsigned char byte = static_cast<unsigned char>(c);
    if ((byte & 0xC0) == 0x80) {
      wide.back() = static_cast<wchar_t>(wide.back() << 6 | (byte & 0x3F));
    } else {
      wide.push_back(static_cast<wchar_t>(byte < 0x80 ? byte : byte < 0xE0 ? byte & 0x1F : byte < 0xF0 ? byte & 0x0F : byte & 0x07));
    }
  }
  return wide;
}

bool Matches(const std::string& text, const std::string& pattern) { return std::regex_search(Wide(text), std::wregex(Wide(pattern))); }

bool NumberIsValid(const Json& schema, double x) {
  if (schema.contains("minimum") && x < schema["minimum"].get<double>()) return false;
  if (schema.contains("maximum") && x > schema["maximum"].get<double>()) return false;
  if (schema.contains("exclusiveMinimum") && x <= schema["exclusiveMinimum"].get<double>()) return false;
  if (schema.contains("exclusiveMaximum") && x >= schema["exclusiveMaximum"].get<double>()) return false;
  if (!schema.contains("multipleOf")) return true;
  const double quotient = x / schema["multipleOf"].get<double>();
  return std::abs(quotient - std::round(quotient)) <= 1e-9 * std::max(1.0, std::abs(quotient));
}

bool StringIsValid(const Json& schema, const std::string& text) {
  const size_t n = NumCharacters(text);
  if (schema.contains("minLength") && n < schema["minLength"].get<size_t>()) return false;
  if (schema.contains("maxLength") && n > schema["maxLength"].get<size_t>()) return false;
  return !schema.contains("pattern") || Matches(text, schema["pattern"].get<std::string>());
}

bool ArrayIsValid(const Json& schema, const Json& array, const Json& root) {
  if (schema.contains("minItems") && array.size() < schema["minItems"].get<size_t>()) return false;
  if (schema.contains("maxItems") && array.size() > schema["maxItems"].get<size_t>()) return false;
  const size_t prefix = schema.contains("prefixItems") ? schema["prefixItems"].size() : 0;
  for (size_t i = 0; i < array.size(); ++i) {
    if (i < prefix && !IsValid(schema["prefixItems"][i], array[i], root)) return false;
    if (i >= prefix && schema.contains("items") && !IsValid(schema["items"], array[i], root)) return false;
  }
  return true;
}

bool ObjectIsValid(const Json& schema, const Json& object, const Json& root) {
  if (schema.contains("required")) {
    for (const Json& name : schema["required"]) {
      if (!object.contains(name.get<std::string>())) return false;
    }
  }
  if (schema.contains("minProperties") && object.size() < schema["minProperties"].get<size_t>()) return false;
  if (schema.contains("maxProperties") && object.size() > schema["maxProperties"].get<size_t>()) return false;
  for (const auto& [name, value] : object.items()) {
    bool named = false;
    if (schema.contains("properties") && schema["properties"].contains(name)) {
      named = true;
      if (!IsValid(schema["properties"][name], value, root)) return false;
    }
    if (schema.contains("patternProperties")) {
      for (const auto& [pattern, of] : schema["patternProperties"].items()) {
        if (!Matches(name, pattern)) continue;
        named = true;
        if (!IsValid(of, value, root)) return false;
      }
    }
    if (!named && schema.contains("additionalProperties") && !IsValid(schema["additionalProperties"], value, root)) return false;
  }
  return true;
}

bool CombinationsAreValid(const Json& schema, const Json& value, const Json& root) {
  const auto count = [&](const Json& alternatives) {
    return std::ranges::count_if(alternatives, [&](const Json& one) { return IsValid(one, value, root); });
  };
  if (schema.contains("anyOf") && count(schema["anyOf"]) == 0) return false;
  if (schema.contains("oneOf") && count(schema["oneOf"]) != 1) return false;
  if (schema.contains("allOf")) {
    for (const Json& one : schema["allOf"]) {
      if (!IsValid(one, value, root)) return false;
    }
  }
  if (!schema.contains("$ref")) return true;
  const std::string ref = schema["$ref"].get<std::string>();
  return IsValid(ref == "#" ? root : root[Json::json_pointer(ref.substr(1))], value, root);
}

}  // namespace

bool IsValid(const Json& schema, const Json& value, const Json& root) {
  if (schema.is_boolean()) return schema.get<bool>();
  if (schema.contains("type")) {
    const Json types = schema["type"].is_array() ? schema["type"] : Json::array({schema["type"]});
    if (std::ranges::none_of(types, [&](const Json& type) { return HasType(value, type.get<std::string>()); })) return false;
  }
  if (schema.contains("const") && schema["const"] != value) return false;
  if (schema.contains("enum") && std::ranges::find(schema["enum"], value) == schema["enum"].end()) return false;
  if (value.is_number() && !NumberIsValid(schema, value.get<double>())) return false;
  if (value.is_string() && !StringIsValid(schema, value.get<std::string>())) return false;
  if (value.is_array() && !ArrayIsValid(schema, value, root)) return false;
  if (value.is_object() && !ObjectIsValid(schema, value, root)) return false;
  return CombinationsAreValid(schema, value, root);
}

std::shared_ptr<const TokenTrie> ByteTokens() {
  static const auto* const tokens = [] {
    static std::string bytes(256, '\0');
    std::vector<absl::string_view> views;
    for (int i = 0; i < 256; ++i) bytes[i] = static_cast<char>(i);
    for (int i = 0; i < 256; ++i) views.push_back(absl::string_view(bytes).substr(i, 1));
    return new std::shared_ptr<const TokenTrie>(std::make_shared<TokenTrie>(views));
  }();
  return *tokens;
}

std::shared_ptr<Grammar> GrammarOf(absl::string_view schema, bool lenient) {
  auto program = CompileJsonSchema(schema, lenient);
  BATON_CHECK(program.ok()) << schema << ": " << program.status();
  return std::make_shared<Grammar>(*std::move(program), ByteTokens());
}

bool Accepts(Grammar& grammar, absl::string_view text) {
  const Grammar::StateRef state = grammar.Advance(grammar.Start(), text);
  return state != nullptr && state->accepting;
}

std::string RandomText(Grammar& grammar, std::mt19937_64& rng, size_t hurry) {
  std::string text;
  Grammar::StateRef state = grammar.Start();
  while (!state->complete() && !(state->accepting && (text.size() >= hurry || rng() % 4 == 0))) {
    const auto mask = grammar.Mask(state);
    std::vector<int> allowed;
    for (int byte = 0; byte < 256; ++byte) {
      if (mask->allows(byte)) allowed.push_back(byte);
    }
    EXPECT_FALSE(allowed.empty()) << "a dead end after " << text;
    EXPECT_LT(text.size(), hurry + 20000) << "it never ends: " << text.substr(0, 200);
    if (allowed.empty() || text.size() >= hurry + 20000) return text;
    int byte = allowed[rng() % allowed.size()];
    if (text.size() >= hurry) {
      const bool in_string = allowed.size() > 60;
      for (const char c : absl::string_view(in_string ? "\"" : ":\"]}")) {
        if (mask->allows(c)) byte = static_cast<unsigned char>(c);
      }
    }
    text.push_back(static_cast<char>(byte));
    state = grammar.Advance(state, absl::string_view(text).substr(text.size() - 1));
    EXPECT_NE(state, nullptr) << "the mask allowed what cannot be: " << text;
    if (state == nullptr) return text;
  }
  return text;
}

}  // namespace baton::testing
