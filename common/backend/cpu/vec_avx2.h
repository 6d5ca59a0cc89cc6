// SPDX-License-Identifier: Apache-2.0
// Sixteen lanes as two registers of AVX2 (with FMA and F16C); BATON_VEC_VNNI adds AVX-VNNI's dot products. Included by
// one .cc per instruction set; see vec_scalar.h for the meaning of each function.
#include <immintrin.h>

namespace baton::cpu {
namespace {

// Register blocking that fits 16 registers of 256 bits, two per vector.
constexpr int kPanelRows = 6, kPanelTiles = 1;
constexpr int kSmallRows = 6, kSmallTiles = 1;
constexpr int kDirectRows = 12;
#ifdef BATON_VEC_VNNI
constexpr bool kWideBytes = false;
#else
constexpr bool kWideBytes = true;  // Weights of eight bits meet activations of sixteen (linear_dots_avx2_impl.h).
#endif
constexpr int kDotRows = 6, kDotVectors = 1;
constexpr bool kVectorsOneByOne = true;
// Vectors of fp32 sums for so many rows: two registers each, and at least eight chains to hide the latency.
constexpr int DotVectors(int rows) { return rows == 1 ? 4 : rows <= 3 ? 2 : 1; }

struct V {
  __m256 a, b;
};
struct W {
  __m256i a, b;
};
struct B {
  __m256i a, b;
};

inline V Load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void Store(float* p, V x) {
  _mm256_storeu_ps(p, x.a);
  _mm256_storeu_ps(p + 8, x.b);
}
inline W FirstLanes(int n) {
  const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return {_mm256_cmpgt_epi32(_mm256_set1_epi32(n), lanes), _mm256_cmpgt_epi32(_mm256_set1_epi32(n - 8), lanes)};
}
// All lanes is what nearly every call wants, and masked stores are microcode on AMD's Zen 2 and 3.
inline V LoadFirst(const float* p, int n) {
  if (n >= 16) return Load(p);
  const W m = FirstLanes(n);
  return {_mm256_maskload_ps(p, m.a), _mm256_maskload_ps(p + 8, m.b)};
}
inline void StoreFirst(float* p, V x, int n) {
  if (n >= 16) return Store(p, x);
  const W m = FirstLanes(n);
  _mm256_maskstore_ps(p, m.a, x.a);
  _mm256_maskstore_ps(p + 8, m.b, x.b);
}
inline V Set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline V Zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline V Add(V x, V y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
inline V Sub(V x, V y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
inline V Mul(V x, V y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
inline V Div(V x, V y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
inline V Fma(V x, V y, V z) { return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)}; }
inline V Max(V x, V y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
inline V Min(V x, V y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
inline V KeepFirst(V x, int n, V other) {
  const W m = FirstLanes(n);
  return {_mm256_blendv_ps(other.a, x.a, _mm256_castsi256_ps(m.a)),
          _mm256_blendv_ps(other.b, x.b, _mm256_castsi256_ps(m.b))};
}
inline V ZeroBelow(V y, V x, V bound) {
  return {_mm256_and_ps(y.a, _mm256_cmp_ps(x.a, bound.a, _CMP_NLT_UQ)),
          _mm256_and_ps(y.b, _mm256_cmp_ps(x.b, bound.b, _CMP_NLT_UQ))};
}
inline V SelectAbove(V x, V bound, V y, V z) {
  return {_mm256_blendv_ps(z.a, y.a, _mm256_cmp_ps(x.a, bound.a, _CMP_GT_OQ)),
          _mm256_blendv_ps(z.b, y.b, _mm256_cmp_ps(x.b, bound.b, _CMP_GT_OQ))};
}
inline W Bits(V x) { return {_mm256_castps_si256(x.a), _mm256_castps_si256(x.b)}; }
inline V FromBits(W x) { return {_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)}; }

inline float ReduceAdd(V x) {
  const __m256 b = _mm256_add_ps(x.a, x.b);
  const __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
  const __m128 d = _mm_add_ps(c, _mm_movehl_ps(c, c));
  return _mm_cvtss_f32(_mm_add_ss(d, _mm_shuffle_ps(d, d, 1)));
}
inline float ReduceMax(V x) {
  const __m256 b = _mm256_max_ps(x.a, x.b);
  const __m128 c = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
  const __m128 d = _mm_max_ps(c, _mm_movehl_ps(c, c));
  return _mm_cvtss_f32(_mm_max_ss(d, _mm_shuffle_ps(d, d, 1)));
}

inline W SetI(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
inline W ZeroI() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
inline W AddI(W x, W y) { return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)}; }
inline W SubI(W x, W y) { return {_mm256_sub_epi32(x.a, y.a), _mm256_sub_epi32(x.b, y.b)}; }
inline W AndI(W x, W y) { return {_mm256_and_si256(x.a, y.a), _mm256_and_si256(x.b, y.b)}; }
inline W MaxI(W x, W y) { return {_mm256_max_epi32(x.a, y.a), _mm256_max_epi32(x.b, y.b)}; }
template <int n>
inline W Shl(W x) { return {_mm256_slli_epi32(x.a, n), _mm256_slli_epi32(x.b, n)}; }
inline W ShlBy(W x, int n) {
  const __m128i count = _mm_cvtsi32_si128(n);
  return {_mm256_sll_epi32(x.a, count), _mm256_sll_epi32(x.b, count)};
}
template <int n>
inline W Sar(W x) { return {_mm256_srai_epi32(x.a, n), _mm256_srai_epi32(x.b, n)}; }
inline V ToFloat(W x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
inline W ToInt(V x) { return {_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)}; }
inline int32_t ReduceMaxI(W x) {
  const __m256i b = _mm256_max_epi32(x.a, x.b);
  __m128i c = _mm_max_epi32(_mm256_castsi256_si128(b), _mm256_extracti128_si256(b, 1));
  c = _mm_max_epi32(c, _mm_shuffle_epi32(c, 0x4e));
  return _mm_cvtsi128_si32(_mm_max_epi32(c, _mm_shuffle_epi32(c, 0xb1)));
}
struct AddLanes {
  static inline __m256i Of(__m256i x, __m256i y) { return _mm256_add_epi32(x, y); }
};
struct MaxLanes {
  static inline __m256i Of(__m256i x, __m256i y) { return _mm256_max_epi32(x, y); }
};
// Lane i: that of all lanes of x[i], i < 8. Each step puts halves of two vectors side by side.
template <class Op>
inline __m256i ReduceEight(const __m256i (&x)[8]) {
  __m256i quarters[4], pairs[2];
  for (int i = 0; i < 4; ++i) {  // x[i] in the lower half, x[i + 4] in the upper.
    quarters[i] = Op::Of(_mm256_permute2x128_si256(x[i], x[i + 4], 0x20), _mm256_permute2x128_si256(x[i], x[i + 4], 0x31));
  }
  for (int i = 0; i < 2; ++i) {
    pairs[i] = Op::Of(_mm256_unpacklo_epi64(quarters[2 * i], quarters[2 * i + 1]),
                      _mm256_unpackhi_epi64(quarters[2 * i], quarters[2 * i + 1]));
  }
  const __m256 a = _mm256_castsi256_ps(pairs[0]), b = _mm256_castsi256_ps(pairs[1]);
  return Op::Of(_mm256_castps_si256(_mm256_shuffle_ps(a, b, 0x88)), _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xdd)));
}
template <class Op>
inline W ReduceEach(const W (&x)[16]) {
  __m256i first[8], second[8];
  for (int i = 0; i < 8; ++i) {
    first[i] = Op::Of(x[i].a, x[i].b);
    second[i] = Op::Of(x[i + 8].a, x[i + 8].b);
  }
  return {ReduceEight<Op>(first), ReduceEight<Op>(second)};
}
inline W ReduceAddEach(const W (&x)[16]) { return ReduceEach<AddLanes>(x); }
inline W ReduceMaxEach(const W (&x)[16]) { return ReduceEach<MaxLanes>(x); }
inline void StoreI8(int8_t* p, W x) {
  // The values fit in eight bits, so that saturation never acts; lanes of 128 bits are put back in order at the end.
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.a, x.b), 0xd8);
  const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
}

inline void StoreI16Pairs(int16_t* p, W x) {
  const __m256i words = _mm256_packs_epi32(_mm256_shuffle_epi32(x.a, 0xd8), _mm256_shuffle_epi32(x.b, 0xd8));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(words, 0xd8));
}

inline V LoadI8(const void* p) {
  const __m128i bytes = _mm_loadu_si128(static_cast<const __m128i*>(p));
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)), _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))};
}
inline V LoadF16(const void* p) {
  const __m128i* h = static_cast<const __m128i*>(p);
  return {_mm256_cvtph_ps(_mm_loadu_si128(h)), _mm256_cvtph_ps(_mm_loadu_si128(h + 1))};
}
inline V LoadBf16(const void* p) {
  const __m128i* h = static_cast<const __m128i*>(p);
  return FromBits(
      Shl<16>({_mm256_cvtepu16_epi32(_mm_loadu_si128(h)), _mm256_cvtepu16_epi32(_mm_loadu_si128(h + 1))}));
}
inline void StoreF16(void* p, V x) {
  __m128i* h = static_cast<__m128i*>(p);
  _mm_storeu_si128(h, _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  _mm_storeu_si128(h + 1, _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
inline void StoreU16(void* p, W x) {
  _mm256_storeu_si256(static_cast<__m256i*>(p), _mm256_permute4x64_epi64(_mm256_packus_epi32(x.a, x.b), 0xd8));
}
inline W ShrLogical16(W x) { return {_mm256_srli_epi32(x.a, 16), _mm256_srli_epi32(x.b, 16)}; }

inline B LoadB(const uint8_t* p) {
  const __m256i* q = reinterpret_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)};
}
inline void StoreB(uint8_t* p, B x) {
  __m256i* q = reinterpret_cast<__m256i*>(p);
  _mm256_store_si256(q, x.a);
  _mm256_store_si256(q + 1, x.b);
}
inline B LowNibbles(B x) {
  const __m256i m = _mm256_set1_epi8(15);
  return {_mm256_and_si256(x.a, m), _mm256_and_si256(x.b, m)};
}
inline B HighNibbles(B x) {
  return LowNibbles({_mm256_srli_epi16(x.a, 4), _mm256_srli_epi16(x.b, 4)});
}
inline B AddB(B x, int y) {
  const __m256i m = _mm256_set1_epi8(static_cast<char>(y));
  return {_mm256_add_epi8(x.a, m), _mm256_add_epi8(x.b, m)};
}
#ifdef BATON_VEC_VNNI
inline W Dot(W acc, B w, int32_t x4) {
  const __m256i x = _mm256_set1_epi32(x4);
  return {_mm256_dpbusd_avx_epi32(acc.a, w.a, x), _mm256_dpbusd_avx_epi32(acc.b, w.b, x)};
}
#endif
// In memory, so that the registers hold the dot products of more rows.
inline void PlaceSum(V& sum) { __asm__("" : "+m"(sum)); }
inline void Prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }
inline void PrefetchFar(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }

}  // namespace
}  // namespace baton::cpu
