// SPDX-License-Identifier: Apache-2.0
// Sixteen lanes on AVX-512. Included by one .cc only; see vec_scalar.h for the meaning of each function.
#include <immintrin.h>

namespace baton::cpu {
namespace {

// Register blocking that fits 32 registers of 512 bits.
constexpr int kPanelRows = 6, kPanelTiles = 2;  // quantised, many rows
constexpr int kSmallRows = 8, kSmallTiles = 2;                   // quantised, few rows
constexpr int kDirectRows = 8;
constexpr bool kWideBytes = false;
constexpr int kDotRows = 6, kDotVectors = 4;    // fp32
constexpr bool kVectorsOneByOne = false;
constexpr int DotVectors(int) { return kDotVectors; }

typedef __m512 V;    // 16 floats
typedef __m512i W;   // 16 int32
typedef __m512i B;   // 64 bytes

inline V Load(const float* p) { return _mm512_loadu_ps(p); }
inline void Store(float* p, V a) { _mm512_storeu_ps(p, a); }
inline __mmask16 FirstLanes(int n) { return static_cast<__mmask16>((1u << n) - 1); }
inline V LoadFirst(const float* p, int n) { return _mm512_maskz_loadu_ps(FirstLanes(n), p); }
inline void StoreFirst(float* p, V a, int n) { _mm512_mask_storeu_ps(p, FirstLanes(n), a); }
inline V Set(float x) { return _mm512_set1_ps(x); }
inline V Zero() { return _mm512_setzero_ps(); }
inline V Add(V a, V b) { return _mm512_add_ps(a, b); }
inline V Sub(V a, V b) { return _mm512_sub_ps(a, b); }
inline V Mul(V a, V b) { return _mm512_mul_ps(a, b); }
inline V Div(V a, V b) { return _mm512_div_ps(a, b); }
inline V Fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
inline V Max(V a, V b) { return _mm512_max_ps(a, b); }
inline V Min(V a, V b) { return _mm512_min_ps(a, b); }
inline V KeepFirst(V a, int n, V other) { return _mm512_mask_mov_ps(other, FirstLanes(n), a); }
inline V ZeroBelow(V a, V x, V bound) {
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, bound, _CMP_NLT_UQ), a);
}
inline V SelectAbove(V x, V bound, V a, V b) {
  return _mm512_mask_mov_ps(b, _mm512_cmp_ps_mask(x, bound, _CMP_GT_OQ), a);
}
inline W Bits(V a) { return _mm512_castps_si512(a); }
inline V FromBits(W a) { return _mm512_castsi512_ps(a); }

inline float ReduceAdd(V a) {
  const __m256 b = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
  const __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
  const __m128 d = _mm_add_ps(c, _mm_movehl_ps(c, c));
  return _mm_cvtss_f32(_mm_add_ss(d, _mm_shuffle_ps(d, d, 1)));
}
inline float ReduceMax(V a) {
  const __m256 b = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
  const __m128 c = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
  const __m128 d = _mm_max_ps(c, _mm_movehl_ps(c, c));
  return _mm_cvtss_f32(_mm_max_ss(d, _mm_shuffle_ps(d, d, 1)));
}

inline W SetI(int32_t x) { return _mm512_set1_epi32(x); }
inline W ZeroI() { return _mm512_setzero_si512(); }
inline W AddI(W a, W b) { return _mm512_add_epi32(a, b); }
inline W SubI(W a, W b) { return _mm512_sub_epi32(a, b); }
inline W AndI(W a, W b) { return _mm512_and_si512(a, b); }
inline W MaxI(W a, W b) { return _mm512_max_epi32(a, b); }
template <int n>
inline W Shl(W a) { return _mm512_slli_epi32(a, n); }
inline W ShlBy(W a, int n) { return _mm512_sll_epi32(a, _mm_cvtsi32_si128(n)); }
template <int n>
inline W Sar(W a) { return _mm512_srai_epi32(a, n); }
inline V ToFloat(W a) { return _mm512_cvtepi32_ps(a); }
inline W ToInt(V a) { return _mm512_cvtps_epi32(a); }
inline int32_t ReduceMaxI(W a) { return _mm512_reduce_max_epi32(a); }
struct AddLanes {
  static inline W Of(W a, W b) { return AddI(a, b); }
};
struct MaxLanes {
  static inline W Of(W a, W b) { return MaxI(a, b); }
};
// Lane i: that of all lanes of a[i]. Each step puts halves of two vectors side by side.
template <class Op>
inline W ReduceEach(const W (&a)[16]) {
  W halves[8], quarters[4], pairs[2];
  for (int i = 0; i < 8; ++i) {  // a[i] in the lower half, a[i + 8] in the upper.
    halves[i] = Op::Of(_mm512_shuffle_i32x4(a[i], a[i + 8], 0x44), _mm512_shuffle_i32x4(a[i], a[i + 8], 0xee));
  }
  for (int i = 0; i < 4; ++i) {  // Quarters of a[i], a[i + 8], a[i + 4], a[i + 12].
    quarters[i] = Op::Of(_mm512_shuffle_i32x4(halves[i], halves[i + 4], 0x88), _mm512_shuffle_i32x4(halves[i], halves[i + 4], 0xdd));
  }
  for (int i = 0; i < 2; ++i) {
    pairs[i] = Op::Of(_mm512_unpacklo_epi64(quarters[2 * i], quarters[2 * i + 1]),
                      _mm512_unpackhi_epi64(quarters[2 * i], quarters[2 * i + 1]));
  }
  const V first = FromBits(pairs[0]), second = FromBits(pairs[1]);
  const W all = Op::Of(Bits(_mm512_shuffle_ps(first, second, 0x88)), Bits(_mm512_shuffle_ps(first, second, 0xdd)));
  return _mm512_shuffle_i32x4(all, all, 0xd8);
}
inline W ReduceAddEach(const W (&a)[16]) { return ReduceEach<AddLanes>(a); }
inline W ReduceMaxEach(const W (&a)[16]) { return ReduceEach<MaxLanes>(a); }
inline void StoreI8(int8_t* p, W a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(a));
}

inline void StoreI16Pairs(int16_t* p, W a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtepi32_epi16(_mm512_shuffle_epi32(a, static_cast<_MM_PERM_ENUM>(0xd8))));
}

inline V LoadI8(const void* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p))));
}
inline V LoadF16(const void* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
}
inline V LoadBf16(const void* p) {
  return FromBits(Shl<16>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(p)))));
}
inline void StoreF16(void* p, V a) {
  _mm256_storeu_si256(static_cast<__m256i*>(p), _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
inline void StoreU16(void* p, W a) { _mm256_storeu_si256(static_cast<__m256i*>(p), _mm512_cvtepi32_epi16(a)); }
inline W ShrLogical16(W a) { return _mm512_srli_epi32(a, 16); }

inline B LoadB(const uint8_t* p) { return _mm512_loadu_si512(p); }
inline void StoreB(uint8_t* p, B a) { _mm512_store_si512(p, a); }
inline B LowNibbles(B a) { return _mm512_and_si512(a, _mm512_set1_epi8(15)); }
inline B HighNibbles(B a) { return _mm512_and_si512(_mm512_srli_epi16(a, 4), _mm512_set1_epi8(15)); }
template <int n>
inline B ShrWords(B a) { return _mm512_srli_epi16(a, n); }
// Each word: the one of `table` that the word's low five bits name.
inline B LookUpWords(B table, B a) { return _mm512_permutexvar_epi16(a, table); }
inline B AddB(B a, int x) { return _mm512_add_epi8(a, _mm512_set1_epi8(static_cast<char>(x))); }
inline W Dot(W acc, B w, int32_t x4) { return _mm512_dpbusd_epi32(acc, w, _mm512_set1_epi32(x4)); }
inline void PlaceSum(V&) {}  // In a register.
inline void Prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }
inline void PrefetchFar(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }

}  // namespace
}  // namespace baton::cpu
