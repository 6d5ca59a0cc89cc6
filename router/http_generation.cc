// SPDX-License-Identifier: Apache-2.0
#include "router/http_generation.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "router/openai_response.h"
#include "router/openai_tools.h"
#include "router/responses_answer.h"
#include "router/responses_request.h"
#include "router/status_details.h"

namespace baton {
namespace {

std::unique_ptr<HttpAnswer> MakeAnswer(const OpenAiRequest& request, const RouterCore& core, std::string id) {
  const int64_t now = absl::ToUnixSeconds(absl::Now());
  if (!request.responses.is_null()) return std::make_unique<ResponsesAnswer>(request, std::move(id), core.model.name, now);
  return std::make_unique<OpenAiResponse>(request, core.model.tokenizer.get(), std::move(id), core.model.name, now);
}

// Who has left so much unread has not gone away.
constexpr size_t kManyUnreadBytes = 128 << 10;

absl::Status WhyCut(size_t unread) {
  if (unread < kManyUnreadBytes) return absl::CancelledError("client went away");
  return absl::ResourceExhaustedError(absl::StrCat("client reads too slowly: ", unread, " bytes are unread"));
}

}  // namespace

void SendError(HttpResponseWriter& writer, const absl::Status& status, const HttpHeaders& headers) {
  HttpHeaders all = headers;
  if (const auto after = RetryAfter(status)) {
    all.emplace_back("Retry-After", absl::StrCat(absl::ToInt64Seconds(absl::Ceil(*after, absl::Seconds(1)))));
  }
  writer.Send(HttpStatus(status.code()), "application/json", OpenAiErrorBody(status), all);
}

void HttpGeneration::Start(RouterCore* core, OpenAiRequest request, std::string request_id, HttpHeaders headers,
                           std::shared_ptr<HttpResponseWriter> writer, const Generation::Origin& origin) {
  auto self = std::shared_ptr<HttpGeneration>(
      new HttpGeneration(core, request, std::move(request_id), std::move(headers), std::move(writer)));
  // Weak: the connection keeps the callback.
  self->writer_->OnClosed([weak = std::weak_ptr<HttpGeneration>(self)] {
    if (auto live = weak.lock()) live->CancelAll(absl::CancelledError("client went away"));
  });
  {
    MutexLock lock(&self->mutex_);
    self->ScheduleKeepAlive();
  }
  for (size_t i = 0; i < request.requests.size(); ++i) {
    const int prompt = static_cast<int>(i);
    auto generation = Generation::Start(
        core, std::move(request.requests[i]),
        {.on_response = [self, prompt](v1::GenerateResponse&& response) { self->OnResponse(prompt, response); },
         .on_end =
             [self, prompt](const absl::Status& status, std::optional<v1::GenerateResponse>&& last) {
               if (last) self->OnResponse(prompt, *last);
               self->OnEnd(status);
             }},
        origin);
    absl::Status cancelled;
    {
      MutexLock lock(&self->mutex_);
      if (!self->done_) self->generations_.push_back(generation);
      cancelled = self->cancelled_;
    }
    if (!cancelled.ok()) generation->Cancel(cancelled);
  }
}

HttpGeneration::HttpGeneration(RouterCore* core, const OpenAiRequest& request, std::string request_id, HttpHeaders headers,
                               std::shared_ptr<HttpResponseWriter> writer)
    : core_(core),
      stream_(request.stream),
      tools_(request.tools),
      responses_(!request.responses.is_null()),
      message_names_(request.message_names),
      headers_(std::move(headers)),
      writer_(std::move(writer)),
      answer_(MakeAnswer(request, *core, std::move(request_id))),
      num_open_(request.requests.size()),
      last_write_(Clock::Real()->Now()) {}

void HttpGeneration::WriteEvents(absl::string_view events) {
  if (!std::exchange(begun_, true)) {
    HttpHeaders headers = headers_;
    headers.emplace_back("Cache-Control", "no-cache");
    headers.emplace_back("X-Accel-Buffering", "no");
    writer_->StartStream(200, "text/event-stream", headers);
  }
  last_write_ = Clock::Real()->Now();
  // The writer bounds what a slow reader may leave behind, and cuts it. The connection's end may be told meanwhile: this is why.
  const size_t unread = writer_->buffered_bytes();
  if (!writer_->Write(events) && cancelled_.ok()) cancelled_ = WhyCut(unread);
}

// Tokens move the time, not the timer: it looks when it is due.
void HttpGeneration::ScheduleKeepAlive() {
  const absl::Duration interval = core_->options.sse_keepalive;
  if (!stream_ || done_ || interval <= absl::ZeroDuration()) return;
  keepalive_ = core_->timers.Schedule(last_write_ + interval, [weak = weak_from_this()] {
    if (auto live = weak.lock()) live->KeepAlive();
  });
}

void HttpGeneration::KeepAlive() {
  absl::Status cut;
  {
    MutexLock lock(&mutex_);
    if (done_) return;
    if (Clock::Real()->Now() - last_write_ >= core_->options.sse_keepalive) WriteEvents(": keep-alive\n\n");
    ScheduleKeepAlive();
    cut = cancelled_;
  }
  if (!cut.ok()) CancelAll(cut);
}

void HttpGeneration::OnResponse(int prompt, const v1::GenerateResponse& response) {
  absl::Status cut;
  {
    MutexLock lock(&mutex_);
    if (done_) return;
    if (!stream_) {
      answer_->Add(prompt, response);
      return;
    }
    const std::string events = answer_->Events(prompt, response);
    if (events.empty()) return;
    WriteEvents(events);
    cut = cancelled_;
  }
  if (!cut.ok()) CancelAll(cut);
}

void HttpGeneration::OnEnd(const absl::Status& ended) {
  const absl::Status named = NameTool(tools_, ended);
  const absl::Status status = responses_ ? InNamesOfResponses(named, message_names_) : named;
  {
    MutexLock lock(&mutex_);
    if (done_) return;
    --num_open_;
    if (status.ok() && num_open_ > 0) return;
    done_ = true;
    if (keepalive_ != 0) core_->timers.Cancel(keepalive_);
    generations_.swap(ending_);
    if (!status.ok()) {
      if (begun_) {
        writer_->Write(answer_->ErrorEvent(status));
        writer_->Finish();
      } else {
        SendError(*writer_, status, headers_);
      }
      cancelled_ = absl::CancelledError("another prompt of the batch failed");
    } else if (stream_) {
      writer_->Write(answer_->LastEvents());
      writer_->Finish();
    } else {
      writer_->Send(200, "application/json", answer_->Whole(), headers_);
    }
  }
  // The others of a batch, when this one failed; those that ended take no notice.
  if (status.ok()) return;
  std::vector<std::shared_ptr<Generation>> ending;
  {
    MutexLock lock(&mutex_);
    ending.swap(ending_);
  }
  for (const auto& generation : ending) generation->Cancel(absl::CancelledError("another prompt of the batch failed"));
}

void HttpGeneration::CancelAll(const absl::Status& why) {
  std::vector<std::shared_ptr<Generation>> generations;
  absl::Status first;
  {
    MutexLock lock(&mutex_);
    if (cancelled_.ok()) cancelled_ = why;
    first = cancelled_;
    generations = generations_;
  }
  for (const auto& generation : generations) generation->Cancel(first);
}

}  // namespace baton
