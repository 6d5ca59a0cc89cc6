// SPDX-License-Identifier: Apache-2.0
#include "common/backend/cuda/step_arrays.h"

#include <algorithm>
#include <cstring>

#include "common/base/status_macros.h"

namespace baton::cuda {

StepArrays::~StepArrays() {
  for (const Slot& slot : slots_) {
    if (slot.sent != nullptr) context_->api().cuEventDestroy(slot.sent);
  }
}

void StepArrays::Flatten(const StepRows& rows) {
  num_rows_ = rows.num_rows;
  num_sequences_ = rows.num_sequences;
  max_blocks_ = longest_sequence_ = longest_context_ = 0;
  for (int s = 0; s < rows.num_sequences; ++s) {
    const int begin = rows.query_starts[s], end = rows.query_starts[s + 1];
    if (begin == end) continue;
    longest_sequence_ = std::max(longest_sequence_, end - begin);
    longest_context_ = std::max(longest_context_, rows.positions[end - 1] + 1);
  }
  longest_context_ = std::max(longest_context_, recordable_tokens_);
  max_blocks_ = (longest_context_ + block_size_ - 1) / block_size_;
  wanted_.clear();
  wanted_.insert(wanted_.end(), rows.positions, rows.positions + rows.num_rows);
  wanted_.insert(wanted_.end(), rows.slots, rows.slots + rows.num_rows);
  for (int row = 0; row < rows.num_rows; ++row) wanted_.push_back(rows.positions[row] + 1);
  for (int s = 0; s < rows.num_sequences; ++s) {
    wanted_.insert(wanted_.end(), static_cast<size_t>(rows.query_starts[s + 1] - rows.query_starts[s]), s);
  }
  for (int row = 0; row < rows.num_rows; ++row) wanted_.push_back(rows.token_ids != nullptr ? rows.token_ids[row] : 0);
  wanted_.insert(wanted_.end(), rows.query_starts, rows.query_starts + rows.num_sequences + 1);
  for (int s = 0; s < rows.num_sequences; ++s) {
    const int begin = rows.query_starts[s], end = rows.query_starts[s + 1];
    const int blocks = begin == end ? 0 : rows.positions[end - 1] / block_size_ + 1;
    wanted_.insert(wanted_.end(), rows.block_tables[s], rows.block_tables[s] + blocks);
    wanted_.insert(wanted_.end(), static_cast<size_t>(max_blocks_ - blocks), -1);  // Never read.
  }
}

absl::Status StepArrays::Grow(size_t ints) {
  if (ints <= capacity_) return absl::OkStatus();
  const size_t capacity = std::max(2 * capacity_, std::max<size_t>(ints, 4096));
  context_->Synchronize();
  BATON_ASSIGN_OR_RETURN(device_, context_->Allocate(capacity * sizeof(int32_t)));
  for (Slot& slot : slots_) {
    BATON_ASSIGN_OR_RETURN(slot.pinned, context_->AllocateHost(capacity * sizeof(int32_t)));
    if (slot.sent != nullptr) continue;
    BATON_RETURN_IF_ERROR(context_->api().ToStatus(context_->api().cuEventCreate(&slot.sent, CU_EVENT_DISABLE_TIMING), "cuEventCreate"));
  }
  capacity_ = capacity;
  sent_.clear();
  return absl::OkStatus();
}

void StepArrays::Send(const StepRows& rows) {
  Flatten(rows);
  if (wanted_ == sent_) return;
  const size_t capacity = capacity_;
  if (const absl::Status status = Grow(wanted_.size()); !status.ok()) return context_->Fail(status);
  if (capacity_ != capacity && on_moved_) on_moved_();
  const Slot& slot = slots_[recordable_tokens_ > 0 ? 0 : 1 + next_slot_++ % (slots_.size() - 1)];
  if (!context_->Check(context_->api().cuEventSynchronize(slot.sent), "cuEventSynchronize")) return;
  std::memcpy(slot.pinned.get(), wanted_.data(), wanted_.size() * sizeof(int32_t));
  context_->Upload(device_.get(), slot.pinned.get(), wanted_.size() * sizeof(int32_t));
  if (!context_->replaying()) context_->Check(context_->api().cuEventRecord(slot.sent, context_->stream()), "cuEventRecord");
  sent_ = wanted_;
}

}  // namespace baton::cuda
