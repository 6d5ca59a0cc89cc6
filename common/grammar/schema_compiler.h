// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_GRAMMAR_SCHEMA_COMPILER_H_
#define BATON_COMMON_GRAMMAR_SCHEMA_COMPILER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/grammar/program.h"
#include "common/grammar/schema_disjoint.h"
#include "nlohmann/json.hpp"

namespace baton {

// One schema on its way to a Program: a rule per subschema. CompileJsonSchema's inside; one use, one thread.
class SchemaCompiler {
 public:
  using Json = nlohmann::ordered_json;

  // `root` outlives this.
  SchemaCompiler(const Json& root, bool lenient) : root_(root), lenient_(lenient) {}
  absl::StatusOr<Program> Compile();
  // Writes the rules of any JSON value; the one of objects.
  ProgramBuilder::Rule AnyObject();
  ProgramBuilder& builder() { return builder_; }

 private:
  using Rule = ProgramBuilder::Rule;
  using State = ProgramBuilder::State;

  // ---- schema_compiler.cc: which of its forms a schema has.
  absl::StatusOr<Rule> NewRuleOf(const Json& schema, const std::string& path);
  absl::Status Write(Rule rule, const Json& schema, const std::string& path);
  absl::Status WriteObjectForm(Rule rule, const Json& schema, const std::string& path);
  absl::Status WriteReference(Rule rule, const Json& schema, const std::string& path);
  absl::Status WriteAlternatives(Rule rule, const Json& schema, const std::string& path);
  absl::Status WriteValues(Rule rule, const Json& schema, const std::string& path);
  absl::Status WriteTypes(Rule rule, const Json& schema, const std::string& path);
  absl::Status WriteType(Rule rule, const std::string& type, const Json& schema, const std::string& path);
  absl::Status CheckKeywords(const Json& schema, const std::string& path) const;
  absl::StatusOr<Json> ExclusiveAlternatives(const Json& schema, const std::string& path);
  // Without $ref, allOf and oneOf at its top: what they say is merged into it.
  absl::StatusOr<Json> Flatten(const Json& schema, const std::string& path, int depth);
  absl::StatusOr<const Json*> Resolve(const Json& ref, const std::string& path) const;
  absl::Status Charge(const std::string& path);
  absl::Status ChargeCopy(const Json& schema, const std::string& path);
  absl::Status ChargeMerge(const Json& a, const Json& b, const std::string& path);

  // ---- schema_types.cc: strings, numbers, arrays, objects.
  absl::Status WriteString(Rule rule, const Json& schema, const std::string& path);
  absl::Status WriteNumber(Rule rule, bool integer, const Json& schema, const std::string& path);
  absl::Status WriteArray(Rule rule, const Json& schema, const std::string& path);
  absl::Status WriteTuple(Rule rule, const Json& schema, const std::string& path, uint32_t least, uint32_t most);
  absl::Status WriteObject(Rule rule, const Json& schema, const std::string& path);
  struct Member {
    std::string name;
    const Json* schema;  // Part of the object's schema.
    std::string path;
    bool required = false;
  };
  struct Extra {  // Members beside the named ones.
    Rule key, value;
  };
  absl::StatusOr<std::vector<Member>> Members(const Json& schema, const std::string& path);
  absl::StatusOr<std::optional<Extra>> ExtraMembers(const Json& schema, const std::vector<Member>& members,
                                                    const std::string& path);
  absl::Status WriteMembers(Rule rule, const std::vector<Member>& members, const std::optional<Extra>& extra, bool not_empty);
  absl::StatusOr<std::optional<uint32_t>> Count(const Json& schema, const char* keyword, const std::string& path) const;
  absl::Status Unsupported(const std::string& path, absl::string_view what) const;

  // ---- schema_values.cc: rules that every schema may use, made when they are first asked for.
  Rule AnyValue();
  Rule AnyString();
  Rule AnyNumber();
  Rule AnyArray();
  Rule Space();      // Between tokens: nothing, a space, or a line end and an indentation.
  Rule AfterColon();  // Nothing or a space.
  void Characters(Rule rule, State from, State to);  // One character of a JSON string, in any of its forms.
  void WriteItems(Rule rule, Rule item, uint32_t min_items);

  // Null: nothing.
  const Json* Target(const Json& ref) const;

  const Json& root_;
  DisjointSchemas disjoint_{[this](const Json& ref) { return Target(ref); }};
  const bool lenient_;
  ProgramBuilder builder_;
  CompileBudget budget_;
  std::map<std::string, Rule> references_;
  std::optional<Rule> any_value_, any_string_, any_number_, any_object_, any_array_, space_, after_colon_;
  int num_schemas_ = 0;
  int num_copies_ = 0;
  int depth_ = 0;
};

}  // namespace baton

#endif  // BATON_COMMON_GRAMMAR_SCHEMA_COMPILER_H_
