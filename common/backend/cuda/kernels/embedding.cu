// SPDX-License-Identifier: Apache-2.0
// Rows of the embedding table, as the file has them, dequantised exactly: a scale of 11 bits times a quant of 8 is exact in fp32, so that
// the one rounding is that of adding the minimum, as on the host.
#include "common/backend/cuda/kernels/device_math.cuh"

namespace baton::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kQuants = 32;  // To a block.

struct F32 {
  __device__ static float At(const unsigned char* row, int i) { return reinterpret_cast<const float*>(row)[i]; }
};
template <typename T>
struct Half {
  __device__ static float At(const unsigned char* row, int i) { return ToFloat(reinterpret_cast<const T*>(row)[i]); }
};

// A block is a scale, a minimum if `kMinimum`, the fifth bits if kBits is 5, and the quants: in 8 bits signed, else the first half's in
// the low four bits and the second half's in the high ones.
template <int kBits, bool kMinimum>
struct Quant {
  static constexpr int kScales = kMinimum ? 4 : 2, kHigh = kBits == 5 ? 4 : 0;
  static constexpr int kBytes = kScales + kHigh + (kBits == 8 ? kQuants : kQuants / 2);
  __device__ static float At(const unsigned char* row, int i) {
    const unsigned char* const block = row + static_cast<long long>(i / kQuants) * kBytes;
    const int j = i % kQuants;
    const float scale = __half2float(*reinterpret_cast<const __half*>(block));
    int quant;
    if constexpr (kBits == 8) {
      quant = static_cast<signed char>(block[kScales + j]);
    } else {
      const unsigned char both = block[kScales + kHigh + j % (kQuants / 2)];
      quant = j < kQuants / 2 ? both & 15 : both >> 4;
      if constexpr (kBits == 5) quant |= (block[kScales + j / 8] >> j % 8 & 1) << 4;
      if constexpr (!kMinimum) quant -= 1 << (kBits - 1);
    }
    const float value = __fmul_rn(scale, static_cast<float>(quant));
    if constexpr (!kMinimum) return value;
    return __fadd_rn(value, __half2float(*reinterpret_cast<const __half*>(block + 2)));
  }
};

// out[row, i] = table[token_ids[row], i]. Grid (ceil(n / 256), num_rows).
template <typename Type>
__device__ __forceinline__ void Embed(const unsigned char* table, long long row_bytes, const int* token_ids, int n, float* out) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i < n) out[static_cast<long long>(blockIdx.y) * n + i] = Type::At(table + token_ids[blockIdx.y] * row_bytes, i);
}

}  // namespace
}  // namespace baton::cuda

#define BATON_EMBED(name, ...)                                                                                                   \
  extern "C" __global__ void __launch_bounds__(256) name(const unsigned char* table, long long row_bytes, const int* token_ids, int n, float* out) { \
    baton::cuda::Embed<__VA_ARGS__>(table, row_bytes, token_ids, n, out);                                                       \
  }

BATON_EMBED(embed_f32, baton::cuda::F32)
BATON_EMBED(embed_f16, baton::cuda::Half<__half>)
BATON_EMBED(embed_bf16, baton::cuda::Half<__nv_bfloat16>)
BATON_EMBED(embed_q4_0, baton::cuda::Quant<4, false>)
BATON_EMBED(embed_q4_1, baton::cuda::Quant<4, true>)
BATON_EMBED(embed_q5_0, baton::cuda::Quant<5, false>)
BATON_EMBED(embed_q5_1, baton::cuda::Quant<5, true>)
BATON_EMBED(embed_q8_0, baton::cuda::Quant<8, false>)
