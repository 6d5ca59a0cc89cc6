// SPDX-License-Identifier: Apache-2.0
// Steps are planned, run and delivered.
#include <algorithm>
#include <utility>

#include "common/base/logging.h"
#include "common/engine/engine_core_impl.h"

namespace baton {
namespace {

constexpr size_t kUnitsAhead = 2;  // Of a pass, that are computed while what they follow is being brought to the host.

}  // namespace

bool EngineCore::Impl::Step(const Pause& pause) {
  bool reported = FinishArrivals(/*wait=*/false);
  DeliverReports(reports_.size());
  reported = ReportPrefilled() || reported;
  bool worked;
  if (!options_.decode_first) {
    worked = RunMixedStep(pause);
  } else if (DecodeIsDue() && RunDecodeStep(pause)) {
    worked = true;
  } else if (prefill_batch_.active() || StartPrefill()) {
    RunPrefillUnit(pause);
    worked = true;
  } else {
    worked = RunDecodeStep(pause);
  }
#ifndef NDEBUG
  CheckInvariants();
#endif
  // With nothing else to do there is this to wait for.
  return worked || reported || FinishArrivals(/*wait=*/true);
}

// Sequences that have nothing left to compute: found in the prefix cache, or prompts of one token.
bool EngineCore::Impl::ReportPrefilled() {
  std::vector<std::shared_ptr<Request>> done;
  for (Sequence* sequence : waiting_) {
    const bool has_blocks = !sequence->table.empty() || NumBlocksWanted(*sequence) == 0;
    if (sequence->num_left() == 0 && has_blocks && sequence->batch == nullptr) {
      done.push_back(sequence->request->shared_from_this());
    }
  }
  for (const std::shared_ptr<Request>& request : done) {
    for (size_t i = 0; i < request->sequences.size(); ++i) {
      Sequence* sequence = request->sequences[i].get();
      const bool has_blocks = !sequence->table.empty() || NumBlocksWanted(*sequence) == 0;
      if (sequence->state == State::kWaiting && sequence->num_left() == 0 && has_blocks) FinishPrefill(sequence);
    }
  }
  return !done.empty();
}

// ---- Planning.

bool EngineCore::Impl::DecodeIsDue() const {
  if (running_.empty()) return false;
  const bool prefill_has_work = prefill_batch_.active() || !waiting_.empty();
  return !prefill_has_work || prefill_credit_ <= absl::ZeroDuration();
}

int EngineCore::Impl::NumReleasedBy(const Sequence& sequence) const {
  return static_cast<int>(std::ranges::count_if(sequence.table.blocks(),
                                                [&](BlockId block) { return blocks_.ref_count(block) == 1; }));
}

std::vector<WaitingSequence> EngineCore::Impl::WaitingView() const {
  std::vector<WaitingSequence> view;
  view.reserve(waiting_.size());
  for (const Sequence* s : waiting_) {
    const bool has_blocks = !s->table.empty();
    view.push_back({.priority = s->request->spec.priority,
                    .order = s->order,
                    .arrived = s->request->arrived,
                    .tokens_left = std::max(1, s->num_left()),
                    .blocks_needed = has_blocks ? 0 : NumBlocksWanted(*s),
                    .recompute = s->recompute,
                    .preemptible = has_blocks && !s->request->prefill_role && s->batch == nullptr && s->progressed});
  }
  return view;
}

std::vector<RunningSequence> EngineCore::Impl::RunningView() const {
  std::vector<RunningSequence> view;
  view.reserve(running_.size());
  for (const Sequence* s : running_) {
    view.push_back({.priority = s->request->spec.priority,
                    .order = s->order,
                    .blocks_needed = s->table.capacity() < static_cast<int>(s->tokens.size()) ? 1 : 0,
                    .preemptible = s->progressed});
  }
  return view;
}

// Without the running sequences' needs nothing is preempted; one block for each is kept back in any case.
Plan EngineCore::Impl::MakePlanNow(bool with_running_needs) const {
  std::vector<WaitingSequence> waiting = WaitingView();
  std::vector<RunningSequence> running = RunningView();
  int needed = 0;
  for (RunningSequence& s : running) {
    if (!with_running_needs) s.blocks_needed = 0;
    needed += s.blocks_needed;
  }
  if (needed > blocks_.num_allocatable()) {
    for (size_t i = 0; i < running.size(); ++i) running[i].blocks_released = NumReleasedBy(*running_[i]);
    for (size_t i = 0; i < waiting.size(); ++i) waiting[i].blocks_released = NumReleasedBy(*waiting_[i]);
  }
  return MakePlan(scheduler_options_, clock_->Now(), waiting, running, blocks_.num_allocatable());
}

void EngineCore::Impl::Preempt(Sequence* sequence) {
  for (const CopiedReport& report : reports_) {
    if (report.request.get() == sequence->request) pool_->Wait(report.ticket);
  }
  blocks_.UnrefAll(sequence->table.Take());
  if (!sequence->request->forked) blocks_.UnrefAll(std::exchange(sequence->request->fork_blocks, {}));
  sequence->num_computed = 0;
  sequence->started = false;
  if (sequence->state == State::kWaiting) num_recompute_waiting_ += !sequence->recompute;
  sequence->recompute = true;
  sequence->progressed = false;
  if (sequence->state == State::kRunning) EnterState(sequence, State::kWaiting);
  ++stats_.preemptions;
}

void EngineCore::Impl::CommitDecode(const Plan& plan, const std::vector<Sequence*>& running,
                                    const std::vector<Sequence*>& waiting, Batch* batch) {
  for (int i : plan.preempt_running) Preempt(running[i]);
  for (int i : plan.preempt_waiting) Preempt(waiting[i]);
  for (int i : plan.decode) {
    Sequence* sequence = running[i];
    if (sequence->table.capacity() < static_cast<int>(sequence->tokens.size())) {
      const auto block = blocks_.Allocate(1);
      if (!block.ok()) continue;  // Two that were preempted shared a block that a third still holds.
      sequence->table.Append(*block);
    }
    batch->AddDecode(sequence);
  }
}

std::vector<std::shared_ptr<Request>> EngineCore::Impl::CommitPrefill(const Plan& plan,
                                                                      const std::vector<Sequence*>& waiting,
                                                                      Batch* batch) {
  std::vector<std::shared_ptr<Request>> admitted;
  int logit_rows = kPromptLogitRows;
  for (const PrefillChunk& chunk : plan.prefill) {
    Sequence* sequence = waiting[chunk.waiting];
    if (sequence->table.empty() && NumBlocksWanted(*sequence) > 0) {
      if (!Reserve(sequence).ok()) continue;
      admitted.push_back(sequence->request->shared_from_this());
    }
    int num_tokens = std::min(chunk.num_tokens, sequence->num_left());
    const bool with_logits = sequence->wants_prompt_logprobs();
    if (with_logits) num_tokens = std::min(num_tokens, logit_rows);
    if (num_tokens == 0) continue;
    if (with_logits) logit_rows -= num_tokens;
    sequence->started = true;
    batch->AddPrefill(sequence, num_tokens, with_logits);
  }
  return admitted;
}

// What the prefix cache had of prefill jobs is ready to be sent. Once the batch is complete, as the owners may end any
// sequence.
void EngineCore::Impl::ReportCached(const std::vector<std::shared_ptr<Request>>& admitted) {
  for (const std::shared_ptr<Request>& request : admitted) {
    const Sequence& sequence = *request->sequences[0];
    if (!request->prefill_role || sequence.state == State::kEnded || !request->sink.on_progress) continue;
    if (request->num_cached <= request->first_token) continue;
    Report(sequence, {0, model_->config().num_layers, request->first_token, request->num_cached});
  }
  DeliverReports(0);
}

// ---- Running.

bool EngineCore::Impl::RunDecodeStep(const Pause& pause) {
  if (running_.empty()) return false;
  const Plan plan = MakePlanNow(/*with_running_needs=*/true);
  CommitDecode(plan, std::vector(running_), std::vector(waiting_), &decode_batch_);
  if (decode_batch_.num_rows() == 0) return !plan.preempt_running.empty() || !plan.preempt_waiting.empty();
  decode_batch_.Start();
  const MonotonicTime begin = clock_->Now();
  RunToEnd(&decode_batch_, pause);
  const MonotonicTime end = clock_->Now();
  MonotonicTime oldest = end;
  for (const Sequence* sequence : waiting_) oldest = std::min(oldest, sequence->request->arrived);
  prefill_credit_ = PrefillSlice(options_.sharing, end - begin, end - oldest);
  return true;
}

bool EngineCore::Impl::StartPrefill() {
  if (waiting_.empty()) return false;
  const Plan plan = MakePlanNow(/*with_running_needs=*/false);
  const auto admitted = CommitPrefill(plan, std::vector(waiting_), &prefill_batch_);
  if (prefill_batch_.num_rows() > 0) prefill_batch_.Start();
  const bool worked = !admitted.empty() || prefill_batch_.active();
  ReportCached(admitted);
  return worked;
}

void EngineCore::Impl::RunPrefillUnit(const Pause& pause) {
  if (!prefill_batch_.active()) return;  // All that was planned was found in the prefix cache.
  const MonotonicTime begin = clock_->Now();
  const bool more = Advance(&prefill_batch_);
  prefill_credit_ -= clock_->Now() - begin;
  if (!prefill_batch_.active()) return;
  if (more) {
    pause();
  } else {
    FinishBatch(&prefill_batch_);
  }
}

bool EngineCore::Impl::RunMixedStep(const Pause& pause) {
  if (running_.empty() && waiting_.empty()) return false;
  const Plan plan = MakePlanNow(/*with_running_needs=*/true);
  const std::vector<Sequence*> running = running_, waiting = waiting_;
  CommitDecode(plan, running, waiting, &prefill_batch_);
  const auto admitted = CommitPrefill(plan, waiting, &prefill_batch_);
  if (prefill_batch_.num_rows() > 0) prefill_batch_.Start();
  const bool worked = !admitted.empty() || prefill_batch_.active() || !plan.preempt_running.empty() ||
                      !plan.preempt_waiting.empty();
  ReportCached(admitted);
  if (prefill_batch_.active()) RunToEnd(&prefill_batch_, pause);
  return worked;
}

// False when every sequence ended meanwhile.
bool EngineCore::Impl::RunToEnd(Batch* batch, const Pause& pause) {
  while (Advance(batch)) {
    if (batch->active()) pause();
    if (!batch->active()) return false;
  }
  if (!batch->active()) return false;
  FinishBatch(batch);
  return true;
}

bool EngineCore::Impl::Advance(Batch* batch) {
  const MonotonicTime begin = clock_->Now();
  const bool more = batch->Advance();
  batch->busy_time += clock_->Now() - begin;
  if (const absl::Status device = model_->backend()->status(); !device.ok()) {
    FailAll(batch, device);
    return false;
  }
  ReportProgress(batch);
  // The device has the next units to do while the copies of the last ones are under way; in the end everything is told.
  if (batch->active()) DeliverReports(more ? kUnitsAhead * batch->entries().size() : 0);
  if (const absl::Status device = model_->backend()->status(); !device.ok()) {
    FailAll(batch, device);
    return false;
  }
  return more;
}

// The device has failed: what it computed counts for nothing, and other workers have the requests to do.
void EngineCore::Impl::FailAll(Batch* batch, const absl::Status& device) {
  const std::vector<Batch::Entry> entries = batch->entries();
  for (const Batch::Entry& entry : entries) {
    if (entry.sequence == nullptr || entry.sequence->state == State::kEnded) continue;
    FailRequest(entry.request, absl::UnavailableError(device.message()));
  }
}

void EngineCore::Impl::Report(const Sequence& sequence, const PrefillProgress& progress) {
  const int first = progress.token_begin / blocks_.block_size(), last = (progress.token_end - 1) / blocks_.block_size();
  std::span<const BlockId> blocks = sequence.table.blocks().subspan(first, last + 1 - first);
  const SequenceSink& sink = sequence.request->sink;
  if (sink.reads_device && sink.reads_device()) blocks = blocks.last(progress.token_end % blocks_.block_size() != 0 ? 1 : 0);
  reports_.push_back({sequence.request->shared_from_this(), progress, pool_->StartToHost(progress.layer_begin, progress.layer_end, blocks)});
  DeliverReports(reports_.size());
}

// An owner may end any sequence: its reports are gone then.
void EngineCore::Impl::DeliverReports(size_t max_open) {
  while (!reports_.empty() && (reports_.size() > max_open || pool_->Ended(reports_.front().ticket))) {
    const CopiedReport report = std::move(reports_.front());
    reports_.pop_front();
    pool_->Wait(report.ticket);
    // What a device that failed has computed is nobody's.
    if (model_->backend()->status().ok()) report.request->sink.on_progress(report.progress);
  }
}

// What the pass has completed since the last time: layer by layer, and panel by panel of the last one, because what it ends with
// has nothing behind it that would hide its transfer.
void EngineCore::Impl::ReportProgress(Batch* batch) {
  const int last = model_->config().num_layers - 1;
  const int layers = std::min(batch->layers_complete(), last), rows = batch->last_layer_rows();
  const int layers_before = std::exchange(batch->layers_reported, layers);
  const int rows_before = std::exchange(batch->last_layer_rows_reported, rows);
  if (layers_before < layers) ReportRows(batch, layers_before, layers, 0, batch->num_rows());
  if (batch->active() && rows_before < rows) ReportRows(batch, last, last + 1, rows_before, rows);
}

// The owners may end any sequence, even the last of the pass.
void EngineCore::Impl::ReportRows(Batch* batch, int layer_begin, int layer_end, int row_begin, int row_end) {
  int next_row = 0;
  for (size_t i = 0; batch->active() && i < batch->entries().size(); ++i) {
    const Batch::Entry& entry = batch->entries()[i];
    const std::shared_ptr<Request> request = entry.request;
    const int row = std::exchange(next_row, next_row + entry.end - entry.begin);
    if (entry.sequence == nullptr || entry.decode || !request->prefill_role || !request->sink.on_progress) continue;
    const int token_begin = std::max(entry.begin + std::max(row_begin - row, 0), request->first_token);
    const int token_end = std::min(entry.begin + row_end - row, entry.end);
    if (token_begin < token_end) Report(*entry.sequence, {layer_begin, layer_end, token_begin, token_end});
  }
}

// ---- Delivering.

void EngineCore::Impl::FinishBatch(Batch* batch) {
  const MonotonicTime begin = clock_->Now();
  const absl::Duration busy = batch->busy_time;
  const std::vector<Batch::Entry> entries = batch->Take();
  ++stats_.steps;
  int num_decoded = 0, row = 0;
  for (const Batch::Entry& entry : entries) {
    const float* logits = entry.num_logits > 0 ? batch->logits(row) : nullptr;
    const std::optional<int32_t> chosen = entry.chosen ? std::optional(batch->token(row)) : std::nullopt;
    row += entry.num_logits;
    num_decoded += entry.decode;
    // Ended during the pass, or by what an earlier entry's owner did just now.
    if (entry.sequence == nullptr || entry.sequence->state == State::kEnded) continue;
    entry.sequence->num_computed = entry.end;
    if (entry.decode) {
      SampleAndDeliver(entry, chosen, logits);
    } else {
      FinishPrefillRows(entry, logits);
    }
  }
  const absl::Duration took = busy + (clock_->Now() - begin);
  MeterPass(entries, took);
  if (num_decoded > 0 || !had_decode_step_) stats_.last_step_ms = ToMs(took);
  had_decode_step_ = had_decode_step_ || num_decoded > 0;
}

// Rows of sequences that ended meanwhile were computed as well.
void EngineCore::Impl::MeterPass(const std::vector<Batch::Entry>& entries, absl::Duration took) {
  struct Phase {
    int64_t tokens = 0, pairs = 0, context_tokens = 0;
  } prefill, decode;
  for (const Batch::Entry& entry : entries) {
    Phase& phase = entry.decode ? decode : prefill;
    phase.tokens += entry.end - entry.begin;
    phase.pairs += CausalPairs(entry.begin, entry.end);
    phase.context_tokens += entry.end;
  }
  const double seconds = absl::ToDoubleSeconds(took);
  const double prefill_ops = work_.PrefillOps(prefill.tokens, prefill.pairs);
  const double decode_ops = work_.DecodeOps(decode.tokens, decode.pairs);
  const double decode_share = decode_ops / (prefill_ops + decode_ops);
  if (prefill.tokens > 0) {
    stats_.prefill.Add({1, static_cast<double>(prefill.tokens), static_cast<double>(prefill.pairs), prefill_ops,
                        work_.PrefillBytes(prefill.context_tokens), seconds * (1 - decode_share)});
  }
  if (decode.tokens > 0) {
    stats_.decode.Add({1, static_cast<double>(decode.tokens), static_cast<double>(decode.pairs), decode_ops,
                       work_.DecodeBytes(decode.context_tokens), seconds * decode_share});
  }
}

void EngineCore::Impl::FinishPrefillRows(const Batch::Entry& entry, const float* logits) {
  stats_.prompt_tokens_computed += entry.end - entry.begin;
  if (logits != nullptr && !DeliverPromptLogprobs(entry, logits)) return;
  CacheComputedBlocks(entry.sequence);
  if (entry.sequence->num_left() == 0) FinishPrefill(entry.sequence);
}

void EngineCore::Impl::FinishPrefill(Sequence* sequence) {
  const std::shared_ptr<Request> request = sequence->request->shared_from_this();
  if (request->forked) {  // Recomputed.
    return EnterState(sequence, State::kRunning);
  }
  if (request->prefill_role) {
    EnterState(sequence, State::kPrefilled);
  } else {
    StartRunning(request.get());
  }
  if (request->sink.on_prefilled) request->sink.on_prefilled(absl::OkStatus());
}

}  // namespace baton
