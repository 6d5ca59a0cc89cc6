// SPDX-License-Identifier: Apache-2.0
#include "common/backend/cuda/token_chooser.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "common/backend/cuda/kernels/kernel_types.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"

namespace baton::cuda {
namespace {

constexpr unsigned kEditThreads = 128, kSampleThreads = 256;

// Where each kind of parameter lies in one array: what has the strictest alignment first.
struct Places {
  explicit Places(int num_rows)
      : penalties(static_cast<size_t>(num_rows) * sizeof(SampleParams)),
        starts(penalties + static_cast<size_t>(num_rows) * sizeof(PenaltyParams)),
        edits(starts + static_cast<size_t>(num_rows + 1) * sizeof(int)) {}
  size_t penalties, starts, edits;
};

template <typename T>
T* At(const std::shared_ptr<uint8_t[]>& memory, size_t offset) {
  return reinterpret_cast<T*>(memory.get() + offset);
}

}  // namespace

bool TokenChooser::AnyByHost(std::span<const TokenChoice> choices) {
  return std::ranges::any_of(choices, [](const TokenChoice& choice) { return choice.by_host; });
}

absl::Status TokenChooser::Grow(int num_rows, size_t bytes) {
  if (bytes <= capacity_ && num_rows <= token_capacity_) return absl::OkStatus();
  context_->Synchronize();
  const size_t wanted = std::bit_ceil(std::max(bytes, size_t{4096}));
  const int rows = std::max(64, static_cast<int>(std::bit_ceil(static_cast<unsigned>(num_rows))));
  BATON_ASSIGN_OR_RETURN(auto device, context_->Allocate(wanted));
  BATON_ASSIGN_OR_RETURN(auto pinned, context_->AllocateHost(wanted));
  BATON_ASSIGN_OR_RETURN(auto tokens, context_->Allocate(static_cast<size_t>(rows) * sizeof(int32_t)));
  on_moved_();
  device_ = std::move(device);
  pinned_ = std::move(pinned);
  tokens_ = std::move(tokens);
  capacity_ = wanted;
  token_capacity_ = rows;
  return absl::OkStatus();
}

void TokenChooser::Send(std::span<const TokenChoice> choices) {
  num_rows_ = static_cast<int>(choices.size());
  size_t num_edits = 0;
  for (const TokenChoice& choice : choices) num_edits += choice.by_host ? 0 : choice.changes.size();
  const Places places(num_rows_);
  const size_t bytes = places.edits + num_edits * sizeof(LogitEdit);
  if (const absl::Status grown = Grow(num_rows_, bytes); !grown.ok()) return context_->Fail(grown);
  SampleParams* const params = At<SampleParams>(pinned_, 0);
  PenaltyParams* const penalties = At<PenaltyParams>(pinned_, places.penalties);
  int* const starts = At<int>(pinned_, places.starts);
  LogitEdit* const edits = At<LogitEdit>(pinned_, places.edits);
  int next = 0;
  for (size_t row = 0; row < choices.size(); ++row) {
    const TokenChoice& choice = choices[row];
    params[row] = {choice.by_host ? 0 : choice.scale, choice.top_k, choice.top_p, choice.min_p, choice.uniform};
    penalties[row] = {choice.repetition, choice.frequency, choice.presence};
    starts[row] = next;
    if (choice.by_host) continue;
    for (const LogitChange& change : choice.changes) edits[next++] = {change.token_id, change.bias, change.generated, change.masked ? 1 : 0};
  }
  starts[choices.size()] = next;
  context_->Upload(device_.get(), pinned_.get(), bytes);
}

void TokenChooser::Choose(int first_row, int count, float* logits, int vocab_size) {
  BATON_CHECK_LE(first_row + count, num_rows_);
  BATON_CHECK_LE(vocab_size, kMaxVocabulary);
  const Places places(num_rows_);
  const float* const read_only = logits;
  const SampleParams* const params = At<SampleParams>(device_, 0) + first_row;
  const PenaltyParams* const penalties = At<PenaltyParams>(device_, places.penalties) + first_row;
  const int* const starts = At<int>(device_, places.starts) + first_row;
  const LogitEdit* const edits = At<LogitEdit>(device_, places.edits);
  const unsigned rows = static_cast<unsigned>(count);
  context_->Launch("edit_logits", {rows}, kEditThreads, logits, vocab_size, edits, starts, penalties);
  context_->Launch("sample", {rows}, kSampleThreads, read_only, vocab_size, params, At<int>(tokens_, 0) + first_row);
}

void TokenChooser::Download(int32_t* tokens) {
  context_->Download(tokens, tokens_.get(), static_cast<size_t>(num_rows_) * sizeof(int32_t));
}

}  // namespace baton::cuda
