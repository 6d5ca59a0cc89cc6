// SPDX-License-Identifier: Apache-2.0
#include "common/http/request_reader.h"

#include <algorithm>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace baton {
namespace {

namespace http = boost::beast::http;

std::string ToString(boost::beast::string_view text) { return std::string(text.data(), text.size()); }

// Room beside the header limit for a chunk's size line, its extensions and the trailer.
constexpr size_t kFramingBytes = 8192;

}  // namespace

struct RequestReader::Parser : http::request_parser<http::string_body> {};

RequestReader::RequestReader(size_t max_header_bytes, size_t max_body_bytes)
    : max_header_bytes_(std::min<size_t>(max_header_bytes, std::numeric_limits<uint32_t>::max())),
      max_body_bytes_(max_body_bytes),
      parser_(std::make_unique<Parser>()) {
  parser_->header_limit(static_cast<uint32_t>(max_header_bytes_));
  parser_->body_limit(max_body_bytes);
}

RequestReader::~RequestReader() = default;

size_t RequestReader::Consume(absl::string_view input) {
  size_t taken = 0;
  // Empty lines before a request are ignored (RFC 9112 section 2.2).
  while (!started_ && absl::StartsWith(input, "\r\n")) {
    input.remove_prefix(2);
    taken += 2;
  }
  if (input.empty() || input == "\r") return taken;
  started_ = true;
  while (state_ == State::kHeader || state_ == State::kBody) {
    const bool in_header = state_ == State::kHeader;
    boost::system::error_code error;
    const size_t used = parser_->put(boost::asio::const_buffer(input.data(), input.size()), error);
    input.remove_prefix(used);
    taken += used;
    if (error == http::error::need_more) {
      if (used == 0 && input.size() > max_header_bytes_ + kFramingBytes) Fail(431, absl::StrCat("header or trailer over the limit of ", max_header_bytes_, " bytes"), "header");
      break;
    }
    if (error == http::error::header_limit) {
      Fail(431, absl::StrCat("request header over the limit of ", max_header_bytes_, " bytes"), "header");
    } else if (error == http::error::body_limit) {
      FailBodyLimit();
    } else if (error == http::error::bad_version) {
      Fail(505, "only HTTP/1.0 and HTTP/1.1 are spoken here");
    } else if (error) {
      Fail(400, absl::StrCat("malformed request: ", error.message()));
    } else if (in_header && parser_->is_header_done()) {
      OnHeader();
      break;
    } else if (parser_->is_done()) {
      state_ = State::kDone;
    } else if (input.empty()) {
      break;
    }
  }
  return taken;
}

void RequestReader::OnHeader() {
  const auto& message = parser_->get();
  request_.method = ToString(message.method_string());
  request_.target = ToString(message.target());
  request_.http_1_0 = message.version() < 11;
  request_.keep_alive = message.keep_alive();
  // Copied now: Beast adds the trailer's fields to the same list later.
  for (const auto& field : message) request_.headers.emplace_back(ToString(field.name_string()), ToString(field.value()));

  absl::string_view target = request_.target;
  if (absl::StartsWithIgnoreCase(target, "http://")) {  // Absolute form, as sent to proxies.
    const size_t slash = target.find('/', 7);
    target = slash == absl::string_view::npos ? "/" : target.substr(slash);
  }
  if (!absl::StartsWith(target, "/") && target != "*") return Fail(400, "the request target must begin with /");
  const size_t question = target.find('?');
  request_.path = std::string(target.substr(0, question));
  if (question != absl::string_view::npos) request_.query = std::string(target.substr(question + 1));

  const auto hosts = std::count_if(request_.headers.begin(), request_.headers.end(),
                                   [](const auto& header) { return absl::EqualsIgnoreCase(header.first, "Host"); });
  if (hosts > 1 || (hosts == 0 && !request_.http_1_0)) return Fail(400, "exactly one Host header is needed");
  if (const std::optional<std::string> encoding = request_.Header("Transfer-Encoding")) {
    if (request_.http_1_0) return Fail(400, "Transfer-Encoding in an HTTP/1.0 request");
    if (request_.Header("Content-Length")) return Fail(400, "both Content-Length and Transfer-Encoding");
    if (!absl::EqualsIgnoreCase(*encoding, "chunked")) return Fail(501, "the only transfer encoding here is chunked");
  }
  state_ = parser_->is_done() ? State::kDone : State::kBody;
  if (const std::optional<std::string> expect = request_.Header("Expect"); expect && !request_.http_1_0) {
    if (!absl::EqualsIgnoreCase(*expect, "100-continue")) return Fail(417, "the only expectation met here is 100-continue");
    expects_continue_ = state_ == State::kBody;
  }
}

size_t RequestReader::body_bytes() const { return parser_->get().body().size(); }

HttpRequest RequestReader::TakeRequest() {
  request_.body = std::move(parser_->get().body());
  return std::move(request_);
}

// The parser has the length of a body that says how long it is, also when it refuses it; of chunks nobody knows.
void RequestReader::FailBodyLimit() {
  const auto length = parser_->content_length();
  Fail(413,
       length ? absl::StrCat("request body of ", *length, " bytes is over the limit of ", max_body_bytes_, " bytes")
              : absl::StrCat("request body is over the limit of ", max_body_bytes_, " bytes"),
       "body");
}

void RequestReader::Fail(int status, std::string message, std::string param) {
  state_ = State::kError;
  error_ = {.status = status, .message = std::move(message), .param = std::move(param)};
}

}  // namespace baton
