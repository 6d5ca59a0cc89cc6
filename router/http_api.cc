// SPDX-License-Identifier: Apache-2.0
#include "router/http_api.h"

#include <functional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/build_info.h"
#include "common/base/ids.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "router/http_generation.h"
#include "router/json_fields.h"
#include "router/openai_messages.h"
#include "router/openai_request.h"
#include "router/openai_response.h"
#include "router/openapi.h"
#include "router/request_log.h"
#include "router/responses_request.h"
#include "router/status_details.h"

namespace baton {
namespace {

constexpr char kJson[] = "application/json";
constexpr size_t kMaxTokenizeBytes = 8 << 20;  // A body of /tokenize or /detokenize: no context bounds it.
constexpr size_t kInlineBodyBytes = 16 << 10;  // Larger ones are parsed on the preparation pool.

using Endpoint = HttpApi::Endpoint;

struct EndpointRow {
  const char* path;
  const char* method;
  Endpoint route;
};

constexpr EndpointRow kRoutes[] = {
    {"/v1/completions", "POST", Endpoint::kCompletions}, {"/v1/chat/completions", "POST", Endpoint::kChat},
    {"/v1/responses", "POST", Endpoint::kResponses},
    {"/tokenize", "POST", Endpoint::kTokenize},          {"/detokenize", "POST", Endpoint::kDetokenize},
    {"/v1/models", "GET", Endpoint::kModels},            {"/health", "GET", Endpoint::kHealth},
    {"/ready", "GET", Endpoint::kReady},                 {"/metrics", "GET", Endpoint::kMetrics},
    {"/version", "GET", Endpoint::kVersion},             {"/openapi.json", "GET", Endpoint::kOpenApi},
};

bool Generates(Endpoint endpoint) {
  return endpoint == Endpoint::kCompletions || endpoint == Endpoint::kChat || endpoint == Endpoint::kResponses;
}

const EndpointRow* FindRoute(const std::string& path) {
  for (const EndpointRow& row : kRoutes) {
    if (path == row.path || (row.route == Endpoint::kModels && absl::StartsWith(path, "/v1/models/"))) return &row;
  }
  return nullptr;
}

// A model's name may have a slash or a blank in it. What is no escape stays as it is.
std::string PercentDecoded(absl::string_view path) {
  std::string decoded;
  for (size_t i = 0; i < path.size(); ++i) {
    const bool escape = path[i] == '%' && i + 2 < path.size() && absl::ascii_isxdigit(static_cast<unsigned char>(path[i + 1])) &&
                        absl::ascii_isxdigit(static_cast<unsigned char>(path[i + 2]));
    if (!escape) {
      decoded += path[i];
      continue;
    }
    decoded += absl::HexStringToBytes(path.substr(i + 1, 2));
    i += 2;
  }
  return decoded;
}

constexpr char kRequestIdHeader[] = "X-Request-Id";

// What a proxy says to whom it sends a request: when it will have given it up. Another value is as none.
MonotonicTime DeadlineOf(const HttpRequest& request) {
  int64_t ms = 0;
  const std::string header = request.Header("X-Envoy-Expected-Rq-Timeout-Ms").value_or("");
  if (!absl::SimpleAtoi(header, &ms) || ms <= 0) return absl::InfiniteDuration();
  return Clock::Real()->Now() + absl::Milliseconds(ms);
}

}  // namespace

void HttpApi::Handle(HttpRequest request, std::shared_ptr<HttpResponseWriter> writer) {
  request.path = PercentDecoded(request.path);
  const std::optional<std::string> given = request.Header(kRequestIdHeader);
  const absl::Status id_status = given && !given->empty() ? CheckRequestId(kRequestIdHeader, *given) : absl::OkStatus();
  const std::string request_id = given && !given->empty() && id_status.ok() ? *given : NewRequestId();
  HttpHeaders headers = core_->options.cors.HeadersFor(request);
  headers.emplace_back(kRequestIdHeader, request_id);
  if (core_->options.cors.IsPreflight(request)) {
    absl::StatusOr<HttpHeaders> allowed = core_->options.cors.AnswerPreflight(request);
    if (!allowed.ok()) return SendError(*writer, allowed.status(), headers);
    writer->Send(200, "text/plain", "", *allowed);
    return;
  }
  const absl::StatusOr<std::shared_ptr<KeyAccount>> key = FindKey(request);
  if (!key.ok()) {
    core_->metrics.CountFinished(CodeName(key.status().code()));
    HttpHeaders all = headers;
    all.emplace_back("WWW-Authenticate", "Bearer");
    return SendError(*writer, key.status(), all);
  }
  const EndpointRow* row = FindRoute(request.path);
  if (row == nullptr) {
    const absl::Status status =
        absl::NotFoundError(absl::StrCat("unknown request URL: ", request.method, " ", ReplaceInvalidUtf8(request.path)));
    writer->Send(404, kJson, OpenAiErrorBody(WithErrorCode(status, "unknown_url")), headers);
    return;
  }
  const bool head = request.method == "HEAD" && std::string(row->method) == "GET";
  if (request.method != row->method && !head) {
    HttpHeaders all = headers;
    all.emplace_back("Allow", row->method);
    const absl::Status status = absl::InvalidArgumentError(
        absl::StrCat("method ", ReplaceInvalidUtf8(request.method), " is not allowed on ", row->path, ", only ", row->method, " is"));
    writer->Send(405, kJson, OpenAiErrorBody(WithErrorCode(status, "method_not_supported")), all);
    return;
  }
  if (!id_status.ok()) return SendError(*writer, id_status, headers);
  if (request.method == "POST") return Work(row->route, std::move(request), *key, request_id, headers, writer);
  auto answer = [&](const absl::StatusOr<std::string>& body) {
    if (!body.ok()) return SendError(*writer, body.status(), headers);
    writer->Send(200, kJson, *body, headers);
  };
  switch (row->route) {
    case Endpoint::kHealth:
      return answer(DumpJson(Json{{"status", "ok"}, {"version", Version()}}));
    case Endpoint::kVersion:
      return answer(DumpJson(Json{{"version", Version()}}));
    case Endpoint::kOpenApi:
      return answer(std::string(kOpenApiDocument));
    case Endpoint::kReady: {
      const absl::Status ready = core_->Ready();
      Json body{{"ready", ready.ok()}};
      if (!ready.ok()) body["reason"] = std::string(ready.message());
      writer->Send(ready.ok() ? 200 : 503, kJson, DumpJson(body), headers);
      return;
    }
    case Endpoint::kMetrics:
      writer->Send(200, MetricRegistry::kContentType, core_->metric_registry->RenderPrometheus(), headers);
      return;
    default:
      return answer(Models(request.path));
  }
}

// What reads a body: small ones for text at once, all others on the preparation pool.
void HttpApi::Work(Endpoint endpoint, HttpRequest request, const std::shared_ptr<KeyAccount>& key, const std::string& request_id,
                   const HttpHeaders& headers, const Writer& writer) {
  Generation::Origin origin{.key_name = key == nullptr ? "" : key->name(),
                            .key_use = nullptr,
                            .held = nullptr,
                            .trace = ParseTraceContext(request.Header(kTraceparentHeader).value_or(""),
                                                       request.Header(kTracestateHeader).value_or("")),
                            .deadline = DeadlineOf(request)};
  auto work = [this, endpoint, request_id, headers, writer](const HttpRequest& taken, const Generation::Origin& origin) {
    if (Generates(endpoint)) return Generate(taken, endpoint, request_id, headers, writer, origin);
    const absl::StatusOr<std::string> body = endpoint == Endpoint::kTokenize ? Tokenize(taken.body) : Detokenize(taken.body);
    if (!body.ok()) return SendError(*writer, body.status(), headers);
    writer->Send(200, kJson, *body, headers);
  };
  const bool generates = Generates(endpoint);
  const auto refuse = [&](const absl::Status& status) {
    if (generates) {
      core_->metrics.CountFinished(CodeName(status.code()));
      LogRefusedRequest(request_id, origin.key_name, status);
    }
    SendError(*writer, status, headers);
  };
  if (absl::Status status = core_->ModelStatus(); !status.ok()) return refuse(status);
  if (generates && key != nullptr) {
    absl::StatusOr<std::shared_ptr<KeyUse>> use = KeyUse::Begin(key, Clock::Real());
    if (!use.ok()) return refuse(use.status());
    origin.key_use = *std::move(use);
  }
  if (generates && request.body.size() <= kInlineBodyBytes) return work(request, origin);
  if (!generates && request.body.size() > kMaxTokenizeBytes) {
    const absl::Status status = absl::InvalidArgumentError(absl::StrCat("request body of ", request.body.size(), " bytes is over the limit of ",
                                                                        kMaxTokenizeBytes, " bytes of ", request.path));
    return SendError(*writer, WithErrorCode(WithParam(status, "body"), "request_too_large"), headers);
  }
  const int64_t bytes = static_cast<int64_t>(request.body.size());
  const absl::StatusOr<PreparationPool::Held> held = core_->preparation.Reserve(bytes);
  if (!held.ok()) return refuse(held.status());
  origin.held = *held;
  auto shared = std::make_shared<HttpRequest>(std::move(request));
  const auto posted = core_->preparation.Post(bytes, [work, shared, origin] { work(*shared, origin); });
  if (!posted.ok()) refuse(posted.status());
}

// A load balancer has no key. Everything else needs one, what does not exist too: who has none learns nothing.
absl::StatusOr<std::shared_ptr<KeyAccount>> HttpApi::FindKey(const HttpRequest& request) const {
  if (request.path == "/health" || request.path == "/ready") return std::shared_ptr<KeyAccount>();
  return core_->FindKey(request.Header("Authorization").value_or(""), KeyRole::kClient);
}

absl::StatusOr<OpenAiRequest> HttpApi::Parse(const std::string& body, Endpoint endpoint, const Generation::Origin& origin) {
  BATON_ASSIGN_OR_RETURN(OpenAiRequest request,
                         endpoint == Endpoint::kResponses ? ParseResponsesRequest(body) : ParseOpenAiRequest(body, endpoint == Endpoint::kChat));
  if (origin.key_use != nullptr) BATON_RETURN_IF_ERROR(origin.key_use->Extend(static_cast<int64_t>(request.requests.size()) - 1));
  return request;
}

void HttpApi::Generate(const HttpRequest& request, Endpoint endpoint, const std::string& request_id, const HttpHeaders& headers,
                       const Writer& writer, const Generation::Origin& origin) {
  absl::StatusOr<OpenAiRequest> parsed = Parse(request.body, endpoint, origin);
  if (!parsed.ok()) {
    if (origin.key_use != nullptr) origin.key_use->EndAll();
    core_->metrics.CountFinished(CodeName(parsed.status().code()));
    LogRefusedRequest(request_id, origin.key_name, parsed.status());
    return SendError(*writer, parsed.status(), headers);
  }
  if (!core_->model.no_text.empty()) parsed->return_token_ids = true;  // Else the answer would be empty.
  for (size_t i = 0; parsed->echo_token_ids && i < parsed->requests.size(); ++i) {
    const auto& ids = parsed->requests[i].token_ids().ids();
    parsed->echo[i] = core_->model.tokenizer->Decode({ids.data(), static_cast<size_t>(ids.size())},
                                                     parsed->requests[i].skip_special_tokens_off());
  }
  core_->metrics.unknown_fields->Increment(static_cast<uint64_t>(parsed->num_unknown_fields));
  for (v1::GenerateRequest& one : parsed->requests) {
    if (one.request_id().empty()) one.set_request_id(request_id);
  }
  HttpGeneration::Start(core_, *std::move(parsed), request_id, headers, writer, origin);
}

absl::StatusOr<std::string> HttpApi::Tokenize(const std::string& body) {
  BATON_ASSIGN_OR_RETURN(const Json json, ParseOrderedJson(body));
  if (!json.is_object()) return absl::InvalidArgumentError("body is not an object");
  JsonFields fields(json);
  v1::GenerateRequest request;
  BATON_ASSIGN_OR_RETURN(const std::optional<std::string> model, fields.GetString("model"));
  request.set_model(model.value_or(""));
  BATON_ASSIGN_OR_RETURN(const std::optional<std::string> prompt, fields.GetString("prompt"));
  BATON_ASSIGN_OR_RETURN(const std::optional<bool> add_special, fields.GetBool("add_special_tokens"));
  BATON_ASSIGN_OR_RETURN(const std::optional<bool> texts, fields.GetBool("return_token_strs"));
  if (prompt) {
    request.set_text(*prompt);
  } else {
    BATON_RETURN_IF_ERROR(ReadChat(fields, request.mutable_chat()));
  }
  if (add_special) request.set_add_special_tokens(*add_special);
  std::vector<int32_t> tokens;
  if (!prompt || !prompt->empty()) {  // Here an empty text is no error: it has no tokens.
    BATON_RETURN_IF_ERROR(CheckRequest(request, core_->model));
    BATON_ASSIGN_OR_RETURN(tokens, TokenisePrompt(request, core_->model, nullptr));
  }
  Json answer{{"count", tokens.size()}, {"tokens", tokens}};
  const absl::StatusOr<ModelLimits> limits = core_->Limits();
  answer["max_model_len"] = limits.ok() ? Json(limits->context_length()) : Json();
  if (texts.value_or(false)) {
    Json strings = Json::array();
    for (const int32_t id : tokens) strings.push_back(std::string(core_->model.tokenizer->TokenText(id)));
    answer["token_strs"] = std::move(strings);
  }
  return DumpJson(answer);
}

absl::StatusOr<std::string> HttpApi::Detokenize(const std::string& body) {
  BATON_ASSIGN_OR_RETURN(const Json json, ParseOrderedJson(body));
  if (!json.is_object()) return absl::InvalidArgumentError("body is not an object");
  JsonFields fields(json);
  const Json* tokens = fields.Find("tokens");
  if (tokens == nullptr || !tokens->is_array()) return InvalidField("tokens", "is missing, or not an array of token ids");
  if (!core_->model.no_text.empty()) return InvalidField("tokens", absl::StrCat("have no text: ", core_->model.no_text));
  const int vocab_size = core_->model.tokenizer->vocab_size();
  std::vector<int32_t> ids;
  for (const Json& entry : *tokens) {
    const std::optional<int64_t> id = entry.is_number() ? ToWholeNumber(entry) : std::nullopt;
    if (!id || *id < 0 || *id >= vocab_size) {
      return InvalidField("tokens", absl::StrCat("has ", DescribeJson(entry), ", no token id in [0, ", vocab_size, ")"));
    }
    ids.push_back(static_cast<int32_t>(*id));
  }
  return DumpJson(Json{{"prompt", core_->model.tokenizer->Decode(ids, /*keep_special=*/true)}});
}

absl::StatusOr<std::string> HttpApi::Models(const std::string& path) const {
  BATON_RETURN_IF_ERROR(core_->ModelStatus());
  const absl::StatusOr<ModelLimits> limits = core_->Limits();
  const Json model{{"id", core_->model.name},
                   {"object", "model"},
                   {"created", core_->model.created_unix_s},
                   {"owned_by", "baton"},
                   {"max_model_len", limits.ok() ? Json(limits->context_length()) : Json()}};
  constexpr absl::string_view kPrefix = "/v1/models/";
  if (!absl::StartsWith(path, kPrefix)) return DumpJson(Json{{"object", "list"}, {"data", Json::array({model})}});
  if (path.substr(kPrefix.size()) == core_->model.name) return DumpJson(model);
  return ModelNotFound(path.substr(kPrefix.size()), core_->model);
}

}  // namespace baton
