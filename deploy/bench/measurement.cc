// SPDX-License-Identifier: Apache-2.0
#include "deploy/bench/measurement.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/json.h"

namespace baton::bench {
namespace {

double Ms(absl::Duration duration) { return absl::ToDoubleMilliseconds(duration); }

double Quantile(const std::vector<double>& sorted, double q) {
  const double at = q * static_cast<double>(sorted.size() - 1);
  const size_t low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (sorted[high] - sorted[low]) * (at - static_cast<double>(low));
}

double Rate(double count, double seconds) { return seconds > 0 ? count / seconds : 0; }

// Everything that Report keeps lists of while it is made.
struct Lists {
  std::vector<double> ttft, tpot, itl, e2el, lag, burst_ttft, quiet_itl, burst_itl;
};

void AddStream(const Measurement& m, std::optional<MonotonicTime> first_burst, MonotonicTime issue_end, Report* report,
               Lists* lists) {
  const MonotonicTime first = m.pieces.front(), last = m.pieces.back();
  lists->ttft.push_back(Ms(first - m.sent));
  lists->e2el.push_back(Ms(last - m.sent));
  if (m.output_tokens > 1) lists->tpot.push_back(Ms(last - first) / (m.output_tokens - 1));
  for (size_t i = 1; i < m.pieces.size(); ++i) {
    const double gap = Ms(m.pieces[i] - m.pieces[i - 1]);
    lists->itl.push_back(gap);
    if (first_burst && m.pieces[i] <= issue_end) (m.pieces[i] < *first_burst ? lists->quiet_itl : lists->burst_itl).push_back(gap);
  }
  for (const auto& [phase, ms] : m.timeline_ms) report->phase_ms[phase] += ms;
}

nlohmann::json SummaryJson(const Summary& s) {
  return {{"mean", s.mean}, {"median", s.median}, {"p90", s.p90}, {"p99", s.p99}, {"p99.5", s.p995}, {"max", s.max}, {"count", s.count}};
}

void AppendTitle(absl::string_view title, char fill, std::string* text) {
  const int width = 58;
  const int left = (width - static_cast<int>(title.size()) - 2) / 2;
  absl::StrAppend(text, std::string(std::max(0, left), fill), " ", title, " ",
                  std::string(std::max<int>(0, width - left - static_cast<int>(title.size()) - 2), fill), "\n");
}

void AppendLine(absl::string_view name, double value, int digits, std::string* text) {
  absl::StrAppendFormat(text, "%-44s %13.*f\n", absl::StrCat(name, ":"), digits, value);
}

void AppendSummary(absl::string_view title, absl::string_view name, const Summary& s, std::string* text) {
  AppendTitle(title, '-', text);
  for (const auto& [label, value] : {std::pair("Mean", s.mean), {"Median", s.median}, {"P90", s.p90}, {"P99", s.p99}}) {
    AppendLine(absl::StrCat(label, " ", name, " (ms)"), value, 2, text);
  }
}

void AppendBurst(const Report& report, std::string* text) {
  AppendTitle("Long prompts into running streams", '-', text);
  absl::StrAppendFormat(text, "%-24s %10s %10s %10s %10s\n", "Gap between pieces (ms)", "median", "p99", "p99.5", "worst");
  for (const auto& [name, s] : {std::pair("before", report.quiet_itl_ms), {"with long prompts", report.burst_itl_ms}}) {
    absl::StrAppendFormat(text, "%-24s %10.2f %10.2f %10.2f %10.2f\n", name, s.median, s.p99, s.p995, s.max);
  }
  AppendLine("Pieces per second before", report.quiet_output_rate, 1, text);
  AppendLine("Pieces per second with long prompts", report.burst_output_rate, 1, text);
  AppendLine("Median TTFT of the long prompts (ms)", report.burst_ttft_ms.median, 2, text);
  AppendLine("Worst TTFT of the long prompts (ms)", report.burst_ttft_ms.max, 2, text);
}

// Errors that name what is new in each request would be as many as requests.
constexpr size_t kMaxErrors = 10;

using ErrorCount = std::pair<std::string, int>;

// The most frequent first.
std::vector<ErrorCount> ByCount(const std::map<std::string, int>& errors) {
  std::vector<ErrorCount> sorted(errors.begin(), errors.end());
  std::ranges::stable_sort(sorted, std::greater<>(), &ErrorCount::second);
  return sorted;
}

void KeepMostFrequent(std::map<std::string, int>* errors) {
  if (errors->size() <= kMaxErrors) return;
  const std::vector<ErrorCount> sorted = ByCount(*errors);
  *errors = std::map<std::string, int>(sorted.begin(), sorted.begin() + kMaxErrors);
  const std::string others = absl::StrCat("other errors, ", sorted.size() - kMaxErrors, " kinds");
  for (size_t i = kMaxErrors; i < sorted.size(); ++i) (*errors)[others] += sorted[i].second;
}

// "400 prompt has token id ...": with an HTTP status, that is the code.
std::string ErrorName(const Measurement& m) {
  if (m.status.ok()) return absl::StrCat(m.http_status, " no token came");
  return m.http_status >= 400 ? absl::StrCat(m.http_status, " ", m.status.message()) : absl::StrCat(m.http_status, " ", m.status.ToString());
}

}  // namespace

Summary Summarize(std::vector<double> values) {
  Summary summary;
  if (values.empty()) return summary;
  std::ranges::sort(values);
  for (double value : values) summary.mean += value;
  summary.mean /= static_cast<double>(values.size());
  summary.median = Quantile(values, 0.5);
  summary.p90 = Quantile(values, 0.9);
  summary.p99 = Quantile(values, 0.99);
  summary.p995 = Quantile(values, 0.995);
  summary.max = values.back();
  summary.count = values.size();
  return summary;
}

Report MakeReport(const std::vector<Measurement>& measurements, MonotonicTime issue_end) {
  Report report;
  Lists lists;
  std::optional<MonotonicTime> first_burst, first_sent, last_end;
  for (const Measurement& m : measurements) {
    if (m.burst) first_burst = std::min(first_burst.value_or(m.sent), m.sent);
    first_sent = std::min(first_sent.value_or(m.sent), m.sent);
    last_end = std::max(last_end.value_or(m.ended), m.ended);
  }
  for (const Measurement& m : measurements) {
    lists.lag.push_back(Ms(m.sent - m.due));
    const bool succeeded = m.status.ok() && !m.pieces.empty();
    if (!succeeded) {
      ++report.num_failed;
      ++report.errors[ErrorName(m)];
      continue;
    }
    if (m.burst) {
      lists.burst_ttft.push_back(Ms(m.pieces.front() - m.sent));
      continue;
    }
    ++report.num_succeeded;
    report.prompt_tokens += m.prompt_tokens;
    report.cached_tokens += m.cached_tokens;
    report.output_tokens += m.output_tokens;
    AddStream(m, first_burst, issue_end, &report, &lists);
  }
  KeepMostFrequent(&report.errors);
  for (auto& [phase, ms] : report.phase_ms) ms /= report.num_succeeded;
  if (first_sent) report.duration_s = absl::ToDoubleSeconds(*last_end - *first_sent);
  if (first_burst) {
    report.quiet_output_rate = Rate(static_cast<double>(lists.quiet_itl.size()), absl::ToDoubleSeconds(*first_burst - *first_sent));
    report.burst_output_rate = Rate(static_cast<double>(lists.burst_itl.size()), absl::ToDoubleSeconds(issue_end - *first_burst));
  }
  report.ttft_ms = Summarize(std::move(lists.ttft));
  report.tpot_ms = Summarize(std::move(lists.tpot));
  report.itl_ms = Summarize(std::move(lists.itl));
  report.e2el_ms = Summarize(std::move(lists.e2el));
  report.lag_ms = Summarize(std::move(lists.lag));
  report.burst_ttft_ms = Summarize(std::move(lists.burst_ttft));
  report.quiet_itl_ms = Summarize(std::move(lists.quiet_itl));
  report.burst_itl_ms = Summarize(std::move(lists.burst_itl));
  return report;
}

std::string ReportText(const Report& report) {
  std::string text;
  AppendTitle("Serving Benchmark Result", '=', &text);
  AppendLine("Successful requests", report.num_succeeded, 0, &text);
  AppendLine("Failed requests", report.num_failed, 0, &text);
  AppendLine("Benchmark duration (s)", report.duration_s, 2, &text);
  AppendLine("Total input tokens", static_cast<double>(report.prompt_tokens), 0, &text);
  AppendLine("Total cached tokens", static_cast<double>(report.cached_tokens), 0, &text);
  AppendLine("Total generated tokens", static_cast<double>(report.output_tokens), 0, &text);
  AppendLine("Request throughput (req/s)", Rate(report.num_succeeded, report.duration_s), 2, &text);
  AppendLine("Output token throughput (tok/s)", Rate(static_cast<double>(report.output_tokens), report.duration_s), 2, &text);
  AppendLine("Total token throughput (tok/s)",
             Rate(static_cast<double>(report.prompt_tokens + report.output_tokens), report.duration_s), 2, &text);
  AppendSummary("Time to First Token", "TTFT", report.ttft_ms, &text);
  AppendSummary("Time per Output Token (excl. 1st token)", "TPOT", report.tpot_ms, &text);
  AppendSummary("Inter-token Latency", "ITL", report.itl_ms, &text);
  AppendSummary("End-to-end Latency", "E2EL", report.e2el_ms, &text);
  if (report.burst_itl_ms.count + report.burst_ttft_ms.count > 0) AppendBurst(report, &text);
  if (!report.phase_ms.empty()) {
    AppendTitle("Where a request's time goes (server)", '-', &text);
    const auto total = report.phase_ms.find("total_ms");
    for (const auto& [phase, ms] : report.phase_ms) {
      const double share = total != report.phase_ms.end() && total->second > 0 ? 100 * ms / total->second : 0;
      absl::StrAppendFormat(&text, "%-44s %13.2f %6.1f %%\n", absl::StrCat("Mean ", phase, ":"), ms, share);
    }
  }
  AppendTitle("Load generator", '-', &text);
  AppendLine("P99 lag behind the plan (ms)", report.lag_ms.p99, 2, &text);
  AppendLine("Worst lag behind the plan (ms)", report.lag_ms.max, 2, &text);
  for (const auto& [error, count] : ByCount(report.errors)) absl::StrAppendFormat(&text, "%6d x %s\n", count, error);
  absl::StrAppend(&text, std::string(58, '='), "\n");
  return text;
}

std::string ReportJson(const Report& report) {
  nlohmann::json json = {{"completed", report.num_succeeded},
                    {"failed", report.num_failed},
                    {"duration", report.duration_s},
                    {"total_input_tokens", report.prompt_tokens},
                    {"total_cached_tokens", report.cached_tokens},
                    {"total_output_tokens", report.output_tokens},
                    {"request_throughput", Rate(report.num_succeeded, report.duration_s)},
                    {"output_throughput", Rate(static_cast<double>(report.output_tokens), report.duration_s)},
                    {"lag_ms", SummaryJson(report.lag_ms)},
                    {"phase_ms", report.phase_ms},
                    {"errors", report.errors}};
  for (const auto& [name, s] : {std::pair("ttft", &report.ttft_ms), {"tpot", &report.tpot_ms}, {"itl", &report.itl_ms},
                                {"e2el", &report.e2el_ms}}) {
    json[absl::StrCat("mean_", name, "_ms")] = s->mean;
    json[absl::StrCat("median_", name, "_ms")] = s->median;
    json[absl::StrCat("p90_", name, "_ms")] = s->p90;
    json[absl::StrCat("p99_", name, "_ms")] = s->p99;
    json[absl::StrCat("p99.5_", name, "_ms")] = s->p995;
    json[absl::StrCat("max_", name, "_ms")] = s->max;
  }
  if (report.burst_itl_ms.count + report.burst_ttft_ms.count > 0) {
    json["burst"] = {{"ttft_ms", SummaryJson(report.burst_ttft_ms)},
                     {"quiet_itl_ms", SummaryJson(report.quiet_itl_ms)},
                     {"itl_ms", SummaryJson(report.burst_itl_ms)},
                     {"quiet_pieces_per_s", report.quiet_output_rate},
                     {"pieces_per_s", report.burst_output_rate}};
  }
  return DumpJson(json);
}

}  // namespace baton::bench
