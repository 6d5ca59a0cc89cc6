// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BACKEND_CPU_ROPE_TABLE_H_
#define BATON_COMMON_BACKEND_CPU_ROPE_TABLE_H_

#include <cstdint>
#include <memory>
#include <vector>

namespace baton::cpu {

// Cosines and sines of the rotary embedding, by position. Rows are made when first asked for, in chunks, and kept: 4 head_dim
// bytes per position ever seen. One thread.
class RopeTable {
 public:
  RopeTable(const float* inv_freq, int head_dim) : inv_freq_(inv_freq, inv_freq + head_dim / 2) {}

  // Whether this table was made for these frequencies.
  bool Matches(const float* inv_freq, int head_dim) const;

  // [cos[head_dim / 2], sin[head_dim / 2]] of position * inv_freq (the product rounded to fp32, as models are trained).
  // Valid as long as the table.
  const float* Row(int32_t position);

 private:
  static constexpr int32_t kChunk = 128;  // Positions.
  std::vector<float> inv_freq_;
  std::vector<std::unique_ptr<float[]>> chunks_;
};

}  // namespace baton::cpu

#endif  // BATON_COMMON_BACKEND_CPU_ROPE_TABLE_H_
