// SPDX-License-Identifier: Apache-2.0
// RMSNorm fused with the residual sum before it.
#include "common/backend/cuda/kernels/device_math.cuh"

namespace baton::cuda {
namespace {

constexpr int kThreads = 256;

// Four neighbours, written at once.
template <typename T>
struct alignas(4 * sizeof(T)) Four {
  T values[4];
};

// x[row] += delta[row] (delta may be null); y[row] = x[row] / sqrt(mean(x[row]^2) + eps) * weight, rounded to T.
//   x, delta, y [num_rows, n], n a multiple of 4, rows 16-byte aligned; one block of 256 threads per row.
template <typename T>
__device__ void RmsNorm(float* x, const float* delta, const float* weight, float eps, int n, T* y) {
  __shared__ float scratch[kThreads / 32];
  const long long offset = static_cast<long long>(blockIdx.x) * n;
  float4* const row = reinterpret_cast<float4*>(x + offset);
  const float4* const added = delta == nullptr ? nullptr : reinterpret_cast<const float4*>(delta + offset);
  float squares = 0.0f;
  for (int i = threadIdx.x; i < n / 4; i += kThreads) {
    float4 value = row[i];
    if (added != nullptr) {
      const float4 more = added[i];
      value.x += more.x;
      value.y += more.y;
      value.z += more.z;
      value.w += more.w;
      row[i] = value;
    }
    squares += value.x * value.x + value.y * value.y + value.z * value.z + value.w * value.w;
  }
  const float scale = rsqrtf(BlockSum<kThreads / 32>(squares, scratch) / static_cast<float>(n) + eps);
  for (int i = threadIdx.x; i < n / 4; i += kThreads) {  // The same elements: each thread reads what it wrote.
    const float4 value = row[i];
    const float4 by = reinterpret_cast<const float4*>(weight)[i];
    const Four<T> rounded = {{FromFloat<T>(value.x * scale * by.x), FromFloat<T>(value.y * scale * by.y),
                              FromFloat<T>(value.z * scale * by.z), FromFloat<T>(value.w * scale * by.w)}};
    *reinterpret_cast<Four<T>*>(y + offset + 4 * i) = rounded;
  }
}

}  // namespace
}  // namespace baton::cuda

extern "C" __global__ void __launch_bounds__(256) rms_norm_f32(float* x, const float* delta, const float* weight, float eps, int n, float* y) {
  baton::cuda::RmsNorm(x, delta, weight, eps, n, y);
}
extern "C" __global__ void __launch_bounds__(256) rms_norm_f16(float* x, const float* delta, const float* weight, float eps, int n, __half* y) {
  baton::cuda::RmsNorm(x, delta, weight, eps, n, y);
}
extern "C" __global__ void __launch_bounds__(256) rms_norm_bf16(float* x, const float* delta, const float* weight, float eps, int n, __nv_bfloat16* y) {
  baton::cuda::RmsNorm(x, delta, weight, eps, n, y);
}
