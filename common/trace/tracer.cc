// SPDX-License-Identifier: Apache-2.0
#include "common/trace/tracer.h"

#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/build_info.h"
#include "common/base/host_port.h"
#include "common/base/ids.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/http/http_client.h"

namespace baton {
namespace {

constexpr char kMetric[] = "baton_trace_spans_total";
constexpr char kHelp[] = "Spans recorded, by what became of them.";
constexpr size_t kMaxBatch = 512;

TraceSource SourceOf(const TracerOptions& options) {
  return {.service = options.service,
          .instance = options.instance,
          .version = Version(),
          .pid = static_cast<int>(getpid()),
          .origin = absl::Now() - Clock::Real()->Now()};
}

absl::StatusOr<int> OpenFile(const std::string& path) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return absl::UnavailableError(absl::StrCat("--trace-file ", path, ": ", strerror(errno)));
  return fd;
}

absl::StatusOr<TraceCollector> ParseCollector(absl::string_view url) {
  if (url.empty()) return TraceCollector{};
  absl::string_view rest = url;
  if (!absl::ConsumePrefix(&rest, "http://")) {
    return absl::InvalidArgumentError(absl::StrCat("--trace-otlp ", url, " is no http:// address (a collector on this machine, which ",
                                                   "encrypts what it sends on)"));
  }
  const size_t slash = rest.find('/');
  std::string address(rest.substr(0, slash));
  std::string path = slash == absl::string_view::npos ? "" : std::string(rest.substr(slash));
  if (path.empty() || path == "/") path = "/v1/traces";
  if (!absl::StrContains(address.substr(address.rfind(']') + 1), ':')) absl::StrAppend(&address, ":4318");
  if (const auto parsed = ParseHostPort(address); !parsed.ok()) return Annotate(parsed.status(), "--trace-otlp");
  return TraceCollector{std::move(address), std::move(path)};
}

}  // namespace

absl::Status TracerOptions::Validate() const {
  if (!(sample >= 0 && sample <= 1)) return absl::InvalidArgumentError(absl::StrCat("--trace-sample ", sample, " is outside [0, 1]"));
  return ParseCollector(otlp_endpoint).status();
}

absl::StatusOr<std::unique_ptr<Tracer>> Tracer::Create(TracerOptions options, MetricRegistry* metrics) {
  BATON_RETURN_IF_ERROR(options.Validate());
  BATON_ASSIGN_OR_RETURN(TraceCollector collector, ParseCollector(options.otlp_endpoint));
  int file = -1;
  if (!options.file.empty()) {
    BATON_ASSIGN_OR_RETURN(file, OpenFile(options.file));
  }
  return std::unique_ptr<Tracer>(new Tracer(std::move(options), std::move(collector), file, metrics));
}

Tracer::Tracer(TracerOptions options, TraceCollector collector, int file, MetricRegistry* metrics)
    : options_(std::move(options)),
      enabled_(options_.enabled()),
      source_(SourceOf(options_)),
      collector_(std::move(collector)),
      file_(file),
      exported_(metrics->GetCounter(kMetric, kHelp, {{"result", "written"}})),
      dropped_(metrics->GetCounter(kMetric, kHelp, {{"result", "dropped"}})),
      failed_(metrics->GetCounter(kMetric, kHelp, {{"result", "failed"}})) {
  if (enabled_) thread_ = Thread("trace", [this] { Run(); });
}

Tracer::~Tracer() {
  Stop();
  if (file_ >= 0) close(file_);
}

void Tracer::Stop() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    wake_.NotifyAll();
  }
  thread_.Join();
}

TraceContext Tracer::Begin(const std::optional<TraceContext>& from_client) const {
  if (from_client) return enabled_ && from_client->sampled ? NewChild(*from_client) : *from_client;
  // The share of 64-bit numbers below the bound; 1 is all of them.
  const bool sampled = enabled_ && (options_.sample >= 1 || static_cast<double>(RandomUint64()) < options_.sample * 0x1p64);
  return sampled ? NewTrace(true) : TraceContext();
}

void Tracer::Record(Span span) {
  if (!Records(span.context)) return;
  if (!span.status.ok()) {
    const std::string code = absl::StatusCodeToString(span.status.code());
    span.attributes.emplace_back("error.type", code);
    if (absl::IsInvalidArgument(span.status) || absl::IsNotFound(span.status)) span.status = absl::Status(span.status.code(), code);
  }
  MutexLock lock(&mutex_);
  if (stopping_ || queue_.size() >= options_.max_queued) return dropped_->Increment();
  queue_.push_back(std::move(span));
  if (queue_.size() == kMaxBatch) wake_.NotifyAll();
}

void Tracer::Run() {
  if (file_ >= 0) {
    // The name of this process, behind the bracket that opens a new file.
    flock(file_, LOCK_EX);
    struct stat info = {};
    const bool fresh = fstat(file_, &info) == 0 && info.st_size == 0;
    if (const absl::Status status = AppendToFile(absl::StrCat(fresh ? "[\n" : "", ChromeTraceProcess(source_))); !status.ok()) {
      BATON_LOG(WARNING) << status.message();
    }
    flock(file_, LOCK_UN);
  }
  while (true) {
    std::vector<Span> batch;
    bool last = false;
    {
      MutexLock lock(&mutex_);
      if (!stopping_ && queue_.size() < kMaxBatch) wake_.WaitFor(&mutex_, options_.interval);
      last = stopping_;
      batch.swap(queue_);
    }
    for (size_t begin = 0; begin < batch.size(); begin += kMaxBatch) {
      const auto first = batch.begin() + static_cast<std::ptrdiff_t>(begin);
      const auto end = batch.begin() + static_cast<std::ptrdiff_t>(std::min(batch.size(), begin + kMaxBatch));
      const bool written = Write({std::make_move_iterator(first), std::make_move_iterator(end)});
      // At the end a collector that is away is waited for once.
      if (last && !written) return;
    }
    if (last) return;
  }
}

// Both places, each of which may fail: a span counts as written when all that were asked for have it.
bool Tracer::Write(const std::vector<Span>& spans) {
  absl::Status status;
  if (!collector_.address.empty()) status.Update(PostOtlp(spans));
  if (file_ >= 0) status.Update(AppendToFile(ChromeTraceEvents(source_, spans)));
  (status.ok() ? exported_ : failed_)->Increment(spans.size());
  if (status.ok()) {
    complained_ = false;
  } else if (!std::exchange(complained_, true)) {
    BATON_LOG(WARNING) << "spans are lost, and will be until this is mended: " << status.message();
  }
  return status.ok();
}

absl::Status Tracer::PostOtlp(const std::vector<Span>& spans) const {
  HttpFetchRequest request;
  request.address = collector_.address;
  request.method = "POST";
  request.target = collector_.path;
  request.headers = {{"Content-Type", "application/json"}};
  request.body = OtlpJson(source_, spans);
  request.timeout = options_.otlp_timeout;
  request.max_response_bytes = 1 << 20;
  const absl::StatusOr<HttpResponse> response = HttpFetch(request);
  if (!response.ok()) return Annotate(response.status(), absl::StrCat("--trace-otlp ", options_.otlp_endpoint));
  if (response->status / 100 == 2) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("--trace-otlp ", options_.otlp_endpoint, " answers ", response->status));
}

// One write, so that the lines of several processes do not mix.
absl::Status Tracer::AppendToFile(const std::string& events) const {
  struct stat info = {};
  if (fstat(file_, &info) == 0 && info.st_size + static_cast<int64_t>(events.size()) > options_.max_file_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat("--trace-file ", options_.file, " has reached ", options_.max_file_bytes, " bytes"));
  }
  if (write(file_, events.data(), events.size()) == static_cast<ssize_t>(events.size())) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("--trace-file ", options_.file, ": ", strerror(errno)));
}

}  // namespace baton
