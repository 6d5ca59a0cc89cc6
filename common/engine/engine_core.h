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
#include "common/engine/phase_meter.h"
#include "common/engine/sampler.h"
#include "common/engine/sampling_params.h"
#include "common/engine/scheduler.h"
#include "common/kv/block_allocator.h"
#include "common/kv/kv_pool.h"
#include "common/model/forward.h"

namespace baton {

// Names a sequence within one engine; chosen by the caller, never reused within a process.
using SequenceId = uint64_t;

// kComplete: the answer is a whole text of its grammar, to which nothing can be added; the last token is part of it.
enum class FinishReason { kNone, kStop, kLength, kComplete };

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

// Newly computed KV of a prefill: layers [layer_begin, layer_end) of tokens [token_begin, token_end) are in the pool, where the owner reads
// it (SequenceSink::reads_device).
struct PrefillProgress {
  int layer_begin = 0, layer_end = 0;
  int token_begin = 0, token_end = 0;
};

// What a sequence's owner hears; called on the engine thread, inside Step. Must not block; may call any method of the core
// but Step, also about the sequence it hears of. All may be null.
struct SequenceSink {
  std::function<void(const TokenEvent&)> on_token;
  std::function<void(const PrefillProgress&)> on_progress;  // Prefill jobs only.
  // Whether the owner reads whole cells where the backend computes, from now on: then on_progress says that they are there, and the host
  // gets the cell only that is not full. Null: he reads the pool's form on the host.
  std::function<bool()> reads_device;
  // With prompt_logprobs: of prompt tokens from number `first` on (1 or more: nothing says how likely the first is), in order and
  // without gaps, before on_prefilled. Each once.
  std::function<void(int first, const std::vector<SampledToken>&)> on_prompt_logprobs;
  // Prefill done, or local prefill done: always OK, never from inside AddPrefill or PrefillLocally, not after Cancel.
  std::function<void(absl::Status)> on_prefilled;
  // Generation cannot go on (INTERNAL; UNAVAILABLE: the device has failed, and whatever runs on it). Last call: the sequence is gone. Otherwise generation ends by on_token's finish.
  std::function<void(absl::Status)> on_failed;
};

struct SequenceSpec {
  std::vector<int32_t> tokens;  // Prompt, then tokens emitted before a recovery. Not empty.
  int num_prompt_tokens = 0;    // The first num_prompt_tokens of them.
  SamplingParams sampling;
  CacheKey cache_key;
  int priority = 0;     // Higher first.
  int num_choices = 1;  // 1 to kMaxChoices. They fork one landing copy-on-write.
  // >= 0: the log-probability of every prompt token but the first, and of so many likeliest ones in its place. The prompt is then
  // computed here, all of it: what is cached has no logits any more, and what a transfer brings had none. -1: none.
  int prompt_logprobs = -1;
  int first_choice = 0;  // Number of the first of them: a recovery of choice 2 alone has first_choice 2, num_choices 1.
};
inline constexpr int kMaxChoices = 128;

// Where a landing's KV goes. The transfer brings tokens [num_cached_tokens, num_tokens).
struct Landing {
  std::vector<BlockId> blocks;  // In position order, the cached ones first; enough for num_tokens + 1 tokens.
  int num_cached_tokens = 0;    // Found in the prefix cache: a multiple of the block size.
  int num_tokens = 0;           // tokens.size() - 1: decode computes the last one itself.
  bool complete() const { return num_cached_tokens == num_tokens; }
};

struct EngineOptions {
  int max_step_rows = 512;  // Tokens per forward pass: the prefill chunk.
  int max_running = 64;     // Sequences per decode step. 0: prefill role only, nothing is kept for decoding.
  int max_waiting = 256;    // Sequences that wait for KV (landings, local prefill, prefill role); more is RESOURCE_EXHAUSTED.
  int panel_rows = 64;      // Rows between two looks at the inbox.
  int context_length = 0;   // 0: the model's. In any case no more than the pool holds.
  bool enable_prefix_cache = true;
  // While a prefill pass is under way, decode steps run between its units, with buffers of their own. Off: one pass has the
  // decode rows and a prefill chunk, and tokens come once per chunk. The ids are the same.
  bool decode_first = true;
  SharingOptions sharing;  // With decode_first.
  bool shortest_remaining_first = false;
  absl::Duration ageing_bound = absl::Seconds(5);
};

// Counters and gauges, cumulative since start where they are counts.
struct EngineStats {
  BlockCounts blocks;
  int running = 0;  // Sequences (choices) that generate, or whose prefill has begun.
  int waiting = 0;  // Sequences whose prefill has not begun, preempted ones included.
  int landing = 0;  // Sequences whose KV another process brings.
  uint64_t steps = 0;  // Forward passes.
  uint64_t prompt_tokens_computed = 0;  // By prefill passes; what a preemption makes compute again counts again.
  uint64_t prompt_tokens_cached = 0;    // Not computed or transferred because the prefix cache had them.
  uint64_t tokens_generated = 0;
  uint64_t preemptions = 0;
  // Of passes that ran to their end; one that has rows of both phases is divided by the operations.
  PhaseMeter prefill, decode;
  double last_step_ms = 0;  // Time in the forward pass and sampling of the last step that had decode rows; of any if none had.
};

// Sequences, blocks, cache and model of one worker: everything that one thread owns. A decode worker reserves landings and
// generates; a prefill worker computes prompts; both are the same class, and a decode worker can prefill locally.
//
// Single-threaded and free of I/O: Engine (engine.h) is the thread around it.
class EngineCore {
 public:
  // `model`, `pool` and `clock` outlive the core. Whoever else writes into the pool writes only where a landing says.
  //   INVALID_ARGUMENT    an option out of range, or a pool whose layout is not the model's; names both.
  //   RESOURCE_EXHAUSTED  no memory for the step buffers.
  static absl::StatusOr<std::unique_ptr<EngineCore>> Create(const Model* model, KvPool* pool,
                                                            const EngineOptions& options, const Clock* clock);
  ~EngineCore();

  // ---- Decode: a sequence whose KV arrives by a transfer.
  // Matches the prefix cache and reserves blocks for the whole of spec.tokens (and a block for each further choice).
  //   RESOURCE_EXHAUSTED  no blocks, or preempted sequences wait for them, or max_waiting is reached.
  //   INVALID_ARGUMENT    the spec is not valid (names field, value, bound), or the id is in use.
  //   FAILED_PRECONDITION max_running is 0.
  absl::StatusOr<Landing> ReserveLanding(SequenceId id, SequenceSpec spec, SequenceSink sink);
  // The transfer verified: joins the running batch at the next step, on a device once its blocks have been brought there, for which no other
  // sequence's step waits. Whole landed blocks enter the prefix cache. Ignored for
  // a sequence that is not landing.
  void Landed(SequenceId id);
  // Compute what is missing here, in chunks, instead; ends with on_prefilled, then tokens. Nobody else may write to the
  // landing's blocks any more. OK with nothing done for a sequence that is past its landing.
  //   NOT_FOUND  unknown id.
  absl::Status PrefillLocally(SequenceId id);
  // New blocks for everything that is not cached, because a writer may still write to the old ones. The old ones go to
  // quarantine and are appended to `quarantined`; the caller releases them with ReleaseQuarantined.
  //   RESOURCE_EXHAUSTED   no blocks; NOT_FOUND  unknown id; FAILED_PRECONDITION  not landing. Nothing has changed then.
  absl::StatusOr<Landing> ReplaceLandingBlocks(SequenceId id, std::vector<BlockId>* quarantined);

  // ---- Prefill role: compute the KV of tokens [0, tokens.size() - 1).
  // on_progress names what is new from token `first_token` on (the receiver has the rest), on_prefilled ends it; the blocks
  // stay referenced until Finish(id). Sampling parameters are not looked at.
  //   RESOURCE_EXHAUSTED  max_waiting is reached; INVALID_ARGUMENT  the spec is not valid.
  absl::Status AddPrefill(SequenceId id, SequenceSpec spec, int first_token, SequenceSink sink);
  // Blocks of a sequence in position order (of its first choice). Empty before it is admitted; valid until it ends.
  std::span<const BlockId> BlocksOf(SequenceId id) const;
  int NumCachedTokensOf(SequenceId id) const;  // Tokens found in the prefix cache when it was admitted.
  // The prefill role's owner is done with the blocks (sent or given up). The same as Cancel.
  void Finish(SequenceId id);

  // ---- The beginning of a prompt that another worker brings, before a sequence needs it. Whole blocks of `tokens` only.
  // Of them, how many tokens the prefix cache has.
  int NumCached(const CacheKey& key, std::span<const int32_t> tokens);
  // Blocks for them, the cached ones first, with a reference of the caller's on each (ReleaseBlocks). The others may be written
  // to until then, and belong to no sequence: who holds them waits for no further blocks.
  //   RESOURCE_EXHAUSTED  no blocks.
  absl::StatusOr<Landing> ReservePrefix(const CacheKey& key, std::span<const int32_t> tokens);
  // All of them are in the landing, verified: found from now on, in these blocks or in others that have the same tokens already.
  void CachePrefix(const CacheKey& key, std::span<const int32_t> tokens, const Landing& landing);

  // ---- Both.
  // Ends a sequence at any state; its blocks go to the cache (whole, computed ones) or the free list at once. What a paused
  // pass may still write or read stays referenced until the pass has ended or has no live row left. Unknown ids are
  // ignored: cancels race with ends.
  void Cancel(SequenceId id);
  // As Cancel, but blocks that a writer may still write to are quarantined and returned: those of a landing.
  std::vector<BlockId> CancelQuarantined(SequenceId id);
  void ReleaseQuarantined(std::span<const BlockId> blocks);
  // References of a sender queue: the blocks keep their contents until they are released, whatever becomes of the sequence.
  void RetainBlocks(std::span<const BlockId> blocks);
  void ReleaseBlocks(std::span<const BlockId> blocks);

  // Does a piece of work: a decode step, or one unit of a prefill pass. False when there is nothing that can be done until
  // another method is called. `between_units` is called at every pause inside and may call any method but Step.
  bool Step(const std::function<void()>& between_units);

  EngineStats stats() const;
  const Model& model() const;
  KvPool* pool() const;
  int context_length() const;  // Most tokens of a sequence, prompt and generated.
  // The low halves of the hashes of what the first `max_blocks` blocks of the pool hold for the prefix cache.
  std::vector<uint64_t> CachedPrefixes(int max_blocks) const;
  void ClearPrefixCache();
  // CHECKs the blocks' and the sequences' bookkeeping against each other. O(blocks).
  void CheckInvariants() const;

 private:
  class Impl;
  explicit EngineCore(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton

#endif  // BATON_COMMON_ENGINE_ENGINE_CORE_H_
