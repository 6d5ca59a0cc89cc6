// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_DEPLOY_BENCH_LOAD_RUN_H_
#define BATON_DEPLOY_BENCH_LOAD_RUN_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "deploy/bench/measurement.h"
#include "deploy/bench/workload.h"

namespace baton {
class TlsContext;
}

namespace baton::bench {

struct LoadOptions {
  std::string url;      // "http://HOST:PORT", or https with `tls`, or with a path that ends before /chat/completions: "http://HOST:PORT/v1".
  std::string model;
  std::string api_key;
  std::shared_ptr<const TlsContext> tls;  // Whom to trust, and what to show. Null: http alone.
  double temperature = 0;
  absl::Duration timeout = absl::Minutes(10);  // Of one request.
  WorkloadOptions workload;
};

struct LoadProgress {
  absl::Duration elapsed;
  int num_ended = 0, num_failed = 0, num_running = 0;
  int64_t num_pieces = 0;  // Of requests that have ended.
};

struct LoadResult {
  std::vector<Measurement> measurements;
  MonotonicTime issue_end;  // When a next request was due and there was none: from here on the load falls.
};

// The first model that the server lists (GET /models). Blocks, 10 s at most.
//   UNAVAILABLE, DEADLINE_EXCEEDED  no answer. FAILED_PRECONDITION: an answer that names none.
absl::StatusOr<std::string> FirstModel(const LoadOptions& options);

// Loads an OpenAI-compatible server and measures what a client sees. One thread does it all, so that thousands of streams
// cost little and times are taken where the bytes arrive.
class LoadRun {
 public:
  // INVALID_ARGUMENT: the URL, or an option of the workload. UNAVAILABLE: the host's name does not resolve.
  static absl::StatusOr<std::unique_ptr<LoadRun>> Create(const LoadOptions& options);
  ~LoadRun();

  // Blocks until the plan is done or Stop was called. `progress` is called about once a second, on this thread. Once.
  LoadResult Run(std::function<void(const LoadProgress&)> progress);
  // Begins nothing more and cuts what runs: its measurements say CANCELLED. Any thread.
  void Stop();

 private:
  class Impl;
  explicit LoadRun(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::bench

#endif  // BATON_DEPLOY_BENCH_LOAD_RUN_H_
