// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_TEXT_RENDERER_PROCESS_H_
#define BATON_COMMON_TEXT_RENDERER_PROCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/clock.h"

namespace baton {

struct RendererLimits {
  int64_t memory_bytes = int64_t{512} << 20;  // Address space of one process.
  int64_t output_bytes = int64_t{16} << 20;   // Of one rendered text.
  int cpu_seconds = 3;                        // Of one request, should the parent's deadline not end it.
};

// One Python process with renderer/renderer.py, at the other end of a socket pair. The process inherits no descriptor
// but that one, leaves the terminal's process group, and ends when this object does. One thread at a time.
class RendererProcess {
 public:
  // Starts the process; does not wait until it is ready.
  //   FAILED_PRECONDITION  /usr/bin/python3 cannot be run.
  //   RESOURCE_EXHAUSTED   no descriptor, process or memory for it.
  static absl::StatusOr<std::unique_ptr<RendererProcess>> Start(const RendererLimits& limits);
  ~RendererProcess();  // Kills the process and waits for its end.
  RendererProcess(const RendererProcess&) = delete;
  RendererProcess& operator=(const RendererProcess&) = delete;

  // Waits for the interpreter and Jinja2, once; later calls return at once. After an error the process is of no use.
  //   FAILED_PRECONDITION  Jinja2 is not installed (says which package).
  //   Codes of Call.
  absl::Status WaitReady(MonotonicTime deadline);

  // Sends one frame and returns the answering one. After an error the process is of no use.
  //   DEADLINE_EXCEEDED  no answer by `deadline` of Clock::Real().
  //   INTERNAL           the process ended or answered nonsense.
  absl::StatusOr<std::string> Call(absl::string_view request, MonotonicTime deadline);

 private:
  RendererProcess(pid_t pid, int fd, uint32_t max_reply_bytes)
      : pid_(pid), fd_(fd), max_reply_bytes_(max_reply_bytes) {}

  absl::Status WaitFor(short events, MonotonicTime deadline);
  absl::Status Send(absl::string_view data, MonotonicTime deadline);
  absl::Status Receive(char* data, size_t size, MonotonicTime deadline);
  absl::StatusOr<std::string> ReceiveFrame(MonotonicTime deadline);

  const pid_t pid_;
  const int fd_;
  const uint32_t max_reply_bytes_;
  bool ready_ = false;
};

}  // namespace baton

#endif  // BATON_COMMON_TEXT_RENDERER_PROCESS_H_
