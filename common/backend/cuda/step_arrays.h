// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BACKEND_CUDA_STEP_ARRAYS_H_
#define BATON_COMMON_BACKEND_CUDA_STEP_ARRAYS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/backend/backend.h"
#include "common/backend/cuda/cuda_context.h"

namespace baton::cuda {

// A step's index arrays on the device. They are the same for every layer, so they are sent when they differ from the last ones. One
// thread, in the order of the compute stream.
class StepArrays {
 public:
  // `on_moved`: the device's array has another address now.
  StepArrays(CudaContext* context, std::function<void()> on_moved) : context_(context), on_moved_(std::move(on_moved)) {}
  ~StepArrays();
  StepArrays(const StepArrays&) = delete;
  StepArrays& operator=(const StepArrays&) = delete;

  // Sends `rows`: afterwards the pointers below are theirs. An error goes to the context's status.
  void Send(const StepRows& rows);

  const int* positions() const { return At(0); }             // [num_rows]
  const int* slots() const { return At(num_rows_); }         // [num_rows]
  const int* contexts() const { return At(2 * num_rows_); }  // [num_rows] position + 1
  const int* table_of() const { return At(3 * num_rows_); }  // [num_rows] the row's sequence
  const int* token_ids() const { return At(4 * num_rows_); }  // [num_rows]
  const int* query_starts() const { return At(5 * num_rows_); }                    // [num_sequences + 1]
  const int* block_tables() const { return At(5 * num_rows_ + num_sequences_ + 1); }  // [num_sequences, max_blocks()]
  int max_blocks() const { return max_blocks_; }
  int longest_sequence() const { return longest_sequence_; }  // In rows.
  int longest_context() const { return longest_context_; }    // In tokens.

  // Until 0 is given: tables and grids are made for so many tokens, at least the longest context, and what is sent goes from one place, so
  // that the copy can be put down and done again.
  void set_recordable(int context_tokens) {
    recordable_tokens_ = context_tokens;
    sent_.clear();
  }

  // Block ids of a sequence that its rows reach: found from the last position, for this block size.
  void set_block_size(int block_size) { block_size_ = block_size; }

 private:
  const int* At(int offset) const { return reinterpret_cast<const int*>(device_.get()) + offset; }
  void Flatten(const StepRows& rows);
  absl::Status Grow(size_t ints);

  CudaContext* const context_;
  const std::function<void()> on_moved_;
  int block_size_ = 16, recordable_tokens_ = 0;
  int num_rows_ = 0, num_sequences_ = 0, max_blocks_ = 0, longest_sequence_ = 0, longest_context_ = 0;
  std::vector<int32_t> wanted_, sent_;
  std::shared_ptr<uint8_t[]> device_;
  // What copies are under way from, in turns: the host does not wait for the stream unless it is this far ahead.
  struct Slot {
    std::shared_ptr<uint8_t[]> pinned;
    CUevent sent = nullptr;
  };
  std::array<Slot, 4> slots_;  // The first is for what is recorded.
  size_t next_slot_ = 0;
  size_t capacity_ = 0;  // Ints.
};

}  // namespace baton::cuda

#endif  // BATON_COMMON_BACKEND_CUDA_STEP_ARRAYS_H_
