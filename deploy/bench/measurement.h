// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_DEPLOY_BENCH_MEASUREMENT_H_
#define BATON_DEPLOY_BENCH_MEASUREMENT_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/base/clock.h"

namespace baton::bench {

// What the client saw of one request. Times are of the client's monotonic clock.
struct Measurement {
  bool burst = false;          // A long prompt sent into running streams.
  MonotonicTime due;           // When it should have been sent ...
  MonotonicTime sent;          // ... and when it was: the difference is the generator's own lag.
  std::vector<MonotonicTime> pieces;  // When each piece of the answer with text or tokens came.
  MonotonicTime ended;
  absl::Status status;         // Not OK: refused, cut, or cancelled by the one who measures.
  int http_status = 0;         // 0: no answer.
  int prompt_tokens = 0;       // From the usage, or what was meant to be sent.
  int cached_tokens = 0;
  int output_tokens = 0;       // From the usage, or the number of pieces.
  std::string text;
  std::map<std::string, double> timeline_ms;  // The server's own phases, where it tells ("queued_ms", "prefill_ms" ...).
};

struct Summary {
  double mean = 0, median = 0, p90 = 0, p99 = 0, p995 = 0, max = 0;
  size_t count = 0;
};
// Percentiles by linear interpolation between order statistics (numpy's default). All zero without values.
Summary Summarize(std::vector<double> values);

// The definitions of `vllm bench serve`, over requests that succeeded:
//   TTFT  first piece - sent
//   TPOT  (last piece - first piece) / (output tokens - 1), of requests with two tokens or more
//   ITL   each gap between pieces
//   E2EL  last piece - sent
struct Report {
  int num_succeeded = 0, num_failed = 0;
  double duration_s = 0;  // From the first request's sending to the last one's end.
  int64_t prompt_tokens = 0, cached_tokens = 0, output_tokens = 0;
  Summary ttft_ms, tpot_ms, itl_ms, e2el_ms, lag_ms;
  // Long prompts (burst) are kept apart: only their TTFT counts, and the streams' gaps before and after the first of them.
  Summary burst_ttft_ms, quiet_itl_ms, burst_itl_ms;
  double quiet_output_rate = 0, burst_output_rate = 0;  // The streams' pieces per second, before and after.
  std::map<std::string, double> phase_ms;               // Mean of each phase of the server's timelines.
  std::map<std::string, int> errors;                    // "503 no worker" -> count; the ten most frequent, then "other errors, N kinds".
};
// `issue_end`: from when on the load falls; gaps after it do not count in the comparison before and with long prompts.
Report MakeReport(const std::vector<Measurement>& measurements, MonotonicTime issue_end);

// For people: a table as `vllm bench serve` prints it, with the generator's lag and the phases below it.
std::string ReportText(const Report& report);
// For programs: the names that `vllm bench serve --save-result` uses, and more.
std::string ReportJson(const Report& report);

}  // namespace baton::bench

#endif  // BATON_DEPLOY_BENCH_MEASUREMENT_H_
