// SPDX-License-Identifier: Apache-2.0
// Rules of JSON itself.
#include "common/grammar/json_schema.h"
#include "common/grammar/pattern.h"
#include "common/grammar/schema_compiler.h"

namespace baton {
namespace {

// A model that likes blanks better than going on must not be able to emit them for ever.
constexpr int kMaxIndentation = 16;

// Bounded, so that no answer is all digits, and no number is over what a double holds.
constexpr char kNumber[] = "^-?(0|[1-9][0-9]{0,17})(\\.[0-9]{1,17})?([eE][+-]?[0-9]{1,2})?$";

}  // namespace

SchemaCompiler::Rule SchemaCompiler::Space() {
  if (space_) return *space_;
  const Rule rule = builder_.NewRule();
  space_ = rule;
  const State start = builder_.Start(rule), end = builder_.NewState(rule);
  builder_.Return(end);
  builder_.Go(start, end);
  builder_.Bytes(start, ' ', ' ', end);
  State at = builder_.NewState(rule);
  builder_.Bytes(start, '\n', '\n', at);
  for (int i = 0; i < kMaxIndentation; ++i) {
    const State next = builder_.NewState(rule);
    builder_.Return(at);
    builder_.Bytes(at, ' ', ' ', next);
    at = next;
  }
  builder_.Return(at);
  return rule;
}

SchemaCompiler::Rule SchemaCompiler::AfterColon() {
  if (after_colon_) return *after_colon_;
  const Rule rule = builder_.NewRule();
  after_colon_ = rule;
  const State end = builder_.NewState(rule);
  builder_.Return(end);
  builder_.Go(builder_.Start(rule), end);
  builder_.Bytes(builder_.Start(rule), ' ', ' ', end);
  return rule;
}

// UTF-8 without overlong forms and surrogates; escapes, of surrogates in pairs only.
void SchemaCompiler::Characters(Rule rule, State from, State to) {
  const auto state = [&] { return builder_.NewState(rule); };
  builder_.Bytes(from, 0x20, '"' - 1, to);
  builder_.Bytes(from, '"' + 1, '\\' - 1, to);
  builder_.Bytes(from, '\\' + 1, 0x7F, to);
  const State last = state(), two = state(), three = state();
  builder_.Bytes(last, 0x80, 0xBF, to);
  builder_.Bytes(two, 0x80, 0xBF, last);
  builder_.Bytes(three, 0x80, 0xBF, two);
  builder_.Bytes(from, 0xC2, 0xDF, last);
  const struct {
    uint8_t lead_low, lead_high, low, high;
    State then;
  } kLeads[] = {{0xE0, 0xE0, 0xA0, 0xBF, last}, {0xED, 0xED, 0x80, 0x9F, last},
                {0xF0, 0xF0, 0x90, 0xBF, two},  {0xF4, 0xF4, 0x80, 0x8F, two}};
  for (const auto& lead : kLeads) {
    const State second = state();
    builder_.Bytes(from, lead.lead_low, lead.lead_high, second);
    builder_.Bytes(second, lead.low, lead.high, lead.then);
  }
  builder_.Bytes(from, 0xE1, 0xEC, two);
  builder_.Bytes(from, 0xEE, 0xEF, two);
  builder_.Bytes(from, 0xF1, 0xF3, three);

  const auto hex = [&](State a, State b) {
    builder_.Bytes(a, '0', '9', b);
    builder_.Bytes(a, 'A', 'F', b);
    builder_.Bytes(a, 'a', 'f', b);
  };
  const auto letters = [&](State a, const char* chars, State b) {
    for (; *chars != '\0'; ++chars) builder_.Bytes(a, static_cast<uint8_t>(*chars), static_cast<uint8_t>(*chars), b);
  };
  const State escape = state(), unicode = state(), h2 = state(), h3 = state(), h4 = state(), d = state();
  builder_.Bytes(from, '\\', '\\', escape);
  letters(escape, "\"\\/bfnrt", to);
  letters(escape, "u", unicode);
  builder_.Bytes(unicode, '0', '9', h2);
  letters(unicode, "abcefABCEF", h2);
  letters(unicode, "dD", d);
  hex(h2, h3);
  hex(h3, h4);
  hex(h4, to);
  builder_.Bytes(d, '0', '7', h3);
  // d8 to db, two digits, and \udc00 to \udfff.
  const State g3 = state(), g4 = state(), back = state(), u = state(), low1 = state(), low2 = state();
  builder_.Bytes(d, '8', '9', g3);
  letters(d, "abAB", g3);
  hex(g3, g4);
  hex(g4, back);
  letters(back, "\\", u);
  letters(u, "u", low1);
  letters(low1, "dD", low2);
  letters(low2, "cdefCDEF", h3);
}

SchemaCompiler::Rule SchemaCompiler::AnyString() {
  if (any_string_) return *any_string_;
  const Rule rule = builder_.NewRule();
  any_string_ = rule;
  const State inside = builder_.NewState(rule), end = builder_.NewState(rule);
  builder_.Return(end);
  builder_.Bytes(builder_.Start(rule), '"', '"', inside);
  builder_.Bytes(inside, '"', '"', end);
  Characters(rule, inside, inside);
  return rule;
}

// `rule` counts the items, and has their bounds.
void SchemaCompiler::WriteItems(Rule rule, Rule item, uint32_t min_items) {
  const State open = builder_.NewState(rule), first = builder_.NewState(rule), next = builder_.NewState(rule);
  const State after = builder_.NewState(rule), enough = builder_.NewState(rule), more = builder_.NewState(rule);
  const State comma = builder_.NewState(rule), last = builder_.NewState(rule), end = builder_.NewState(rule);
  builder_.Return(end);
  builder_.Bytes(builder_.Start(rule), '[', '[', open);
  builder_.Call(open, Space(), first);
  if (min_items == 0) builder_.Go(first, last);
  builder_.More(first, next);
  builder_.Call(next, item, after);
  builder_.Enough(after, enough);
  builder_.Call(enough, Space(), last);
  builder_.Bytes(last, ']', ']', end);
  builder_.More(after, more);
  builder_.Bytes(more, ',', ',', comma);
  builder_.Call(comma, Space(), next);
}

SchemaCompiler::Rule SchemaCompiler::AnyArray() {
  if (any_array_) return *any_array_;
  any_array_ = builder_.NewRule();
  WriteItems(*any_array_, AnyValue(), 0);
  return *any_array_;
}

SchemaCompiler::Rule SchemaCompiler::AnyObject() {
  if (any_object_) return *any_object_;
  any_object_ = builder_.NewRule();
  const Rule rule = *any_object_;
  (void)WriteMembers(rule, {}, Extra{AnyString(), AnyValue()}, /*not_empty=*/false);
  return rule;
}

SchemaCompiler::Rule SchemaCompiler::AnyNumber() {
  if (any_number_) return *any_number_;
  const Rule rule = builder_.NewRule();
  any_number_ = rule;
  const State end = builder_.NewState(rule);
  builder_.Return(end);
  CompileBudget own;  // It is always the same.
  builder_.Dfa(rule, builder_.Start(rule), *CompilePattern(kNumber, CharacterForm::kPlain, &own), end);
  return rule;
}

SchemaCompiler::Rule SchemaCompiler::AnyValue() {
  if (any_value_) return *any_value_;
  const Rule rule = builder_.NewRule();
  any_value_ = rule;
  const State start = builder_.Start(rule), end = builder_.NewState(rule);
  builder_.Return(end);
  for (const char* literal : {"true", "false", "null"}) builder_.Go(builder_.Text(rule, start, literal), end);
  builder_.Tail(start, AnyNumber());
  builder_.Tail(start, AnyString());
  builder_.Tail(start, AnyObject());
  builder_.Tail(start, AnyArray());
  return rule;
}

Program AnyJsonObject() {
  const nlohmann::ordered_json object = {{"type", "object"}};
  return *SchemaCompiler(object, /*lenient=*/false).Compile();
}

}  // namespace baton
