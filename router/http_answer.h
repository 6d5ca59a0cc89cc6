// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_ROUTER_HTTP_ANSWER_H_
#define BATON_ROUTER_HTTP_ANSWER_H_

#include <string>

#include "absl/status/status.h"
#include "baton/v1/generation.pb.h"

namespace baton {

// Builds the bodies of one HTTP answer in the form of its API: either Add everything and take Whole(), or turn every response into
// server-sent events. One thread.
class HttpAnswer {
 public:
  virtual ~HttpAnswer() = default;

  // The events ("data: ...\n\n" each) for a response of prompt `prompt`; may be empty.
  virtual std::string Events(int prompt, const v1::GenerateResponse& response) = 0;
  // After the last response.
  virtual std::string LastEvents() = 0;
  // An error after the first byte. Nothing follows it.
  virtual std::string ErrorEvent(const absl::Status& status) = 0;

  // For an answer in one piece.
  virtual void Add(int prompt, const v1::GenerateResponse& response) = 0;
  virtual std::string Whole() = 0;
};

}  // namespace baton

#endif  // BATON_ROUTER_HTTP_ANSWER_H_
