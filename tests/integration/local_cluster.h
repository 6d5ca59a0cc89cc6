// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_INTEGRATION_LOCAL_CLUSTER_H_
#define BATON_TESTS_INTEGRATION_LOCAL_CLUSTER_H_

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "baton/v1/generation.pb.h"
#include "common/base/mutex.h"
#include "common/base/thread.h"
#include "deploy/cli/answer.h"
#include "deploy/cli/child_process.h"
#include "deploy/cli/router_client.h"
#include "tests/support/sanitizers.h"

namespace baton::testing {

// What a test waits for at most. Only a failure reaches it.
inline constexpr absl::Duration kPatience = absl::Seconds(60 * kSlowness);

// Asks `done` again and again, a few milliseconds apart, until it is true or `limit` has passed.
bool Eventually(const std::function<bool()>& done, absl::Duration limit = kPatience);

// A program that ran to its end.
struct Finished {
  cli::ChildExit exit;
  std::string output;  // Standard output and error, as they came.
};
// Runs build/<preset>/bin/baton with `args`.
Finished RunBaton(const std::vector<std::string>& args);

// One `baton serve` as a process, with everything it starts. Thread-safe.
class LocalCluster {
 public:
  // Serves `model` with `flags` more, on ports of its own, and waits until it says that it is ready. Two compute threads per
  // worker and a small KV pool, unless `flags` say otherwise. The status carries what the cluster said. `access`: what its
  // router wants of clients by `flags`.
  static absl::StatusOr<std::unique_ptr<LocalCluster>> Start(const std::string& model, const std::vector<std::string>& flags,
                                                             cli::RouterAccess access = {});
  // Ends what still runs. A failure of the test when that is not orderly, or when a process of the cluster, however it ended,
  // has written a sanitizer's report.
  ~LocalCluster();

  const std::string& grpc() const { return grpc_; }
  const std::string& http() const { return http_; }
  const std::string& status() const { return status_; }

  // The whole answer.
  absl::StatusOr<cli::Answer> Generate(const v1::GenerateRequest& request) const;
  // NOT_FOUND when the router lists no worker `id`.
  absl::StatusOr<v1::Worker> Worker(const std::string& id) const;
  // Whether every worker has no request and no block that one holds.
  bool Idle() const;
  // The sum of a series over its labels, from a worker's or the router's status address; `labels` must all be in it, as
  // `state="used"`.
  absl::StatusOr<double> Metric(const std::string& status_address, const std::string& name, const std::string& labels = "") const;

  // The process of worker `id`, or "router"; -1 when there is none.
  pid_t PidOf(const std::string& id) const;
  void Signal(int signal_number);  // To `baton serve`.
  // Waits for the end of `baton serve`. Nothing when it did not end in time.
  std::optional<cli::ChildExit> WaitForExit();
  std::string log() const;

 private:
  LocalCluster() = default;
  void Run(const std::vector<std::string>& argv);
  bool ReadAddresses();

  mutable Mutex mutex_;
  std::string log_ ABSL_GUARDED_BY(mutex_);
  std::string ready_line_ ABSL_GUARDED_BY(mutex_);
  std::optional<cli::ChildExit> exit_ ABSL_GUARDED_BY(mutex_);
  pid_t pid_ ABSL_GUARDED_BY(mutex_) = -1;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::string grpc_, http_, status_;
  cli::RouterAccess access_;
  Thread thread_;  // Starts the process and reads what it says; the kernel ends the process with this thread.
};

// Greedy, exactly `num_tokens` tokens.
v1::GenerateRequest GreedyRequest(const std::vector<int>& prompt, int num_tokens);

}  // namespace baton::testing

#endif  // BATON_TESTS_INTEGRATION_LOCAL_CLUSTER_H_
