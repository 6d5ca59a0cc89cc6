// SPDX-License-Identifier: Apache-2.0
// Elementwise operations over a vec_*.h; included by one .cc per instruction set.

// For what must not leave its sums in memory; the compiler's own limits are reached in files of many instantiations.
#define BATON_ALWAYS_INLINE inline __attribute__((always_inline))

namespace baton::cpu {
namespace {

// exp on [-87, 88], 2 ulp; 0 below, exp(88) above; NaN stays NaN. Coefficients of Cephes' expf.
inline V Exp(V x) {
  const V clamped = Min(Set(88.0f), x);
  const V shifted = Fma(clamped, Set(1.44269504088896341f), Set(12582912.0f));  // 1.5 * 2^23: the integer part
  const V n = Sub(shifted, Set(12582912.0f));
  V r = Fma(n, Set(-0.693359375f), clamped);
  r = Fma(n, Set(2.12194440e-4f), r);
  V p = Set(1.9875691500e-4f);
  p = Fma(p, r, Set(1.3981999507e-3f));
  p = Fma(p, r, Set(8.3334519073e-3f));
  p = Fma(p, r, Set(4.1665795894e-2f));
  p = Fma(p, r, Set(1.6666665459e-1f));
  p = Fma(p, r, Set(5.0000001201e-1f));
  p = Fma(Mul(p, r), r, Add(r, Set(1.0f)));
  const V two_to_n = FromBits(AddI(Shl<23>(Bits(shifted)), SetI(127 << 23)));
  return ZeroBelow(Mul(p, two_to_n), x, Set(-87.0f));
}

inline V Silu(V x) { return Div(x, Add(Set(1.0f), Exp(Sub(Zero(), x)))); }

void ExpArray(const float* x, int64_t n, float* y) {
  for (int64_t i = 0; i < n; i += 16) {
    const int lanes = n - i < 16 ? static_cast<int>(n - i) : 16;
    StoreFirst(y + i, Exp(LoadFirst(x + i, lanes)), lanes);
  }
}

void SiluMulArray(const float* gate, const float* up, int64_t n, float* y) {
  for (int64_t i = 0; i < n; i += 16) {
    const int lanes = n - i < 16 ? static_cast<int>(n - i) : 16;
    StoreFirst(y + i, Mul(Silu(LoadFirst(gate + i, lanes)), LoadFirst(up + i, lanes)), lanes);
  }
}

void AddArray(const float* x, int64_t n, float* y) {
  for (int64_t i = 0; i < n; i += 16) {
    const int lanes = n - i < 16 ? static_cast<int>(n - i) : 16;
    StoreFirst(y + i, Add(LoadFirst(y + i, lanes), LoadFirst(x + i, lanes)), lanes);
  }
}

// 1 / sqrt(mean(x^2) + eps)
inline float InverseRms(const float* x, int64_t n, float eps) {
  V sum = Zero();
  for (int64_t i = 0; i < n; i += 16) {
    const V v = LoadFirst(x + i, n - i < 16 ? static_cast<int>(n - i) : 16);
    sum = Fma(v, v, sum);
  }
  return 1.0f / __builtin_sqrtf(ReduceAdd(sum) / static_cast<float>(n) + eps);
}

inline void NormRow(const float* x, const float* weight, float eps, int64_t n, float* y) {
  const V scale = Set(InverseRms(x, n, eps));
  for (int64_t i = 0; i < n; i += 16) {
    const int lanes = n - i < 16 ? static_cast<int>(n - i) : 16;
    StoreFirst(y + i, Mul(Mul(LoadFirst(x + i, lanes), scale), LoadFirst(weight + i, lanes)), lanes);
  }
}

void RmsNormRows(const float* x, int64_t ldx, const float* weight, float eps, int64_t n, int64_t row_begin,
                 int64_t row_end, float* y, int64_t ldy) {
  for (int64_t row = row_begin; row < row_end; ++row) NormRow(x + row * ldx, weight, eps, n, y + row * ldy);
}

// Integers that bf16 holds exactly.
inline void StoreBf16Pairs(uint16_t* p, W a) { StoreI16Pairs(reinterpret_cast<int16_t*>(p), Sar<16>(Bits(ToFloat(a)))); }

// QuantisedRows::bf16_hi and bf16_lo at `at`. qa, qb: 256 hi + lo, or hi alone.
inline void StoreBf16(W qa, W qb, const QuantisedRows& out, int64_t at) {
  W ha = qa, hb = qb;
  if (out.bf16_lo != nullptr) {
    ha = Shl<8>(Sar<8>(AddI(qa, SetI(128))));
    hb = Shl<8>(Sar<8>(AddI(qb, SetI(128))));
    StoreBf16Pairs(out.bf16_lo + at, SubI(qa, ha));
    StoreBf16Pairs(out.bf16_lo + at + 16, SubI(qb, hb));
  }
  StoreBf16Pairs(out.bf16_hi + at, ha);
  StoreBf16Pairs(out.bf16_hi + at + 16, hb);
}

// Group g of a row to integers. `limit`: two terms where the largest magnitude is above it.
inline void QuantiseGroup(V a, V b, float limit, const QuantisedRows& out, int64_t row, int64_t g) {
  const W magnitude_mask = SetI(0x7fffffff);
  const int32_t largest = ReduceMaxI(MaxI(AndI(Bits(a), magnitude_mask), AndI(Bits(b), magnitude_mask)));
  float amax;
  __builtin_memcpy(&amax, &largest, 4);
  const bool two = out.lo != nullptr && amax > limit;
  const float steps = two ? 32639.0f : 127.0f;  // 127 * 256 + 127
  float scale = amax / steps;
  float inverse = steps / amax;
  if (largest >= 0x7f800000) {
    __builtin_memcpy(&scale, "\0\0\xc0\x7f", 4);  // NaN
    inverse = 0.0f;
  } else if (amax < 1e-30f) {
    scale = inverse = 0.0f;
  }
  const bool zero = inverse == 0.0f;  // Also keeps NaN and infinity from the conversion to integers.
  W qa = zero ? ZeroI() : ToInt(Mul(a, Set(inverse)));
  W qb = zero ? ZeroI() : ToInt(Mul(b, Set(inverse)));
  const int64_t at = (g * out.ld + row) * 32;
  const int64_t i = g * out.ld + row;
  if (out.lo != nullptr) {
    if (!two) {
      qa = Shl<8>(qa);
      qb = Shl<8>(qb);
      scale *= 0.00390625f;
    }
    const W ha = Sar<8>(AddI(qa, SetI(128)));
    const W hb = Sar<8>(AddI(qb, SetI(128)));
    StoreI8(out.hi + at, ha);
    StoreI8(out.hi + at + 16, hb);
    StoreI8(out.lo + at, SubI(qa, Shl<8>(ha)));
    StoreI8(out.lo + at + 16, SubI(qb, Shl<8>(hb)));
    out.scale_hi[i] = scale * 256.0f;
    out.lo_used[i] = two;
  } else {
    StoreI8(out.hi + at, qa);
    StoreI8(out.hi + at + 16, qb);
  }
  if (out.wide != nullptr) {
    StoreI16Pairs(out.wide + at, qa);
    StoreI16Pairs(out.wide + at + 16, qb);
  }
  if (out.bf16_hi != nullptr) StoreBf16(qa, qb, out, at);
  const int32_t sum_a = ReduceAddI(qa), sum_b = ReduceAddI(qb);
  const int64_t i16 = 2 * g * out.ld + row;
  out.scale[i] = scale;
  out.neg_sum16[i16] = -sum_a;
  out.neg_sum16[i16 + out.ld] = -sum_b;
  out.neg_sum[i] = -(sum_a + sum_b);
  out.scaled_sum16[i16] = scale * static_cast<float>(sum_a);
  out.scaled_sum16[i16 + out.ld] = scale * static_cast<float>(sum_b);
  out.scaled_sum[i] = scale * static_cast<float>(sum_a + sum_b);
}

inline bool NeedsLimit(const QuantisedRows& out) { return out.lo != nullptr && out.lo_threshold > 0.0f; }

inline float LimitOf(V sum_of_squares, const QuantisedRows& out) {
  return out.lo_threshold * __builtin_sqrtf(ReduceAdd(sum_of_squares) / static_cast<float>(out.in));
}

void QuantiseRows(const float* x, int64_t ldx, int64_t row_begin, int64_t row_end, const QuantisedRows* out) {
  const int64_t groups = out->in / 32;
  for (int64_t row = row_begin; row < row_end; ++row) {
    const float* p = x + row * ldx;
    float limit = 0.0f;
    if (NeedsLimit(*out)) {
      V sum = Zero();
      for (int64_t i = 0; i < out->in; i += 16) sum = Fma(Load(p + i), Load(p + i), sum);
      limit = LimitOf(sum, *out);
    }
    for (int64_t g = 0; g < groups; ++g) {
      QuantiseGroup(Load(p + g * 32), Load(p + g * 32 + 16), limit, *out, row, g);
    }
  }
}

void RmsNormQuantiseRows(const float* x, int64_t ldx, const float* weight, float eps, int64_t row_begin,
                         int64_t row_end, const QuantisedRows* out) {
  const int64_t groups = out->in / 32;
  for (int64_t row = row_begin; row < row_end; ++row) {
    const float* p = x + row * ldx;
    const V scale = Set(InverseRms(p, out->in, eps));
    float limit = 0.0f;
    if (NeedsLimit(*out)) {
      V sum = Zero();
      for (int64_t i = 0; i < out->in; i += 16) {
        const V y = Mul(Mul(Load(p + i), scale), Load(weight + i));
        sum = Fma(y, y, sum);
      }
      limit = LimitOf(sum, *out);
    }
    for (int64_t g = 0; g < groups; ++g) {
      const float* w = weight + g * 32;
      QuantiseGroup(Mul(Mul(Load(p + g * 32), scale), Load(w)), Mul(Mul(Load(p + g * 32 + 16), scale), Load(w + 16)),
                    limit, *out, row, g);
    }
  }
}

// ---- The pool's element types -----------------------------------------------------------------------------------------

inline V WidenVector(const uint8_t* p, FloatType type, int64_t i) {
  switch (type) {
    case FloatType::kF16: return LoadF16(p + 2 * i);
    case FloatType::kBf16: return LoadBf16(p + 2 * i);
    case FloatType::kI8: return LoadI8(p + i);
    default: return Load(reinterpret_cast<const float*>(p) + i);
  }
}

// To nearest even; finite values stay finite. 16 values.
inline void RoundVector(V x, FloatType type, uint8_t* p) {
  if (type == FloatType::kF16) {
    StoreF16(p, Max(Set(-65504.0f), Min(Set(65504.0f), x)));
  } else if (type == FloatType::kBf16) {
    const float limit = 3.38953139e38f;  // 0x7f7f0000
    const W bits = Bits(Max(Set(-limit), Min(Set(limit), x)));
    const W half = AddI(AndI(ShrLogical16(bits), SetI(1)), SetI(0x7fff));
    // A NaN's low bits must neither be all it has nor carry into the sign: any NaN becomes the plain one.
    const W is_nan = Sar<31>(SubI(SetI(0x7f800000), AndI(bits, SetI(0x7fffffff))));
    const W number = AndI(ShrLogical16(AddI(bits, half)), SubI(SetI(-1), is_nan));
    StoreU16(p, AddI(number, AndI(is_nan, SetI(0x7fc0))));
  } else {
    Store(reinterpret_cast<float*>(p), x);
  }
}

inline int64_t ElementBytes(FloatType type) { return type == FloatType::kF32 ? 4 : type == FloatType::kI8 ? 1 : 2; }

// Of a cell of the pool, from one head's K (or V) to the next one's: values, and behind them the scales of its tokens.
inline int64_t KvHeadBytes(FloatType type, int64_t head_dim, int64_t block_size) {
  return block_size * (head_dim * ElementBytes(type) + (type == FloatType::kI8 ? 4 : 0));
}

void WidenArray(const uint8_t* x, FloatType type, int64_t n, float* y) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) Store(y + i, WidenVector(x, type, i));
  if (i < n) {
    alignas(64) uint8_t last[64] = {};
    __builtin_memcpy(last, x + i * ElementBytes(type), static_cast<size_t>((n - i) * ElementBytes(type)));
    StoreFirst(y + i, WidenVector(last, type, 0), static_cast<int>(n - i));
  }
}

void RoundArray(const float* x, FloatType type, int64_t n, uint8_t* y) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) RoundVector(Load(x + i), type, y + i * ElementBytes(type));
  if (i < n) {
    alignas(64) uint8_t last[64];
    RoundVector(LoadFirst(x + i, static_cast<int>(n - i)), type, last);
    __builtin_memcpy(y + i * ElementBytes(type), last, static_cast<size_t>((n - i) * ElementBytes(type)));
  }
}

}  // namespace
}  // namespace baton::cpu
