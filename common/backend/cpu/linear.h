// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BACKEND_CPU_LINEAR_H_
#define BATON_COMMON_BACKEND_CPU_LINEAR_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "common/backend/cpu/kernels.h"
#include "common/backend/cpu/matrix.h"
#include "common/backend/cpu/thread_pool.h"

namespace baton::cpu {

// With how many 8-bit terms values are rounded before they meet quantised weights.
enum class Terms : uint8_t {
  kOne,       // 127 steps per group of 32: half the work.
  kOutliers,  // Two in the groups whose largest value stands out of its row (cpu::kLoThreshold), which carry the error.
  kTwo,       // 32639 steps: as good as fp32.
};

// What is multiplied, and what is done to it on the way.
struct LinearInput {
  const float* x = nullptr;  // [num_rows, ldx]
  int64_t ldx = 0;
  int64_t num_rows = 0;
  const float* norm = nullptr;  // RMSNorm weight to apply first, or null.
  float norm_eps = 0;
  Terms terms = Terms::kOutliers;
};

// Runs matrix multiplies over the thread pool: rounds the input to integers where the weights are, hands tiles of outputs to
// the threads. Owns the scratch for that. One thread at a time.
class LinearRunner {
 public:
  // Both outlive the runner.
  LinearRunner(const Kernels* kernels, ThreadPool* pool) : kernels_(*kernels), pool_(*pool) {}

  // Rows are taken through in blocks of this many: their integers stay in the second-level cache while the tiles of the matrix
  // pass by.
  static constexpr int64_t kRowBlock = 256;

  // Scratch for inputs of up to max_rows rows and max_in columns, and outputs of max_out columns that go through scratch.
  absl::Status Reserve(int64_t max_rows, int64_t max_in, int64_t max_out);

  // y[row, 0..out) = W input (or +=, or silu(gate) up, see Epilogue); row stride ldy.
  void Run(const Matrix& w, const LinearInput& input, Epilogue epilogue, float* y, int64_t ldy);

  // Rows of scratch of thread `thread` at least as large as the kernels ask for.
  uint8_t* thread_scratch(int thread) { return thread_scratch_[static_cast<size_t>(thread)].get(); }
  // Makes each thread's scratch at least this big.
  absl::Status ReserveThreadScratch(size_t bytes);

  // Calls body(row_begin, row_end) over pieces of [0, num_rows): on the calling thread alone when work (elements touched) is
  // too small to pay for waking others.
  template <typename Body>
  void ForRows(int64_t num_rows, int64_t work, Body&& body) {
    constexpr int64_t kMinWork = 8192;
    const int64_t threads = pool_.num_threads();
    if (num_rows < 2 || work < kMinWork || threads == 1) {
      body(int64_t{0}, num_rows);
      return;
    }
    // Sixteen rows are what kernels take at once, and what shares a line of QuantisedRows' arrays.
    const int64_t unit = num_rows >= 16 * threads ? 16 : (num_rows + threads - 1) / threads;
    const int64_t units = (num_rows + unit - 1) / unit, pieces = std::min(units, 4 * threads);
    pool_.ParallelFor(pieces, [&](int64_t i, int) {
      body(units * i / pieces * unit, std::min(num_rows, units * (i + 1) / pieces * unit));
    });
  }

 private:
  // The rows in the forms that the segments of `w` want.
  struct Prepared {
    QuantisedRows quantised = {};
    const float* floats = nullptr;
    int64_t ld_floats = 0;
  };
  Prepared Prepare(const Matrix& w, const LinearInput& input);
  void RunBlock(const Matrix& w, const LinearInput& input, Epilogue epilogue, float* y, int64_t ldy);
  void RunSlices(const Matrix& w, const Prepared& prepared, int64_t num_rows, Epilogue epilogue, float* y, int64_t ldy);
  void RunSegment(const MatrixSegment& segment, const Prepared& prepared, int64_t num_rows, int64_t tile_begin,
                  int64_t tile_end, int thread, Epilogue epilogue, float* y, int64_t ldy);

  const Kernels& kernels_;
  ThreadPool& pool_;
  std::shared_ptr<uint8_t[]> quantised_;
  std::shared_ptr<uint8_t[]> normed_;
  std::shared_ptr<uint8_t[]> gate_up_;
  size_t quantised_bytes_ = 0;
  size_t normed_bytes_ = 0;
  size_t gate_up_bytes_ = 0;
  std::vector<std::shared_ptr<uint8_t[]>> thread_scratch_;
  size_t thread_scratch_bytes_ = 0;
};

}  // namespace baton::cpu

#endif  // BATON_COMMON_BACKEND_CPU_LINEAR_H_
