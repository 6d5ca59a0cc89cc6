// SPDX-License-Identifier: Apache-2.0
#include "common/http/http_message.h"

#include <utility>

#include "absl/strings/match.h"
#include "common/base/json.h"

namespace baton {

std::optional<std::string> FindHeader(const HttpHeaders& headers, absl::string_view name) {
  for (const auto& [key, value] : headers) {
    if (absl::EqualsIgnoreCase(key, name)) return value;
  }
  return std::nullopt;
}

const char* HttpReason(int status) {
  switch (status) {
    case 200: return "OK";
    case 201: return "Created";
    case 202: return "Accepted";
    case 204: return "No Content";
    case 304: return "Not Modified";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 409: return "Conflict";
    case 413: return "Payload Too Large";
    case 415: return "Unsupported Media Type";
    case 417: return "Expectation Failed";
    case 422: return "Unprocessable Entity";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 499: return "Client Closed Request";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 502: return "Bad Gateway";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    case 505: return "HTTP Version Not Supported";
    default: return "Unknown";
  }
}

const char* HttpErrorCode(int status) {
  switch (status) {
    case 400: return "bad_request";
    case 401: return "unauthorized";
    case 403: return "forbidden";
    case 404: return "not_found";
    case 405: return "method_not_supported";
    case 408: return "request_timeout";
    case 409: return "conflict";
    case 413: return "request_too_large";
    case 415: return "unsupported_media_type";
    case 417: return "expectation_failed";
    case 422: return "unprocessable";
    case 429: return "overloaded";
    case 431: return "header_too_large";
    case 499: return "cancelled";
    case 500: return "internal_error";
    case 501: return "not_implemented";
    case 502: return "bad_gateway";
    case 503: return "unavailable";
    case 504: return "timeout";
    case 505: return "http_version_not_supported";
    default: return "unknown";
  }
}

std::string HttpErrorBody(int status, absl::string_view message, absl::string_view param) {
  nlohmann::ordered_json error;
  error["message"] = std::string(message);
  error["type"] = status < 500 ? "invalid_request_error" : "server_error";
  error["param"] = param.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(std::string(param));
  error["code"] = HttpErrorCode(status);
  return DumpJson(nlohmann::ordered_json{{"error", std::move(error)}});
}

}  // namespace baton
