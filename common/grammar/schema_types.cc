// SPDX-License-Identifier: Apache-2.0
// Strings, numbers, arrays and objects of a schema.
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/grammar/number_dfa.h"
#include "common/grammar/pattern.h"
#include "common/grammar/schema_compiler.h"
#include "common/grammar/schema_merge.h"

namespace baton {
namespace {

using Json = SchemaCompiler::Json;

constexpr uint32_t kMaxCount = 1'000'000'000;
constexpr size_t kMaxOptionalMembers = 256;  // In a row: each may be the next.

// What a text must be to be of a format; each is stricter than its standard. Null: not known.
const char* FormatPattern(absl::string_view format) {
#define BATON_DATE                                                                                                  \
  "[12][0-9]{3}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
#define BATON_TIME "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,6})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
#define BATON_LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,30}[A-Za-z0-9])?"
  static constexpr std::pair<absl::string_view, const char*> kFormats[] = {
      {"date", "^" BATON_DATE "$"},
      {"time", "^" BATON_TIME "$"},
      {"date-time", "^" BATON_DATE "T" BATON_TIME "$"},
      {"duration", "^P(?:[0-9]{1,4}[YMWD]|T[0-9]{1,4}[HMS]|[0-9]{1,4}DT[0-9]{1,4}[HMS])$"},
      {"email", "^[A-Za-z0-9_+-]{1,32}(?:\\.[A-Za-z0-9_+-]{1,32})?@(?:" BATON_LABEL "\\.){1,3}[A-Za-z]{2,12}$"},
      {"hostname", "^" BATON_LABEL "(?:\\." BATON_LABEL "){0,4}$"},
      {"ipv4", "^(?:(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])\\.){3}(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])$"},
      {"ipv6", "^(?:[0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}$"},
      {"uuid", "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"},
      {"uri", "^[a-z][a-z0-9+.-]{0,15}://[A-Za-z0-9]" "[A-Za-z0-9._~!$&'()*+,;=:@/?-]*$"},
  };
#undef BATON_DATE
#undef BATON_TIME
#undef BATON_LABEL
  for (const auto& [name, pattern] : kFormats) {
    if (name == format) return pattern;
  }
  return nullptr;
}

std::string Escaped(const std::string& name) {
  std::string escaped;
  for (const char c : name) escaped += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return escaped;
}

}  // namespace

absl::StatusOr<std::optional<uint32_t>> SchemaCompiler::Count(const Json& schema, const char* keyword,
                                                              const std::string& path) const {
  const auto it = schema.find(keyword);
  if (it == schema.end()) return std::optional<uint32_t>();
  const double value = it->is_number() ? it->get<double>() : -1;
  if (value < 0 || value != std::floor(value) || value > kMaxCount) {
    return SchemaError(path, absl::StrCat("\"", keyword, "\" is no whole number from 0 to ", kMaxCount));
  }
  return std::optional<uint32_t>(static_cast<uint32_t>(value));
}

// ---- Strings.

absl::Status SchemaCompiler::WriteString(Rule rule, const Json& schema, const std::string& path) {
  BATON_ASSIGN_OR_RETURN(const std::optional<uint32_t> min, Count(schema, "minLength", path));
  BATON_ASSIGN_OR_RETURN(const std::optional<uint32_t> max, Count(schema, "maxLength", path));
  const uint32_t least = min.value_or(0), most = max.value_or(Program::kUnbounded);
  if (least > most) return absl::OkStatus();  // No string.
  std::string pattern;
  for (const char* keyword : {"pattern", "format"}) {
    const auto it = schema.find(keyword);
    if (it == schema.end()) continue;
    if (!it->is_string()) return SchemaError(path, absl::StrCat("\"", keyword, "\" is no string"));
    const std::string text = it->get<std::string>();
    const bool format = std::string(keyword) == "format";
    if (format && !pattern.empty()) {
      BATON_RETURN_IF_ERROR(Unsupported(path, "\"format\" beside \"pattern\""));
    } else if (format && FormatPattern(text) == nullptr) {
      BATON_RETURN_IF_ERROR(Unsupported(path, absl::StrCat("\"format\" ", Quoted(*it))));
    } else {
      pattern = format ? FormatPattern(text) : text;
    }
  }
  if (pattern.empty()) {
    if (least == 0 && most == Program::kUnbounded) {
      builder_.Tail(builder_.Start(rule), AnyString());
      return absl::OkStatus();
    }
    const Rule counted = builder_.NewRule(least, most);
    const State inside = builder_.NewState(counted), more = builder_.NewState(counted), enough = builder_.NewState(counted);
    const State end = builder_.NewState(counted);
    builder_.Return(end);
    builder_.Bytes(builder_.Start(counted), '"', '"', inside);
    builder_.Enough(inside, enough);
    builder_.Bytes(enough, '"', '"', end);
    builder_.More(inside, more);
    Characters(counted, more, inside);
    builder_.Tail(builder_.Start(rule), counted);
    return absl::OkStatus();
  }
  absl::StatusOr<ByteDfa> dfa = CompilePattern(pattern, CharacterForm::kJsonString, &budget_);
  if (dfa.ok() && (least > 0 || most != Program::kUnbounded)) dfa = BoundLength(*dfa, least, most, &budget_);
  if (!dfa.ok()) return SchemaError(path, absl::StrCat("\"pattern\" ", Quoted(Json(pattern)), ": ", dfa.status().message()));
  const State inside = builder_.NewState(rule), quote = builder_.NewState(rule), end = builder_.NewState(rule);
  builder_.Bytes(builder_.Start(rule), '"', '"', inside);
  builder_.Dfa(rule, inside, *dfa, quote);
  builder_.Bytes(quote, '"', '"', end);
  builder_.Return(end);
  return absl::OkStatus();
}

// ---- Numbers.

absl::Status SchemaCompiler::WriteNumber(Rule rule, bool integer, const Json& schema, const std::string& path) {
  NumberBounds bounds;
  bool bounded = false;
  if (integer) bounds.max_fraction_digits = 0;
  const struct {
    const char* keyword;
    std::optional<NumberBounds::Bound>* bound;
    bool inclusive;
  } kBounds[] = {{"minimum", &bounds.low, true},
                 {"exclusiveMinimum", &bounds.low, false},
                 {"maximum", &bounds.high, true},
                 {"exclusiveMaximum", &bounds.high, false}};
  for (const auto& [keyword, bound, inclusive] : kBounds) {
    const auto it = schema.find(keyword);
    if (it == schema.end()) continue;
    const std::optional<Decimal> value = it->is_number() ? ParseDecimal(DumpJson(*it)) : std::nullopt;
    if (!value) return SchemaError(path, absl::StrCat("\"", keyword, "\" is no number, or too large a one"));
    if (*bound) return SchemaError(path, absl::StrCat("\"", keyword, "\" beside its inclusive form is not supported"));
    *bound = NumberBounds::Bound{*value, inclusive};
    bounded = true;
  }
  if (const auto it = schema.find("multipleOf"); it != schema.end()) {
    const std::optional<Decimal> value = it->is_number() ? ParseDecimal(DumpJson(*it)) : std::nullopt;
    if (!value || value->negative || value->zero()) return SchemaError(path, "\"multipleOf\" is no number over 0");
    const double number = it->get<double>();
    if (value->whole.empty() && value->fraction.find_first_not_of('0') + 1 == value->fraction.size() && value->fraction.back() == '1') {
      bounds.max_fraction_digits = std::min<int>(bounds.max_fraction_digits, static_cast<int>(value->fraction.size()));
      bounded = true;
    } else if (value->fraction.empty() && number <= 10000) {
      bounds.multiple_of = static_cast<int64_t>(number);
      bounds.max_fraction_digits = 0;
      bounded = true;
    } else {
      BATON_RETURN_IF_ERROR(Unsupported(path, "\"multipleOf\" other than 0.1, 0.01, ... and whole numbers up to 10000"));
    }
  }
  constexpr char kInteger[] = "^-?(0|[1-9][0-9]{0,17})$";
  const bool plain_number = !bounded && !integer;
  absl::StatusOr<ByteDfa> dfa = bounded ? NumbersWithin(bounds, &budget_) : CompilePattern(kInteger, CharacterForm::kPlain, &budget_);
  if (!dfa.ok()) return SchemaError(path, absl::StrCat("the bounds of this number: ", dfa.status().message()));
  const State end = builder_.NewState(rule);
  builder_.Return(end);
  if (plain_number) {
    builder_.Tail(builder_.Start(rule), AnyNumber());
  } else {
    builder_.Dfa(rule, builder_.Start(rule), *dfa, end);
  }
  return absl::OkStatus();
}

// ---- Arrays.

absl::Status SchemaCompiler::WriteArray(Rule rule, const Json& schema, const std::string& path) {
  BATON_ASSIGN_OR_RETURN(const std::optional<uint32_t> min, Count(schema, "minItems", path));
  BATON_ASSIGN_OR_RETURN(const std::optional<uint32_t> max, Count(schema, "maxItems", path));
  const uint32_t least = min.value_or(0), most = max.value_or(Program::kUnbounded);
  if (least > most) return absl::OkStatus();
  if (schema.contains("uniqueItems") && schema["uniqueItems"] != Json(false) && most > 1) {
    BATON_RETURN_IF_ERROR(Unsupported(path, "\"uniqueItems\""));
  }
  static const Json* const any = new Json(true);
  const Json& items = schema.contains("items") ? schema["items"] : *any;
  if (items.is_array()) {  // As drafts before 2020-12 have it.
    BATON_RETURN_IF_ERROR(Unsupported(path, "an array in \"items\" (draft 2020-12 has \"prefixItems\" for it)"));
    Json tuple = schema;
    tuple["prefixItems"] = items;
    tuple.erase("items");
    return WriteArray(rule, tuple, path);
  }
  const auto prefix = schema.find("prefixItems");
  if (prefix != schema.end() && !prefix->is_array()) return SchemaError(path, "\"prefixItems\" is no array");
  if (prefix != schema.end() && !prefix->empty()) return WriteTuple(rule, schema, path, least, most);
  BATON_ASSIGN_OR_RETURN(const Rule item, NewRuleOf(items, absl::StrCat(path, "/items")));
  const Rule counted = builder_.NewRule(least, most);
  WriteItems(counted, item, least);
  builder_.Tail(builder_.Start(rule), counted);
  return absl::OkStatus();
}

// The first items one by one, what follows counted.
absl::Status SchemaCompiler::WriteTuple(Rule rule, const Json& schema, const std::string& path, uint32_t least, uint32_t most) {
  const Json& prefix = schema["prefixItems"];
  const uint32_t size = static_cast<uint32_t>(prefix.size());
  const uint32_t rest_least = least > size ? least - size : 0;
  const uint32_t rest_most = most == Program::kUnbounded ? most : most > size ? most - size : 0;
  const Rule counted = builder_.NewRule(rest_least, rest_most);
  builder_.Tail(builder_.Start(rule), counted);
  const State end = builder_.NewState(counted), closing = builder_.NewState(counted), last = builder_.NewState(counted);
  builder_.Return(end);
  builder_.Bytes(last, ']', ']', end);
  builder_.Call(closing, Space(), last);
  const State open = builder_.NewState(counted);
  State before = builder_.NewState(counted);  // An item may come.
  builder_.Bytes(builder_.Start(counted), '[', '[', open);
  builder_.Call(open, Space(), before);
  if (least == 0) builder_.Go(before, last);
  State after = before;  // The item before has ended.
  for (uint32_t i = 0; i < std::min(size, most); ++i) {
    BATON_ASSIGN_OR_RETURN(const Rule item, NewRuleOf(prefix[i], absl::StrCat(path, "/prefixItems/", i)));
    after = builder_.NewState(counted);
    builder_.Call(before, item, after);
    if (i + 1 >= least) builder_.Go(after, closing);
    if (i + 1 == std::min(size, most)) break;
    const State comma = builder_.NewState(counted);
    before = builder_.NewState(counted);
    builder_.Bytes(after, ',', ',', comma);
    builder_.Call(comma, Space(), before);
  }
  if (rest_most == 0) return absl::OkStatus();
  static const Json* const any = new Json(true);
  BATON_ASSIGN_OR_RETURN(const Rule item, NewRuleOf(schema.contains("items") ? schema["items"] : *any, absl::StrCat(path, "/items")));
  const State more = builder_.NewState(counted), comma = builder_.NewState(counted), next = builder_.NewState(counted);
  const State rest = builder_.NewState(counted);
  builder_.More(after, more);
  builder_.Bytes(more, ',', ',', comma);
  builder_.Call(comma, Space(), next);
  builder_.Call(next, item, rest);
  builder_.Enough(rest, closing);
  builder_.More(rest, more);
  return absl::OkStatus();
}

// ---- Objects.

absl::StatusOr<std::vector<SchemaCompiler::Member>> SchemaCompiler::Members(const Json& schema, const std::string& path) {
  std::vector<Member> members;
  static const Json *const none = new Json(Json::object()), *const no_names = new Json(Json::array()), *const any = new Json(true);
  const Json& properties = schema.contains("properties") ? schema["properties"] : *none;
  const Json& required = schema.contains("required") ? schema["required"] : *no_names;
  if (!properties.is_object()) return SchemaError(path, "\"properties\" is no object");
  if (!required.is_array()) return SchemaError(path, "\"required\" is no array");
  for (auto it = properties.begin(); it != properties.end(); ++it) {
    members.push_back({it.key(), &*it, absl::StrCat(path, "/properties/", Escaped(it.key()))});
  }
  std::map<std::string, size_t> places;
  for (size_t i = 0; i < members.size(); ++i) places[members[i].name] = i;
  for (const Json& name : required) {
    if (!name.is_string()) return SchemaError(path, "\"required\" has something else than strings");
    const auto [it, inserted] = places.try_emplace(name.get<std::string>(), members.size());
    if (inserted) {
      const Json* const value = schema.contains("additionalProperties") ? &schema["additionalProperties"] : any;
      members.push_back({name.get<std::string>(), value, absl::StrCat(path, "/additionalProperties")});
    }
    members[it->second].required = true;
  }
  return members;
}

// Keys without escapes, so that none is a name in disguise.
absl::StatusOr<std::optional<SchemaCompiler::Extra>> SchemaCompiler::ExtraMembers(const Json& schema,
                                                                                  const std::vector<Member>& members,
                                                                                  const std::string& path) {
  const Json* value = nullptr;
  static const Json* const any = new Json(true);
  std::string key_pattern = R"(^[^"\\\u0000-\u001f]+$)";
  std::string where = absl::StrCat(path, "/additionalProperties");
  if (schema.contains("additionalProperties")) value = &schema["additionalProperties"];
  if (value == nullptr && members.empty()) value = any;
  if (schema.contains("patternProperties") && schema["patternProperties"] != Json::object()) {
    const Json& patterns = schema["patternProperties"];
    const bool closed = members.empty() && schema.contains("additionalProperties") && schema["additionalProperties"] == Json(false);
    if (patterns.is_object() && patterns.size() == 1 && closed) {
      key_pattern = patterns.items().begin().key();
      value = &patterns.items().begin().value();
      where = absl::StrCat(path, "/patternProperties/", Escaped(key_pattern));
    } else {
      BATON_RETURN_IF_ERROR(Unsupported(
          path, "\"patternProperties\" other than one pattern without \"properties\" and with \"additionalProperties\": false"));
    }
  }
  if (value == nullptr || *value == Json(false)) return std::optional<Extra>();
  Extra extra;
  if (value == any) {
    extra = {AnyString(), AnyValue()};
    return std::optional<Extra>(extra);
  }
  std::vector<std::string> names;
  for (const Member& member : members) {
    const std::string text = DumpJson(Json(member.name));
    if (text.find('\\') == std::string::npos) names.push_back(text.substr(1, text.size() - 2));
  }
  absl::StatusOr<ByteDfa> keys = CompilePattern(key_pattern, CharacterForm::kJsonString, &budget_);
  if (keys.ok()) keys = ExcludeTexts(*keys, names, &budget_);
  if (!keys.ok()) return SchemaError(where, absl::StrCat("the keys: ", keys.status().message()));
  extra.key = builder_.NewRule();
  const State inside = builder_.NewState(extra.key), quote = builder_.NewState(extra.key), end = builder_.NewState(extra.key);
  builder_.Bytes(builder_.Start(extra.key), '"', '"', inside);
  builder_.Dfa(extra.key, inside, *keys, quote);
  builder_.Bytes(quote, '"', '"', end);
  builder_.Return(end);
  BATON_ASSIGN_OR_RETURN(extra.value, NewRuleOf(*value, where));
  return std::optional<Extra>(extra);
}

absl::Status SchemaCompiler::WriteObject(Rule rule, const Json& schema, const std::string& path) {
  BATON_ASSIGN_OR_RETURN(const std::vector<Member> members, Members(schema, path));
  BATON_ASSIGN_OR_RETURN(const std::optional<Extra> extra, ExtraMembers(schema, members, path));
  const size_t num_required = std::ranges::count_if(members, &Member::required);
  BATON_ASSIGN_OR_RETURN(const std::optional<uint32_t> min, Count(schema, "minProperties", path));
  BATON_ASSIGN_OR_RETURN(const std::optional<uint32_t> max, Count(schema, "maxProperties", path));
  if (max && (extra || *max < members.size())) BATON_RETURN_IF_ERROR(Unsupported(path, "\"maxProperties\" that may be reached"));
  if (min && *min > std::max<size_t>(num_required, 1)) {
    BATON_RETURN_IF_ERROR(Unsupported(path, "\"minProperties\" over 1 and over the number of required properties"));
  }
  size_t optional = 0;
  for (const Member& member : members) {
    optional = member.required ? 0 : optional + 1;
    if (optional > kMaxOptionalMembers) {
      return SchemaError(path, absl::StrCat("more than ", kMaxOptionalMembers, " properties in a row that are not required"));
    }
  }
  return WriteMembers(rule, members, extra, min.value_or(0) > 0 && num_required == 0);
}

// Two rows of states, one for when no member has come yet: at place i, members from i on may come.
absl::Status SchemaCompiler::WriteMembers(Rule rule, const std::vector<Member>& members, const std::optional<Extra>& extra,
                                          bool not_empty) {
  const size_t n = members.size();
  std::vector<State> first(n + 1), later(n + 1), after(n + 1);
  for (size_t i = 0; i <= n; ++i) {
    first[i] = builder_.NewState(rule);
    later[i] = builder_.NewState(rule);
    after[i] = builder_.NewState(rule);
  }
  const State open = builder_.NewState(rule), last = builder_.NewState(rule), end = builder_.NewState(rule);
  builder_.Bytes(builder_.Start(rule), '{', '{', open);
  builder_.Call(open, Space(), first[0]);
  builder_.Bytes(last, '}', '}', end);
  builder_.Return(end);
  size_t last_required = 0;  // One more than its place.
  for (size_t i = 0; i < n; ++i) {
    if (members[i].required) last_required = i + 1;
    BATON_ASSIGN_OR_RETURN(const Rule value, NewRuleOf(*members[i].schema, members[i].path));
    const State colon = builder_.NewState(rule), before_value = builder_.NewState(rule);
    const State key_end = builder_.NewState(rule);
    for (const State from : {first[i], later[i]}) {
      builder_.Go(builder_.Text(rule, from, DumpJson(Json(members[i].name))), key_end);
      if (!members[i].required) builder_.Go(from, from == first[i] ? first[i + 1] : later[i + 1]);
    }
    builder_.Bytes(key_end, ':', ':', colon);
    builder_.Call(colon, AfterColon(), before_value);
    builder_.Call(before_value, value, after[i + 1]);
  }
  if (extra) {
    const State key_end = builder_.NewState(rule), colon = builder_.NewState(rule), before_value = builder_.NewState(rule);
    for (const State from : {first[n], later[n]}) builder_.Call(from, extra->key, key_end);
    builder_.Bytes(key_end, ':', ':', colon);
    builder_.Call(colon, AfterColon(), before_value);
    builder_.Call(before_value, extra->value, after[n]);
  }
  if (last_required == 0 && !not_empty) builder_.Go(first[n], last);
  for (size_t i = 0; i <= n; ++i) {
    if (i == 0 && n > 0) continue;  // No member is before it.
    if (i >= last_required) builder_.Call(after[i], Space(), last);
    if (i == n && !extra) continue;
    const State comma = builder_.NewState(rule);
    builder_.Bytes(after[i], ',', ',', comma);
    builder_.Call(comma, Space(), later[i]);
  }
  return absl::OkStatus();
}

}  // namespace baton
