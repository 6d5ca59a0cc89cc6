// SPDX-License-Identifier: Apache-2.0
#include "deploy/cli/scale_message.h"

#include <cstdint>
#include <limits>
#include <utility>

#include "common/base/json.h"

namespace baton::cli {
namespace {

// Another release of the two commands may say other things.
absl::Status Unknown() { return absl::InvalidArgumentError("no request that this `baton serve` knows; is it of another release?"); }
absl::Status NoReply() { return absl::InternalError("`baton serve` answered what is no reply; is it of another release?"); }

bool ReadStrings(const nlohmann::json& json, const char* name, std::vector<std::string>* out) {
  if (!json.contains(name) || !json[name].is_array()) return false;
  for (const nlohmann::json& item : json[name]) {
    if (!item.is_string()) return false;
    out->push_back(item.get<std::string>());
  }
  return true;
}

bool ReadCount(const nlohmann::json& json, const char* name, std::optional<int>* out) {
  if (!json.contains(name)) return true;
  if (!json[name].is_number_integer()) return false;
  const int64_t value = json[name].get<int64_t>();
  if (value < std::numeric_limits<int>::min() || value > std::numeric_limits<int>::max()) return false;
  *out = static_cast<int>(value);
  return true;
}

}  // namespace

std::string WriteScaleRequest(const ScaleRequest& request) {
  nlohmann::ordered_json counts = nlohmann::ordered_json::object();
  if (request.prefill) counts["prefill"] = *request.prefill;
  if (request.decode) counts["decode"] = *request.decode;
  return DumpJson(nlohmann::ordered_json{{"scale", counts}});
}

absl::StatusOr<ScaleRequest> ReadScaleRequest(absl::string_view text) {
  const auto json = ParseJson(text);
  if (!json.ok() || !json->is_object() || !json->contains("scale") || !(*json)["scale"].is_object()) return Unknown();
  const nlohmann::json& scale = (*json)["scale"];
  ScaleRequest request;
  if (!ReadCount(scale, "prefill", &request.prefill) || !ReadCount(scale, "decode", &request.decode)) return Unknown();
  return request;
}

std::string WriteScaleReply(const absl::StatusOr<ScaleReply>& reply) {
  if (reply.ok()) return DumpJson(nlohmann::ordered_json{{"workers", reply->workers}, {"ending", reply->ending}});
  return DumpJson(nlohmann::ordered_json{{"code", static_cast<int>(reply.status().code())}, {"message", std::string(reply.status().message())}});
}

absl::StatusOr<ScaleReply> ReadScaleReply(absl::string_view text) {
  const auto json = ParseJson(text);
  if (!json.ok() || !json->is_object()) return NoReply();
  std::optional<int> code;
  if (json->contains("code") && ReadCount(*json, "code", &code) && json->contains("message") && (*json)["message"].is_string()) {
    return absl::Status(*code == 0 ? absl::StatusCode::kInternal : static_cast<absl::StatusCode>(*code), (*json)["message"].get<std::string>());
  }
  ScaleReply reply;
  if (!ReadStrings(*json, "workers", &reply.workers) || !ReadStrings(*json, "ending", &reply.ending)) return NoReply();
  return reply;
}

}  // namespace baton::cli
