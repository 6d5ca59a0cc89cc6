// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BACKEND_CPU_ATTENTION_RUNNER_H_
#define BATON_COMMON_BACKEND_CPU_ATTENTION_RUNNER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "common/backend/backend.h"
#include "common/backend/cpu/kernels.h"
#include "common/backend/cpu/linear.h"
#include "common/backend/cpu/thread_pool.h"

namespace baton::cpu {

// The pool's type in the kernels' words.
FloatType KvFloatType(KvDtype dtype);

// Spreads a step's attention over the thread pool. How the work is cut (rows of a prompt, KV heads, parts of a long context)
// depends on the number of threads and changes no bit: the kernels fix the order of arithmetic by position. One thread.
class AttentionRunner {
 public:
  // All outlive the runner; `linear` lends its per-thread scratch.
  AttentionRunner(const Kernels* kernels, ThreadPool* pool, LinearRunner* linear)
      : kernels_(*kernels), pool_(*pool), linear_(*linear) {}

  // Scratch for layers of this shape.
  absl::Status Reserve(const LayerShape& shape, int max_rows);

  // See Backend::Attention.
  void Run(const LayerShape& shape, const StepRows& rows, const float* q, const KvLayerView& kv, float* attention);

 private:
  static constexpr int kRowsPerTask = 64;

  // Rows [row_begin, row_end) of a sequence for one KV head; of one row, just part `split` of its context when >= 0.
  struct Task {
    int32_t sequence;
    int32_t kv_head;
    int32_t row_begin;
    int32_t row_end;
    int32_t split;
    int64_t partial;  // Of a split: where its partials start, in floats.
  };
  // The parts of one row and KV head, to be merged after the tasks.
  struct Merge {
    int32_t sequence;
    int32_t kv_head;
    int32_t row;
    int32_t num_splits;
    int64_t partial;
  };
  void PlanTasks(const LayerShape& shape, const StepRows& rows);
  AttentionArgs ArgsFor(const LayerShape& shape, const StepRows& rows, int sequence, const float* q,
                        const KvLayerView& kv, float* attention) const;
  // The context that task `index` begins with; nothing past the last.
  AttentionAhead Ahead(const StepRows& rows, int64_t index) const;

  const Kernels& kernels_;
  ThreadPool& pool_;
  LinearRunner& linear_;
  std::vector<Task> tasks_;
  std::vector<Merge> merges_;
  std::vector<float> partials_;
  int64_t num_partials_ = 0;
};

}  // namespace baton::cpu

#endif  // BATON_COMMON_BACKEND_CPU_ATTENTION_RUNNER_H_
