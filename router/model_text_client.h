// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_ROUTER_MODEL_TEXT_CLIENT_H_
#define BATON_ROUTER_MODEL_TEXT_CLIENT_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/text/text_files.h"

namespace grpc {
class ClientContext;
}

namespace baton {

class RpcTls;

// Reads the text of a model from a worker (ModelText). One call at a time; Stop from any thread.
class ModelTextClient {
 public:
  explicit ModelTextClient(std::shared_ptr<const RpcTls> tls) : tls_(std::move(tls)) {}

  // Waits for the whole answer.
  //   UNIMPLEMENTED       the worker is of a release that does not tell.
  //   RESOURCE_EXHAUSTED  more than kMaxBytes.
  //   CANCELLED           Stop. And what the call ends with, DEADLINE_EXCEEDED after `timeout`.
  absl::StatusOr<std::vector<TextFile>> Read(const std::string& address, absl::Duration timeout);
  // Ends the call, and every later one.
  void Stop();

  static constexpr size_t kMaxBytes = 256 << 20;

 private:
  const std::shared_ptr<const RpcTls> tls_;
  Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mutex_) = nullptr;  // Of the call that is open.
};

}  // namespace baton

#endif  // BATON_ROUTER_MODEL_TEXT_CLIENT_H_
