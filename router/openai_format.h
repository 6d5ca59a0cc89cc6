// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_ROUTER_OPENAI_FORMAT_H_
#define BATON_ROUTER_OPENAI_FORMAT_H_

#include "absl/status/status.h"
#include "baton/v1/generation.pb.h"
#include "router/json_fields.h"

namespace baton {

// Reads `response_format`: {"type": "text"}, {"type": "json_object"}, or {"type": "json_schema", "json_schema": {"name": text,
// "schema": object, "strict": bool}}. A schema is always kept to; `"strict": false` leaves out what of it is not supported. Also
// other servers' spellings: {"type": "json_object", "schema": object}, and `guided_json` or `json_schema` beside it.
//   INVALID_ARGUMENT  another shape, or two formats; Param() is "response_format...", or the other field.
absl::Status ReadResponseFormat(JsonFields& fields, v1::GenerateRequest* request);

}  // namespace baton

#endif  // BATON_ROUTER_OPENAI_FORMAT_H_
