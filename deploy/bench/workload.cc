// SPDX-License-Identifier: Apache-2.0
#include "deploy/bench/workload.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace baton::bench {
namespace {

// Everyday words: most tokenizers have each of them, with the space before it, as one token.
constexpr absl::string_view kWords[] = {
    "time",   "river",  "stone",   "light",  "garden", "market", "window", "letter", "engine",  "forest", "number",
    "music",  "table",  "water",   "paper",  "road",   "silver", "morning", "village", "answer", "house",  "winter",
    "teacher", "city",  "mountain", "story", "bridge", "island", "summer", "doctor", "color",   "field",  "school",
    "metal",  "animal", "ocean",   "family", "street", "picture", "night", "history", "train",  "flower", "kitchen"};

// Streams of random numbers that never meet.
enum : uint64_t { kPrefixStream = 1ull << 60, kBurstStream = 2ull << 60, kArrivalStream = 3ull << 60 };

absl::Status CheckAtLeast(absl::string_view flag, double value, double low) {
  if (value >= low) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--", flag, " ", value, " is under ", low));
}

std::mt19937_64 Rng(uint64_t seed, uint64_t stream) {
  std::seed_seq sequence{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), static_cast<uint32_t>(stream),
                         static_cast<uint32_t>(stream >> 32)};
  return std::mt19937_64(sequence);
}

}  // namespace

absl::Status CheckWorkload(const WorkloadOptions& options) {
  BATON_RETURN_IF_ERROR(CheckAtLeast("concurrency", options.concurrency, 1));
  BATON_RETURN_IF_ERROR(CheckAtLeast("num-requests", options.num_requests, 0));
  BATON_RETURN_IF_ERROR(CheckAtLeast("input-tokens", options.input_tokens, 1));
  BATON_RETURN_IF_ERROR(CheckAtLeast("output-tokens", options.output_tokens, 1));
  BATON_RETURN_IF_ERROR(CheckAtLeast("prefix-tokens", options.prefix_tokens, 0));
  BATON_RETURN_IF_ERROR(CheckAtLeast("num-prefixes", options.num_prefixes, 1));
  BATON_RETURN_IF_ERROR(CheckAtLeast("turns", options.turns, 1));
  BATON_RETURN_IF_ERROR(CheckAtLeast("burst-tokens", options.burst_tokens, 0));
  BATON_RETURN_IF_ERROR(CheckAtLeast("vocab-size", options.vocab_size, kFirstId + 1));
  BATON_RETURN_IF_ERROR(CheckAtLeast("burst-every (ms)", absl::ToDoubleMilliseconds(options.burst_every), 1));
  if (!(options.spread >= 0 && options.spread < 1)) {
    return absl::InvalidArgumentError(absl::StrCat("--spread ", options.spread, " is outside [0, 1)"));
  }
  if (options.arrival != Arrival::kClosed && !(options.request_rate > 0 && std::isfinite(options.request_rate))) {
    return absl::InvalidArgumentError(absl::StrCat("--request-rate ", options.request_rate, " is not over 0"));
  }
  if (options.num_requests == 0 && options.duration == absl::InfiniteDuration()) {
    return absl::InvalidArgumentError("--num-requests 0 needs a --duration");
  }
  if (options.turns > 1 && options.kind == PromptKind::kIds) {
    return absl::InvalidArgumentError(
        absl::StrCat("--turns ", options.turns, " needs --prompt text or chat: servers answer in text"));
  }
  return absl::OkStatus();
}

absl::Status ApplyProfile(absl::string_view name, WorkloadOptions* options) {
  if (name == "short-question-long-answer") {
    options->input_tokens = 32;
    options->output_tokens = 384;
  } else if (name == "long-document-short-summary") {
    options->input_tokens = 1536;
    options->output_tokens = 64;
  } else {
    return absl::InvalidArgumentError(absl::StrCat(
        "--profile ", name, " is none of short-question-long-answer, long-document-short-summary"));
  }
  return absl::OkStatus();
}

Workload::Workload(const WorkloadOptions& options) : options_(options), arrivals_(Rng(options.seed, kArrivalStream)) {}

std::vector<uint32_t> Workload::Words(uint64_t stream, int count) const {
  std::mt19937_64 rng = Rng(options_.seed, stream);
  std::vector<uint32_t> words(count);
  for (uint32_t& word : words) word = static_cast<uint32_t>(rng());
  return words;
}

int Workload::Length(std::mt19937_64& rng, int tokens) const {
  std::uniform_real_distribution<double> part(1 - options_.spread, 1 + options_.spread);
  return std::max(1, static_cast<int>(std::lround(tokens * part(rng))));
}

Turn Workload::MakeTurn(int conversation, int turn) const {
  const uint64_t stream = static_cast<uint64_t>(conversation) * options_.turns + turn;
  std::mt19937_64 rng = Rng(options_.seed, stream * 2 + 1);
  const int input = Length(rng, options_.input_tokens);
  Turn result{.conversation = conversation, .turn = turn, .max_tokens = Length(rng, options_.output_tokens)};
  if (turn == 0 && options_.prefix_tokens > 0) {
    result.words = Words(kPrefixStream + static_cast<uint64_t>(conversation % options_.num_prefixes), options_.prefix_tokens);
  }
  const std::vector<uint32_t> own = Words(stream * 2, input);
  result.words.insert(result.words.end(), own.begin(), own.end());
  return result;
}

Turn Workload::MakeBurst(int n) const {
  return {.conversation = n,
          .words = Words(kBurstStream + static_cast<uint64_t>(n), options_.burst_tokens),
          .max_tokens = options_.burst_output_tokens};
}

absl::Duration Workload::NextInterval() {
  switch (options_.arrival) {
    case Arrival::kClosed: return absl::ZeroDuration();
    case Arrival::kConstant: return absl::Seconds(1 / options_.request_rate);
    case Arrival::kPoisson: return absl::Seconds(std::exponential_distribution<double>(options_.request_rate)(arrivals_));
  }
  return absl::ZeroDuration();
}

std::vector<int32_t> PromptIds(const std::vector<uint32_t>& words, int vocab_size) {
  std::vector<int32_t> ids;
  ids.reserve(words.size());
  for (uint32_t word : words) ids.push_back(static_cast<int32_t>(kFirstId + word % (vocab_size - kFirstId)));
  return ids;
}

std::string PromptText(const std::vector<uint32_t>& words) {
  std::string text;
  for (uint32_t word : words) absl::StrAppend(&text, text.empty() ? "" : " ", kWords[word % std::size(kWords)]);
  return text;
}

}  // namespace baton::bench
