// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BACKEND_CUDA_TOKEN_CHOOSER_H_
#define BATON_COMMON_BACKEND_CUDA_TOKEN_CHOOSER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "common/backend/cuda/cuda_context.h"
#include "common/backend/token_choice.h"

namespace baton::cuda {

// Chooses tokens from logits on the device. One thread, in the order of the compute stream. Errors go to the context's status.
class TokenChooser {
 public:
  static constexpr int kMaxVocabulary = 256 * 1024;  // Of the kernel.

  // `on_moved`: memory that recorded passes name has been replaced.
  TokenChooser(CudaContext* context, std::function<void()> on_moved) : context_(context), on_moved_(std::move(on_moved)) {}

  // What Choose goes by, until the next time. Where it lies depends on the number of rows alone, so a recorded pass finds it there. The
  // stream has come past the last ones: a pass ends with a wait.
  void Send(std::span<const TokenChoice> choices);
  static bool AnyByHost(std::span<const TokenChoice> choices);

  // The tokens of rows [first_row, first_row + count) of those that were sent, from their logits [count, vocab_size], which it changes.
  void Choose(int first_row, int count, float* logits, int vocab_size);
  // tokens[row] of all rows that were sent, -1 where a logit was not finite; complete when the stream has come past.
  void Download(int32_t* tokens);

 private:
  absl::Status Grow(int num_rows, size_t bytes);

  CudaContext* const context_;
  const std::function<void()> on_moved_;
  int num_rows_ = 0;
  // Sampling parameters, penalties and starts of the rows, then all their changes; and the tokens.
  std::shared_ptr<uint8_t[]> device_, pinned_, tokens_;
  size_t capacity_ = 0;
  int token_capacity_ = 0;
};

}  // namespace baton::cuda

#endif  // BATON_COMMON_BACKEND_CUDA_TOKEN_CHOOSER_H_
