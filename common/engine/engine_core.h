// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_ENGINE_ENGINE_CORE_H_
#define BATON_COMMON_ENGINE_ENGINE_CORE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/engine/sampler.h"
#include "common/engine/sampling_params.h"
#include "common/kv/block_allocator.h"
#include "common/kv/kv_pool.h"
#include "common/model/forward.h"

namespace baton {

// Names a sequence within one engine; chosen by the caller, never reused within a process.
using SequenceId = uint64_t;

enum class FinishReason { kNone, kStop, kLength };

// One generated token.
struct TokenEvent {
  int choice = 0;
  int index = 0;  // Of the generated tokens of this choice, counting those emitted before a recovery.
  int32_t token_id = 0;
  float logprob = 0;                    // Valid when num_logprobs >= 0. Of the distribution before temperature and cuts.
  std::vector<TokenLogprob> top;        // num_logprobs entries, best first.
  FinishReason finish = FinishReason::kNone;  // Rides in the last token's event.
  int32_t stop_token_id = -1;           // The stop token, when one ended the choice (it is this event's token).
};

// Newly computed KV of a prefill: layers [layer_begin, layer_end) of tokens [token_begin, token_end) are in the pool.
struct PrefillProgress {
  int layer_begin = 0, layer_end = 0;
  int token_begin = 0, token_end = 0;
};

// What a sequence's owner hears; called on the engine thread, must not block. All may be null.
struct SequenceSink {
  std::function<void(const TokenEvent&)> on_token;
  std::function<void(const PrefillProgress&)> on_progress;  // Prefill jobs only.
  // Once, unless cancelled: prefill done, local prefill done, or what went wrong. Generation ends by on_token's finish.
  std::function<void(absl::Status)> on_prefilled;
  std::function<void(absl::Status)> on_failed;  // Generation cannot go on (INTERNAL, RESOURCE_EXHAUSTED). Last call.
};

struct SequenceSpec {
  std::vector<int32_t> tokens;  // Prompt, then tokens emitted before a recovery. Not empty.
  int num_prompt_tokens = 0;    // The first num_prompt_tokens of them.
  SamplingParams sampling;
  CacheKey cache_key;
  int priority = 0;     // Higher first.
  int num_choices = 1;  // They fork one landing copy-on-write.
  int first_choice = 0;  // Number of the first of them: a recovery of choice 2 alone has first_choice 2, num_choices 1.
};

// Where a landing's KV goes. The transfer brings tokens [num_cached_tokens, num_tokens).
struct Landing {
  std::vector<BlockId> blocks;  // In position order, the cached ones first; enough for num_tokens + 1 tokens.
  int num_cached_tokens = 0;    // Found in the prefix cache: a multiple of the block size.
  int num_tokens = 0;           // tokens.size() - 1: decode computes the last one itself.
  bool complete() const { return num_cached_tokens == num_tokens; }
};

struct EngineOptions {
  int max_step_rows = 512;      // Tokens per forward pass: the prefill chunk.
  int max_running = 64;         // Sequences per decode step.
  int max_waiting = 256;        // Sequences that wait for prefill (local or role); more is RESOURCE_EXHAUSTED.
  int panel_rows = 64;          // Rows between two looks at the inbox.
  int context_length = 0;       // 0: the model's.
  bool enable_prefix_cache = true;
};

// Counters and gauges, cumulative since start where they are counts.
struct EngineStats {
  BlockCounts blocks;
  int running = 0, waiting = 0, landing = 0;
  uint64_t steps = 0;
  uint64_t prompt_tokens_computed = 0, prompt_tokens_cached = 0, tokens_generated = 0;
  uint64_t preemptions = 0;
  double last_step_ms = 0;
};

// Sequences, blocks, cache and model of one worker: everything that one thread owns. A decode worker reserves landings and
// generates; a prefill worker computes prompts; both are the same class, and a decode worker can prefill locally.
//
// Single-threaded and free of I/O: Engine (engine.h) is the thread around it. Steps: Plan (Scheduler, pure), build the
// ModelInput, run the ForwardPass with `between_units` called at every pause, sample, deliver, CheckInvariants (debug).
class EngineCore {
 public:
  // `model`, `pool` and `clock` outlive the core.
  //   INVALID_ARGUMENT    an option out of range; names it. RESOURCE_EXHAUSTED  no memory for the step buffers.
  static absl::StatusOr<std::unique_ptr<EngineCore>> Create(const Model* model, KvPool* pool,
                                                            const EngineOptions& options, const Clock* clock);
  ~EngineCore();

  // ---- Decode: a sequence whose KV arrives by a transfer.
  // Matches the prefix cache and reserves blocks for the whole of spec.tokens and the first new token.
  //   RESOURCE_EXHAUSTED  no blocks (or preempted sequences wait for them); INVALID_ARGUMENT  the spec is not valid.
  absl::StatusOr<Landing> ReserveLanding(SequenceId id, SequenceSpec spec, SequenceSink sink);
  // The transfer verified: joins the running batch at the next step. Whole landed blocks enter the prefix cache.
  void Landed(SequenceId id);
  // Compute what is missing here, in chunks; ends with on_prefilled, then tokens.
  absl::Status PrefillLocally(SequenceId id);
  // New blocks for everything that is not cached, because a writer may still write to the old ones. The old ones go to
  // quarantine and are returned in `quarantined`; the caller releases them with ReleaseQuarantined.
  absl::StatusOr<Landing> ReplaceLandingBlocks(SequenceId id, std::vector<BlockId>* quarantined);

  // ---- Prefill role: compute the KV of tokens [0, tokens.size() - 1).
  // on_progress names what is new from token `first_token` on (the receiver has the rest), on_prefilled ends it; the blocks
  // stay referenced until Finish(id).
  //   RESOURCE_EXHAUSTED  queue full or the prompt cannot fit the pool.
  absl::Status AddPrefill(SequenceId id, SequenceSpec spec, int first_token, SequenceSink sink);
  // The part that this worker's own prefix cache holds is reported by on_progress too (all layers at once, when the job is
  // admitted to its first chunk): the receiver needs every token from first_token on, computed now or before.
  //
  // A reference of the caller's own on blocks (a sender's queue reads them), independent of any sequence: Cancel may then
  // free the sequence at once, and the blocks stay until ReleaseBlocks.
  void RetainBlocks(std::span<const BlockId> blocks);
  void ReleaseBlocks(std::span<const BlockId> blocks);
  // Blocks of a sequence in position order. Valid until it ends.
  std::span<const BlockId> BlocksOf(SequenceId id) const;
  int NumCachedTokensOf(SequenceId id) const;  // Prompt tokens found in the prefix cache when it was admitted.

  // ---- Both.
  // Ends a sequence at any state; its blocks go to the cache (whole, computed ones) or the free list at once. During a
  // forward pass the rows of a cancelled sequence are computed to the next unit boundary and dropped. Unknown ids are
  // ignored: cancels race with ends.
  void Cancel(SequenceId id);
  // As Cancel, but blocks that a writer may still write to are quarantined and returned.
  std::vector<BlockId> CancelQuarantined(SequenceId id);
  void ReleaseQuarantined(std::span<const BlockId> blocks);
  // The prefill role's owner is done with the blocks (sent or given up).
  void Finish(SequenceId id);

  // Runs one step if there is work; false when idle. `between_units` is called between layers and row panels and may call
  // any method of this class but Step.
  bool Step(const std::function<void()>& between_units);

  EngineStats stats() const;
  const Model& model() const;
  KvPool* pool() const;
  void ClearPrefixCache();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton

#endif  // BATON_COMMON_ENGINE_ENGINE_CORE_H_
