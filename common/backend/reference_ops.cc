// SPDX-License-Identifier: Apache-2.0
#include "common/backend/reference_ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/backend/kv_int8.h"
#include "common/base/half.h"

namespace baton {
namespace {

// Sum of a[i] b[i]. Thirty-two running sums, so that the compiler can use the machine's vectors without reordering what this
// says; a longer chain of fp32 additions would also round more.
inline __attribute__((always_inline)) float DotLoop(const float* a, const float* b, int64_t n) {
  constexpr int kSums = 32;
  float sums[kSums] = {};
  int64_t i = 0;
  for (; i + kSums <= n; i += kSums) {
    for (int j = 0; j < kSums; ++j) sums[j] += a[i + j] * b[i + j];
  }
  for (int j = 0; i < n; ++i, ++j) sums[j] += a[i] * b[i];
  float total = 0;
  for (int j = 0; j < kSums; ++j) total += sums[j];
  return total;
}

// The same loop compiled for wider vectors: the same bits, sooner.
float DotBaseline(const float* a, const float* b, int64_t n) { return DotLoop(a, b, n); }
__attribute__((target("avx2"))) float DotAvx2(const float* a, const float* b, int64_t n) { return DotLoop(a, b, n); }
__attribute__((target("avx512f"))) float DotAvx512(const float* a, const float* b, int64_t n) {
  return DotLoop(a, b, n);
}
using DotFunction = float (*)(const float* a, const float* b, int64_t n);
DotFunction ChooseDot() {
  if (__builtin_cpu_supports("avx512f")) return DotAvx512;
  return __builtin_cpu_supports("avx2") ? DotAvx2 : DotBaseline;
}

}  // namespace

void ReferenceRmsNorm(const float* x, const float* weight, int n, float eps, float* y) {
  float sum = 0;
  for (int i = 0; i < n; ++i) sum += x[i] * x[i];
  const float scale = 1.0f / std::sqrt(sum / static_cast<float>(n) + eps);
  for (int i = 0; i < n; ++i) y[i] = x[i] * scale * weight[i];
}

void ReferenceLinear(const float* w, const float* x, int num_rows, int64_t out, int64_t in, int64_t out_begin,
                     int64_t out_end, float* y) {
  static const DotFunction dot = ChooseDot();
  for (int64_t o = out_begin; o < out_end; ++o) {
    for (int row = 0; row < num_rows; ++row) y[row * out + o] = dot(w + o * in, x + row * in, in);
  }
}

void ReferenceRope(int position, const float* inv_freq, int head_dim, bool interleaved, float* head) {
  const int half = head_dim / 2;
  for (int i = 0; i < half; ++i) {
    const float angle = static_cast<float>(position) * inv_freq[i];
    const float cosine = std::cos(angle);
    const float sine = std::sin(angle);
    float& first = head[interleaved ? 2 * i : i];
    float& second = head[interleaved ? 2 * i + 1 : i + half];
    const float a = first;
    const float b = second;
    first = a * cosine - b * sine;
    second = a * sine + b * cosine;
  }
}

float LoadKvElement(const uint8_t* base, int64_t index, KvDtype dtype) {
  if (dtype == KvDtype::kInt8) return static_cast<int8_t>(base[index]);
  if (dtype == KvDtype::kF32) {
    float value;
    std::memcpy(&value, base + index * 4, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, base + index * 2, 2);
  return dtype == KvDtype::kF16 ? HalfToFloat(bits) : BFloat16ToFloat(bits);
}

void StoreKvElement(float value, KvDtype dtype, int64_t index, uint8_t* base) {
  if (dtype == KvDtype::kF32) {
    std::memcpy(base + index * 4, &value, 4);
    return;
  }
  const uint16_t bits = dtype == KvDtype::kF16 ? FloatToHalf(value) : FloatToBFloat16(value);
  std::memcpy(base + index * 2, &bits, 2);
}

// K of one head lies [head_dim, block_size], V [block_size, head_dim]: element d of the token at `offset`.
static int64_t KvIndex(const KvLayerView& kv, bool is_v, int offset, int d) {
  return is_v ? static_cast<int64_t>(offset) * kv.head_dim + d : static_cast<int64_t>(d) * kv.block_size + offset;
}

int64_t KvHeadBytes(const KvLayerView& kv) {
  const int64_t values = static_cast<int64_t>(kv.head_dim) * kv.block_size;
  return kv.dtype == KvDtype::kF32 ? 4 * values : kv.dtype == KvDtype::kInt8 ? values + 4 * int64_t{kv.block_size} : 2 * values;
}

float KvScale(const KvLayerView& kv, const uint8_t* head, int offset) {
  if (kv.dtype != KvDtype::kInt8) return 1.0f;
  float scale;
  std::memcpy(&scale, head + kv.head_dim * kv.block_size + offset * 4, sizeof(scale));
  return scale;
}

static void WriteKvHead(const KvLayerView& kv, bool is_v, int head, int32_t slot, const float* x) {
  uint8_t* const cell = (is_v ? kv.v : kv.k) + static_cast<size_t>(slot / kv.block_size) * kv.block_stride;
  uint8_t* const values = cell + head * KvHeadBytes(kv);
  const int offset = slot % kv.block_size;
  if (kv.dtype != KvDtype::kInt8) {
    for (int d = 0; d < kv.head_dim; ++d) StoreKvElement(x[d], kv.dtype, KvIndex(kv, is_v, offset, d), values);
    return;
  }
  std::vector<int8_t> integers(static_cast<size_t>(kv.head_dim));
  const float scale = QuantiseKvHead(x, integers.size(), integers.data());
  for (int d = 0; d < kv.head_dim; ++d) values[KvIndex(kv, is_v, offset, d)] = static_cast<uint8_t>(integers[static_cast<size_t>(d)]);
  std::memcpy(values + kv.head_dim * kv.block_size + offset * 4, &scale, sizeof(scale));
}

void ReferenceWriteKv(const KvLayerView& kv, int32_t slot, const float* k, const float* v) {
  for (int h = 0; h < kv.num_kv_heads; ++h) {
    WriteKvHead(kv, false, h, slot, k + h * kv.head_dim);
    WriteKvHead(kv, true, h, slot, v + h * kv.head_dim);
  }
}

void ReferenceAttention(const KvLayerView& kv, const int32_t* block_table, int position, int kv_head, const float* q,
                        std::vector<float>* scores, float* out) {
  const float scale = 1.0f / std::sqrt(static_cast<float>(kv.head_dim));
  const int64_t head_bytes = kv_head * KvHeadBytes(kv);
  const int num_blocks = position / kv.block_size + 1;
  scores->assign(static_cast<size_t>(num_blocks * kv.block_size), 0.0f);
  for (int b = 0; b < num_blocks; ++b) {  // A block's keys lie [head_dim, block_size].
    const uint8_t* k = kv.k + static_cast<size_t>(block_table[b]) * kv.block_stride + head_bytes;
    float* block_scores = scores->data() + static_cast<size_t>(b * kv.block_size);
    for (int d = 0; d < kv.head_dim; ++d) {
      const int64_t keys = static_cast<int64_t>(d) * kv.block_size;
      for (int o = 0; o < kv.block_size; ++o) block_scores[o] += q[d] * LoadKvElement(k, keys + o, kv.dtype);
    }
    for (int o = 0; o < kv.block_size; ++o) block_scores[o] *= KvScale(kv, k, o);
  }
  scores->resize(static_cast<size_t>(position) + 1);  // What lies behind in the last block is of no position yet.
  float largest = -INFINITY;
  for (float& score : *scores) {
    score *= scale;
    largest = std::max(largest, score);
  }
  float sum = 0;
  for (float& score : *scores) {
    score = std::exp(score - largest);
    sum += score;
  }
  std::fill_n(out, kv.head_dim, 0.0f);
  for (int p = 0; p <= position; ++p) {
    const uint8_t* v = kv.v + static_cast<size_t>(block_table[p / kv.block_size]) * kv.block_stride + head_bytes;
    const int offset = p % kv.block_size;
    const int64_t row = static_cast<int64_t>(offset) * kv.head_dim;
    const float weight = (*scores)[static_cast<size_t>(p)] / sum * KvScale(kv, v, offset);
    for (int d = 0; d < kv.head_dim; ++d) out[d] += weight * LoadKvElement(v, row + d, kv.dtype);
  }
}

float ReferenceSilu(float x) { return x / (1.0f + std::exp(-x)); }

}  // namespace baton
