// SPDX-License-Identifier: Apache-2.0
#include "common/backend/cpu/rope_table.h"

#include <algorithm>
#include <cmath>

namespace baton::cpu {

bool RopeTable::Matches(const float* inv_freq, int head_dim) const {
  return inv_freq_.size() == static_cast<size_t>(head_dim / 2) &&
         std::equal(inv_freq_.begin(), inv_freq_.end(), inv_freq);
}

const float* RopeTable::Row(int32_t position) {
  const size_t half = inv_freq_.size();
  const size_t chunk = static_cast<size_t>(position / kChunk);
  if (chunk >= chunks_.size()) chunks_.resize(chunk + 1);
  if (chunks_[chunk] == nullptr) {
    chunks_[chunk] = std::make_unique<float[]>(kChunk * 2 * half);
    for (int32_t i = 0; i < kChunk; ++i) {
      float* row = chunks_[chunk].get() + static_cast<size_t>(i) * 2 * half;
      const float p = static_cast<float>(static_cast<int32_t>(chunk) * kChunk + i);
      for (size_t f = 0; f < half; ++f) {
        // In double, then rounded: the same bits whichever variant of cos and sin the C library picks on this machine.
        const double angle = static_cast<double>(p * inv_freq_[f]);
        row[f] = static_cast<float>(std::cos(angle));
        row[half + f] = static_cast<float>(std::sin(angle));
      }
    }
  }
  return chunks_[chunk].get() + static_cast<size_t>(position % kChunk) * 2 * half;
}

}  // namespace baton::cpu
