// SPDX-License-Identifier: Apache-2.0
// Blocks of a KV pool to and from one contiguous staging buffer, for transfers.
namespace {

// Threads of a block copy one KV block: 16 bytes each at a time, side by side.
__device__ void CopyBlock(const uint4* from, uint4* to, int vectors) {
  for (int i = threadIdx.x; i < vectors; i += blockDim.x) to[i] = from[i];
}

}  // namespace

// staging[i] = pool[block_ids[i]]. Grid (num_blocks), 128 threads; bytes and block_stride multiples of 16, both 16-byte aligned.
extern "C" __global__ void __launch_bounds__(128)
gather_blocks(const unsigned char* pool, long long block_stride, const int* block_ids, int block_bytes, unsigned char* staging) {
  const long long at = blockIdx.x;
  CopyBlock(reinterpret_cast<const uint4*>(pool + block_ids[at] * block_stride),
            reinterpret_cast<uint4*>(staging + at * block_bytes), block_bytes / 16);
}

// pool[block_ids[i]] = staging[i]. The ids differ from each other.
extern "C" __global__ void __launch_bounds__(128)
scatter_blocks(unsigned char* pool, long long block_stride, const int* block_ids, int block_bytes, const unsigned char* staging) {
  const long long at = blockIdx.x;
  CopyBlock(reinterpret_cast<const uint4*>(staging + at * block_bytes),
            reinterpret_cast<uint4*>(pool + block_ids[at] * block_stride), block_bytes / 16);
}
