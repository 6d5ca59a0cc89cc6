// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_ENGINE_SEQUENCE_H_
#define BATON_COMMON_ENGINE_SEQUENCE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "common/base/clock.h"
#include "common/engine/engine_core.h"
#include "common/engine/sampler.h"
#include "common/kv/block_table.h"
#include "common/kv/prefix_cache.h"

namespace baton {

class Batch;
struct Request;

// One choice of one request: its tokens, blocks and progress. Engine thread only.
struct Sequence {
  enum class State {
    kLanding,    // Another process brings the KV.
    kWaiting,    // For KV of its tokens to be computed here. In EngineCore's waiting list.
    kRunning,    // Its next step is one token. In the running list.
    kPrefilled,  // Prefill role: done, blocks kept for whoever sends them.
    kEnded,
  };

  Sequence(Request* request, int choice, std::vector<int32_t> tokens, int block_size);

  // KV wanted before it can generate, or at all: all tokens but the last.
  int num_to_prefill() const { return static_cast<int>(tokens.size()) - 1; }
  int num_left() const { return num_to_prefill() - num_computed; }
  // Log-probabilities of its prompt are still to be told. Those are choice 0's, which computes the prompt.
  bool wants_prompt_logprobs() const;

  Request* request;
  int choice;      // Within the request, from 0.
  uint64_t order;  // Of arrival; distinct.
  std::vector<int32_t> tokens;
  SamplingState sampling;
  PrefixChain chain;
  BlockTable table;      // References to its blocks are this sequence's.
  int num_computed = 0;  // KV of tokens [0, num_computed) is in the blocks.
  State state = State::kLanding;
  int num_prompt_logprobs = 0;  // Told already: of tokens [1, 1 + num_prompt_logprobs).
  bool started = false;     // A prefill pass has had rows of it.
  bool recompute = false;   // Preempted: goes before others, and admits no new landings, until it runs again.
  bool progressed = true;   // Has emitted a token since it was last preempted.
  Batch* batch = nullptr;   // The pass that has rows of it now.
};

// What a caller submitted: the sequences of its choices, and where they report. Shared so that it outlives callbacks that
// end it.
struct Request : std::enable_shared_from_this<Request> {
  SequenceId id = 0;
  uint64_t number = 0;  // Of arrival.
  MonotonicTime arrived;
  SequenceSpec spec;  // Without its tokens: those are the sequences'.
  SequenceSink sink;
  bool prefill_role = false;
  int first_token = 0;  // Prefill role: the receiver has the tokens before it.
  int num_cached = 0;
  bool forked = false;                // All choices exist.
  std::vector<BlockId> fork_blocks;   // For the further choices' last token, until they fork.
  int num_unfinished = 0;
  std::vector<std::unique_ptr<Sequence>> sequences;
};

inline bool Sequence::wants_prompt_logprobs() const {
  const SequenceSpec& spec = request->spec;
  return spec.prompt_logprobs >= 0 && choice == 0 && num_prompt_logprobs < spec.num_prompt_tokens - 1;
}

}  // namespace baton

#endif  // BATON_COMMON_ENGINE_SEQUENCE_H_
