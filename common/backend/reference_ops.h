// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BACKEND_REFERENCE_OPS_H_
#define BATON_COMMON_BACKEND_REFERENCE_OPS_H_

#include <cstdint>
#include <vector>

#include "common/backend/backend.h"

namespace baton {

// The transformer's arithmetic as plain fp32 loops: what every faster version is held to. Nothing here is vectorised by
// hand, blocked or threaded; the compiler may not fuse multiply and add (CMakeLists.txt), so that the results are the same on
// every machine.

// y[i] = x[i] / sqrt(mean(x^2) + eps) * weight[i], i < n. y may be x.
void ReferenceRmsNorm(const float* x, const float* weight, int n, float eps, float* y);

// y[row, o] = sum over i of w[o, i] x[row, i], for o in [out_begin, out_end); row stride of y is `out`.
//   w [out, in], x [num_rows, in], y [num_rows, out]
void ReferenceLinear(const float* w, const float* x, int num_rows, int64_t out, int64_t in, int64_t out_begin,
                     int64_t out_end, float* y);

// Rotates the pairs of one head by the angles position * inv_freq[i]: (2i, 2i + 1) when interleaved, otherwise
// (i, i + head_dim / 2).
void ReferenceRope(int position, const float* inv_freq, int head_dim, bool interleaved, float* head);

// One element of a KV cell, without a scale, and storing one (rounded to nearest even; not kInt8).
float LoadKvElement(const uint8_t* base, int64_t index, KvDtype dtype);
void StoreKvElement(float value, KvDtype dtype, int64_t index, uint8_t* base);

// Of a cell, bytes from one head's K (or V) to the next one's; and the scale of the token at `offset` of the head that begins at
// `head`, 1 for types without.
int64_t KvHeadBytes(const KvLayerView& kv);
float KvScale(const KvLayerView& kv, const uint8_t* head, int offset);

// Writes one token's keys and values [num_kv_heads, head_dim] each to its slot.
void ReferenceWriteKv(const KvLayerView& kv, int32_t slot, const float* k, const float* v);

// out[head_dim] = softmax(q K^T / sqrt(head_dim)) V over positions 0..position of the sequence with this block table, for one
// query head q[head_dim] that reads KV head kv_head. `scores` is scratch.
void ReferenceAttention(const KvLayerView& kv, const int32_t* block_table, int position, int kv_head, const float* q,
                        std::vector<float>* scores, float* out);

// x * sigmoid(x)
float ReferenceSilu(float x);

}  // namespace baton

#endif  // BATON_COMMON_BACKEND_REFERENCE_OPS_H_
