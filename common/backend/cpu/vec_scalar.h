// SPDX-License-Identifier: Apache-2.0
// Sixteen lanes in plain C++: the meaning of the functions that the other vec_*.h files spell in their instruction sets.
// All floating-point operations round to nearest even; none may be contracted or reordered.
#include <stdint.h>
#include <string.h>

namespace baton::cpu {
namespace {

constexpr int kPanelRows = 2, kPanelTiles = 1;
constexpr int kSmallRows = 2, kSmallTiles = 1;
constexpr int kDirectRows = 2;
constexpr bool kWideBytes = false;
constexpr int kDotRows = 2, kDotVectors = 1;
constexpr bool kVectorsOneByOne = false;
constexpr int DotVectors(int) { return kDotVectors; }

struct V {
  float x[16];
};
struct W {
  int32_t x[16];
};
struct B {
  uint8_t x[64];
};

template <typename To, typename From>
inline To BitCast(From from) {
  To to;
  static_assert(sizeof(to) == sizeof(from));
  memcpy(&to, &from, sizeof(to));
  return to;
}

#define BATON_LANES for (int i = 0; i < 16; ++i)
inline V Load(const float* p) { V r; memcpy(r.x, p, 64); return r; }
inline void Store(float* p, V a) { memcpy(p, a.x, 64); }
// The first n lanes, 0 <= n <= 16; the others read as zero, and are not touched in memory.
inline V LoadFirst(const float* p, int n) { V r{}; for (int i = 0; i < n && i < 16; ++i) r.x[i] = p[i]; return r; }
inline void StoreFirst(float* p, V a, int n) { for (int i = 0; i < n && i < 16; ++i) p[i] = a.x[i]; }
inline V Set(float x) { V r; BATON_LANES r.x[i] = x; return r; }
inline V Zero() { return V{}; }
inline V Add(V a, V b) { BATON_LANES a.x[i] += b.x[i]; return a; }
inline V Sub(V a, V b) { BATON_LANES a.x[i] -= b.x[i]; return a; }
inline V Mul(V a, V b) { BATON_LANES a.x[i] *= b.x[i]; return a; }
inline V Div(V a, V b) { BATON_LANES a.x[i] /= b.x[i]; return a; }
inline V Fma(V a, V b, V c) { BATON_LANES c.x[i] = __builtin_fmaf(a.x[i], b.x[i], c.x[i]); return c; }
// As x86's MAXPS and MINPS: the second operand when either is NaN.
inline V Max(V a, V b) { BATON_LANES b.x[i] = a.x[i] > b.x[i] ? a.x[i] : b.x[i]; return b; }
inline V Min(V a, V b) { BATON_LANES b.x[i] = a.x[i] < b.x[i] ? a.x[i] : b.x[i]; return b; }
// The first n lanes of a, the others of `other`; 0 <= n <= 16.
inline V KeepFirst(V a, int n, V other) { for (int i = 0; i < n && i < 16; ++i) other.x[i] = a.x[i]; return other; }
// a, but zero in lanes where x < bound.
inline V ZeroBelow(V a, V x, V bound) { BATON_LANES a.x[i] = x.x[i] < bound.x[i] ? 0.0f : a.x[i]; return a; }
// a in lanes where x > bound, else (also where one of these is NaN) b.
inline V SelectAbove(V x, V bound, V a, V b) { BATON_LANES b.x[i] = x.x[i] > bound.x[i] ? a.x[i] : b.x[i]; return b; }
inline W Bits(V a) { return BitCast<W>(a); }
inline V FromBits(W a) { return BitCast<V>(a); }

// A fixed tree: lanes i and i + 8, then i and i + 4, i + 2, i + 1.
inline float ReduceAdd(V a) {
  for (int n = 8; n > 0; n /= 2)
    for (int i = 0; i < n; ++i) a.x[i] += a.x[i + n];
  return a.x[0];
}
inline float ReduceMax(V a) {
  for (int n = 8; n > 0; n /= 2)
    for (int i = 0; i < n; ++i) a.x[i] = a.x[i] > a.x[i + n] ? a.x[i] : a.x[i + n];
  return a.x[0];
}

inline W SetI(int32_t x) { W r; BATON_LANES r.x[i] = x; return r; }
inline W ZeroI() { return W{}; }
inline W AddI(W a, W b) {
  BATON_LANES a.x[i] = static_cast<int32_t>(static_cast<uint32_t>(a.x[i]) + static_cast<uint32_t>(b.x[i]));
  return a;
}
inline W SubI(W a, W b) {
  BATON_LANES a.x[i] = static_cast<int32_t>(static_cast<uint32_t>(a.x[i]) - static_cast<uint32_t>(b.x[i]));
  return a;
}
inline W AndI(W a, W b) { BATON_LANES a.x[i] &= b.x[i]; return a; }
inline W MaxI(W a, W b) { BATON_LANES a.x[i] = a.x[i] > b.x[i] ? a.x[i] : b.x[i]; return a; }
template <int n>
inline W Shl(W a) { BATON_LANES a.x[i] = static_cast<int32_t>(static_cast<uint32_t>(a.x[i]) << n); return a; }
inline W ShlBy(W a, int n) { BATON_LANES a.x[i] = static_cast<int32_t>(static_cast<uint32_t>(a.x[i]) << n); return a; }
template <int n>
inline W Sar(W a) { BATON_LANES a.x[i] >>= n; return a; }
inline V ToFloat(W a) { V r; BATON_LANES r.x[i] = static_cast<float>(a.x[i]); return r; }
// Rounds to nearest even; |a| < 2^22.
inline W ToInt(V a) {
  W r;
  BATON_LANES r.x[i] = static_cast<int32_t>(__builtin_rintf(a.x[i]));
  return r;
}
inline int32_t ReduceMaxI(W a) { int32_t m = a.x[0]; BATON_LANES m = a.x[i] > m ? a.x[i] : m; return m; }
// Lane i: the sum (the largest) of the lanes of a[i].
inline W ReduceAddEach(const W (&a)[16]) {
  W r{};
  BATON_LANES for (const int32_t x : a[i].x) r.x[i] += x;
  return r;
}
inline W ReduceMaxEach(const W (&a)[16]) {
  W r;
  BATON_LANES {
    r.x[i] = a[i].x[0];
    for (const int32_t x : a[i].x) r.x[i] = x > r.x[i] ? x : r.x[i];
  }
  return r;
}
// Values in [-128, 127].
inline void StoreI8(int8_t* p, W a) { BATON_LANES p[i] = static_cast<int8_t>(a.x[i]); }

// Values in [-32768, 32767]; of each four, elements 0, 2, 1, 3.
inline void StoreI16Pairs(int16_t* p, W a) {
  BATON_LANES p[(i & ~3) | ((i & 1) << 1) | ((i & 2) >> 1)] = static_cast<int16_t>(a.x[i]);
}

inline float HalfBitsToFloat(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t magnitude = static_cast<uint32_t>(half & 0x7fffu) << 13;
  const float small = static_cast<float>(half & 0x3ffu) * 0x1p-24f;
  if (magnitude < 0x00800000u) return BitCast<float>(BitCast<uint32_t>(small) | sign);
  if (magnitude >= 0x0f800000u) {  // Infinity; NaN made quiet.
    return BitCast<float>(sign | 0x70000000u | magnitude | (magnitude > 0x0f800000u ? 0x00400000u : 0u));
  }
  return BitCast<float>(sign | (magnitude + 0x38000000u));
}
inline uint16_t FloatToHalfBits(float value) {
  const uint32_t bits = BitCast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  if (magnitude >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {  // A multiple of 2^-24: adding 0.5 rounds at that place.
    return static_cast<uint16_t>(sign | (BitCast<uint32_t>(BitCast<float>(magnitude) + 0.5f) - 0x3f000000u));
  }
  return static_cast<uint16_t>(sign | ((magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13));
}
inline uint16_t LoadU16(const void* p, int i) {
  uint16_t u;
  memcpy(&u, static_cast<const char*>(p) + 2 * i, 2);
  return u;
}
inline V LoadI8(const void* p) { V r; BATON_LANES r.x[i] = static_cast<float>(static_cast<const int8_t*>(p)[i]); return r; }
inline V LoadF16(const void* p) { V r; BATON_LANES r.x[i] = HalfBitsToFloat(LoadU16(p, i)); return r; }
inline V LoadBf16(const void* p) {
  V r;
  BATON_LANES r.x[i] = BitCast<float>(static_cast<uint32_t>(LoadU16(p, i)) << 16);
  return r;
}
inline void StoreF16(void* p, V a) {
  uint16_t u[16];
  BATON_LANES u[i] = FloatToHalfBits(a.x[i]);
  memcpy(p, u, 32);
}
// The low 16 bits of each lane, which are in [0, 65535].
inline void StoreU16(void* p, W a) {
  uint16_t u[16];
  BATON_LANES u[i] = static_cast<uint16_t>(a.x[i]);
  memcpy(p, u, 32);
}
inline W ShrLogical16(W a) {
  BATON_LANES a.x[i] = static_cast<int32_t>(static_cast<uint32_t>(a.x[i]) >> 16);
  return a;
}

// 64 bytes; 64-byte aligned when stored.
inline B LoadB(const uint8_t* p) { B r; memcpy(r.x, p, 64); return r; }
inline void StoreB(uint8_t* p, B a) { memcpy(p, a.x, 64); }
inline B LowNibbles(B a) { for (uint8_t& x : a.x) x &= 15; return a; }
inline B HighNibbles(B a) { for (uint8_t& x : a.x) x >>= 4; return a; }
inline B AddB(B a, int y) { for (uint8_t& x : a.x) x = static_cast<uint8_t>(x + y); return a; }
// acc[i] += sum over j < 4 of w[4 i + j] (unsigned) times byte j of x4 (signed), exact.
inline W Dot(W acc, B w, int32_t x4) {
  int8_t x[4];
  memcpy(x, &x4, 4);
  BATON_LANES {
    const uint8_t* u = w.x + 4 * i;
    acc.x[i] += u[0] * x[0] + u[1] * x[1] + u[2] * x[2] + u[3] * x[3];
  }
  return acc;
}
// Where a sum over groups lives while other rows' dot products are computed: registers, or memory where these are few.
inline void PlaceSum(V&) {}
inline void Prefetch(const void*) {}
inline void PrefetchFar(const void*) {}  // Into the second-level cache.
#undef BATON_LANES

}  // namespace
}  // namespace baton::cpu
