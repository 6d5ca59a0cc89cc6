// SPDX-License-Identifier: Apache-2.0
#include "common/backend/cuda/rotary_table.h"

#include <cmath>

namespace baton::cuda {
namespace {

constexpr int kChunk = 2048;  // Positions by which it grows.

}  // namespace

const float* RotaryTable::Get(const float* inv_freq, int head_dim, int positions) {
  const std::vector<float> frequencies(inv_freq, inv_freq + head_dim / 2);
  if (frequencies == inv_freq_ && positions <= positions_) return reinterpret_cast<const float*>(memory_.get());
  const int grown = (positions + kChunk - 1) / kChunk * kChunk;
  std::vector<float> table(static_cast<size_t>(grown) * head_dim);
  for (int position = 0; position < grown; ++position) {
    for (int i = 0; i < head_dim / 2; ++i) {
      // The product rounded to fp32, as models are trained; sine and cosine of it in double.
      const double angle = static_cast<float>(position) * frequencies[static_cast<size_t>(i)];
      table[static_cast<size_t>(position) * head_dim + 2 * i] = static_cast<float>(std::cos(angle));
      table[static_cast<size_t>(position) * head_dim + 2 * i + 1] = static_cast<float>(std::sin(angle));
    }
  }
  context_->Synchronize();
  auto memory = context_->Allocate(table.size() * sizeof(float));
  const absl::Status stored = memory.ok() ? context_->Store(memory->get(), table.data(), table.size() * sizeof(float)) : memory.status();
  if (!stored.ok()) {
    context_->Fail(stored);
    return nullptr;
  }
  on_moved_();
  memory_ = *std::move(memory);
  inv_freq_ = frequencies;
  positions_ = grown;
  return reinterpret_cast<const float*>(memory_.get());
}

}  // namespace baton::cuda
