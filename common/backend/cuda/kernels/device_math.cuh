// SPDX-License-Identifier: Apache-2.0
// What the kernels share on the device.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace baton::cuda {

constexpr unsigned kFullWarp = 0xffffffffu;

// Sums and maxima in one fixed order, whatever the warp does beside.
__device__ __forceinline__ float WarpSum(float value) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(kFullWarp, value, step);
  return value;
}
__device__ __forceinline__ float WarpMax(float value) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) value = fmaxf(value, __shfl_xor_sync(kFullWarp, value, step));
  return value;
}

// Of a whole block of `kWarps` warps; `scratch` holds kWarps floats and may be used again after the next __syncthreads.
template <int kWarps>
__device__ __forceinline__ float BlockSum(float value, float* scratch) {
  value = WarpSum(value);
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0.0f;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) sum += scratch[warp];
  return sum;
}

__device__ __forceinline__ float ToFloat(__half value) { return __half2float(value); }
__device__ __forceinline__ float ToFloat(__nv_bfloat16 value) { return __bfloat162float(value); }
template <typename T>
__device__ __forceinline__ T FromFloat(float value);
template <>
__device__ __forceinline__ float FromFloat<float>(float value) { return value; }
template <>
__device__ __forceinline__ __half FromFloat<__half>(float value) { return __float2half_rn(value); }
template <>
__device__ __forceinline__ __nv_bfloat16 FromFloat<__nv_bfloat16>(float value) { return __float2bfloat16_rn(value); }

// The two values of a register.
__device__ __forceinline__ float2 UnpackPair(unsigned bits, __half) {
  return __half22float2(*reinterpret_cast<const __half2*>(&bits));
}
__device__ __forceinline__ float2 UnpackPair(unsigned bits, __nv_bfloat16) {
  return make_float2(__uint_as_float(bits << 16), __uint_as_float(bits & 0xffff0000u));
}

}  // namespace baton::cuda
