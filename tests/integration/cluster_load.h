// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_INTEGRATION_CLUSTER_LOAD_H_
#define BATON_TESTS_INTEGRATION_CLUSTER_LOAD_H_

#include <atomic>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "common/base/thread.h"
#include "tests/integration/local_cluster.h"

namespace baton::testing {

// Clients that ask a cluster one greedy request after the other, the same few prompts over and over, and hold every answer to
// the first one for its prompt.
class ClusterLoad {
 public:
  // Asks for each prompt once, then starts the clients. `cluster` outlives it.
  ClusterLoad(const LocalCluster* cluster, int num_clients, int num_tokens = 40);
  ~ClusterLoad() { Stop(); }

  // Waits until `count` more answers have come. False when they did not come in time.
  bool WaitForMore(int count);
  // Ends after the requests that run.
  void Stop();
  // What did not go as it should; empty when all did.
  std::vector<std::string> wrong() const;

 private:
  v1::GenerateRequest Request(size_t prompt) const;
  void Run(size_t first);

  const LocalCluster* const cluster_;
  const int num_tokens_;
  std::vector<std::vector<int32_t>> expected_;  // Of each prompt.
  std::atomic<bool> stop_{false};
  std::atomic<int> num_answers_{0};
  mutable Mutex mutex_;
  std::vector<std::string> wrong_ ABSL_GUARDED_BY(mutex_);
  std::vector<Thread> clients_;
};

}  // namespace baton::testing

#endif  // BATON_TESTS_INTEGRATION_CLUSTER_LOAD_H_
