// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_TRACE_TRACER_H_
#define BATON_COMMON_TRACE_TRACER_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/metrics.h"
#include "common/base/mutex.h"
#include "common/base/thread.h"
#include "common/trace/span.h"
#include "common/trace/span_format.h"

namespace baton {

struct TracerOptions {
  std::string otlp_endpoint;  // http://HOST:PORT[/PATH] of a collector; without a path /v1/traces. Empty: none.
  std::string file;           // Chrome trace file, appended to; processes of one machine may share it. Empty: none.
  double sample = 1;          // [0, 1]: of the requests that come without a trace context.
  std::string service;        // "baton-router"
  std::string instance;
  size_t max_queued = 8192;   // Spans that wait to be written; more are dropped, and counted.
  int64_t max_file_bytes = int64_t{256} << 20;
  absl::Duration interval = absl::Seconds(1);
  absl::Duration otlp_timeout = absl::Seconds(5);

  bool enabled() const { return !otlp_endpoint.empty() || !file.empty(); }
  // INVALID_ARGUMENT  the endpoint is no http:// address, or `sample` is outside [0, 1].
  absl::Status Validate() const;
};

// Where spans are posted to.
struct TraceCollector {
  std::string address, path;  // HOST:PORT; empty: nowhere.
};

// Takes spans that have ended and writes them elsewhere, on a thread of its own. A collector that is slow or away costs spans,
// never a request: Record does not block. Thread-safe.
class Tracer {
 public:
  // Without endpoint and file it hands contexts on and records nothing. `metrics` outlives it.
  //   UNAVAILABLE  the file cannot be opened; and codes of Validate.
  static absl::StatusOr<std::unique_ptr<Tracer>> Create(TracerOptions options, MetricRegistry* metrics);
  ~Tracer();  // Stops.
  // Writes what is queued; a collector that does not answer is waited for once. What is recorded afterwards is dropped.
  // Idempotent, of one thread.
  void Stop();

  // The span of a request that begins here: a child of what the client sent, or a new trace. One that is not recorded is what
  // the client sent, to be handed on as it came, or no span.
  TraceContext Begin(const std::optional<TraceContext>& from_client) const;
  bool Records(const TraceContext& context) const { return enabled_ && context.sampled && context.valid(); }
  // Nothing happens where Records() is false. The message of a status that is the client's doing (INVALID_ARGUMENT, NOT_FOUND)
  // may quote a request: its code alone is kept.
  void Record(Span span);

 private:
  Tracer(TracerOptions options, TraceCollector collector, int file, MetricRegistry* metrics);
  void Run();
  bool Write(const std::vector<Span>& spans);
  absl::Status PostOtlp(const std::vector<Span>& spans) const;
  absl::Status AppendToFile(const std::string& events) const;

  const TracerOptions options_;
  const bool enabled_;
  const TraceSource source_;
  const TraceCollector collector_;
  const int file_;  // -1: none.
  bool complained_ = false;  // The writer's thread.
  Counter* const exported_;
  Counter* const dropped_;
  Counter* const failed_;

  Mutex mutex_;
  std::vector<Span> queue_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  CondVar wake_;
  Thread thread_;
};

}  // namespace baton

#endif  // BATON_COMMON_TRACE_TRACER_H_
