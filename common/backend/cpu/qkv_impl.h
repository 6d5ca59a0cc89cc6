// SPDX-License-Identifier: Apache-2.0
// What follows the q, k, v projection: bias, qk-norm, rotary embedding and the write into the pool, over a vec_*.h;
// included by one .cc per instruction set.

namespace baton::cpu {
namespace {

void RotateHalves(const float* cos_sin, int64_t half, float* x) {
  for (int64_t i = 0; i < half; i += 16) {
    const int lanes = half - i < 16 ? static_cast<int>(half - i) : 16;
    const V a = LoadFirst(x + i, lanes), b = LoadFirst(x + half + i, lanes);
    const V c = LoadFirst(cos_sin + i, lanes), s = LoadFirst(cos_sin + half + i, lanes);
    StoreFirst(x + i, Sub(Mul(a, c), Mul(b, s)), lanes);
    StoreFirst(x + half + i, Add(Mul(b, c), Mul(a, s)), lanes);
  }
}

void RotatePairs(const float* cos_sin, int64_t half, float* __restrict x) {
  const float* __restrict c = cos_sin;
  const float* __restrict s = cos_sin + half;
  for (int64_t i = 0; i < half; ++i) {
    const float a = x[2 * i], b = x[2 * i + 1];
    x[2 * i] = a * c[i] - b * s[i];
    x[2 * i + 1] = b * c[i] + a * s[i];
  }
}

// Norm and rotation of one head in place.
inline void FinishHead(const QkvEpilogueArgs& args, const float* norm, const float* cos_sin, float* x) {
  if (norm != nullptr) NormRow(x, norm, args.norm_eps, args.head_dim, x);
  args.rope_interleaved ? RotatePairs(cos_sin, args.head_dim / 2, x) : RotateHalves(cos_sin, args.head_dim / 2, x);
}

// k[d] goes to column `offset` of the [head_dim, block_size] cell.
void ScatterKey(const QkvEpilogueArgs& args, const float* x, uint8_t* cell, int64_t offset) {
  alignas(64) uint8_t rounded[64];
  const int64_t element_bytes = ElementBytes(args.kv_type);
  for (int64_t d = 0; d < args.head_dim; d += 16) {
    const int lanes = args.head_dim - d < 16 ? static_cast<int>(args.head_dim - d) : 16;
    RoundVector(LoadFirst(x + d, lanes), args.kv_type, rounded);
    uint8_t* out = cell + (d * args.block_size + offset) * element_bytes;
    for (int i = 0; i < lanes; ++i, out += args.block_size * element_bytes) {
      if (element_bytes == 2) {
        __builtin_memcpy(out, rounded + 2 * i, 2);
      } else {
        __builtin_memcpy(out, rounded + 4 * i, 4);
      }
    }
  }
}

void QkvEpilogueRow(const QkvEpilogueArgs& args, int64_t row) {
  const int64_t dim = args.head_dim;
  const int64_t width = (args.num_heads + 2 * args.num_kv_heads) * dim;
  float* qkv = args.qkv + row * width;
  if (args.bias != nullptr) AddArray(args.bias, width, qkv);
  const float* cos_sin = args.cos_sin[row];
  for (int h = 0; h < args.num_heads; ++h) FinishHead(args, args.q_norm, cos_sin, qkv + h * dim);
  float* q = args.q + row * args.num_heads * dim;
  for (int64_t i = 0; i < args.num_heads * dim; i += 16) {
    const int64_t left = args.num_heads * dim - i;
    const int lanes = left < 16 ? static_cast<int>(left) : 16;
    StoreFirst(q + i, LoadFirst(qkv + i, lanes), lanes);
  }
  const int64_t block = args.slots[row] / args.block_size, offset = args.slots[row] % args.block_size;
  const int64_t element_bytes = ElementBytes(args.kv_type);
  const int64_t head_bytes = dim * args.block_size * element_bytes;
  for (int h = 0; h < args.num_kv_heads; ++h) {
    float* k = qkv + (args.num_heads + h) * dim;
    const float* v = qkv + (args.num_heads + args.num_kv_heads + h) * dim;
    FinishHead(args, args.k_norm, cos_sin, k);
    ScatterKey(args, k, args.k + block * args.block_stride + h * head_bytes, offset);
    RoundArray(v, args.kv_type, dim, args.v + block * args.block_stride + h * head_bytes + offset * dim * element_bytes);
  }
}

void QkvEpilogue(const QkvEpilogueArgs& args, int64_t row_begin, int64_t row_end) {
  for (int64_t row = row_begin; row < row_end; ++row) QkvEpilogueRow(args, row);
}

}  // namespace
}  // namespace baton::cpu
