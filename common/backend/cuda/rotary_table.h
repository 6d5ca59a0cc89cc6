// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BACKEND_CUDA_ROTARY_TABLE_H_
#define BATON_COMMON_BACKEND_CUDA_ROTARY_TABLE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "common/backend/cuda/cuda_context.h"

namespace baton::cuda {

// Sines and cosines of the rotary embedding on the device, made as far as contexts reach. One thread.
class RotaryTable {
 public:
  // `on_moved`: the table has another address now.
  RotaryTable(CudaContext* context, std::function<void()> on_moved) : context_(context), on_moved_(std::move(on_moved)) {}

  // [positions, head_dim / 2, 2] cosine and sine, for at least `positions`. Null after an error, which the context then has.
  //   inv_freq  [head_dim / 2]
  const float* Get(const float* inv_freq, int head_dim, int positions);

 private:
  CudaContext* const context_;
  const std::function<void()> on_moved_;
  std::shared_ptr<uint8_t[]> memory_;
  std::vector<float> inv_freq_;
  int positions_ = 0;
};

}  // namespace baton::cuda

#endif  // BATON_COMMON_BACKEND_CUDA_ROTARY_TABLE_H_
