// SPDX-License-Identifier: Apache-2.0
#include "common/engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "absl/strings/str_format.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/base/rng.h"
#include "common/engine/logit_kernels.h"

namespace baton {
namespace {

constexpr float kMasked = -std::numeric_limits<float>::infinity();
// Penalties and biases keep logits inside this, so that differences of them stay finite.
constexpr double kMaxLogit = 1e30;

float Clamped(double logit) { return static_cast<float>(std::clamp(logit, -kMaxLogit, kMaxLogit)); }

}  // namespace

SamplingState::SamplingState(const SamplingParams* params, int choice, std::span<const int32_t> tokens,
                             int num_prompt_tokens)
    : params_(params), choice_(choice), num_prompt_tokens_(num_prompt_tokens), num_generated_(0),
      stop_tokens_(params->stop_token_ids) {
  std::ranges::sort(stop_tokens_);
  if (params->grammar != nullptr) grammar_.emplace(params->grammar);
  if (params->repetition_penalty != 1.0) {
    for (int32_t token : tokens.first(num_prompt_tokens)) counts_.try_emplace(token);
  }
  for (int32_t token : tokens.subspan(num_prompt_tokens)) Append(token);
}

void SamplingState::Append(int32_t token) {
  ++num_generated_;
  if (params_->has_penalties()) ++counts_[token].generated;
  if (grammar_.has_value()) grammar_->Append(token);
}

TokenChoice SamplingState::NextChoice(int vocab_size) const {
  constexpr double kHottest = 1e30;  // Above it a masked logit would weigh something.
  const SamplingParams& p = *params_;
  const bool mask_stops = num_generated_ < p.min_tokens;
  TokenChoice choice;
  choice.by_host = p.num_logprobs >= 0 || grammar_.has_value() || p.temperature > kHottest ||
                   (mask_stops && static_cast<int>(stop_tokens_.size()) >= vocab_size);
  if (choice.by_host) return choice;
  if (!p.greedy()) {
    choice.scale = static_cast<float>(1.0 / p.temperature);
    choice.top_k = p.top_k > 0 && p.top_k < vocab_size ? p.top_k : 0;
    choice.top_p = p.top_p;
    choice.min_p = static_cast<float>(p.min_p);
    choice.uniform = NextUniform();
  }
  choice.repetition = static_cast<float>(p.repetition_penalty);
  choice.frequency = static_cast<float>(p.frequency_penalty);
  choice.presence = static_cast<float>(p.presence_penalty);
  absl::flat_hash_map<int32_t, size_t> places;  // Of the few tokens that more than one thing happens to.
  const auto change_of = [&](int32_t id) -> LogitChange& {
    const auto [it, added] = places.try_emplace(id, choice.changes.size());
    if (added) choice.changes.push_back({.token_id = id});
    return choice.changes[it->second];
  };
  for (const auto& [id, bias] : p.logit_bias) change_of(id).bias += static_cast<float>(bias);
  if (mask_stops) {
    for (const int32_t id : stop_tokens_) change_of(id).masked = true;
  }
  for (const auto& [id, count] : counts_) {
    const auto it = places.find(id);
    if (it == places.end()) {
      choice.changes.push_back({.token_id = id, .generated = count.generated});
    } else {
      choice.changes[it->second].generated = count.generated;
    }
  }
  return choice;
}

double SamplingState::NextUniform() const {
  return CounterRng(params_->seed, static_cast<uint32_t>(choice_), static_cast<uint64_t>(position())).NextUniformDouble();
}

bool SamplingState::IsStopToken(int32_t token) const { return std::ranges::binary_search(stop_tokens_, token); }

Sampler::Sampler(int vocab_size)
    : chunk_max_(NumLogitChunks(vocab_size)), chunk_sums_(NumLogitChunks(vocab_size)) {}

absl::StatusOr<SampledToken> Sampler::Sample(std::span<const float> logits, const SamplingState& state) {
  const SamplingParams& params = state.params();
  SampledToken token;
  BATON_RETURN_IF_ERROR(Scan(logits, state.position()));
  const std::span<const float> x = Process(logits, state);
  if (state.grammar_.has_value() && *std::ranges::max_element(chunk_max_) == kMasked) return WhyNoToken(state);
  token.token_id = params.greedy() ? ArgMax(x) : Draw(x, state);
  if (params.num_logprobs >= 0) {
    if (x.data() != logits.data()) {
      GetLogitKernels().scan(logits.data(), static_cast<int>(logits.size()), chunk_max_.data());
    }
    AddLogprobs(logits, params.num_logprobs, &token);
  }
  return token;
}

absl::StatusOr<SampledToken> Sampler::Score(std::span<const float> logits, int32_t token_id, int num_top, int position) {
  BATON_RETURN_IF_ERROR(Scan(logits, position));
  SampledToken token;
  token.token_id = token_id;
  AddLogprobs(logits, num_top, &token);
  return token;
}

absl::Status Sampler::Scan(std::span<const float> logits, int position) {
  BATON_DCHECK(NumLogitChunks(static_cast<int>(logits.size())) == static_cast<int>(chunk_max_.size()));
  if (GetLogitKernels().scan(logits.data(), static_cast<int>(logits.size()), chunk_max_.data())) return absl::OkStatus();
  const auto bad = std::ranges::find_if(logits, [](float x) { return !std::isfinite(x); });
  return absl::InternalError(absl::StrFormat("logit of token %d at position %d is %g", bad - logits.begin(), position, *bad));
}

absl::Status Sampler::WhyNoToken(const SamplingState& state) const {
  const auto with = [&](absl::string_view why) { return absl::StrFormat("no token can be at position %d: %s", state.position(), why); };
  if (state.grammar_->failed()) return absl::InternalError(with("the answer so far is not one of its grammar"));
  if (mask_ == nullptr) {
    return absl::InvalidArgumentError(with("response_format has too many alternatives that are followed at once here, it takes too "
                                           "much work to tell which tokens may follow"));
  }
  const bool stops = std::ranges::any_of(state.stop_tokens_, [&](int32_t id) { return mask_->allows(id); });
  if (stops) return absl::InvalidArgumentError(with("all that response_format allows there are stop_token_ids"));
  return absl::InternalError(with("the vocabulary has none that the grammar allows"));
}

// Bias, penalties, mask; chunk_max_ belongs to what is returned. The logits themselves where nothing applies.
std::span<const float> Sampler::Process(std::span<const float> logits, const SamplingState& state) {
  const SamplingParams& params = state.params();
  const bool mask_stops = state.num_generated() < params.min_tokens && !state.stop_tokens_.empty();
  if (params.logit_bias.empty() && state.counts_.empty() && !mask_stops && !state.grammar_.has_value()) return logits;
  processed_.assign(logits.begin(), logits.end());
  for (const auto& [id, bias] : params.logit_bias) processed_[id] = Clamped(processed_[id] + bias);
  for (const auto& [id, count] : state.counts_) {
    double x = processed_[id];
    x = x > 0 ? x / params.repetition_penalty : x * params.repetition_penalty;
    x -= params.frequency_penalty * count.generated;
    if (count.generated > 0) x -= params.presence_penalty;
    processed_[id] = Clamped(x);
  }
  const int vocab_size = static_cast<int>(processed_.size());
  if (state.grammar_.has_value()) {
    ApplyGrammar(state, mask_stops);
    GetLogitKernels().scan(processed_.data(), vocab_size, chunk_max_.data());
    return processed_;
  }
  if (mask_stops) {
    for (int32_t id : state.stop_tokens_) processed_[id] = kMasked;
  }
  GetLogitKernels().scan(processed_.data(), vocab_size, chunk_max_.data());
  if (mask_stops && *std::ranges::max_element(chunk_max_) == kMasked) {
    // Every token is a stop token: there is nothing else to choose.
    for (int32_t id : state.stop_tokens_) processed_[id] = logits[id];
    GetLogitKernels().scan(processed_.data(), vocab_size, chunk_max_.data());
  }
  return processed_;
}

void Sampler::ApplyGrammar(const SamplingState& state, bool mask_stops) {
  mask_ = state.grammar_->Mask();
  if (mask_ == nullptr) {
    std::ranges::fill(processed_, kMasked);
    return;
  }
  stop_logits_.clear();
  for (const int32_t id : state.stop_tokens_) stop_logits_.push_back(processed_[id]);
  const size_t size = processed_.size();
  for (size_t begin = 0, word = 0; begin < size; begin += 64, ++word) {
    const uint64_t allowed = word < mask_->words().size() ? mask_->words()[word] : 0;
    if (allowed == ~uint64_t{0}) continue;
    const size_t end = std::min(begin + 64, size);
    for (size_t i = begin; i < end; ++i) {
      if ((allowed >> (i - begin) & 1) == 0) processed_[i] = kMasked;
    }
  }
  const bool may_stop = state.grammar_->accepting() && !mask_stops;
  for (size_t i = 0; i < stop_logits_.size(); ++i) {
    processed_[state.stop_tokens_[i]] = may_stop ? stop_logits_[i] : kMasked;
  }
}

int32_t Sampler::ArgMax(std::span<const float> x) const {
  const auto chunk = std::ranges::max_element(chunk_max_);  // The first of equals.
  size_t i = static_cast<size_t>(chunk - chunk_max_.begin()) * kLogitChunk;
  while (x[i] != *chunk) ++i;
  return static_cast<int32_t>(i);
}

int32_t Sampler::Draw(std::span<const float> x, const SamplingState& state) {
  const SamplingParams& params = state.params();
  const float max = *std::ranges::max_element(chunk_max_);
  // Never 0: a masked logit times that would be no number. At this scale all that is not masked weighs the same.
  const float scale = std::max(static_cast<float>(1.0 / params.temperature), std::numeric_limits<float>::min());
  const double uniform = state.NextUniform();
  const bool use_top_k = params.top_k > 0 && params.top_k < static_cast<int>(x.size());
  const bool use_top_p = params.top_p < 1.0;
  const bool by_rank = use_top_k || params.min_p > 0.0;
  if (!by_rank && !use_top_p) return DrawFromAll(x, max, scale, uniform);
  const double weight =
      by_rank ? SelectByRank(x, params, max, scale) : SelectHeaviest(x, params.top_p, max, scale);
  if (use_top_p) KeepNucleus(params.top_p * weight);
  return DrawFromCandidates(uniform);
}

// top_k and min_p look at ranks and at distances from the best: few weights are needed.
double Sampler::SelectByRank(std::span<const float> x, const SamplingParams& params, float max, float scale) {
  float bound = std::numeric_limits<float>::lowest();  // Above kMasked.
  const bool use_top_k = params.top_k > 0 && params.top_k < static_cast<int>(x.size());
  if (use_top_k) bound = std::max(bound, KthLargestChunk(params.top_k));
  if (params.min_p > 0.0) {
    // A little low; the weights decide.
    const double lowest = max + std::log(params.min_p) * params.temperature * (1 + 1e-5) - 1e-5 * (1 + std::abs(max));
    bound = std::max(bound, Clamped(lowest));
  }
  Gather(x, bound);
  if (use_top_k) KeepBest(params.top_k);
  gathered_.clear();
  for (const Candidate& c : candidates_) gathered_.push_back(c.logit);
  weights_.resize(x.size());
  GetLogitKernels().exp_sums(gathered_.data(), static_cast<int>(gathered_.size()), max, scale, weights_.data(),
                             chunk_sums_.data());
  for (size_t i = 0; i < candidates_.size(); ++i) candidates_[i].weight = weights_[i];
  std::erase_if(candidates_, [&](const Candidate& c) { return c.weight < static_cast<float>(params.min_p); });
  double total = 0;
  for (const Candidate& c : candidates_) total += c.weight;
  return total;
}

// top_p alone: all weights are needed for their sum, but few tokens can be in the nucleus.
double Sampler::SelectHeaviest(std::span<const float> x, double top_p, float max, float scale) {
  weights_.resize(x.size());
  GetLogitKernels().exp_sums(x.data(), static_cast<int>(x.size()), max, scale, weights_.data(), chunk_sums_.data());
  const double total = std::accumulate(chunk_sums_.begin(), chunk_sums_.end(), 0.0);
  // All tokens lighter than this together weigh less than what the nucleus leaves out, so none of them is in it.
  const double lightest = (1 - top_p) * total / static_cast<double>(x.size()) * 0.999;
  candidates_.clear();
  for (size_t chunk = 0; chunk < chunk_sums_.size(); ++chunk) {
    if (chunk_sums_[chunk] == 0 || chunk_sums_[chunk] < lightest * 0.999) continue;
    const size_t begin = chunk * kLogitChunk, end = std::min(begin + kLogitChunk, x.size());
    for (size_t i = begin; i < end; ++i) {
      if (weights_[i] > 0 && weights_[i] >= lightest) {
        candidates_.push_back({x[i], static_cast<int32_t>(i), weights_[i]});
      }
    }
  }
  return total;
}

int32_t Sampler::DrawFromAll(std::span<const float> x, float max, float scale, double uniform) {
  weights_.resize(x.size());
  GetLogitKernels().exp_sums(x.data(), static_cast<int>(x.size()), max, scale, weights_.data(), chunk_sums_.data());
  double left = uniform * std::accumulate(chunk_sums_.begin(), chunk_sums_.end(), 0.0);
  size_t chunk = 0;
  for (; chunk + 1 < chunk_sums_.size() && left >= chunk_sums_[chunk]; ++chunk) left -= chunk_sums_[chunk];
  size_t i = chunk * kLogitChunk;
  for (const size_t end = std::min(i + kLogitChunk, x.size()); i < end; ++i) {
    left -= weights_[i];
    if (left < 0) return static_cast<int32_t>(i);
  }
  do --i;  // Rounding carried past the last token that has any weight.
  while (weights_[i] == 0);
  return static_cast<int32_t>(i);
}

int32_t Sampler::DrawFromCandidates(double uniform) const {
  double left = 0;
  for (const Candidate& c : candidates_) left += c.weight;
  left *= uniform;
  for (const Candidate& c : candidates_) {
    left -= c.weight;
    if (left < 0) return c.token_id;
  }
  return candidates_.back().token_id;  // Rounding.
}

// The k-th largest chunk maximum: at least k logits reach it. The lowest float when there are fewer chunks.
float Sampler::KthLargestChunk(int k) {
  if (k > static_cast<int>(chunk_max_.size())) return std::numeric_limits<float>::lowest();
  chunk_order_ = chunk_max_;
  std::ranges::nth_element(chunk_order_, chunk_order_.begin() + (k - 1), std::greater<>());
  return chunk_order_[k - 1];
}

// candidates_ = the tokens with x >= bound, in order of their ids.
void Sampler::Gather(std::span<const float> x, float bound) {
  candidates_.clear();
  for (size_t chunk = 0; chunk < chunk_max_.size(); ++chunk) {
    if (chunk_max_[chunk] < bound) continue;
    const size_t begin = chunk * kLogitChunk, end = std::min(begin + kLogitChunk, x.size());
    for (size_t i = begin; i < end; ++i) {
      if (x[i] >= bound) candidates_.push_back({x[i], static_cast<int32_t>(i), 0});
    }
  }
}

// Keeps the k best candidates, in order of their ids.
void Sampler::KeepBest(size_t k) {
  if (candidates_.size() <= k) return;
  selection_ = candidates_;
  std::nth_element(selection_.begin(), selection_.begin() + (k - 1), selection_.end(), Better);
  const Candidate worst = selection_[k - 1];
  std::erase_if(candidates_, [&](const Candidate& c) { return Better(worst, c); });
}

// Keeps the fewest of the best candidates that together weigh at least `mass`, in order of their ids: quickselect by
// weight instead of rank.
void Sampler::KeepNucleus(double mass) {
  selection_ = candidates_;
  size_t begin = 0, end = selection_.size();
  while (end - begin > 32) {
    const Candidate& a = selection_[begin];
    const Candidate& b = selection_[begin + (end - begin) / 2];
    const Candidate& c = selection_[end - 1];
    const Candidate pivot = Better(a, b) ? (Better(b, c) ? b : Better(a, c) ? c : a)
                                         : (Better(a, c) ? a : Better(b, c) ? c : b);
    // The median of three: at least one is better and one is worse, so both parts shrink.
    const auto middle = std::partition(selection_.begin() + begin, selection_.begin() + end,
                                       [&](const Candidate& x) { return Better(x, pivot); });
    double better = 0;
    for (auto it = selection_.begin() + begin; it != middle; ++it) better += it->weight;
    const size_t split = static_cast<size_t>(middle - selection_.begin());
    if (better >= mass) {
      end = split;
    } else {
      mass -= better;
      begin = split;
    }
  }
  std::sort(selection_.begin() + begin, selection_.begin() + end, Better);
  size_t last = begin;
  while (last + 1 < end && (mass -= selection_[last].weight) > 0) ++last;
  const Candidate worst = selection_[last];
  std::erase_if(candidates_, [&](const Candidate& c) { return Better(worst, c); });
}

// Log-softmax of the model's own logits; chunk_max_ belongs to them.
void Sampler::AddLogprobs(std::span<const float> logits, int num_top, SampledToken* token) {
  const float max = *std::ranges::max_element(chunk_max_);
  GetLogitKernels().exp_sums(logits.data(), static_cast<int>(logits.size()), max, 1.0f, nullptr, chunk_sums_.data());
  const double log_sum = max + std::log(std::accumulate(chunk_sums_.begin(), chunk_sums_.end(), 0.0));
  token->logprob = static_cast<float>(logits[token->token_id] - log_sum);
  num_top = std::min(num_top, static_cast<int>(logits.size()));
  if (num_top == 0) return;
  Gather(logits, KthLargestChunk(num_top));
  KeepBest(num_top);
  std::ranges::sort(candidates_, Better);
  for (const Candidate& c : candidates_) {
    token->top.push_back({c.token_id, static_cast<float>(c.logit - log_sum)});
  }
}

}  // namespace baton
