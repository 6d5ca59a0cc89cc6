// SPDX-License-Identifier: Apache-2.0
// What stands between the matrix multiplies: activation, rounding, residual sum, gathering of rows. Every element by itself.
#include "common/backend/cuda/kernels/device_math.cuh"

namespace baton::cuda {
namespace {

constexpr int kThreads = 256;

// out[row, i] = silu(gate_up[row, i]) * gate_up[row, width + i]. Grid (ceil(width / 256), num_rows).
template <typename T>
__device__ __forceinline__ void SiluMul(const float* gate_up, int width, T* out) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= width) return;
  const long long row = blockIdx.y;
  const float gate = gate_up[row * 2 * width + i];
  out[row * width + i] = FromFloat<T>(gate / (1.0f + expf(-gate)) * gate_up[row * 2 * width + width + i]);
}

// Grid ceil(count / 256).
template <typename T>
__device__ __forceinline__ void Round(const float* x, long long count, T* out) {
  const long long i = static_cast<long long>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < count) out[i] = FromFloat<T>(x[i]);
}

}  // namespace
}  // namespace baton::cuda

extern "C" __global__ void __launch_bounds__(256) silu_mul_f32(const float* gate_up, int width, float* out) {
  baton::cuda::SiluMul(gate_up, width, out);
}
extern "C" __global__ void __launch_bounds__(256) silu_mul_f16(const float* gate_up, int width, __half* out) {
  baton::cuda::SiluMul(gate_up, width, out);
}
extern "C" __global__ void __launch_bounds__(256) silu_mul_bf16(const float* gate_up, int width, __nv_bfloat16* out) {
  baton::cuda::SiluMul(gate_up, width, out);
}

extern "C" __global__ void __launch_bounds__(256) round_f16(const float* x, long long count, __half* out) { baton::cuda::Round(x, count, out); }
extern "C" __global__ void __launch_bounds__(256) round_bf16(const float* x, long long count, __nv_bfloat16* out) { baton::cuda::Round(x, count, out); }

// x += y. Grid ceil(count / 256).
extern "C" __global__ void __launch_bounds__(256) add_rows(float* x, const float* y, long long count) {
  const long long i = static_cast<long long>(blockIdx.x) * 256 + threadIdx.x;
  if (i < count) x[i] += y[i];
}

// out[i] = x[rows[i]], n floats each. Grid (ceil(n / 256), num_rows).
extern "C" __global__ void __launch_bounds__(256) gather_rows(const float* x, const int* rows, int n, float* out) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  if (i < n) out[static_cast<long long>(blockIdx.y) * n + i] = x[static_cast<long long>(rows[blockIdx.y]) * n + i];
}
