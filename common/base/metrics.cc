// SPDX-License-Identifier: Apache-2.0
#include "common/base/metrics.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/logging.h"
#include "common/base/utf8.h"

namespace baton {
namespace {

// [a-zA-Z_][a-zA-Z0-9_]*; an alias may have colons too, which are else for recording rules.
bool IsMetricName(absl::string_view name, bool colons = false) {
  if (name.empty() || absl::ascii_isdigit(name[0])) return false;
  return std::all_of(name.begin(), name.end(), [colons](char c) { return absl::ascii_isalnum(c) || c == '_' || (colons && c == ':'); });
}

std::string Escape(absl::string_view text, bool quotes) {
  std::string out;
  for (char c : ReplaceInvalidUtf8(text)) {
    if (c == '\\') {
      out += "\\\\";
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '"' && quotes) {
      out += "\\\"";
    } else {
      out += c;
    }
  }
  return out;
}

std::string FormatValue(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  std::string text = absl::StrFormat("%.15g", value);
  if (std::strtod(text.c_str(), nullptr) != value) text = absl::StrFormat("%.17g", value);
  return text;
}

// {a="1",b="2"}, or nothing without labels. `extra`: a last pair already rendered, like le="0.5".
std::string LabelText(const MetricLabels& labels, absl::string_view extra = "") {
  std::string text;
  for (const auto& [name, value] : labels) {
    absl::StrAppend(&text, text.empty() ? "" : ",", name, "=\"", Escape(value, /*quotes=*/true), "\"");
  }
  if (!extra.empty()) absl::StrAppend(&text, text.empty() ? "" : ",", extra);
  return text.empty() ? "" : absl::StrCat("{", text, "}");
}

const char* KindName(MetricKind kind) {
  switch (kind) {
    case MetricKind::kCounter: return "counter";
    case MetricKind::kGauge: return "gauge";
    case MetricKind::kHistogram: return "histogram";
  }
  return "untyped";
}

void AppendHistogram(absl::string_view name, const MetricLabels& labels, const Histogram& histogram, std::string* out) {
  uint64_t cumulative = 0;
  for (size_t i = 0; i <= histogram.bounds().size(); ++i) {
    cumulative += histogram.bucket(i);
    const std::string bound = i < histogram.bounds().size() ? FormatValue(histogram.bounds()[i]) : "+Inf";
    absl::StrAppend(out, name, "_bucket", LabelText(labels, absl::StrCat("le=\"", bound, "\"")), " ", cumulative, "\n");
  }
  absl::StrAppend(out, name, "_sum", LabelText(labels), " ", FormatValue(histogram.sum()), "\n");
  // The same number as the last bucket, whatever is observed meanwhile.
  absl::StrAppend(out, name, "_count", LabelText(labels), " ", cumulative, "\n");
}

// The labels of a series under an alias; nothing when the alias is not for it.
std::optional<MetricLabels> AliasLabels(const MetricAlias& alias, MetricLabels labels) {
  for (const auto& wanted : alias.select) {
    const auto it = std::find(labels.begin(), labels.end(), wanted);
    if (it == labels.end()) return std::nullopt;
    labels.erase(it);
  }
  for (auto& label : labels) {
    for (const auto& [from, to] : alias.rename) {
      if (label.first == from) label.first = to;
    }
  }
  labels.insert(labels.end(), alias.add.begin(), alias.add.end());
  std::sort(labels.begin(), labels.end());
  return labels;
}

}  // namespace

// Its own lock, so that a reading and the end of the handle exclude each other without holding the registry's.
class MetricRegistry::Callback {
 public:
  explicit Callback(std::function<double()> read) : shared_(std::make_shared<Shared>()) {
    MutexLock lock(&shared_->mutex);
    shared_->read = std::move(read);
  }
  ~Callback() {
    MutexLock lock(&shared_->mutex);
    shared_->read = nullptr;
  }

  struct Shared {
    Mutex mutex;
    std::function<double()> read ABSL_GUARDED_BY(mutex);
  };
  std::shared_ptr<Shared> shared() const { return shared_; }

 private:
  const std::shared_ptr<Shared> shared_;
};

struct MetricRegistry::Series {
  MetricLabels labels;
  Counter counter;
  Gauge gauge;
  std::unique_ptr<Histogram> histogram;
  std::shared_ptr<Callback::Shared> callback;
};

struct MetricRegistry::Family {
  MetricKind kind;
  std::string help;
  std::map<std::string, std::unique_ptr<Series>> series;  // By label text.
};

Histogram::Histogram(std::vector<double> bounds)
    : bounds_(std::move(bounds)), buckets_(new std::atomic<uint64_t>[bounds_.size() + 1]()) {
  BATON_CHECK(std::adjacent_find(bounds_.begin(), bounds_.end(), std::greater_equal<double>()) == bounds_.end())
      << "histogram bounds must increase";
}

void Histogram::Observe(double value) {
  if (std::isnan(value)) return;  // It would fall into no bucket and make the sum useless for ever.
  const size_t bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  buckets_[bucket].fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(value, std::memory_order_relaxed);
}

uint64_t Histogram::count() const {
  uint64_t total = 0;
  for (size_t i = 0; i <= bounds_.size(); ++i) total += bucket(i);
  return total;
}

std::vector<double> LatencyBuckets() {
  return {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 45, 60, 90, 120, 180, 300, 600};
}

std::vector<double> InterTokenBuckets() {
  return {0.0005, 0.001, 0.002, 0.003, 0.004, 0.005, 0.006, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.25, 0.5, 1, 2.5, 10,
          60};
}

MetricRegistry::MetricRegistry() = default;
MetricRegistry::~MetricRegistry() = default;

MetricRegistry::Series* MetricRegistry::FindOrAdd(MetricKind kind, absl::string_view name, absl::string_view help,
                                                  MetricLabels labels) {
  BATON_CHECK(IsMetricName(name)) << "metric name " << name;
  for (const auto& label : labels) BATON_CHECK(IsMetricName(label.first)) << "label name " << label.first;
  std::unique_ptr<Family>& family = families_[std::string(name)];
  if (family == nullptr) family.reset(new Family{.kind = kind, .help = std::string(help)});
  BATON_CHECK(family->kind == kind && family->help == help) << "metric " << name << " defined twice, differently";
  std::sort(labels.begin(), labels.end());
  std::unique_ptr<Series>& series = family->series[LabelText(labels)];
  if (series == nullptr) {
    series = std::make_unique<Series>();
    series->labels = std::move(labels);
  }
  return series.get();
}

Counter* MetricRegistry::GetCounter(absl::string_view name, absl::string_view help, MetricLabels labels) {
  MutexLock lock(&mutex_);
  return &FindOrAdd(MetricKind::kCounter, name, help, std::move(labels))->counter;
}

Gauge* MetricRegistry::GetGauge(absl::string_view name, absl::string_view help, MetricLabels labels) {
  MutexLock lock(&mutex_);
  return &FindOrAdd(MetricKind::kGauge, name, help, std::move(labels))->gauge;
}

Histogram* MetricRegistry::GetHistogram(absl::string_view name, absl::string_view help, std::vector<double> bounds,
                                        MetricLabels labels) {
  MutexLock lock(&mutex_);
  Series* series = FindOrAdd(MetricKind::kHistogram, name, help, std::move(labels));
  if (series->histogram == nullptr) series->histogram = std::make_unique<Histogram>(bounds);
  BATON_CHECK(series->histogram->bounds() == bounds) << "metric " << name << " defined twice, with other buckets";
  return series->histogram.get();
}

std::shared_ptr<MetricRegistry::Callback> MetricRegistry::AddCallback(MetricKind kind, absl::string_view name,
                                                                      absl::string_view help, MetricLabels labels,
                                                                      std::function<double()> read) {
  BATON_CHECK(kind != MetricKind::kHistogram);
  auto callback = std::make_shared<Callback>(std::move(read));
  MutexLock lock(&mutex_);
  FindOrAdd(kind, name, help, std::move(labels))->callback = callback->shared();
  return callback;
}

void MetricRegistry::AddAlias(MetricAlias alias) {
  BATON_CHECK(IsMetricName(alias.name, /*colons=*/true)) << "metric name " << alias.name;
  MutexLock lock(&mutex_);
  aliases_.push_back(std::move(alias));
}

struct MetricRegistry::Line {
  std::string text;                            // Everything, or up to the value of a callback.
  std::shared_ptr<Callback::Shared> callback;  // Null: text is complete.
};

void MetricRegistry::AppendHead(const std::string& name, const std::string& help, MetricKind kind, std::vector<Line>* lines) {
  lines->push_back(
      {absl::StrCat("# HELP ", name, " ", Escape(help, /*quotes=*/false), "\n# TYPE ", name, " ", KindName(kind), "\n"), nullptr});
}

void MetricRegistry::AppendSeries(const std::string& name, const MetricLabels& labels, MetricKind kind, const Series& series,
                                  std::vector<Line>* lines) {
  Line line;
  if (kind == MetricKind::kHistogram) {
    AppendHistogram(name, labels, *series.histogram, &line.text);
  } else {
    line.text = absl::StrCat(name, LabelText(labels), " ");
    if (series.callback != nullptr) {
      line.callback = series.callback;
    } else if (kind == MetricKind::kCounter) {
      absl::StrAppend(&line.text, series.counter.value(), "\n");
    } else {
      absl::StrAppend(&line.text, FormatValue(series.gauge.value()), "\n");
    }
  }
  lines->push_back(std::move(line));
}

std::string MetricRegistry::RenderPrometheus() const {
  // Callbacks run without the registry's lock; series are never removed, so pointers to them stay good.
  std::vector<Line> lines;
  {
    MutexLock lock(&mutex_);
    for (const auto& [name, family] : families_) {
      AppendHead(name, family->help, family->kind, &lines);
      for (const auto& [label_text, series] : family->series) AppendSeries(name, series->labels, family->kind, *series, &lines);
    }
    for (const MetricAlias& alias : aliases_) {
      const auto it = families_.find(alias.of);
      if (it == families_.end()) continue;
      AppendHead(alias.name, alias.help, it->second->kind, &lines);
      for (const auto& [label_text, series] : it->second->series) {
        if (const auto labels = AliasLabels(alias, series->labels)) AppendSeries(alias.name, *labels, it->second->kind, *series, &lines);
      }
    }
  }
  std::string out;
  for (const Line& line : lines) {
    if (line.callback == nullptr) {
      out += line.text;
      continue;
    }
    MutexLock lock(&line.callback->mutex);
    if (line.callback->read == nullptr) continue;  // Its owner is gone: the series is not shown.
    absl::StrAppend(&out, line.text, FormatValue(line.callback->read()), "\n");
  }
  return out;
}

}  // namespace baton
