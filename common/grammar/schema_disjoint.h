// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_GRAMMAR_SCHEMA_DISJOINT_H_
#define BATON_COMMON_GRAMMAR_SCHEMA_DISJOINT_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"

namespace baton {

// Shows that no value is valid under two schemas: by their types, const and enum, bounds of numbers and lengths, or a member
// that one of them requires and for which their schemas have nothing in common. What it does not see it takes for common.
// One compilation, one thread.
class DisjointSchemas {
 public:
  using Json = nlohmann::ordered_json;

  // `resolve`: what a $ref names; null: nothing.
  explicit DisjointSchemas(std::function<const Json*(const Json& ref)> resolve) : resolve_(std::move(resolve)) {}

  // False as well where it would take more than kMaxWork, of all calls together.
  bool AreDisjoint(const Json& a, const Json& b) { return Disjoint(a, b, 0); }

 private:
  static constexpr int kMaxDepth = 6;
  static constexpr int kMaxWork = 1'000'000;
  // The schemas that all have to hold: through $ref and allOf.
  using Parts = std::vector<const Json*>;

  bool Disjoint(const Json& a, const Json& b, int depth);
  void AddParts(const Json& schema, int depth, Parts* parts);
  bool NoValueOf(const Parts& a, const Parts& b);
  bool NoAlternativeOf(const Parts& a, const Json& b, int depth);
  bool MembersDiffer(const Parts& a, const Parts& b, int depth);
  bool MemberDiffers(const std::string& name, const Parts& a, const Parts& b, int depth);

  const std::function<const Json*(const Json& ref)> resolve_;
  int work_ = 0;
};

}  // namespace baton

#endif  // BATON_COMMON_GRAMMAR_SCHEMA_DISJOINT_H_
