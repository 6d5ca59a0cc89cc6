// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_HTTP_REQUEST_READER_H_
#define BATON_COMMON_HTTP_REQUEST_READER_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "common/http/http_message.h"

namespace baton {

// Turns the bytes of a connection into one request. Pure: no sockets, no time. Beast's parser does the grammar; what it
// lets pass that could be read in two ways (a length and chunks, foreign transfer encodings, no or two hosts) is refused
// here.
class RequestReader {
 public:
  enum class State { kHeader, kBody, kDone, kError };
  struct Error {
    int status = 0;  // To answer with, 4xx or 5xx.
    std::string message;
    std::string param;  // "body" or "header" where a limit was passed; else empty.
  };

  RequestReader(size_t max_header_bytes, size_t max_body_bytes);
  ~RequestReader();

  // Takes what it can from the front of `input` and returns how many bytes that was; the rest is to be offered again with
  // more behind it. Stops after the header once (state kBody or kDone) so that the caller can answer an expectation, and
  // never takes bytes of the next request.
  size_t Consume(absl::string_view input);

  State state() const { return state_; }
  // Whether any byte of this request has been seen.
  bool started() const { return started_; }
  // In state kBody: the client waits for "100 Continue" before it sends the body.
  bool expects_continue() const { return expects_continue_; }
  // Bytes of body held so far.
  size_t body_bytes() const;
  // In state kError.
  const Error& error() const { return error_; }
  // In state kDone, once. `remote_address` stays empty.
  HttpRequest TakeRequest();

 private:
  struct Parser;  // Hides Beast, which takes seconds to compile.
  void OnHeader();
  void Fail(int status, std::string message, std::string param = "");
  void FailBodyLimit();

  const size_t max_header_bytes_, max_body_bytes_;
  const std::unique_ptr<Parser> parser_;
  HttpRequest request_;
  State state_ = State::kHeader;
  bool started_ = false;
  bool expects_continue_ = false;
  Error error_;
};

}  // namespace baton

#endif  // BATON_COMMON_HTTP_REQUEST_READER_H_
