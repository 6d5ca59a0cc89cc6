// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_ENGINE_ENGINE_CORE_IMPL_H_
#define BATON_COMMON_ENGINE_ENGINE_CORE_IMPL_H_

#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/engine/batch.h"
#include "common/engine/engine_core.h"
#include "common/engine/sampler.h"
#include "common/engine/scheduler.h"
#include "common/engine/sequence.h"
#include "common/model/work.h"

namespace baton {

// EngineCore's inside. Requests come, wait, end (engine_requests.cc); steps are planned and run (engine_steps.cc); what they computed is
// delivered (engine_delivery.cc).
class EngineCore::Impl {
 public:
  // Of a pass, at most so many rows of prompts whose log-probabilities are wanted: their logits are [rows, vocab_size].
  static constexpr int kPromptLogitRows = 32;

  Impl(const Model* model, KvPool* pool, const EngineOptions& options, const Clock* clock,
       std::unique_ptr<ForwardBuffers> prefill_buffers, std::unique_ptr<ForwardBuffers> decode_buffers);

  // As in EngineCore.
  absl::StatusOr<Landing> ReserveLanding(SequenceId id, SequenceSpec spec, SequenceSink sink);
  void Landed(SequenceId id);
  absl::Status PrefillLocally(SequenceId id);
  absl::StatusOr<Landing> ReplaceLandingBlocks(SequenceId id, std::vector<BlockId>* quarantined);
  absl::Status AddPrefill(SequenceId id, SequenceSpec spec, int first_token, SequenceSink sink);
  const Request* Find(SequenceId id) const;
  void Cancel(SequenceId id);
  std::vector<BlockId> CancelQuarantined(SequenceId id);
  bool Step(const std::function<void()>& between_units);
  EngineStats stats() const;
  void CheckInvariants() const;

  BlockAllocator& blocks() { return blocks_; }
  std::vector<uint64_t> CachedPrefixes(int max_blocks) const;
  const Model& model() const { return *model_; }
  KvPool* pool() const { return pool_; }
  int context_length() const { return context_length_; }

 private:
  using State = Sequence::State;
  using Pause = std::function<void()>;

  // ---- Requests.
  absl::Status ValidateSpec(const SequenceSpec& spec, int max_tokens) const;
  absl::Status CheckNew(SequenceId id) const;
  std::shared_ptr<Request> MakeRequest(SequenceId id, SequenceSpec spec, SequenceSink sink);
  // Blocks for all the sequence's tokens (and its request's further choices), cached ones first.
  absl::Status Reserve(Sequence* sequence);
  int NumBlocksWanted(const Sequence& sequence) const;
  Landing LandingOf(const Request& request) const;
  void EnterState(Sequence* sequence, State state);
  void StartRunning(Request* request);  // All choices, forked.
  void EndSequence(Sequence* sequence);
  void EndRequest(const std::shared_ptr<Request>& request);
  void FailAll(Batch* batch, const absl::Status& device);
  // To the request's owner, once what was computed is where he reads it: on the host, or, where he says so, whole cells on the device.
  void Report(const Sequence& sequence, const PrefillProgress& progress);
  // Those whose copies have ended, in order; waits until no more than `max_open` are left.
  void DeliverReports(size_t max_open);
  // Makes sequences run whose landed blocks have come to the device. `wait`: the first of them is waited for. Whether there was one.
  bool FinishArrivals(bool wait);
  // Nothing of the request's blocks is being copied any more, and it is not heard of.
  void EndCopies(const Request* request);
  void FailRequest(const std::shared_ptr<Request>& request, const absl::Status& status);
  void CacheComputedBlocks(Sequence* sequence);

  // ---- Steps.
  bool ReportPrefilled();
  bool DecodeIsDue() const;
  bool RunDecodeStep(const Pause& pause);
  bool StartPrefill();
  void RunPrefillUnit(const Pause& pause);
  bool RunMixedStep(const Pause& pause);
  std::vector<WaitingSequence> WaitingView() const;
  std::vector<RunningSequence> RunningView() const;
  int NumReleasedBy(const Sequence& sequence) const;
  Plan MakePlanNow(bool with_running_needs) const;
  void CommitDecode(const Plan& plan, const std::vector<Sequence*>& running, const std::vector<Sequence*>& waiting,
                    Batch* batch);
  // Returns the requests that got their blocks.
  std::vector<std::shared_ptr<Request>> CommitPrefill(const Plan& plan, const std::vector<Sequence*>& waiting,
                                                      Batch* batch);
  void ReportCached(const std::vector<std::shared_ptr<Request>>& admitted);
  void Preempt(Sequence* sequence);
  bool RunToEnd(Batch* batch, const Pause& pause);
  bool Advance(Batch* batch);
  void ReportProgress(Batch* batch);
  void ReportRows(Batch* batch, int layer_begin, int layer_end, int row_begin, int row_end);
  void FinishBatch(Batch* batch);
  void MeterPass(const std::vector<Batch::Entry>& entries, absl::Duration took);
  // `logits`: of its rows, where they were wanted.
  void FinishPrefillRows(const Batch::Entry& entry, const float* logits);
  // False when the request has ended by it.
  bool DeliverPromptLogprobs(const Batch::Entry& entry, const float* logits);
  void FinishPrefill(Sequence* sequence);
  // `chosen`: the backend's token, -1 for none; else it is sampled from the logits.
  void SampleAndDeliver(const Batch::Entry& entry, std::optional<int32_t> chosen, const float* logits);
  void Deliver(const Batch::Entry& entry, SampledToken&& token);

  const Model* const model_;
  KvPool* const pool_;
  const EngineOptions options_;
  const Clock* const clock_;
  const int context_length_;
  const ModelWork work_;
  SchedulerOptions scheduler_options_;
  BlockAllocator blocks_;
  Sampler sampler_;
  absl::flat_hash_map<SequenceId, std::shared_ptr<Request>> requests_;
  std::vector<Sequence*> waiting_, running_;
  int num_landing_ = 0;
  int num_recompute_waiting_ = 0;
  uint64_t next_number_ = 0;
  // What is on its way between the device and the host, in the order asked for.
  struct CopiedReport {
    std::shared_ptr<Request> request;
    PrefillProgress progress;
    CopyTicket ticket = 0;
  };
  std::deque<CopiedReport> reports_;
  std::deque<std::pair<Request*, CopyTicket>> arriving_;  // Landed: their blocks, to the device.
  Batch prefill_batch_;  // And the mixed one.
  Batch decode_batch_;
  absl::Duration prefill_credit_ = absl::ZeroDuration();  // Time that the pass gets before the next decode step.
  bool had_decode_step_ = false;
  EngineStats stats_;
};

}  // namespace baton

#endif  // BATON_COMMON_ENGINE_ENGINE_CORE_IMPL_H_
