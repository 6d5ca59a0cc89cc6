// SPDX-License-Identifier: Apache-2.0
#include "router/openai_format.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "router/status_details.h"

namespace baton {
namespace {

absl::Status SetSchema(absl::string_view param, const Json& schema, v1::ResponseFormat* response) {
  if (!schema.is_object() && !schema.is_boolean()) {
    return InvalidField(param, absl::StrCat("is ", DescribeJson(schema), ", should be an object"));
  }
  response->set_json_schema(DumpJson(schema));
  return absl::OkStatus();
}

absl::Status ReadJsonSchema(const Json& format, v1::ResponseFormat* response) {
  constexpr absl::string_view kParam = "response_format.json_schema";
  const auto found = format.find("json_schema");
  if (found == format.end() || found->is_null()) return InvalidField(kParam, "is missing");
  if (!found->is_object()) return InvalidField(kParam, absl::StrCat("is ", DescribeJson(*found), ", should be an object"));
  JsonFields fields(*found);
  const Json* const schema = fields.Find("schema");
  if (schema == nullptr) return InvalidField(absl::StrCat(kParam, ".schema"), "is missing");
  BATON_RETURN_IF_ERROR(SetSchema(absl::StrCat(kParam, ".schema"), *schema, response));
  const Json* const strict = fields.Find("strict");
  if (strict != nullptr && !strict->is_boolean()) {
    return InvalidField(absl::StrCat(kParam, ".strict"), absl::StrCat("is ", DescribeJson(*strict), ", should be true or false"));
  }
  response->set_lenient(strict != nullptr && !strict->get<bool>());
  return absl::OkStatus();
}

absl::Status ReadOwnFormat(JsonFields& fields, v1::GenerateRequest* request) {
  const Json* const format = fields.Find("response_format");
  if (format == nullptr) return absl::OkStatus();
  if (!format->is_object()) {
    return InvalidField("response_format", absl::StrCat("is ", DescribeJson(*format), ", should be an object"));
  }
  const auto type = format->find("type");
  const std::string name = type != format->end() && type->is_string() ? type->get<std::string>() : "";
  if (name == "text") return absl::OkStatus();
  if (name == "json_object") {
    const auto schema = format->find("schema");
    if (schema != format->end() && !schema->is_null()) {
      return SetSchema("response_format.schema", *schema, request->mutable_response_format());
    }
    request->mutable_response_format()->set_json_object(true);
    return absl::OkStatus();
  }
  if (name == "json_schema") return ReadJsonSchema(*format, request->mutable_response_format());
  return InvalidField("response_format.type", "is not one of text, json_object, json_schema");
}

}  // namespace

absl::Status ReadResponseFormat(JsonFields& fields, v1::GenerateRequest* request) {
  BATON_RETURN_IF_ERROR(ReadOwnFormat(fields, request));
  for (const char* name : {"guided_json", "json_schema"}) {
    const Json* const schema = fields.Find(name);
    if (schema == nullptr) continue;
    if (request->has_response_format()) return InvalidField(name, "is given beside another format of the answer: only one can be kept to");
    if (!schema->is_string()) {
      BATON_RETURN_IF_ERROR(SetSchema(name, *schema, request->mutable_response_format()));
      continue;
    }
    const absl::StatusOr<Json> parsed = ParseOrderedJson(schema->get<std::string>());
    if (!parsed.ok()) return InvalidField(name, absl::StrCat("is a string that is no schema: ", parsed.status().message()));
    BATON_RETURN_IF_ERROR(SetSchema(name, *parsed, request->mutable_response_format()));
  }
  return absl::OkStatus();
}

}  // namespace baton
