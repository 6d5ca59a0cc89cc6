// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_GPU_SIM_KERNELS_PAGED_CACHE_H_
#define BATON_TESTS_GPU_SIM_KERNELS_PAGED_CACHE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "common/backend/cuda/kernels/kernel_types.h"
#include "common/base/half.h"
#include "tests/gpu_sim/kernels/gpu_test_support.h"

namespace baton::cuda::testing {

// A KV pool on the host, with keys and values of several sequences in shuffled blocks. Entries of block tables that no token uses are
// far outside, slots that no token owns are NaN: whoever reads either is found out.
struct PagedCache {
  int kv_heads, head_dim, block_size;
  bool bf16;
  std::vector<int> contexts;  // Tokens per sequence.
  int max_blocks = 0;
  size_t cell = 0;                        // Elements of a block's K, behind which lies its V.
  std::vector<uint16_t> pool;
  std::vector<int> tables;                // [sequences, max_blocks]
  std::vector<std::vector<float>> k, v;   // By sequence: [context, kv_heads, head_dim], as rounded in the pool.

  PagedCache(int num_kv_heads, int dim, int block, bool is_bf16, std::vector<int> lengths, uint32_t seed)
      : kv_heads(num_kv_heads), head_dim(dim), block_size(block), bf16(is_bf16), contexts(std::move(lengths)) {
    int blocks = 0;
    for (const int context : contexts) {
      const int needed = (context + block_size - 1) / block_size;
      blocks += needed;
      max_blocks = std::max(max_blocks, needed + 2);
    }
    cell = static_cast<size_t>(kv_heads) * head_dim * block_size;
    pool.assign((blocks + 1) * 2 * cell, 0xffff);
    tables.assign(contexts.size() * max_blocks, -1000000);
    std::vector<int> order(blocks + 1);
    for (int i = 0; i <= blocks; ++i) order[i] = i;
    for (int i = blocks; i > 0; --i) std::swap(order[i], order[(i * 7 + 3) % (i + 1)]);
    size_t next = 0;
    for (size_t s = 0; s < contexts.size(); ++s) {
      const size_t count = static_cast<size_t>(contexts[s]) * kv_heads * head_dim;
      k.push_back(RandomFloats(count, seed + 10 + static_cast<uint32_t>(s)));
      v.push_back(RandomFloats(count, seed + 50 + static_cast<uint32_t>(s)));
      for (int t = 0; t < contexts[s]; ++t) {
        if (t % block_size == 0) tables[s * max_blocks + t / block_size] = order[next++];
        Write(s, t, tables[s * max_blocks + t / block_size]);
      }
    }
  }

  uint16_t ToBits(float value) const { return bf16 ? FloatToBFloat16(value) : FloatToHalf(value); }
  float FromBits(uint16_t bits) const { return bf16 ? BFloat16ToFloat(bits) : HalfToFloat(bits); }

  KvParams Params(uint16_t* device_pool) const {
    return {reinterpret_cast<unsigned char*>(device_pool), reinterpret_cast<unsigned char*>(device_pool + cell), static_cast<long long>(4 * cell),
            block_size, kv_heads, head_dim};
  }

  // Attention of query q[head_dim] of KV head `kv_head` over tokens [0, length) of a sequence, in double.
  std::vector<double> Attend(size_t s, int kv_head, const float* q, bool round_q, int length) const {
    std::vector<double> scores(length), out(head_dim, 0.0);
    double maximum = -1e300, sum = 0;
    for (int t = 0; t < length; ++t) {
      for (int i = 0; i < head_dim; ++i) {
        const double by = round_q ? FromBits(ToBits(q[i])) : q[i];
        scores[t] += by * k[s][(static_cast<size_t>(t) * kv_heads + kv_head) * head_dim + i];
      }
      maximum = std::max(maximum, scores[t] /= std::sqrt(static_cast<double>(head_dim)));
    }
    for (int t = 0; t < length; ++t) {
      const double weight = std::exp(scores[t] - maximum);
      sum += weight;
      for (int i = 0; i < head_dim; ++i) out[i] += weight * v[s][(static_cast<size_t>(t) * kv_heads + kv_head) * head_dim + i];
    }
    for (double& value : out) value /= sum;
    return out;
  }

 private:
  // Keys are large enough that some scores stand out.
  void Write(size_t s, int t, int block) {
    for (int h = 0; h < kv_heads; ++h) {
      for (int i = 0; i < head_dim; ++i) {
        const size_t from = (static_cast<size_t>(t) * kv_heads + h) * head_dim + i, base = block * 2 * cell;
        const uint16_t kb = ToBits(4 * k[s][from]), vb = ToBits(v[s][from]);
        pool[base + (static_cast<size_t>(h) * head_dim + i) * block_size + t % block_size] = kb;
        pool[base + cell + (static_cast<size_t>(h) * block_size + t % block_size) * head_dim + i] = vb;
        k[s][from] = FromBits(kb);
        v[s][from] = FromBits(vb);
      }
    }
  }
};

}  // namespace baton::cuda::testing

#endif  // BATON_TESTS_GPU_SIM_KERNELS_PAGED_CACHE_H_
