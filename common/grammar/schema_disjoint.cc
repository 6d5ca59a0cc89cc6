// SPDX-License-Identifier: Apache-2.0
#include "common/grammar/schema_disjoint.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "common/grammar/schema_merge.h"

namespace baton {
namespace {

using Json = DisjointSchemas::Json;

constexpr unsigned kObject = 1, kArray = 2, kString = 4, kWholeNumber = 8, kOtherNumber = 16, kBoolean = 32, kNull = 64;

unsigned TypeBits(const std::vector<const Json*>& parts) {
  unsigned types = 127;
  for (const Json* part : parts) {
    if (!part->contains("type")) continue;
    unsigned named = 0;
    for (const std::string& name : TypesOf(*part)) {
      named |= name == "object" ? kObject : name == "array" ? kArray : name == "string" ? kString : name == "boolean" ? kBoolean : 0;
      named |= name == "null" ? kNull : name == "integer" ? kWholeNumber : name == "number" ? kWholeNumber | kOtherNumber : 0;
    }
    types &= named;
  }
  return types;
}

unsigned TypeOf(const Json& value) {
  if (value.is_object()) return kObject;
  if (value.is_array()) return kArray;
  if (value.is_string()) return kString;
  if (value.is_boolean()) return kBoolean;
  if (value.is_null()) return kNull;
  return value.is_number_float() && std::floor(value.get<double>()) != value.get<double>() ? kOtherNumber : kWholeNumber;
}

const Json* Find(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it == object.end() ? nullptr : &*it;
}

// Whether they may be one value. The order of members says nothing.
bool MayBeEqual(const Json& a, const Json& b) { return (a.is_structured() && b.is_structured()) || a == b; }

// The strictest of what the keywords say; exact enough: rounding keeps an order, but for equality.
double Least(const std::vector<const Json*>& parts, std::initializer_list<const char*> keywords) {
  double least = -std::numeric_limits<double>::infinity();
  for (const Json* part : parts) {
    for (const char* keyword : keywords) {
      const Json* bound = Find(*part, keyword);
      if (bound != nullptr && bound->is_number()) least = std::max(least, bound->get<double>());
    }
  }
  return least;
}
double Most(const std::vector<const Json*>& parts, std::initializer_list<const char*> keywords) {
  double most = std::numeric_limits<double>::infinity();
  for (const Json* part : parts) {
    for (const char* keyword : keywords) {
      const Json* bound = Find(*part, keyword);
      if (bound != nullptr && bound->is_number()) most = std::min(most, bound->get<double>());
    }
  }
  return most;
}
bool Apart(const std::vector<const Json*>& a, const std::vector<const Json*>& b, std::initializer_list<const char*> least,
           std::initializer_list<const char*> most) {
  return Most(a, most) < Least(b, least) || Most(b, most) < Least(a, least);
}

bool Requires(const std::vector<const Json*>& parts, const std::string& name) {
  return std::ranges::any_of(parts, [&](const Json* part) {
    const Json* required = Find(*part, "required");
    return required != nullptr && required->is_array() && std::ranges::find(*required, Json(name)) != required->end();
  });
}

}  // namespace

void DisjointSchemas::AddParts(const Json& schema, int depth, Parts* parts) {
  if (depth > kMaxDepth || !schema.is_object() || ++work_ > kMaxWork) return;
  parts->push_back(&schema);
  if (const Json* ref = Find(schema, "$ref"); ref != nullptr) {
    if (const Json* target = resolve_(*ref); target != nullptr) AddParts(*target, depth + 1, parts);
  }
  if (const Json* all = Find(schema, "allOf"); all != nullptr && all->is_array()) {
    for (const Json& one : *all) AddParts(one, depth + 1, parts);
  }
}

bool DisjointSchemas::Disjoint(const Json& a, const Json& b, int depth) {
  if (a == Json(false) || b == Json(false)) return true;
  if (depth > kMaxDepth) return false;
  Parts of_a, of_b;
  AddParts(a, depth, &of_a);
  AddParts(b, depth, &of_b);
  work_ += static_cast<int>(of_a.size() * of_b.size());
  if (work_ > kMaxWork) return false;
  unsigned common = TypeBits(of_a) & TypeBits(of_b);
  if ((common & kObject) != 0 && MembersDiffer(of_a, of_b, depth)) common &= ~kObject;
  if (Apart(of_a, of_b, {"minLength"}, {"maxLength"})) common &= ~kString;
  if (Apart(of_a, of_b, {"minItems"}, {"maxItems"})) common &= ~kArray;
  if (Apart(of_a, of_b, {"minimum", "exclusiveMinimum"}, {"maximum", "exclusiveMaximum"})) common &= ~(kWholeNumber | kOtherNumber);
  return common == 0 || NoValueOf(of_a, of_b) || NoValueOf(of_b, of_a) || NoAlternativeOf(of_a, b, depth) ||
         NoAlternativeOf(of_b, a, depth);
}

// Where `a` lists its values: that `b` has none of them.
bool DisjointSchemas::NoValueOf(const Parts& a, const Parts& b) {
  const unsigned types = TypeBits(b);
  const auto impossible = [&](const Json& value) {
    ++work_;
    if ((TypeOf(value) & types) == 0) return true;
    return std::ranges::any_of(b, [&](const Json* part) {
      if (const Json* only = Find(*part, "const"); only != nullptr && !MayBeEqual(*only, value)) return true;
      const Json* values = Find(*part, "enum");
      if (values == nullptr || !values->is_array()) return false;
      work_ += static_cast<int>(values->size());
      return work_ <= kMaxWork && std::ranges::none_of(*values, [&](const Json& other) { return MayBeEqual(other, value); });
    });
  };
  return std::ranges::any_of(a, [&](const Json* part) {
    if (const Json* only = Find(*part, "const"); only != nullptr && impossible(*only)) return true;
    const Json* values = Find(*part, "enum");
    return values != nullptr && values->is_array() && std::ranges::all_of(*values, impossible);
  });
}

// Where `a` has alternatives: that `b` has nothing in common with any.
bool DisjointSchemas::NoAlternativeOf(const Parts& a, const Json& b, int depth) {
  return std::ranges::any_of(a, [&](const Json* part) {
    for (const char* keyword : {"anyOf", "oneOf"}) {
      const Json* alternatives = Find(*part, keyword);
      if (alternatives == nullptr || !alternatives->is_array()) continue;
      if (std::ranges::all_of(*alternatives, [&](const Json& one) { return Disjoint(one, b, depth + 1); })) return true;
    }
    return false;
  });
}

bool DisjointSchemas::MembersDiffer(const Parts& a, const Parts& b, int depth) {
  for (const Parts* side : {&a, &b}) {
    for (const Json* part : *side) {
      const Json* required = Find(*part, "required");
      if (required == nullptr || !required->is_array()) continue;
      for (const Json& name : *required) {
        if (++work_ > kMaxWork) return false;
        if (name.is_string() && MemberDiffers(name.get<std::string>(), a, b, depth)) return true;
      }
    }
  }
  return false;
}

// Of a name that one of them requires.
bool DisjointSchemas::MemberDiffers(const std::string& name, const Parts& a, const Parts& b, int depth) {
  const auto of = [&](const Json* part) {
    const Json* properties = Find(*part, "properties");
    if (properties == nullptr || !properties->is_object()) return static_cast<const Json*>(nullptr);
    work_ += static_cast<int>(properties->size());
    return Find(*properties, name.c_str());
  };
  for (const auto& [one, other] : {std::pair(&a, &b), std::pair(&b, &a)}) {
    if (!Requires(*one, name)) continue;
    for (const Json* part : *other) {
      const Json* extra = Find(*part, "additionalProperties");
      if (extra != nullptr && *extra == Json(false) && !part->contains("patternProperties") && of(part) == nullptr) return true;
    }
  }
  for (const Json* part : a) {
    const Json* of_a = of(part);
    if (of_a == nullptr) continue;
    for (const Json* other : b) {
      const Json* of_b = of(other);
      if (of_b != nullptr && Disjoint(*of_a, *of_b, depth + 1)) return true;
    }
  }
  return false;
}

}  // namespace baton
