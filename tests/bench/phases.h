// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_BENCH_PHASES_H_
#define BATON_TESTS_BENCH_PHASES_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "common/backend/backend.h"
#include "common/kv/kv_pool.h"
#include "common/model/forward.h"
#include "common/model/model.h"

namespace baton::bench {

// One run's time. `cpu` is of all threads of the process.
struct RunTime {
  double wall = 0;
  double cpu = 0;
};

// The two phases in this process, without an engine. One run to warm up, then `repeat` that count.
class Phases {
 public:
  Phases(const Model* model, Backend* backend, KvDtype kv_dtype) : model_(model), backend_(backend), kv_dtype_(kv_dtype) {}

  // Prefill of n random tokens, no logits, in panels of 256 rows.
  absl::StatusOr<std::vector<RunTime>> Prefill(int n, int repeat);
  // Steps of `batch` conversations, each with `context` tokens in its cache.
  absl::StatusOr<std::vector<RunTime>> Decode(int batch, int context, int repeat);
  // The causal attention of one layer over a prompt of n tokens, in the same panels.
  absl::StatusOr<std::vector<RunTime>> Attention(int n, int repeat);

 private:
  static constexpr int kBlockSize = 16;
  static constexpr int kPanelRows = 256;

  std::vector<int32_t> Tokens(int n) const;
  // Pools and buffers, touched, for `sequences` contexts. What fits already is kept: cases alternate.
  absl::Status Prepare(int rows, int sequences, int tokens_each, int logit_rows);
  template <typename Body>
  static std::vector<RunTime> Run(int repeat, Body body);
  std::vector<RunTime> RunPasses(const ModelInput& input, int repeat);

  const Model* const model_;
  Backend* const backend_;
  const KvDtype kv_dtype_;
  std::unique_ptr<KvPool> pool_;
  std::unique_ptr<ForwardBuffers> buffers_;
};

}  // namespace baton::bench

#endif  // BATON_TESTS_BENCH_PHASES_H_
