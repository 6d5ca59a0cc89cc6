// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_ROUTER_HTTP_API_H_
#define BATON_ROUTER_HTTP_API_H_

#include <memory>
#include <string>

#include "common/http/http_server.h"
#include "router/generation.h"
#include "router/openai_request.h"
#include "router/router_core.h"

namespace baton {

// The OpenAI-compatible API, and what a load balancer asks: which path does what. Thread-safe; never blocks the server's
// threads (large bodies and templates go to the preparation pool).
//
//   POST /v1/completions, /v1/chat/completions, /v1/responses, /tokenize, /detokenize
//   GET  /v1/models, /v1/models/NAME, /health, /ready, /metrics, /version, /openapi.json
class HttpApi {
 public:
  enum class Endpoint { kCompletions, kChat, kResponses, kTokenize, kDetokenize, kModels, kHealth, kReady, kMetrics, kVersion, kOpenApi };

  // `core` outlives this and the server.
  explicit HttpApi(RouterCore* core) : core_(core) {}

  void Handle(HttpRequest request, std::shared_ptr<HttpResponseWriter> writer);

 private:
  using Writer = std::shared_ptr<HttpResponseWriter>;

  void Work(Endpoint endpoint, HttpRequest request, const std::shared_ptr<KeyAccount>& key, const std::string& request_id,
            const HttpHeaders& headers, const Writer& writer);
  void Generate(const HttpRequest& request, Endpoint endpoint, const std::string& request_id, const HttpHeaders& headers,
                const Writer& writer, const Generation::Origin& origin);
  absl::StatusOr<std::shared_ptr<KeyAccount>> FindKey(const HttpRequest& request) const;
  absl::StatusOr<OpenAiRequest> Parse(const std::string& body, Endpoint endpoint, const Generation::Origin& origin);
  absl::StatusOr<std::string> Tokenize(const std::string& body);
  absl::StatusOr<std::string> Detokenize(const std::string& body);
  absl::StatusOr<std::string> Models(const std::string& path) const;

  RouterCore* const core_;
};

}  // namespace baton

#endif  // BATON_ROUTER_HTTP_API_H_
