// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_ROUTER_GENERATION_H_
#define BATON_ROUTER_GENERATION_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "baton/v1/generation.pb.h"
#include "router/choice_text.h"
#include "router/prepared_request.h"
#include "router/request_flow.h"
#include "router/request_trace.h"
#include "router/router_core.h"
#include "common/base/strand.h"
#include "router/timers.h"
#include "router/worker_client.h"

namespace baton {

// One client's request, from its arrival to the end of its last call: the shell around RequestFlow. It lives as long as
// anything of it is open, whoever lets go of it. All its state belongs to its strand.
class Generation : public std::enable_shared_from_this<Generation> {
 public:
  struct Sink {
    // Deltas as they come. On the strand: must not block.
    std::function<void(v1::GenerateResponse&&)> on_response;
    // Once, after the last of them. Where it ended well with one more, that has usage and timeline. Nothing is called after it.
    std::function<void(const absl::Status&, std::optional<v1::GenerateResponse>&& last)> on_end;
  };

  // Where a request comes from.
  struct Origin {
    std::string key_name;        // Of its API key, for the log; empty: none was needed.
    std::shared_ptr<KeyUse> key_use;  // That it is one request of; null: none was needed.
    PreparationPool::Held held;  // The budget that its bytes have already, until the prompt is tokens; null: none yet.
    std::optional<TraceContext> trace;  // The client's span that it is made for.
    MonotonicTime deadline = absl::InfiniteDuration();  // When the client gives up.
  };

  // Begins. `core` outlives it. Sink calls may come before it returns.
  static std::shared_ptr<Generation> Start(RouterCore* core, v1::GenerateRequest request, Sink sink, Origin origin);
  ~Generation();

  // The client is gone (CANCELLED), reads too slowly, or the router ends. Any thread, any time.
  void Cancel(const absl::Status& why);
  // From the registry. Any thread.
  void NoteWorkerLost(const WorkerRef& worker, const std::string& reason);
  void NoteWorkerLeft(const WorkerRef& worker);

  const std::string& id() const { return id_; }

 private:
  struct Choice {
    Choice(int index, RequestFlow flow, ChoiceText text)
        : index(index), flow(std::move(flow)), text(std::move(text)) {}
    const int index;
    RequestFlow flow;
    ChoiceText text;
    std::map<uint64_t, uint64_t> tickets;  // The flow's to the dispatcher's.
    std::map<int, uint64_t> transfers;     // TransferId.stream of each of the flow's streams.
    std::map<int, std::shared_ptr<DecodeStream>> decode;
    std::map<std::pair<int, int>, std::shared_ptr<PrefillStream>> prefill;
    MonotonicTime last_token = absl::ZeroDuration();
    Route sibling;  // Where the first choice landed, for those that began beside it; else no worker.
  };

  Generation(RouterCore* core, v1::GenerateRequest request, Sink sink, const Origin& origin);
  void Begin(PreparationPool::Held held);
  absl::Status ApplyKey();
  absl::Status PrepareLater(const ModelLimits& limits, PreparationPool::Held held);
  void Prepare(const ModelLimits& limits);
  void OnPrepared(absl::StatusOr<PreparedRequest> prepared, std::shared_ptr<const PromptPrefixes> prefixes);
  Choice& AddChoice(const PhaseClock& phases);
  // The first choice has landed: the others fork off it. They go where it is, share what is there of the prompt, and are from then on
  // requests of their own, so that each can stop, move and recover for itself.
  void BeginSiblings();
  // How a choice came to its landing: by the first one's, where it forked off that.
  const RequestFlow::Summary& SummaryOf(const Choice& choice) const;
  std::shared_ptr<const PromptPrefixes> NamePromptPrefixes(const std::vector<int32_t>& tokens) const;

  // Feeds one event to a choice's flow and does what it asks for.
  void Drive(Choice& choice, absl::FunctionRef<void(RequestFlow&, MonotonicTime, FlowActions*)> event);
  void Apply(Choice& choice, FlowAction action, MonotonicTime now, FlowActions* actions);
  void Acquire(Choice& choice, uint64_t ticket);
  void OpenDecode(Choice& choice, const FlowAction& action);
  void OnDecodeMessage(Choice& choice, int stream, internal::DecodeEvent event);
  void OpenPrefill(Choice& choice, const FlowAction& action);
  // Of the prompt's tokens, in order and each once, whichever stream brings them.
  void OnPromptLogprobs(const internal::PromptLogprobs& event);
  // False: they are not all there, and the request has ended.
  bool AddPromptLogprobs(v1::GenerateResponse* response, MonotonicTime now);
  bool wants_prompt_logprobs() const { return request_.has_prompt_logprobs() && !first_token_seen_; }
  void SendToDecode(Choice& choice, const FlowAction& action);
  void SendToPrefill(Choice& choice, const FlowAction& action);
  void Emit(Choice& choice, FlowAction action, MonotonicTime now, FlowActions* actions);
  void OnChoiceEnd(Choice& choice, const absl::Status& status, MonotonicTime now);
  void ArmTimer();
  void EndUnprepared();

  void End(const absl::Status& status, MonotonicTime now, std::optional<v1::GenerateResponse> last = std::nullopt);
  v1::GenerateResponse FinalResponse(const Choice& last) const;
  RequestOutcome Outcome(const absl::Status& status) const;
  void SetRunning();
  v1::GenerateResponse NewResponse() const;

  RouterCore* const core_;
  v1::GenerateRequest request_;  // Its prompt goes when it is tokens; else as it came.
  const bool is_chat_;           // For the trace, when the prompt is gone.
  const std::string id_;
  const std::string key_name_;
  std::shared_ptr<KeyUse> key_use_;  // Null from End on.
  int key_weight_ = 1;
  const MonotonicTime arrived_;
  const MonotonicTime deadline_;
  Strand strand_;
  Sink sink_;
  RequestTrace trace_;
  PhaseClock phases_;  // Until the flows have their own.
  PreparationQueue::Id preparing_ = 0;  // While the prompt waits to be prepared, or is.
  PreparedRequest prepared_;
  std::vector<internal::ScoredToken> prompt_logprobs_;  // Of prompt tokens from the second on.
  std::vector<std::unique_ptr<Choice>> choices_;
  int open_choices_ = 0;
  bool running_ = false;
  bool ended_ = false;
  bool first_token_seen_ = false;
  std::optional<MonotonicTime> last_progress_;  // When a choice last got tokens.
  std::optional<Hash128> prompt_key_;           // For landed_prompts.
  std::shared_ptr<const PromptPrefixes> prefixes_;  // For the route policy.
  MonotonicTime armed_for_ = absl::InfiniteDuration();
  Timers::Id timer_ = 0;
};

}  // namespace baton

#endif  // BATON_ROUTER_GENERATION_H_
