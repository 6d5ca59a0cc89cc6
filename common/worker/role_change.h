// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_WORKER_ROLE_CHANGE_H_
#define BATON_COMMON_WORKER_ROLE_CHANGE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "baton/internal/registry.pb.h"

namespace baton {

// The program of a role, beside this process's own.
//   NOT_FOUND  there is none, or it may not be run.
absl::StatusOr<std::string> WorkerProgram(internal::WorkerRole role);

// The arguments of that program for a worker that is to keep `id`: `arguments` (with the program's name first) as they are,
// the id added where they don't have it.
std::vector<std::string> WorkerArguments(const std::string& program, std::vector<std::string> arguments, const std::string& id);

// Replaces this process by the program of `role`, under the same process id, with the same arguments and environment. Ends every
// thread; no file stays open but the standard ones. Main thread. Returns only when it does not work, and nothing has changed then.
//   Codes of WorkerProgram; UNAVAILABLE  the system refuses.
absl::Status BecomeWorker(internal::WorkerRole role, const std::string& id);

}  // namespace baton

#endif  // BATON_COMMON_WORKER_ROLE_CHANGE_H_
