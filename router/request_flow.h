// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_ROUTER_REQUEST_FLOW_H_
#define BATON_ROUTER_REQUEST_FLOW_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "baton/internal/decode.pb.h"
#include "baton/internal/prefill.pb.h"
#include "common/base/clock.h"
#include "router/admission.h"
#include "router/phase_clock.h"

namespace baton {

// Why decode has to compute a prompt that was meant for a prefill worker, in the timeline.
inline constexpr absl::string_view kNoPrefillWorker = "no prefill worker left";
// So few tokens that a sibling does not share (its last block's) are computed where it lands: a row panel's.
inline constexpr int64_t kMaxTailTokens = 64;

struct FlowOptions {
  int prefill_attempts = 2;  // Per stream, then decode prefills locally.
  int max_deaths = 2;        // So many worker deaths end a request: it may be what kills them.
  int max_streams = 4;       // Streams opened before giving up; refusals do not count.
  int max_refusals = 64;
  PlacementOptions placement;  // For routes that have costs.
  absl::Duration queue_timeout = absl::Seconds(30);
  absl::Duration landing_timeout = absl::Seconds(10);
  absl::Duration transfer_timeout = absl::Seconds(120);
  absl::Duration credit_timeout = absl::Seconds(2);    // For the next prefill worker; then decode prefills locally.
  absl::Duration token_timeout = absl::Seconds(60);
  absl::Duration done_timeout = absl::Milliseconds(100);  // After the last token, for the landed attempt's PrefillDone.
  absl::Duration stop_timeout = absl::Seconds(5);      // For a worker's answer to Stop or Cancel; then the call is cut.
};

// What the shell has to do. Calls are named by (stream) and (stream, attempt).
struct FlowAction {
  enum class Kind {
    kAcquire,           // Credits, as FillRouteRequest says; answered by OnRoute with the same `ticket`.
    kForgetAcquire,     // `ticket` is not wanted any more. An answer already on its way may still come.
    kOpenDecode,        // Open the Decode stream at `worker` and send Start{prompt, emitted()}, prefill_locally as said.
    kSendAttempt,       // On the Decode stream.
    kSendPrefillLocally,
    kSendHistory,       // On the Decode stream: what the Prefill call of (stream, attempt) `wants`.
    kSendStop,
    kOpenPrefill,       // Open a Prefill call at `worker` and send Start with `landing`.
    kCancelPrefill,     // By message.
    kSendHistoryFailed,  // To that Prefill call: `status` says why.
    kAbandonDecode,     // Cut the call: its worker is lost, or does not answer.
    kAbandonPrefill,
    kRelease,           // A credit of `worker`; `refused`: it would not or could not take the call.
    kEndRecovery,       // A stream whose route said `recovering` has landed at `worker`, or left it before.
    kEmit,              // `tokens` to the client, in order.
    kRecovery,          // For the counters: `detail` is "prefill" or "decode".
    kEnd,               // The request's outcome; the last action that concerns the client.
  };
  Kind kind;
  uint64_t ticket = 0;  // Unique within the flow.
  int stream = 0;
  int attempt = 0;
  WorkerRef worker;
  int64_t num_tokens = 0;  // kRelease: the credit's.
  bool prefill_locally = false;
  bool refused = false;
  internal::LandingEvent landing;
  internal::WantsHistory wants;
  std::vector<internal::GeneratedToken> tokens;
  std::string detail;
  absl::Status status;
};
using FlowActions = std::vector<FlowAction>;

// One choice of one request, as the handoff protocol has it (README.md has the table): events in, actions out. Pure: no
// threads, no I/O, time is an argument. Events of streams that were left, and all events after the end, only return
// credits.
class RequestFlow {
 public:
  enum class State { kQueued, kLanding, kPrefill, kRetry, kRunning, kEnded };

  // `num_tokens`: of the prompt; `clock` has the phases before the queue.
  RequestFlow(const FlowOptions& options, int64_t num_tokens, PhaseClock clock);

  void Begin(MonotonicTime now, FlowActions* actions);
  // The same for a choice beside one that has landed: it is no new request to the queue. `clock` had the other one's phases.
  void BeginBeside(MonotonicTime now, FlowActions* actions);

  // The answer to kAcquire. After kForgetAcquire the credits go back.
  void OnRoute(uint64_t ticket, absl::StatusOr<Route> route, MonotonicTime now, FlowActions* actions);

  // The Decode stream. OnDecodeEnd: the call is over, with the call's status.
  void OnDecodeEvent(int stream, internal::DecodeEvent event, MonotonicTime now, FlowActions* actions);
  void OnDecodeEnd(int stream, const absl::Status& status, MonotonicTime now, FlowActions* actions);
  // A Prefill call.
  void OnPrefillEvent(int stream, int attempt, const internal::PrefillEvent& event, MonotonicTime now, FlowActions* actions);
  void OnPrefillEnd(int stream, int attempt, const absl::Status& status, MonotonicTime now, FlowActions* actions);

  // A worker is lost although its connections may look open (silent, or replaced by another run).
  void OnWorkerLost(const WorkerRef& worker, const std::string& reason, MonotonicTime now, FlowActions* actions);
  // A worker has left the cluster; what runs there goes on or ends by itself, but nothing new is asked of it.
  void OnWorkerLeft(const WorkerRef& worker, MonotonicTime now, FlowActions* actions);
  // Due at NextDeadline(); early calls do nothing.
  void OnTimer(MonotonicTime now, FlowActions* actions);
  // Another choice of the request makes progress: this one does not give up its place in the queue before `deadline`.
  void ExtendQueue(MonotonicTime deadline);
  // The client is gone (CANCELLED), cut (other errors), or has all it wanted (OK: a stop string was found).
  void OnClientEnd(const absl::Status& status, MonotonicTime now, FlowActions* actions);

  // InfiniteFuture when nothing is waited for.
  MonotonicTime NextDeadline() const;
  State state() const { return state_; }
  // Ended, and every call has ended too: nothing more will happen.
  bool closed() const { return state_ == State::kEnded && decode_calls_.empty() && prefill_calls_.empty(); }
  // Whether the call's last message, or its end, is still to come.
  bool decode_open(int stream) const { return decode_calls_.contains(stream); }
  bool prefill_open(int stream, int attempt) const { return prefill_calls_.contains({stream, attempt}); }
  bool resumed() const { return resumed_; }

  const std::vector<int32_t>& emitted() const { return emitted_; }
  // Tokens a worker will hold: prompt and emitted.
  int64_t num_tokens() const { return num_prompt_tokens_ + static_cast<int64_t>(emitted_.size()); }
  // For kAcquire: what it needs, and where it must, must not and should not go. Leaves ticket, priority, total_tokens and
  // cached_on alone.
  void FillRouteRequest(RouteRequest* request) const;
  const Route& route() const { return route_; }
  const PhaseClock& phases() const { return phases_; }
  // What the client is told about how it was served; complete at the end.
  struct Summary {
    std::string prefill_worker, decode_worker, reason, transport;
    bool disaggregated = false;
    int64_t kv_bytes = 0;
    int attempts = 0;    // Landings and local prefills asked for, over all streams.
    int recoveries = 0;  // Times the request went on elsewhere after something was lost.
    int cached_tokens = 0;
    int history_tokens = 0;  // Among them: the prefill worker had them sent by the decode worker.
  };
  const Summary& summary() const { return summary_; }

 private:
  struct DecodeCall {
    WorkerRef worker;
    int64_t num_tokens = 0;  // As taken from the credit.
    bool recovering = false;  // kEndRecovery is to come.
    MonotonicTime cut_at = absl::InfiniteDuration();
  };
  struct PrefillCall {
    WorkerRef worker;
    int64_t num_tokens = 0;
    bool cancelled = false;
    MonotonicTime cut_at = absl::InfiniteDuration();
  };
  using PrefillKey = std::pair<int, int>;

  // Decode events of the current stream.
  void OnLanding(const internal::LandingEvent& landing, MonotonicTime now, FlowActions* actions);
  void OnLanded(const internal::LandedEvent& landed, MonotonicTime now, FlowActions* actions);
  void OnTokens(internal::TokensEvent event, MonotonicTime now, FlowActions* actions);
  void OnRefused(const WorkerRef& worker, const absl::Status& status, MonotonicTime now, FlowActions* actions);
  void OnDecodeDeath(const WorkerRef& worker, const absl::Status& status, MonotonicTime now, FlowActions* actions);
  void OnPrefillDone(const WorkerRef& worker, const internal::PrefillDone& done, int attempt, MonotonicTime now,
                     FlowActions* actions);
  void OnAttemptFailed(const WorkerRef& worker, const absl::Status& status, bool death, MonotonicTime now,
                       FlowActions* actions);

  void Acquire(FlowActions* actions);
  void ForgetAcquire(FlowActions* actions);
  void StartStream(const Route& route, MonotonicTime now, FlowActions* actions);
  void StartAttempt(const Route& route, MonotonicTime now, FlowActions* actions);
  void SeekPrefill(MonotonicTime now, FlowActions* actions);
  // `reason`: for the timeline.
  void PrefillLocally(absl::string_view reason, MonotonicTime now, FlowActions* actions);
  void Requeue(const absl::Status& why, bool recovery, MonotonicTime now, FlowActions* actions);
  // False when the request ended with this death.
  bool CountDeath(const WorkerRef& worker, const absl::Status& why, MonotonicTime now, FlowActions* actions);
  void End(const absl::Status& status, MonotonicTime now, FlowActions* actions);
  void Leave(MonotonicTime now, FlowActions* actions);
  void CancelPrefills(int except_attempt, MonotonicTime now, FlowActions* actions);
  void ReturnReservedPrefill(FlowActions* actions);
  void EndRecovery(int stream, FlowActions* actions);
  void CloseDecode(int stream, bool refused, FlowActions* actions);
  void ClosePrefill(int stream, int attempt, bool refused, FlowActions* actions);
  void CountCached(int cached_tokens);
  void CutLateCalls(MonotonicTime now, FlowActions* actions);
  bool IsCurrent(int stream) const { return stream == stream_ && state_ != State::kEnded && !left_; }
  bool IsCurrentAttempt(int stream, int attempt) const {
    return IsCurrent(stream) && attempt == attempt_ && state_ == State::kPrefill;
  }

  const FlowOptions options_;
  const int64_t num_prompt_tokens_;
  State state_ = State::kQueued;
  MonotonicTime deadline_ = absl::InfiniteDuration();
  MonotonicTime queue_deadline_ = absl::InfiniteDuration();
  uint64_t ticket_ = 0;
  bool acquiring_ = false;  // The answer to ticket_ is still to come.
  bool resumed_ = false;
  PhaseClock phases_;
  Summary summary_;

  int stream_ = 0;       // The current one; 0: none yet.
  bool left_ = true;     // The current stream was left (or there is none).
  int attempt_ = 0;      // Of the current stream.
  bool local_ = false;   // The current attempt is decode's own prefill.
  int landed_attempt_ = -1;
  bool counted_cached_ = false;
  int done_attempt_ = -1;  // Whose PrefillDone came, and what it said.
  int done_cached_tokens_ = 0;
  std::string done_worker_;
  // No token had come before this stream: its phases are the timeline's. From the first token on all time is decode's.
  bool timed_ = false;
  int prefill_attempts_ = 0;  // Of the current stream, by prefill workers.
  Route route_;
  WorkerRef reserved_prefill_;  // Credit taken, Prefill not sent.
  bool finished_ = false;       // The last token went out; waits for PrefillDone only.
  MonotonicTime landed_at_;

  int streams_ = 0, deaths_ = 0, refusals_ = 0;
  std::vector<WorkerRef> dead_, disliked_;
  std::string fingerprint_;  // Of the model that answered first.
  std::vector<int32_t> emitted_;
  std::map<int, DecodeCall> decode_calls_;
  std::map<PrefillKey, PrefillCall> prefill_calls_;
};

}  // namespace baton

#endif  // BATON_ROUTER_REQUEST_FLOW_H_
