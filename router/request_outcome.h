// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_ROUTER_REQUEST_OUTCOME_H_
#define BATON_ROUTER_REQUEST_OUTCOME_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "common/base/clock.h"
#include "router/phase_clock.h"
#include "router/request_flow.h"

namespace baton {

// A request that has ended, as its log line and its spans tell it: never its text.
struct RequestOutcome {
  std::string id;
  std::string key_name;   // Of its API key; empty: none was needed.
  std::string client_id;  // The client's own id for it; empty: none.
  std::string trace_id;   // Empty: not recorded.
  std::string model;
  bool chat = false;  // Of messages, not of a prompt.
  std::string finish_reason;  // Of the first choice, where the request has gone well.
  int64_t num_prompt_tokens = 0, num_completion_tokens = 0;
  MonotonicTime begin{}, end{};
  absl::Status status;
  // Both outlive it. Of several choices that which ended last: its phases reach to the end.
  const PhaseClock* phases = nullptr;
  const RequestFlow::Summary* summary = nullptr;  // Null: it never came so far.
};

}  // namespace baton

#endif  // BATON_ROUTER_REQUEST_OUTCOME_H_
