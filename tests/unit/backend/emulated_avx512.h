// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_UNIT_BACKEND_EMULATED_AVX512_H_
#define BATON_TESTS_UNIT_BACKEND_EMULATED_AVX512_H_

// The AVX-512 (and AVX-VNNI) intrinsics that common/backend/cpu uses, out of AVX2 ones, so that the kernels of wider CPUs are
// tested where there is none. Included before the kernels; the names of the real intrinsics then mean these. An intrinsic
// that is missing here does not compile. What this cannot show: speed, and what the compiler makes of the real ones.

#include <immintrin.h>

#include <cstdint>
#include <cstring>

// The types have a namespace of their own: else argument-dependent lookup would find the functions beside the kernels' own.
namespace baton::cpu::emulated_registers {

struct F512 {
  __m256 a, b;
};
struct I512 {
  __m256i a, b;
};

}  // namespace baton::cpu::emulated_registers

namespace baton::cpu::emulated {

using emulated_registers::F512;
using emulated_registers::I512;

// ---- Memory and constants
inline F512 LoadPs(const void* p) {
  const float* f = static_cast<const float*>(p);
  return {_mm256_loadu_ps(f), _mm256_loadu_ps(f + 8)};
}
inline void StorePs(void* p, F512 x) {
  float* f = static_cast<float*>(p);
  _mm256_storeu_ps(f, x.a);
  _mm256_storeu_ps(f + 8, x.b);
}
inline F512 MaskzLoadPs(__mmask16 mask, const float* p) {
  float lanes[16] = {};
  for (int i = 0; i < 16; ++i) {
    if (mask >> i & 1) lanes[i] = p[i];
  }
  return LoadPs(lanes);
}
inline void MaskStorePs(float* p, __mmask16 mask, F512 x) {
  float lanes[16];
  StorePs(lanes, x);
  for (int i = 0; i < 16; ++i) {
    if (mask >> i & 1) p[i] = lanes[i];
  }
}
inline F512 Set1Ps(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline F512 ZeroPs() { return Set1Ps(0); }
inline I512 LoadI(const void* p) {
  const __m256i* q = static_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)};
}
inline void StoreI(void* p, I512 x) {
  __m256i* q = static_cast<__m256i*>(p);
  _mm256_storeu_si256(q, x.a);
  _mm256_storeu_si256(q + 1, x.b);
}
inline I512 Set1Epi32(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
inline I512 Set1Epi8(char x) { return {_mm256_set1_epi8(x), _mm256_set1_epi8(x)}; }
inline I512 ZeroI() { return Set1Epi32(0); }

// ---- Floating point
inline F512 Add(F512 x, F512 y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
inline F512 Sub(F512 x, F512 y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
inline F512 Mul(F512 x, F512 y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
inline F512 Div(F512 x, F512 y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
inline F512 Max(F512 x, F512 y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
inline F512 Min(F512 x, F512 y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
inline F512 Fmadd(F512 x, F512 y, F512 z) { return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)}; }
inline F512 MaskMovPs(F512 other, __mmask16 mask, F512 x) {
  float lanes[16];
  StorePs(lanes, other);
  MaskStorePs(lanes, mask, x);
  return LoadPs(lanes);
}
template <int kOp>
inline __mmask16 CmpPsMask(F512 x, F512 y) {
  return static_cast<__mmask16>(_mm256_movemask_ps(_mm256_cmp_ps(x.a, y.a, kOp)) |
                                _mm256_movemask_ps(_mm256_cmp_ps(x.b, y.b, kOp)) << 8);
}
template <int kHalf>
inline __m256 ExtractF32x8(F512 x) {
  return kHalf == 0 ? x.a : x.b;
}
inline I512 CastToI(F512 x) { return {_mm256_castps_si256(x.a), _mm256_castps_si256(x.b)}; }
inline F512 CastToPs(I512 x) { return {_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)}; }
inline F512 CvtEpi32Ps(I512 x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
inline I512 CvtPsEpi32(F512 x) { return {_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)}; }
inline F512 CvtPhPs(__m256i x) {
  return {_mm256_cvtph_ps(_mm256_castsi256_si128(x)), _mm256_cvtph_ps(_mm256_extracti128_si256(x, 1))};
}
template <int kRounding>
inline __m256i CvtPsPh(F512 x) {
  return _mm256_set_m128i(_mm256_cvtps_ph(x.b, kRounding), _mm256_cvtps_ph(x.a, kRounding));
}

// ---- Integers
inline I512 AddEpi32(I512 x, I512 y) { return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)}; }
inline I512 SubEpi32(I512 x, I512 y) { return {_mm256_sub_epi32(x.a, y.a), _mm256_sub_epi32(x.b, y.b)}; }
inline I512 MaxEpi32(I512 x, I512 y) { return {_mm256_max_epi32(x.a, y.a), _mm256_max_epi32(x.b, y.b)}; }
inline I512 AddEpi8(I512 x, I512 y) { return {_mm256_add_epi8(x.a, y.a), _mm256_add_epi8(x.b, y.b)}; }
inline I512 And(I512 x, I512 y) { return {_mm256_and_si256(x.a, y.a), _mm256_and_si256(x.b, y.b)}; }
inline I512 SlliEpi32(I512 x, int n) {
  const __m128i count = _mm_cvtsi32_si128(n);
  return {_mm256_sll_epi32(x.a, count), _mm256_sll_epi32(x.b, count)};
}
inline I512 SraiEpi32(I512 x, int n) {
  const __m128i count = _mm_cvtsi32_si128(n);
  return {_mm256_sra_epi32(x.a, count), _mm256_sra_epi32(x.b, count)};
}
inline I512 SrliEpi32(I512 x, int n) {
  const __m128i count = _mm_cvtsi32_si128(n);
  return {_mm256_srl_epi32(x.a, count), _mm256_srl_epi32(x.b, count)};
}
inline I512 SrliEpi16(I512 x, int n) {
  const __m128i count = _mm_cvtsi32_si128(n);
  return {_mm256_srl_epi16(x.a, count), _mm256_srl_epi16(x.b, count)};
}
template <int kOrder>
inline I512 ShuffleEpi32(I512 x) {
  return {_mm256_shuffle_epi32(x.a, kOrder), _mm256_shuffle_epi32(x.b, kOrder)};
}
inline int32_t ReduceMaxEpi32(I512 x) {
  int32_t lanes[16];
  StoreI(lanes, x);
  int32_t most = lanes[0];
  for (int32_t lane : lanes) most = lane > most ? lane : most;
  return most;
}
inline I512 SllEpi32(I512 x, __m128i n) { return {_mm256_sll_epi32(x.a, n), _mm256_sll_epi32(x.b, n)}; }
inline __m128i Quarter(I512 x, int i) {
  const __m256i half = i < 2 ? x.a : x.b;
  return i % 2 == 0 ? _mm256_castsi256_si128(half) : _mm256_extracti128_si256(half, 1);
}
// Two quarters of x, then two of y, by two bits each.
template <int kOrder>
inline I512 ShuffleI32x4(I512 x, I512 y) {
  return {_mm256_set_m128i(Quarter(x, kOrder >> 2 & 3), Quarter(x, kOrder & 3)),
          _mm256_set_m128i(Quarter(y, kOrder >> 6 & 3), Quarter(y, kOrder >> 4 & 3))};
}
inline I512 UnpackLoEpi64(I512 x, I512 y) { return {_mm256_unpacklo_epi64(x.a, y.a), _mm256_unpacklo_epi64(x.b, y.b)}; }
inline I512 UnpackHiEpi64(I512 x, I512 y) { return {_mm256_unpackhi_epi64(x.a, y.a), _mm256_unpackhi_epi64(x.b, y.b)}; }
template <int kOrder>
inline F512 ShufflePs(F512 x, F512 y) {
  return {_mm256_shuffle_ps(x.a, y.a, kOrder), _mm256_shuffle_ps(x.b, y.b, kOrder)};
}
inline I512 PermutexvarEpi16(I512 order, I512 x) {
  uint16_t from[32], words[32];
  StoreI(from, x);
  StoreI(words, order);
  for (uint16_t& word : words) word = from[word & 31];
  return LoadI(words);
}
inline __m128i CvtEpi32Epi8(I512 x) {  // The low bytes.
  int32_t lanes[16];
  StoreI(lanes, x);
  uint8_t bytes[16];
  for (int i = 0; i < 16; ++i) bytes[i] = static_cast<uint8_t>(lanes[i]);
  __m128i out;
  std::memcpy(&out, bytes, sizeof(out));
  return out;
}
inline __m256i CvtEpi32Epi16(I512 x) {  // The low halves.
  int32_t lanes[16];
  StoreI(lanes, x);
  uint16_t halves[16];
  for (int i = 0; i < 16; ++i) halves[i] = static_cast<uint16_t>(lanes[i]);
  __m256i out;
  std::memcpy(&out, halves, sizeof(out));
  return out;
}
inline I512 CvtEpi8Epi32(__m128i x) { return {_mm256_cvtepi8_epi32(x), _mm256_cvtepi8_epi32(_mm_srli_si128(x, 8))}; }
inline I512 CvtEpu16Epi32(__m256i x) {
  return {_mm256_cvtepu16_epi32(_mm256_castsi256_si128(x)), _mm256_cvtepu16_epi32(_mm256_extracti128_si256(x, 1))};
}
// acc += four products of unsigned bytes of `u` and signed bytes of `s` per lane, exact: even and odd bytes as 16-bit integers.
inline __m256i Dpbusd(__m256i acc, __m256i u, __m256i s) {
  const __m256i even = _mm256_madd_epi16(_mm256_and_si256(u, _mm256_set1_epi16(255)), _mm256_srai_epi16(_mm256_slli_epi16(s, 8), 8));
  const __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(u, 8), _mm256_srai_epi16(s, 8));
  return _mm256_add_epi32(acc, _mm256_add_epi32(even, odd));
}
inline I512 Dpbusd512(I512 acc, I512 u, I512 s) { return {Dpbusd(acc.a, u.a, s.a), Dpbusd(acc.b, u.b, s.b)}; }

}  // namespace baton::cpu::emulated

#define __m512 ::baton::cpu::emulated::F512
#define __m512i ::baton::cpu::emulated::I512
#define _mm512_loadu_ps ::baton::cpu::emulated::LoadPs
#define _mm512_storeu_ps ::baton::cpu::emulated::StorePs
#define _mm512_maskz_loadu_ps ::baton::cpu::emulated::MaskzLoadPs
#define _mm512_mask_storeu_ps ::baton::cpu::emulated::MaskStorePs
#define _mm512_set1_ps ::baton::cpu::emulated::Set1Ps
#define _mm512_setzero_ps ::baton::cpu::emulated::ZeroPs
#define _mm512_loadu_si512 ::baton::cpu::emulated::LoadI
#define _mm512_store_si512 ::baton::cpu::emulated::StoreI
#define _mm512_set1_epi32 ::baton::cpu::emulated::Set1Epi32
#define _mm512_set1_epi8 ::baton::cpu::emulated::Set1Epi8
#define _mm512_setzero_si512 ::baton::cpu::emulated::ZeroI
#define _mm512_add_ps ::baton::cpu::emulated::Add
#define _mm512_sub_ps ::baton::cpu::emulated::Sub
#define _mm512_mul_ps ::baton::cpu::emulated::Mul
#define _mm512_div_ps ::baton::cpu::emulated::Div
#define _mm512_max_ps ::baton::cpu::emulated::Max
#define _mm512_min_ps ::baton::cpu::emulated::Min
#define _mm512_fmadd_ps ::baton::cpu::emulated::Fmadd
#define _mm512_mask_mov_ps ::baton::cpu::emulated::MaskMovPs
#define _mm512_maskz_mov_ps(mask, x) ::baton::cpu::emulated::MaskMovPs(::baton::cpu::emulated::ZeroPs(), mask, x)
#undef _mm512_cmp_ps_mask
#define _mm512_cmp_ps_mask(x, y, op) ::baton::cpu::emulated::CmpPsMask<op>(x, y)
#define _mm512_castps512_ps256 ::baton::cpu::emulated::ExtractF32x8<0>
#undef _mm512_extractf32x8_ps
#define _mm512_extractf32x8_ps(x, half) ::baton::cpu::emulated::ExtractF32x8<half>(x)
#define _mm512_castps_si512 ::baton::cpu::emulated::CastToI
#define _mm512_castsi512_ps ::baton::cpu::emulated::CastToPs
#define _mm512_cvtepi32_ps ::baton::cpu::emulated::CvtEpi32Ps
#define _mm512_cvtps_epi32 ::baton::cpu::emulated::CvtPsEpi32
#define _mm512_cvtph_ps ::baton::cpu::emulated::CvtPhPs
#undef _mm512_cvtps_ph
#define _mm512_cvtps_ph(x, rounding) ::baton::cpu::emulated::CvtPsPh<rounding>(x)
#define _mm512_add_epi32 ::baton::cpu::emulated::AddEpi32
#define _mm512_sub_epi32 ::baton::cpu::emulated::SubEpi32
#define _mm512_max_epi32 ::baton::cpu::emulated::MaxEpi32
#define _mm512_add_epi8 ::baton::cpu::emulated::AddEpi8
#define _mm512_and_si512 ::baton::cpu::emulated::And
#undef _mm512_slli_epi32
#define _mm512_slli_epi32 ::baton::cpu::emulated::SlliEpi32
#undef _mm512_srai_epi32
#define _mm512_srai_epi32 ::baton::cpu::emulated::SraiEpi32
#undef _mm512_srli_epi32
#define _mm512_srli_epi32 ::baton::cpu::emulated::SrliEpi32
#undef _mm512_srli_epi16
#define _mm512_srli_epi16 ::baton::cpu::emulated::SrliEpi16
#undef _mm512_shuffle_epi32
#define _mm512_shuffle_epi32(x, order) ::baton::cpu::emulated::ShuffleEpi32<static_cast<int>(order)>(x)
#define _mm512_permutexvar_epi16 ::baton::cpu::emulated::PermutexvarEpi16
#define _mm512_reduce_max_epi32 ::baton::cpu::emulated::ReduceMaxEpi32
#define _mm512_sll_epi32 ::baton::cpu::emulated::SllEpi32
#undef _mm512_shuffle_i32x4
#define _mm512_shuffle_i32x4(x, y, order) ::baton::cpu::emulated::ShuffleI32x4<order>(x, y)
#define _mm512_unpacklo_epi64 ::baton::cpu::emulated::UnpackLoEpi64
#define _mm512_unpackhi_epi64 ::baton::cpu::emulated::UnpackHiEpi64
#undef _mm512_shuffle_ps
#define _mm512_shuffle_ps(x, y, order) ::baton::cpu::emulated::ShufflePs<order>(x, y)
#define _mm512_cvtepi32_epi8 ::baton::cpu::emulated::CvtEpi32Epi8
#define _mm512_cvtepi32_epi16 ::baton::cpu::emulated::CvtEpi32Epi16
#define _mm512_cvtepi8_epi32 ::baton::cpu::emulated::CvtEpi8Epi32
#define _mm512_cvtepu16_epi32 ::baton::cpu::emulated::CvtEpu16Epi32
#define _mm512_dpbusd_epi32 ::baton::cpu::emulated::Dpbusd512
#define _mm256_dpbusd_avx_epi32 ::baton::cpu::emulated::Dpbusd

#endif  // BATON_TESTS_UNIT_BACKEND_EMULATED_AVX512_H_
