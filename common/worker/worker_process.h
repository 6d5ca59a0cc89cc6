// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_WORKER_WORKER_PROCESS_H_
#define BATON_COMMON_WORKER_WORKER_PROCESS_H_

#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "common/base/shutdown_signals.h"
#include "common/worker/worker_runtime.h"

namespace grpc {
class Service;
}

namespace baton {

// What a role adds to the process around a worker.
struct WorkerServices {
  std::vector<grpc::Service*> services;
  // Told where others reach us, before any call; an error ends the process. May be null.
  std::function<absl::Status(const std::string& address)> on_address;
  std::function<void(internal::WorkerLoad*)> add_load;  // What the role adds to each load report. Any thread. May be null.
  std::function<int()> num_open_calls;                         // A drain waits until it is 0.
  std::function<void(absl::Duration)> finish_streams;  // After those: ends what carried them, in at most that time. May be null.
  std::function<void()> on_stop;  // After the server, before the engine stops. May be null.
};

// Serves until SIGINT or SIGTERM: gRPC services, status server, registration with every router; then drains: not ready at
// once, no new work, waits for open calls up to --grace. A second signal ends at once. Returns the process's exit code. When a
// router says to change the role, it drains the same way and the process becomes the other role's program (role_change.h).
// Main thread; `signals` was made before any other thread.
int RunWorkerProcess(WorkerRuntime* runtime, const WorkerServices& services, ShutdownSignals* signals);

}  // namespace baton

#endif  // BATON_COMMON_WORKER_WORKER_PROCESS_H_
