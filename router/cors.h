// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_ROUTER_CORS_H_
#define BATON_ROUTER_CORS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/http/http_message.h"

namespace baton {

// Which web pages may read the answers of the HTTP API: a browser asks for it (fetch.spec.whatwg.org), other clients don't. It
// keeps nobody from asking; keys do that. Immutable.
class Cors {
 public:
  Cors() = default;  // None: no answer says anything of it.
  // Origins like "https://chat.example.org:8443", separated by commas, or "*" for all of them; empty: none.
  //   INVALID_ARGUMENT  names the one that is no origin.
  static absl::StatusOr<Cors> Parse(absl::string_view origins);

  bool on() const { return any_ || !origins_.empty(); }
  // A browser's question whether it may send a request. It has no key, whatever the request will have.
  bool IsPreflight(const HttpRequest& request) const;
  // The headers that allow it.
  //   PERMISSION_DENIED  not to a page of that origin; names it.
  absl::StatusOr<HttpHeaders> AnswerPreflight(const HttpRequest& request) const;
  // What the answer to a request needs so that the page that sent it may read it; nothing where it may not.
  HttpHeaders HeadersFor(const HttpRequest& request) const;

 private:
  bool any_ = false;
  std::vector<std::string> origins_;
};

}  // namespace baton

#endif  // BATON_ROUTER_CORS_H_
