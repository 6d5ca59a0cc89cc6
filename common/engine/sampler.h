// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_ENGINE_SAMPLER_H_
#define BATON_COMMON_ENGINE_SAMPLER_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "common/backend/token_choice.h"
#include "common/engine/sampling_params.h"
#include "common/grammar/grammar.h"

namespace baton {

struct TokenLogprob {
  int32_t token_id = 0;
  float logprob = 0;
};

struct SampledToken {
  int32_t token_id = 0;
  float logprob = 0;              // Valid when num_logprobs >= 0.
  std::vector<TokenLogprob> top;  // num_logprobs entries, best first; of equals the smaller id first.
};

// What the sampling of one choice remembers: a function of its tokens alone, so that it can be made anew after a
// preemption, a fork or a recovery.
class SamplingState {
 public:
  // `params` outlives the state. The first num_prompt_tokens of `tokens` are the prompt, the others were generated.
  SamplingState(const SamplingParams* params, int choice, std::span<const int32_t> tokens, int num_prompt_tokens);

  void Append(int32_t token);
  bool IsStopToken(int32_t token) const;
  // The answer is a whole text of its grammar, and nothing can follow.
  bool complete() const { return grammar_.has_value() && grammar_->complete(); }

  const SamplingParams& params() const { return *params_; }
  int choice() const { return choice_; }
  int num_generated() const { return num_generated_; }
  // Index in the sequence of the token to sample next.
  int position() const { return num_prompt_tokens_ + num_generated_; }
  // How the next token is chosen by a backend that does that. By the host: where log-probabilities are wanted, a grammar or so many
  // stop tokens leave little to choose from, or numbers are beyond what single precision tells apart.
  TokenChoice NextChoice(int vocab_size) const;

 private:
  friend class Sampler;
  // The draw of the next token: a function of seed, choice and position.
  double NextUniform() const;
  struct Count {
    int generated = 0;  // A token that is here with 0 occurs in the prompt only.
  };
  const SamplingParams* params_;
  int choice_;
  int num_prompt_tokens_;
  int num_generated_;
  std::vector<int32_t> stop_tokens_;                // Sorted.
  absl::flat_hash_map<int32_t, Count> counts_;  // Empty unless there are penalties.
  std::optional<GrammarState> grammar_;
};

// Chooses tokens. A pure function of the logits and the state: batch-mates, threads and machines play no part. Holds only
// scratch memory; one thread.
class Sampler {
 public:
  explicit Sampler(int vocab_size);

  // The next token of a choice.
  //   logits  [vocab_size], of the model.
  //   INTERNAL  a logit is NaN or infinite: the token would be arbitrary text; or no token of the vocabulary goes on with the
  //             answer in its grammar.
  //   INVALID_ARGUMENT  the grammar takes too much work here, or all that it allows are stop tokens.
  absl::StatusOr<SampledToken> Sample(std::span<const float> logits, const SamplingState& state);

  // The log-probability of a token that is there already, and the `num_top` likeliest in its place. `position`: for the message.
  //   INTERNAL  a logit is NaN or infinite.
  absl::StatusOr<SampledToken> Score(std::span<const float> logits, int32_t token_id, int num_top, int position);

 private:
  struct Candidate {
    float logit;
    int32_t token_id;
    float weight;  // exp((logit - max) / temperature).
  };
  static bool Better(const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.token_id < b.token_id;
  }

  // Fills chunk_max_; INTERNAL as above.
  absl::Status Scan(std::span<const float> logits, int position);
  std::span<const float> Process(std::span<const float> logits, const SamplingState& state);
  absl::Status WhyNoToken(const SamplingState& state) const;
  // Masks what the grammar forbids; mask_ is then what it allows, null where that takes too much work to tell. Stop tokens are
  // allowed where the answer may end, unless `mask_stops`.
  void ApplyGrammar(const SamplingState& state, bool mask_stops);
  int32_t ArgMax(std::span<const float> x) const;
  int32_t Draw(std::span<const float> x, const SamplingState& state);
  // Both leave the candidates in candidates_, in order of their ids, and return their weight.
  double SelectByRank(std::span<const float> x, const SamplingParams& params, float max, float scale);
  double SelectHeaviest(std::span<const float> x, double top_p, float max, float scale);
  int32_t DrawFromAll(std::span<const float> x, float max, float scale, double uniform);
  int32_t DrawFromCandidates(double uniform) const;
  void Gather(std::span<const float> x, float bound);
  void KeepBest(size_t k);
  void KeepNucleus(double mass);
  void AddLogprobs(std::span<const float> logits, int num_top, SampledToken* token);
  float KthLargestChunk(int k);

  std::vector<float> processed_;   // [vocab]
  std::vector<float> weights_;     // [vocab]
  std::vector<float> chunk_max_;   // [chunks]
  std::vector<double> chunk_sums_;  // [chunks]
  std::vector<float> chunk_order_, gathered_, stop_logits_;  // Scratch.
  std::vector<Candidate> candidates_, selection_;
  std::shared_ptr<const TokenMask> mask_;
};

}  // namespace baton

#endif  // BATON_COMMON_ENGINE_SAMPLER_H_
