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

// K or V of one head as common/backend/kv_int8.h: `q` has room for whole vectors of 16. Returns the scale.
inline float QuantiseHead(const float* x, int64_t n, int8_t* q) {
  W largest_bits = ZeroI();
  for (int64_t i = 0; i < n; i += 16) {
    const int lanes = n - i < 16 ? static_cast<int>(n - i) : 16;
    largest_bits = MaxI(largest_bits, AndI(Bits(LoadFirst(x + i, lanes)), SetI(0x7fffffff)));
  }
  const int32_t bits = ReduceMaxI(largest_bits);
  float largest, scale;
  __builtin_memcpy(&largest, &bits, 4);
  scale = largest / 127.0f;
  if (bits >= 0x7f800000) {
    __builtin_memcpy(&scale, "\0\0\xc0\x7f", 4);  // NaN
  } else if (largest < 1e-30f) {
    scale = 0.0f;
  }
  const bool zero = !(scale > 0.0f);  // Also keeps NaN and infinity from the conversion to integers.
  const V inverse = Set(zero ? 0.0f : 127.0f / largest);
  for (int64_t i = 0; i < n; i += 16) {
    const int lanes = n - i < 16 ? static_cast<int>(n - i) : 16;
    StoreI8(q + i, zero ? ZeroI() : ToInt(Mul(LoadFirst(x + i, lanes), inverse)));
  }
  return scale;
}

// A head's K goes to column `offset` of [head_dim, block_size], V to a row of [block_size, head_dim], the scales behind them.
inline void WriteIntegers(const QkvEpilogueArgs& args, const float* k, const float* v, uint8_t* k_head, uint8_t* v_head, int64_t offset) {
  alignas(64) int8_t q[256];
  const int64_t dim = args.head_dim, values = dim * args.block_size;
  const float k_scale = QuantiseHead(k, dim, q);
  for (int64_t d = 0; d < dim; ++d) k_head[d * args.block_size + offset] = static_cast<uint8_t>(q[d]);
  __builtin_memcpy(k_head + values + 4 * offset, &k_scale, 4);
  const float v_scale = QuantiseHead(v, dim, q);
  __builtin_memcpy(v_head + dim * offset, q, static_cast<size_t>(dim));
  __builtin_memcpy(v_head + values + 4 * offset, &v_scale, 4);
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
  const int64_t head_bytes = KvHeadBytes(args.kv_type, dim, args.block_size);
  for (int h = 0; h < args.num_kv_heads; ++h) {
    float* k = qkv + (args.num_heads + h) * dim;
    const float* v = qkv + (args.num_heads + args.num_kv_heads + h) * dim;
    FinishHead(args, args.k_norm, cos_sin, k);
    uint8_t* const k_head = args.k + block * args.block_stride + h * head_bytes;
    uint8_t* const v_head = args.v + block * args.block_stride + h * head_bytes;
    if (args.kv_type == FloatType::kI8) {
      WriteIntegers(args, k, v, k_head, v_head, offset);
      continue;
    }
    ScatterKey(args, k, k_head, offset);
    RoundArray(v, args.kv_type, dim, v_head + offset * dim * element_bytes);
  }
}

void QkvEpilogue(const QkvEpilogueArgs& args, int64_t row_begin, int64_t row_end) {
  for (int64_t row = row_begin; row < row_end; ++row) QkvEpilogueRow(args, row);
}

}  // namespace
}  // namespace baton::cpu
