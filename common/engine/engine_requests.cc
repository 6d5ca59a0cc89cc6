// SPDX-License-Identifier: Apache-2.0
// Requests come, wait for their KV, and end.
#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/engine/engine_core_impl.h"

namespace baton {

// ---- Coming.

absl::Status EngineCore::Impl::ValidateSpec(const SequenceSpec& spec, int max_tokens) const {
  const int num_tokens = static_cast<int>(spec.tokens.size());
  if (num_tokens == 0) return absl::InvalidArgumentError("tokens is empty; at least 1 token is needed");
  if (num_tokens > max_tokens) {
    return absl::InvalidArgumentError(absl::StrFormat("tokens has %d tokens; with a context of %d there may be %d",
                                                      num_tokens, context_length_, max_tokens));
  }
  if (spec.num_prompt_tokens < 1 || spec.num_prompt_tokens > num_tokens) {
    return absl::InvalidArgumentError(
        absl::StrFormat("num_prompt_tokens is %d; it must be from 1 to %d", spec.num_prompt_tokens, num_tokens));
  }
  const int vocab_size = model_->config().vocab_size;
  for (int i = 0; i < num_tokens; ++i) {
    if (spec.tokens[i] < 0 || spec.tokens[i] >= vocab_size) {
      return absl::InvalidArgumentError(
          absl::StrFormat("tokens[%d] is %d; ids are from 0 to %d", i, spec.tokens[i], vocab_size - 1));
    }
  }
  if (spec.num_choices < 1 || spec.num_choices > kMaxChoices) {
    return absl::InvalidArgumentError(
        absl::StrFormat("num_choices is %d; it must be from 1 to %d", spec.num_choices, kMaxChoices));
  }
  if (spec.prompt_logprobs < -1 || spec.prompt_logprobs > kMaxLogprobs) {
    return absl::InvalidArgumentError(
        absl::StrFormat("prompt_logprobs is %d; it must be from -1 to %d", spec.prompt_logprobs, kMaxLogprobs));
  }
  if (spec.first_choice < 0) {
    return absl::InvalidArgumentError(absl::StrFormat("first_choice is %d; it must be >= 0", spec.first_choice));
  }
  return absl::OkStatus();
}

absl::Status EngineCore::Impl::CheckNew(SequenceId id) const {
  if (requests_.contains(id)) return absl::InvalidArgumentError(absl::StrFormat("sequence id %d is in use", id));
  const int num_waiting = static_cast<int>(waiting_.size()) + num_landing_;
  if (num_waiting >= options_.max_waiting) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("%d sequences wait already; max_waiting is %d", num_waiting, options_.max_waiting));
  }
  return absl::OkStatus();
}

std::shared_ptr<Request> EngineCore::Impl::MakeRequest(SequenceId id, SequenceSpec spec, SequenceSink sink) {
  auto request = std::make_shared<Request>();
  std::vector<int32_t> tokens = std::exchange(spec.tokens, {});
  request->id = id;
  request->number = next_number_++;
  request->arrived = clock_->Now();
  request->spec = std::move(spec);
  request->sink = std::move(sink);
  request->num_unfinished = request->spec.num_choices;
  request->sequences.push_back(
      std::make_unique<Sequence>(request.get(), 0, std::move(tokens), blocks_.block_size()));
  return request;
}

int EngineCore::Impl::NumBlocksWanted(const Sequence& sequence) const {
  const Request& request = *sequence.request;
  if (request.prefill_role) return NumBlocksFor(sequence.num_to_prefill(), blocks_.block_size());
  const int num_forks = request.forked ? 0 : request.spec.num_choices - 1;
  return NumBlocksFor(static_cast<int>(sequence.tokens.size()), blocks_.block_size()) + num_forks;
}

absl::Status EngineCore::Impl::Reserve(Sequence* sequence) {
  Request& request = *sequence->request;
  const int wanted = NumBlocksWanted(*sequence);
  const std::vector<BlockId> cached =
      blocks_.MatchPrefix(&sequence->chain, sequence->tokens, sequence->wants_prompt_logprobs() ? 0 : sequence->num_to_prefill());
  auto fresh = blocks_.Allocate(wanted - static_cast<int>(cached.size()));
  if (!fresh.ok()) {
    blocks_.UnrefAll(cached);
    return fresh.status();
  }
  const int num_forks = request.forked || request.prefill_role ? 0 : request.spec.num_choices - 1;
  request.fork_blocks.assign(fresh->end() - num_forks, fresh->end());
  fresh->resize(fresh->size() - num_forks);
  sequence->table.Append(cached);
  sequence->table.Append(*fresh);
  sequence->num_computed = static_cast<int>(cached.size()) * blocks_.block_size();
  if (!sequence->recompute) {
    request.num_cached = sequence->num_computed;
    stats_.prompt_tokens_cached += sequence->num_computed;
  }
  return absl::OkStatus();
}

absl::StatusOr<Landing> EngineCore::Impl::ReserveLanding(SequenceId id, SequenceSpec spec, SequenceSink sink) {
  if (options_.max_running == 0) return absl::FailedPreconditionError("this engine only prefills: max_running is 0");
  BATON_RETURN_IF_ERROR(ValidateSpec(spec, context_length_ - 1));
  BATON_RETURN_IF_ERROR(spec.sampling.Validate(model_->config().vocab_size));
  const int num_generated = static_cast<int>(spec.tokens.size()) - spec.num_prompt_tokens;
  if (num_generated >= spec.sampling.max_tokens) {
    return absl::InvalidArgumentError(absl::StrFormat("max_tokens is %d; %d tokens have been generated already",
                                                      spec.sampling.max_tokens, num_generated));
  }
  BATON_RETURN_IF_ERROR(CheckNew(id));
  if (num_recompute_waiting_ > 0) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("%d preempted sequences wait for KV blocks", num_recompute_waiting_));
  }
  std::shared_ptr<Request> request = MakeRequest(id, std::move(spec), std::move(sink));
  Sequence* sequence = request->sequences[0].get();
  const int wanted = NumBlocksWanted(*sequence);
  if (wanted > pool_->num_blocks()) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("KV blocks: %d needed, the pool has %d", wanted, pool_->num_blocks()));
  }
  BATON_RETURN_IF_ERROR(Reserve(sequence));
  ++num_landing_;
  requests_[id] = request;
  return LandingOf(*request);
}

Landing EngineCore::Impl::LandingOf(const Request& request) const {
  const Sequence& sequence = *request.sequences[0];
  return {.blocks = sequence.table.vector(), .num_cached_tokens = sequence.num_computed,
          .num_tokens = sequence.num_to_prefill()};
}

absl::Status EngineCore::Impl::AddPrefill(SequenceId id, SequenceSpec spec, int first_token, SequenceSink sink) {
  BATON_RETURN_IF_ERROR(ValidateSpec(spec, context_length_));
  const int num_tokens = static_cast<int>(spec.tokens.size()) - 1;
  if (first_token < 0 || first_token > num_tokens) {
    return absl::InvalidArgumentError(
        absl::StrFormat("first_token is %d; it must be from 0 to %d", first_token, num_tokens));
  }
  BATON_RETURN_IF_ERROR(CheckNew(id));
  spec.num_choices = 1;
  spec.prompt_logprobs = -1;
  std::shared_ptr<Request> request = MakeRequest(id, std::move(spec), std::move(sink));
  request->prefill_role = true;
  request->first_token = first_token;
  requests_[id] = request;
  waiting_.push_back(request->sequences[0].get());
  request->sequences[0]->state = State::kWaiting;
  return absl::OkStatus();
}

const Request* EngineCore::Impl::Find(SequenceId id) const {
  const auto found = requests_.find(id);
  return found == requests_.end() ? nullptr : found->second.get();
}

// ---- The landing.

void EngineCore::Impl::Landed(SequenceId id) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return;
  Sequence* sequence = found->second->sequences[0].get();
  if (sequence->state != State::kLanding) return;
  Request* const request = found->second.get();
  if (std::any_of(arriving_.begin(), arriving_.end(), [request](const auto& each) { return each.first == request; })) return;
  arriving_.emplace_back(request, pool_->StartToDevice(sequence->table.blocks().subspan(sequence->num_computed / blocks_.block_size())));
  FinishArrivals(/*wait=*/false);
}

// No decode step waits for the copies of a sequence that is not in it.
bool EngineCore::Impl::FinishArrivals(bool wait) {
  bool any = false;
  for (; !arriving_.empty() && (wait || pool_->Ended(arriving_.front().second)); wait = false) {
    const auto [request, ticket] = arriving_.front();
    pool_->Wait(ticket);
    arriving_.pop_front();
    any = true;
    Sequence* const sequence = request->sequences[0].get();
    sequence->num_computed = sequence->num_to_prefill();
    CacheComputedBlocks(sequence);
    StartRunning(request);
  }
  return any;
}

void EngineCore::Impl::EndCopies(const Request* request) {
  std::erase_if(arriving_, [&](const auto& each) {
    if (each.first == request) pool_->Wait(each.second);
    return each.first == request;
  });
  std::erase_if(reports_, [&](const CopiedReport& report) {
    if (report.request.get() == request) pool_->Wait(report.ticket);
    return report.request.get() == request;
  });
}

absl::Status EngineCore::Impl::PrefillLocally(SequenceId id) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return absl::NotFoundError(absl::StrFormat("sequence %d is unknown", id));
  Sequence* sequence = found->second->sequences[0].get();
  EndCopies(found->second.get());
  if (sequence->state == State::kLanding) EnterState(sequence, State::kWaiting);
  return absl::OkStatus();
}

absl::StatusOr<Landing> EngineCore::Impl::ReplaceLandingBlocks(SequenceId id, std::vector<BlockId>* quarantined) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return absl::NotFoundError(absl::StrFormat("sequence %d is unknown", id));
  Sequence* sequence = found->second->sequences[0].get();
  if (sequence->state != State::kLanding) {
    return absl::FailedPreconditionError(absl::StrFormat("sequence %d is past its landing", id));
  }
  EndCopies(found->second.get());
  const int num_cached_blocks = sequence->num_computed / blocks_.block_size();
  BATON_ASSIGN_OR_RETURN(const auto fresh, blocks_.Allocate(sequence->table.num_blocks() - num_cached_blocks));
  for (BlockId block : sequence->table.blocks().subspan(num_cached_blocks)) {
    blocks_.Quarantine(block);
    quarantined->push_back(block);
  }
  sequence->table.ReplaceFrom(num_cached_blocks, fresh);
  return LandingOf(*found->second);
}

// Choice 0 has the KV of the prompt. The others share its full blocks and have a copy of the rest.
void EngineCore::Impl::StartRunning(Request* request) {
  Sequence* first = request->sequences[0].get();
  const int num_computed = first->num_computed;
  const int num_full = num_computed / blocks_.block_size();
  for (int choice = 1; choice < request->spec.num_choices && !request->forked; ++choice) {
    auto fork = std::make_unique<Sequence>(request, choice, first->tokens, blocks_.block_size());
    const BlockId own = request->fork_blocks[choice - 1];
    for (BlockId block : first->table.blocks().first(num_full)) blocks_.Ref(block);
    fork->table.Append(first->table.blocks().first(num_full));
    fork->table.Append(own);
    if (num_computed % blocks_.block_size() != 0) pool_->CopyBlock(first->table.blocks()[num_full], own);
    fork->num_computed = num_computed;
    fork->progressed = first->progressed;
    fork->state = State::kRunning;
    running_.push_back(fork.get());
    request->sequences.push_back(std::move(fork));
  }
  request->forked = true;
  request->fork_blocks.clear();
  EnterState(first, State::kRunning);
}

// ---- Moving and ending.

void EngineCore::Impl::EnterState(Sequence* sequence, State state) {
  if (sequence->state == State::kLanding) --num_landing_;
  if (sequence->state == State::kWaiting) {
    std::erase(waiting_, sequence);
    num_recompute_waiting_ -= sequence->recompute;
  }
  if (sequence->state == State::kRunning) std::erase(running_, sequence);
  sequence->state = state;
  if (state == State::kWaiting) {
    waiting_.push_back(sequence);
    num_recompute_waiting_ += sequence->recompute;
  }
  if (state == State::kRunning) running_.push_back(sequence);
}

void EngineCore::Impl::CacheComputedBlocks(Sequence* sequence) {
  blocks_.InsertPrefix(&sequence->chain, std::span(sequence->tokens).first(sequence->num_computed),
                       sequence->table.blocks());
}

void EngineCore::Impl::EndSequence(Sequence* sequence) {
  if (sequence->state == State::kEnded) return;
  EnterState(sequence, State::kEnded);
  if (sequence->batch != nullptr) {
    sequence->batch->Drop(sequence);  // Its pass may still write to the blocks.
  } else {
    blocks_.UnrefAll(sequence->table.Take());
  }
}

void EngineCore::Impl::EndRequest(const std::shared_ptr<Request>& request) {
  EndCopies(request.get());
  for (const auto& sequence : request->sequences) EndSequence(sequence.get());
  blocks_.UnrefAll(std::exchange(request->fork_blocks, {}));
  requests_.erase(request->id);
}

void EngineCore::Impl::FailRequest(const std::shared_ptr<Request>& request, const absl::Status& status) {
  EndRequest(request);
  if (request->sink.on_failed) request->sink.on_failed(status);
}

void EngineCore::Impl::Cancel(SequenceId id) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return;
  const std::shared_ptr<Request> request = found->second;
  EndRequest(request);
}

std::vector<BlockId> EngineCore::Impl::CancelQuarantined(SequenceId id) {
  std::vector<BlockId> quarantined;
  const auto found = requests_.find(id);
  if (found == requests_.end()) return quarantined;
  const std::shared_ptr<Request> request = found->second;
  EndCopies(request.get());
  Sequence* sequence = request->sequences[0].get();
  if (sequence->state == State::kLanding) {
    const int num_cached_blocks = sequence->num_computed / blocks_.block_size();
    std::vector<BlockId> blocks = sequence->table.Take();
    quarantined.assign(blocks.begin() + num_cached_blocks, blocks.end());
    for (BlockId block : quarantined) blocks_.Quarantine(block);
    blocks.resize(num_cached_blocks);
    sequence->table.Append(blocks);
  }
  EndRequest(request);
  return quarantined;
}

}  // namespace baton
