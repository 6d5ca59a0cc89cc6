// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_GPU_SIM_NCCL_SIM_SIM_STATE_H_
#define BATON_TESTS_GPU_SIM_NCCL_SIM_SIM_STATE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"

namespace baton::nccl_sim {

// What is to go wrong, and what was found, in this process. Any thread.
class SimState {
 public:
  static SimState& Get();  // Never destroyed.

  void Reset();
  int Set(const std::string& name, int64_t value);
  // Whether the failure of that name is due now: its counter comes down to 0.
  bool Due(const std::string& name);
  bool deaf() const;
  absl::Duration patience() const;

  void Count(const std::string& name, int64_t amount = 1);
  int64_t count(const std::string& name) const;
  void Find(const std::string& finding);
  std::string findings() const;

 private:
  SimState() = default;
  void TakePlan();

  mutable Mutex mutex_;
  std::map<std::string, int64_t> due_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, int64_t> counts_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> findings_ ABSL_GUARDED_BY(mutex_);
  std::string plan_ ABSL_GUARDED_BY(mutex_);  // The file of failures; empty: none.
  bool deaf_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t patience_ms_ ABSL_GUARDED_BY(mutex_) = kPatienceMs;

  static constexpr int64_t kPatienceMs = 20000;
};

}  // namespace baton::nccl_sim

#endif  // BATON_TESTS_GPU_SIM_NCCL_SIM_SIM_STATE_H_
