// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BACKEND_CUDA_KERNELS_KERNEL_TYPES_H_
#define BATON_COMMON_BACKEND_CUDA_KERNELS_KERNEL_TYPES_H_

#include <cstdint>

// What host code and .cu files share: parameters that a kernel takes as one struct. Plain C++ for both compilers. All pointers are
// device memory; arrays are row-major.

namespace baton::cuda {

// One layer of a paged KV pool, as backend.h's KvLayerView: block b holds 16 n consecutive positions of one sequence,
//   K [num_kv_heads, head_dim, block_size] at k + b block_stride, V [num_kv_heads, block_size, head_dim] at v + b block_stride
struct KvParams {
  unsigned char* k;
  unsigned char* v;
  long long block_stride;  // Bytes.
  int block_size;
  int num_kv_heads;
  int head_dim;
};

// rope_cache_{f16,bf16}: rotates q and k, writes q, k and v. One warp per (row, head); grid (num_rows, ceil(heads / 4)), 128 threads.
struct RopeCacheParams {
  const float* qkv;            // [num_rows, (num_heads + 2 num_kv_heads) head_dim]
  const float* bias;           // [(num_heads + 2 num_kv_heads) head_dim] or null
  const float* q_norm;         // [head_dim] or null: RMSNorm per head before the rotation
  const float* k_norm;
  const float* cos_sin;        // [positions, head_dim / 2, 2]
  const int* positions;        // [num_rows]
  const int* slots;            // [num_rows] block * block_size + offset
  float* q;                    // [num_rows, num_heads, head_dim]
  KvParams kv;
  float norm_eps;
  int num_heads;
  int interleaved;             // Pairs (2i, 2i + 1) instead of (i, i + head_dim / 2).
};

// Causal attention of prompts over a paged context: 64 rows of one head of one sequence per block of 128 threads, grid
// (row tiles of the longest, num_heads, num_sequences). The rows' own keys are in the cache already.
struct PrefillAttentionParams {
  const float* q;            // [num_rows, num_heads, head_dim]
  const int* query_starts;   // [num_sequences + 1] rows of a sequence
  const int* positions;      // [num_rows]; consecutive within a sequence
  const int* block_tables;   // [num_sequences, max_blocks]; entries behind the last position are never read
  float* out;                // [num_rows, num_heads, head_dim]
  KvParams kv;
  float scale;
  int num_heads;
  int max_blocks;
};

// Attention of single rows over a paged context that is cut into splits of `split_tokens`; a row is a sequence of its own here, and
// rows of one prompt may share a table. Every split of a KV head is one block of 128 threads, grid (num_splits, num_kv_heads, num_sequences). attention_combine joins them: grid (num_heads, num_sequences).
struct DecodeAttentionParams {
  const float* q;                // [num_sequences, num_heads, head_dim]
  const int* block_tables;       // [num_tables, max_blocks]; entries behind the context are never read
  const int* table_of;           // [num_sequences] which of them; null: sequence i has table i
  const int* context_lengths;    // [num_sequences], at least 1
  float* partial;                // [num_sequences, num_heads, num_splits, head_dim]
  float* partial_max_sum;        // [num_sequences, num_heads, num_splits, 2]
  float* out;                    // [num_sequences, num_heads, head_dim]
  KvParams kv;
  float scale;
  int num_heads;
  int max_blocks;
  int num_splits;
  int split_tokens;              // Multiple of block_size.
};

// How one row's token is chosen: temperature, then top_k, min_p and top_p, in that order, as common/engine's Sampler does it.
struct SampleParams {
  float scale;     // 1 / temperature; 0: the best token, whatever else is here.
  int top_k;       // 0: all.
  double top_p;    // 1: all.
  float min_p;     // Of the best token's probability; 0: all.
  double uniform;  // In (0, 1): the row's draw, made by the host from (seed, choice, position).
};

// A token of a row whose logit changes before sampling: bias first, then the penalties for `generated` occurrences, then the mask.
struct LogitEdit {
  int token_id;
  float bias;
  int generated;   // -1: no penalty applies; 0: it occurs in the prompt only.
  int masked;      // 1: cannot be chosen.
};
struct PenaltyParams {
  float repetition, frequency, presence;
};

// frame_checksums: a frame that lies in cells of one size, the last of which may be filled in part.
struct ChecksumFrame {
  unsigned first_cell;   // In the array of addresses.
  unsigned cell_bytes;   // Multiple of 64.
  unsigned bytes;        // More than 240; at most 2^31.
};
// Its keys, 8 bytes each: the hash's secret, then what of it begins at odd places, for the last stripe and for the end.
constexpr int kChecksumLastKey = 24;
constexpr int kChecksumMergeKey = 32;
constexpr int kNumChecksumKeys = 40;

}  // namespace baton::cuda

#endif  // BATON_COMMON_BACKEND_CUDA_KERNELS_KERNEL_TYPES_H_
