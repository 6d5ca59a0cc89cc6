// SPDX-License-Identifier: Apache-2.0
#include "router/cors.h"

#include <algorithm>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/utf8.h"

namespace baton {
namespace {

constexpr size_t kMaxRequestedBytes = 1024;

// scheme://host[:port], as browsers write it: lower case, no path.
bool IsOrigin(absl::string_view text) {
  const size_t scheme = text.find("://");
  if (scheme == absl::string_view::npos || scheme == 0 || scheme + 3 == text.size()) return false;
  return std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7f && !absl::ascii_isupper(static_cast<unsigned char>(c)); }) &&
         text.find_first_of("/?#@,*", scheme + 3) == absl::string_view::npos;
}

// Names of headers as they may be repeated in an answer.
bool IsHeaderList(absl::string_view text) {
  return text.size() <= kMaxRequestedBytes && std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) || absl::StrContains("-_, ", c);
         });
}

}  // namespace

absl::StatusOr<Cors> Cors::Parse(absl::string_view origins) {
  Cors cors;
  for (absl::string_view origin : absl::StrSplit(origins, ',', absl::SkipWhitespace())) {
    origin = absl::StripAsciiWhitespace(origin);
    if (origin == "*") {
      cors.any_ = true;
    } else if (IsOrigin(origin)) {
      cors.origins_.emplace_back(origin);
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("--allowed-origins: \"", origin, "\" is no origin like https://chat.example.org or http://localhost:3000, and not *"));
    }
  }
  return cors;
}

bool Cors::IsPreflight(const HttpRequest& request) const {
  return on() && request.method == "OPTIONS" && request.Header("Origin") && request.Header("Access-Control-Request-Method");
}

HttpHeaders Cors::HeadersFor(const HttpRequest& request) const {
  const std::optional<std::string> origin = on() ? request.Header("Origin") : std::nullopt;
  HttpHeaders headers;
  // A cache must not hand one page's answer to another.
  if (on() && !any_) headers.emplace_back("Vary", "Origin");
  if (!origin || (!any_ && std::find(origins_.begin(), origins_.end(), *origin) == origins_.end())) return headers;
  headers.emplace_back("Access-Control-Allow-Origin", any_ ? "*" : *origin);
  headers.emplace_back("Access-Control-Expose-Headers", "X-Request-Id, Retry-After");
  return headers;
}

absl::StatusOr<HttpHeaders> Cors::AnswerPreflight(const HttpRequest& request) const {
  HttpHeaders headers = HeadersFor(request);
  if (!FindHeader(headers, "Access-Control-Allow-Origin")) {
    return absl::PermissionDeniedError(
        absl::StrCat("origin ", ReplaceInvalidUtf8(request.Header("Origin").value_or("")), " is not among --allowed-origins"));
  }
  headers.emplace_back("Access-Control-Allow-Methods", "GET, HEAD, POST");
  // "*" would not stand for Authorization.
  const std::string wanted = request.Header("Access-Control-Request-Headers").value_or("");
  headers.emplace_back("Access-Control-Allow-Headers", wanted.empty() || !IsHeaderList(wanted) ? "Authorization, Content-Type, X-Request-Id" : wanted);
  headers.emplace_back("Access-Control-Max-Age", "600");
  return headers;
}

}  // namespace baton
