// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_INTEGRATION_WORKER_PAIR_H_
#define BATON_TESTS_INTEGRATION_WORKER_PAIR_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "baton/internal/decode.grpc.pb.h"
#include "baton/internal/prefill.grpc.pb.h"
#include "common/base/bounded_queue.h"
#include "common/rpc/event_stream.h"
#include "common/rpc/server.h"
#include "common/worker/worker_runtime.h"
#include "decode_worker/decode_service.h"
#include "prefill_worker/prefill_service.h"
#include "tests/support/sanitizers.h"

namespace baton::testing {

// A worker's runtime, services and server in this process, on a free port.
struct TestPrefillWorker {
  explicit TestPrefillWorker(const WorkerOptions& options);
  ~TestPrefillWorker();
  std::unique_ptr<WorkerRuntime> runtime;
  std::unique_ptr<PrefillService> service;
  std::unique_ptr<RpcServer> server;
};
struct TestDecodeWorker {
  explicit TestDecodeWorker(const WorkerOptions& options);
  ~TestDecodeWorker();
  std::unique_ptr<WorkerRuntime> runtime;
  std::unique_ptr<DecodeService> service;
  std::unique_ptr<RpcServer> server;
};

// A stream that a test drives message by message: what comes back is queued.
template <class Stub, class Request, class Response>
class ScriptedStream {
 public:
  using Stream = ClientEventStream<Request, Response>;
  ScriptedStream() : events_(std::make_shared<BoundedQueue<Response>>(1 << 16)) {
    auto events = events_;
    stream_ = Stream::Create({.on_message = [events](Response&& event) { events->ForcePush(std::move(event)); },
                              .on_done = [events](absl::Status) { events->Close(); }});
  }
  ~ScriptedStream() {
    stream_->Cancel();
    while (!events_->closed()) events_->Pop(absl::Milliseconds(100));
  }
  Stream* stream() { return stream_.get(); }
  void Send(Request request) { stream_->SendLast(std::move(request)); }
  // The next message, or nothing when the call is over or none came within 20 s.
  std::optional<Response> Next() { return events_->Pop(absl::Seconds(20 * kSlowness)); }

 private:
  std::shared_ptr<BoundedQueue<Response>> events_;
  std::shared_ptr<Stream> stream_;
};

using DecodeStream = ScriptedStream<internal::DecodeWorker::Stub, internal::DecodeRequest, internal::DecodeEvent>;
using PrefillStream = ScriptedStream<internal::PrefillWorker::Stub, internal::PrefillRequest, internal::PrefillEvent>;

std::unique_ptr<DecodeStream> OpenDecode(const std::string& address);
std::unique_ptr<PrefillStream> OpenPrefill(const std::string& address);

// Greedy, `max_tokens`, for the model that `runtime` has.
internal::DecodeRequest MakeStart(const WorkerRuntime& runtime, uint64_t stream, const std::vector<int32_t>& tokens,
                                  int max_tokens, bool local);
// `with_history`: what prefill wants of decode's cache is handed on, as by PrefillResult.
internal::PrefillRequest MakePrefill(const internal::DecodeRequest& start, const internal::LandingEvent& landing, bool with_history = false);
// What a prefill worker wants of decode, as the router hands it on.
internal::DecodeRequest MakeSendHistory(int attempt, const internal::WantsHistory& wants);

// Done or Failed of a Prefill call. What it wants of decode's cache before is handed on; that it failed is not.
std::optional<internal::PrefillEvent> PrefillResult(PrefillStream* prefill, DecodeStream* decode, int attempt);

// Reads tokens until the last; nothing when the stream ended otherwise.
std::optional<std::vector<int32_t>> ReadTokens(DecodeStream* stream);

// The sum over the series of `name` whose labels hold `labels` as text, in the order of their names: result="ok",transport="shm".
double Metric(WorkerRuntime& runtime, absl::string_view name, absl::string_view labels = "");

// Waits (bounded) until `done` holds; false when it never did.
bool Eventually(const std::function<bool()>& done);

}  // namespace baton::testing

#endif  // BATON_TESTS_INTEGRATION_WORKER_PAIR_H_
