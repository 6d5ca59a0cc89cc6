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
