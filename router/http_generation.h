// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_ROUTER_HTTP_GENERATION_H_
#define BATON_ROUTER_HTTP_GENERATION_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "common/http/http_server.h"
#include "router/generation.h"
#include "router/http_answer.h"
#include "router/openai_request.h"
#include "router/router_core.h"

namespace baton {

// Sends an error as a whole response, with its HTTP status and headers.
void SendError(HttpResponseWriter& writer, const absl::Status& status, const HttpHeaders& headers);

// One HTTP request for generated text: a generation per prompt of its batch, one answer. The head of a stream is sent with
// the first token, so that an error before it has its own status; an error after it is an event. A stream on which nothing
// was sent for `sse_keepalive` gets a comment, so that nobody on the way takes it for dead; if that is before the first
// token, the head goes with it, and errors from then on are events. Thread-safe.
class HttpGeneration : public std::enable_shared_from_this<HttpGeneration> {
 public:
  // `core` outlives it; it keeps itself alive until the answer is complete. `headers` go into every answer.
  static void Start(RouterCore* core, OpenAiRequest request, std::string request_id, HttpHeaders headers,
                    std::shared_ptr<HttpResponseWriter> writer, const Generation::Origin& origin);

 private:
  HttpGeneration(RouterCore* core, const OpenAiRequest& request, std::string request_id, HttpHeaders headers,
                 std::shared_ptr<HttpResponseWriter> writer);
  void OnResponse(int prompt, const v1::GenerateResponse& response);
  void OnEnd(const absl::Status& status);
  // Sends pieces of a stream, its head first. Sets cancelled_ when the client is gone, or was cut.
  void WriteEvents(absl::string_view events) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ScheduleKeepAlive() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void KeepAlive();
  // Ends what is left of the batch; `why` is what the first call says.
  void CancelAll(const absl::Status& why);

  RouterCore* const core_;
  const bool stream_;
  const ToolUse tools_;
  const bool responses_;                          // Errors name the fields of /v1/responses.
  const std::vector<std::string> message_names_;  // Of it.
  const HttpHeaders headers_;
  const std::shared_ptr<HttpResponseWriter> writer_;
  Mutex mutex_;
  const std::unique_ptr<HttpAnswer> answer_ ABSL_PT_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Generation>> generations_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Generation>> ending_ ABSL_GUARDED_BY(mutex_);  // Of a batch that failed.
  absl::Status cancelled_ ABSL_GUARDED_BY(mutex_);
  size_t num_open_ ABSL_GUARDED_BY(mutex_);
  MonotonicTime last_write_ ABSL_GUARDED_BY(mutex_);
  Timers::Id keepalive_ ABSL_GUARDED_BY(mutex_) = 0;
  bool begun_ ABSL_GUARDED_BY(mutex_) = false;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace baton

#endif  // BATON_ROUTER_HTTP_GENERATION_H_
