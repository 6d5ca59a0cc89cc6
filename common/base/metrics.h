// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BASE_METRICS_H_
#define BATON_COMMON_BASE_METRICS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "common/base/mutex.h"

namespace baton {

// Label names and values of one series. Values are any UTF-8 text, but from a bounded set: never from a request.
using MetricLabels = std::vector<std::pair<std::string, std::string>>;

// Only grows. Any thread, one relaxed atomic addition.
class Counter {
 public:
  void Increment(uint64_t by = 1) { value_.fetch_add(by, std::memory_order_relaxed); }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

// Goes up and down. Any thread, lock-free.
class Gauge {
 public:
  void Set(double value) { value_.store(value, std::memory_order_relaxed); }
  void Add(double by) { value_.fetch_add(by, std::memory_order_relaxed); }
  double value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0};
};

// Observations counted into fixed buckets. Any thread, lock-free; a reader may see an observation in the buckets before it
// sees it in the sum.
class Histogram {
 public:
  // `bounds`: inclusive upper bounds, strictly increasing, without +Inf (which is added).
  explicit Histogram(std::vector<double> bounds);
  void Observe(double value);

  const std::vector<double>& bounds() const { return bounds_; }
  // Observations in bucket `i` alone (not cumulative); bucket bounds().size() is +Inf.
  uint64_t bucket(size_t i) const { return buckets_[i].load(std::memory_order_relaxed); }
  uint64_t count() const;
  double sum() const { return sum_.load(std::memory_order_relaxed); }

 private:
  const std::vector<double> bounds_;
  const std::unique_ptr<std::atomic<uint64_t>[]> buckets_;
  std::atomic<double> sum_{0};
};

// Bounds in seconds from 1 ms to 10 min (time to first token, phases: a prompt of 100 s lies between 90 and 120) and from
// 0.5 ms to 1 min (between two tokens: 5 ms lies between 4 and 6).
std::vector<double> LatencyBuckets();
std::vector<double> InterTokenBuckets();

enum class MetricKind { kCounter, kGauge, kHistogram };

// A second name for series that exist, for dashboards and schedulers made for another server.
struct MetricAlias {
  std::string name;     // May have colons: `vllm:num_requests_running`.
  std::string of;       // The family it repeats, with its kind.
  std::string help;
  MetricLabels select;  // Only series with all of these labels, which the alias leaves out.
  std::vector<std::pair<std::string, std::string>> rename;  // Labels that are called otherwise there: from, to.
  MetricLabels add;     // What every series has there.
};

// The series of one process, and their Prometheus text. Get* returns the same object for the same name and labels; it
// lives as long as the registry, and using it takes no lock. Any thread.
//
// Names, label names and kinds are the program's own: a malformed name, or one name used with two kinds, help texts or
// bucket lists, is a bug (CHECK).
class MetricRegistry {
 public:
  MetricRegistry();
  ~MetricRegistry();
  MetricRegistry(const MetricRegistry&) = delete;
  MetricRegistry& operator=(const MetricRegistry&) = delete;

  Counter* GetCounter(absl::string_view name, absl::string_view help, MetricLabels labels = {});
  Gauge* GetGauge(absl::string_view name, absl::string_view help, MetricLabels labels = {});
  Histogram* GetHistogram(absl::string_view name, absl::string_view help, std::vector<double> bounds,
                          MetricLabels labels = {});

  // A series read by calling `read` at each rendering, on the renderer's thread; `read` must not block. Once the
  // returned handle is gone `read` is not called any more, also not by a rendering that is going on; the handle may
  // outlive the registry. `kind` is kCounter or kGauge. A series that exists already is replaced.
  class Callback;
  [[nodiscard]] std::shared_ptr<Callback> AddCallback(MetricKind kind, absl::string_view name, absl::string_view help,
                                                      MetricLabels labels, std::function<double()> read);

  // Shown after everything else; a family that does not exist yet appears once it does.
  void AddAlias(MetricAlias alias);

  // Prometheus text exposition format 0.0.4, families and series in sorted order.
  std::string RenderPrometheus() const;
  // The Content-Type of that text.
  static constexpr char kContentType[] = "text/plain; version=0.0.4; charset=utf-8";

 private:
  struct Series;
  struct Family;
  struct Line;
  Series* FindOrAdd(MetricKind kind, absl::string_view name, absl::string_view help, MetricLabels labels)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void AppendHead(const std::string& name, const std::string& help, MetricKind kind, std::vector<Line>* lines);
  static void AppendSeries(const std::string& name, const MetricLabels& labels, MetricKind kind, const Series& series,
                           std::vector<Line>* lines);

  mutable Mutex mutex_;
  std::map<std::string, std::unique_ptr<Family>> families_ ABSL_GUARDED_BY(mutex_);
  std::vector<MetricAlias> aliases_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton

#endif  // BATON_COMMON_BASE_METRICS_H_
