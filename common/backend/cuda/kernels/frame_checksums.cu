// SPDX-License-Identifier: Apache-2.0
// XXH3-64 (seed 0, the library's own secret) of frames of more than 240 bytes, each of which lies in cells of one size.
//
// Of eight 64-bit lanes, 16 stripes of 64 bytes make a block of 1 KiB. A stripe is added to the lanes; between two blocks they are scrambled.
// So the sum of a block's stripes does not depend on what came before: warps add up blocks side by side, and one warp more takes the sums
// in order, one tile behind.
#include "common/backend/cuda/kernels/device_math.cuh"
#include "common/backend/cuda/kernels/kernel_types.h"

namespace baton::cuda {
namespace {

using Word = unsigned long long;

constexpr int kWorkers = 8;  // Warps that add up.
constexpr int kTile = 32;    // Blocks between two barriers.
constexpr int kStripes = 16;
constexpr Word kPrime32 = 0x9E3779B1u;
constexpr Word kLengthPrime = 0x9E3779B185EBCA87ull;
// What the lanes begin with.
__device__ __forceinline__ Word FirstOf(int lane) {
  switch (lane) {
    case 0: return 0xC2B2AE3Du;
    case 1: return 0x9E3779B185EBCA87ull;
    case 2: return 0xC2B2AE3D27D4EB4Full;
    case 3: return 0x165667B19E3779F9ull;
    case 4: return 0x85EBCA77C2B2AE63ull;
    case 5: return 0x85EBCA77u;
    case 6: return 0x27D4EB2F165667C5ull;
    default: return 0x9E3779B1u;
  }
}

__device__ __forceinline__ Word Product(Word data, Word key) {
  const Word mixed = data ^ key;
  return (mixed & 0xffffffffu) * (mixed >> 32);
}

__device__ __forceinline__ Word ShuffleXor(Word value, int mask) { return __shfl_xor_sync(kFullWarp, value, mask); }

// Where a byte of the frame lies.
struct Frame {
  const unsigned long long* cells;
  unsigned cell_bytes;
  __device__ __forceinline__ const unsigned char* At(unsigned offset) const {
    const unsigned cell = offset / cell_bytes;
    return reinterpret_cast<const unsigned char*>(cells[cell]) + (offset - cell * cell_bytes);
  }
};

// The lanes' sums over the stripes of a tile of blocks: block b's into sums[b]. Every thread has 16 bytes of a stripe, which are two lanes,
// and every eighth stripe. All loads go out before the first sum waits for one. kWhole: there is a tile of stripes.
template <bool kWhole>
__device__ __forceinline__ void AddUp(const Frame& frame, const Word (&keys)[2][2], unsigned first_block, unsigned num_stripes, Word (*sums)[8]) {
  constexpr int kRounds = kTile / kWorkers;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, pair = lane % 4;
  const unsigned first_stripe = (first_block + warp) * kStripes + lane / 4;
  ulonglong2 data[kRounds][2] = {};
#pragma unroll
  for (int i = 0; i < 2 * kRounds; ++i) {
    const unsigned stripe = first_stripe + i / 2 * kWorkers * kStripes + i % 2 * 8;
    if (kWhole || stripe < num_stripes) data[i / 2][i % 2] = __ldg(reinterpret_cast<const ulonglong2*>(frame.At(stripe * 64 + pair * 16)));
  }
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    Word even = 0, odd = 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const ulonglong2 two = data[round][half];
      const bool there = kWhole || first_stripe + round * kWorkers * kStripes + half * 8 < num_stripes;
      even += there ? two.y + Product(two.x, keys[half][0]) : 0;
      odd += there ? two.x + Product(two.y, keys[half][1]) : 0;
    }
#pragma unroll
    for (int step = 4; step < 32; step *= 2) {
      even += ShuffleXor(even, step);
      odd += ShuffleXor(odd, step);
    }
    if (lane < 4) *reinterpret_cast<ulonglong2*>(&sums[round * kWorkers + warp][2 * pair]) = make_ulonglong2(even, odd);
  }
}

// The last 64 bytes, which may have been added once already and may begin anywhere; then all lanes become one. `lane` 0 to 7.
__device__ __forceinline__ Word Close(const Frame& frame, unsigned bytes, const Word* keys, int lane, Word sum) {
  Word data = 0;
  for (int byte = 7; byte >= 0; --byte) data = data << 8 | __ldg(frame.At(bytes - 64 + 8 * lane + byte));
  const Word other = __shfl_xor_sync(0xffu, data, 1);
  sum += other + Product(data, keys[kChecksumLastKey + lane]);
  // 128-bit products of neighbours.
  const Word mixed = sum ^ keys[kChecksumMergeKey + lane];
  const Word neighbour = __shfl_xor_sync(0xffu, mixed, 1);
  Word folded = mixed * neighbour ^ __umul64hi(mixed, neighbour);
  folded += __shfl_xor_sync(0xffu, folded, 2);
  folded += __shfl_xor_sync(0xffu, folded, 4);
  Word hash = folded + bytes * kLengthPrime;
  hash ^= hash >> 37;
  hash *= 0x165667919E3779F9ull;
  return hash ^ hash >> 32;
}

}  // namespace
}  // namespace baton::cuda

// One frame per block of 288 threads. cells [all frames' cells] addresses, 16-byte aligned; keys [kNumChecksumKeys]; checksums [grid].
extern "C" __global__ void __launch_bounds__(288)
frame_checksums(const unsigned long long* cells, const baton::cuda::ChecksumFrame* frames, const unsigned long long* keys,
                unsigned long long* checksums) {
  using namespace baton::cuda;
  __shared__ Word sums[2][kTile][8];
  const ChecksumFrame what = frames[blockIdx.x];
  const Frame frame = {cells + what.first_cell, what.cell_bytes};
  const unsigned num_stripes = (what.bytes - 1) / 64, num_whole = (what.bytes - 1) / 1024;  // Of the blocks; the last one is not scrambled.
  const unsigned num_blocks = (num_stripes + kStripes - 1) / kStripes;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const bool adds = warp < kWorkers;
  Word worker_keys[2][2] = {};
  Word sum = 0, scramble = 0;
  if (adds) {
    for (int half = 0; half < 2; ++half) {
      for (int i = 0; i < 2; ++i) worker_keys[half][i] = keys[lane / 4 + 8 * half + 2 * (lane % 4) + i];
    }
  } else if (lane < 8) {
    sum = FirstOf(lane);
    scramble = keys[kStripes + lane];
  }
  int buffer = 0;
  for (unsigned block = 0; block < num_blocks; block += kTile, buffer ^= 1) {
    if (adds && (block + kTile) * kStripes <= num_stripes) AddUp<true>(frame, worker_keys, block, num_stripes, sums[buffer]);
    else if (adds) AddUp<false>(frame, worker_keys, block, num_stripes, sums[buffer]);
    __syncthreads();
    if (adds || lane >= 8) continue;
    const unsigned end = num_blocks - block < kTile ? num_blocks - block : kTile;
    for (unsigned i = 0; i < end; ++i) {
      sum += sums[buffer][i][lane];
      if (block + i < num_whole) sum = (sum ^ sum >> 47 ^ scramble) * kPrime32;
    }
  }
  if (adds || lane >= 8) return;
  const Word hash = Close(frame, what.bytes, keys, lane, sum);
  if (lane == 0) checksums[blockIdx.x] = hash;
}
