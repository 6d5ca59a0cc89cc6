// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_TEXT_CHAT_TEMPLATE_H_
#define BATON_COMMON_TEXT_CHAT_TEMPLATE_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/text/renderer_process.h"
#include "common/text/text_bundle.h"
#include "nlohmann/json.hpp"

namespace baton {

struct RendererPoolOptions {
  int num_processes = 2;
  RendererLimits limits;
  absl::Duration render_timeout = absl::Milliseconds(1500);  // From the sending of a request to its answer.
  absl::Duration queue_timeout = absl::Seconds(10);          // For a free process.
  absl::Duration start_timeout = absl::Seconds(20);          // For a new process to be ready.
};

// Renderer processes, each for one request at a time. A process that fails or overstays its time is killed and
// replaced. Thread-safe.
class RendererPool {
 public:
  // Starts all processes and waits for the first, so that a machine without Jinja2 says so at once.
  // Codes of RendererProcess::Start and WaitReady.
  static absl::StatusOr<std::shared_ptr<RendererPool>> Create(RendererPoolOptions options = {});
  ~RendererPool();

  // Sends `request` to a free process and returns its answer.
  //   DEADLINE_EXCEEDED   the template took longer than render_timeout.
  //   RESOURCE_EXHAUSTED  no process became free in time.
  //   INTERNAL            the process ended on this request (its limits, or a crash).
  absl::StatusOr<std::string> Call(absl::string_view request);

 private:
  explicit RendererPool(RendererPoolOptions options) : options_(options) {}
  absl::StatusOr<std::unique_ptr<RendererProcess>> Acquire();
  void Release(std::unique_ptr<RendererProcess> process);  // Null: one is missing.

  const RendererPoolOptions options_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<std::unique_ptr<RendererProcess>> idle_ ABSL_GUARDED_BY(mutex_);
  int num_busy_ ABSL_GUARDED_BY(mutex_) = 0;
};

struct ChatRequest {
  nlohmann::ordered_json messages;   // List of {"role", "content", ...}; the order of members reaches the prompt.
  nlohmann::ordered_json tools;      // List, or null.
  nlohmann::ordered_json documents;  // List, or null.
  nlohmann::ordered_json variables;  // More names for the template (`enable_thinking`): an object, or null.
  bool add_generation_prompt = true;
  std::optional<std::string> now;  // For strftime_now, as "2026-01-02T15:04:05"; absent: the clock.
};

// A model's chat template, rendered by Jinja2 in a sandbox. Thread-safe.
class ChatTemplate {
 public:
  // Deepest nesting of messages, tools and variables.
  static constexpr int kMaxDepth = 64;
  static constexpr size_t kMaxVariables = 256;

  // Compiles the bundle's templates once, to refuse a broken one at start.
  //   FAILED_PRECONDITION  the bundle has no template.
  //   INVALID_ARGUMENT     a template is malformed (Jinja2's message with the line).
  //   Codes of RendererPool::Call.
  static absl::StatusOr<std::unique_ptr<const ChatTemplate>> Create(std::shared_ptr<RendererPool> pool,
                                                                    const TextBundle& bundle);

  // The prompt. Special tokens are in it as text: encode it with parse_special and without add_special.
  //   INVALID_ARGUMENT  messages or tools of another shape (names the place), or the template's own error, word for
  //   word. Codes of RendererPool::Call.
  absl::StatusOr<std::string> Render(const ChatRequest& request) const;

 private:
  ChatTemplate(std::shared_ptr<RendererPool> pool, const TextBundle& bundle)
      : pool_(std::move(pool)),
        source_(*bundle.chat_template),
        tool_source_(bundle.tool_chat_template.value_or(*bundle.chat_template)),
        tokens_(bundle.template_tokens) {}
  absl::StatusOr<std::string> Call(const nlohmann::ordered_json& request) const;

  const std::shared_ptr<RendererPool> pool_;
  const std::string source_, tool_source_;
  const std::map<std::string, std::string> tokens_;
};

}  // namespace baton

#endif  // BATON_COMMON_TEXT_CHAT_TEMPLATE_H_
