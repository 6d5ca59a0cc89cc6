// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BACKEND_CPU_ONEDNN_LINEAR_H_
#define BATON_COMMON_BACKEND_CPU_ONEDNN_LINEAR_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "common/backend/cpu/kernels.h"

namespace baton::cpu {

// A matrix for many rows through oneDNN: weights rounded to bf16 (or kept fp32) and laid out as the library likes best,
// multiplied in panels of kRows rows, short panels padded with zeros, so that a row's bits do not depend on the number of
// rows. This is a numerics id of its own: bf16 rounds weights and activations, and the order of sums is the library's.
//
// Run may be called from several threads at once; each call computes on its own thread alone.
class OneDnnLinear {
 public:
  static constexpr int64_t kRows = 64;

  // `row(i, out)` writes row i of the [out, in] matrix as fp32.
  //   FAILED_PRECONDITION  oneDNN has no implementation for this type on this CPU; the message is the library's.
  static absl::StatusOr<std::unique_ptr<OneDnnLinear>> Create(const std::function<void(int64_t, float*)>& row, int64_t out,
                                                              int64_t in, bool bf16);
  ~OneDnnLinear();
  OneDnnLinear(const OneDnnLinear&) = delete;
  OneDnnLinear& operator=(const OneDnnLinear&) = delete;

  size_t scratch_bytes() const;  // Of one call of Run; 64-byte aligned.
  size_t weight_bytes() const;
  std::span<const uint8_t> weights() const;  // As the library keeps them.
  std::string implementation() const;  // oneDNN's name of what runs: "brgemm:avx512_core_bf16".

  // y[r] (op)= W x[r] for num_rows <= kRows rows.
  void Run(const Kernels& kernels, const float* x, int64_t ldx, int64_t num_rows, float* y, int64_t ldy,
           Epilogue epilogue, uint8_t* scratch) const;

 private:
  struct Impl;
  explicit OneDnnLinear(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::cpu

#endif  // BATON_COMMON_BACKEND_CPU_ONEDNN_LINEAR_H_
