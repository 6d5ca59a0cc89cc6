// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_DEPLOY_BENCH_WORKLOAD_H_
#define BATON_DEPLOY_BENCH_WORKLOAD_H_

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace baton::bench {

// When requests are sent. Closed: a fixed number of users, each sends its next request when the last has ended. Open: at
// moments that do not depend on the server, a constant time apart or as a Poisson process.
enum class Arrival { kClosed, kConstant, kPoisson };

// How prompts are written. kIds: token ids (/v1/completions), of exact length; kText: words, about one token each
// (/v1/completions); kChat: the same words as messages (/v1/chat/completions).
enum class PromptKind { kIds, kText, kChat };

struct WorkloadOptions {
  Arrival arrival = Arrival::kClosed;
  double request_rate = 1;   // Open: requests per second, over 0.
  int concurrency = 8;       // Closed: users. Open: requests under way at most; what is over waits, which is lag.
  int num_requests = 100;    // Conversations times turns; 0: until `duration`.
  absl::Duration duration = absl::InfiniteDuration();  // No request starts later than this.
  PromptKind kind = PromptKind::kIds;
  int input_tokens = 128;    // New ones per turn, beside the shared prefix.
  int output_tokens = 128;   // Exactly so many where the server knows ignore_eos.
  double spread = 0;         // Lengths are uniform within +- this part, [0, 1).
  int prefix_tokens = 0;     // That requests share ...
  int num_prefixes = 1;      // ... drawn from so many prefixes.
  int turns = 1;             // Of a conversation; each turn's prompt has all before it.
  // Long prompts sent into running streams: one every burst_every from burst_after on, beside the workload's own. 0: none.
  int burst_tokens = 0;
  int burst_output_tokens = 4;
  absl::Duration burst_every = absl::Seconds(3);
  absl::Duration burst_after = absl::ZeroDuration();
  int vocab_size = 32000;    // kIds: ids are drawn from [kFirstId, vocab_size), past what is usually special.
  uint64_t seed = 1;
};
inline constexpr int kFirstId = 300;

// INVALID_ARGUMENT names the option (as the flag is called), the value and the bound.
absl::Status CheckWorkload(const WorkloadOptions& options);

// Two shapes of use. "short-question-long-answer": decode has over nine tenths of the time; "long-document-short-summary":
// prefill has about two thirds. Sets lengths only. INVALID_ARGUMENT lists the known names.
absl::Status ApplyProfile(absl::string_view name, WorkloadOptions* options);

// One turn to send. `words` are numbers that PromptIds and PromptText spell.
struct Turn {
  int conversation = 0;
  int turn = 0;
  std::vector<uint32_t> words;  // Shared prefix (first turn) and new ones.
  int max_tokens = 0;
};

// Draws turns; a conversation's numbers do not depend on when or in which order they are asked for.
class Workload {
 public:
  explicit Workload(const WorkloadOptions& options);
  // conversation >= 0, turn in [0, turns).
  Turn MakeTurn(int conversation, int turn) const;
  // The n-th long prompt.
  Turn MakeBurst(int n) const;
  // Time from one arrival to the next; zero for a closed loop. Call in order.
  absl::Duration NextInterval();

 private:
  std::vector<uint32_t> Words(uint64_t stream, int count) const;
  int Length(std::mt19937_64& rng, int tokens) const;

  const WorkloadOptions options_;
  std::mt19937_64 arrivals_;
};

std::vector<int32_t> PromptIds(const std::vector<uint32_t>& words, int vocab_size);
std::string PromptText(const std::vector<uint32_t>& words);

}  // namespace baton::bench

#endif  // BATON_DEPLOY_BENCH_WORKLOAD_H_
