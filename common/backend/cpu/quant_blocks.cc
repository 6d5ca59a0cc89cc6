// SPDX-License-Identifier: Apache-2.0
// The layouts of ggml's block types (ggml-common.h defines them), read as integers and scales. common/format reads the
// same blocks as fp32 values; a test holds the two together.
#include "common/backend/cpu/quant_blocks.h"

#include <bit>
#include <cstring>

#include "common/base/half.h"
#include "common/base/logging.h"

namespace baton::cpu {
namespace {

constexpr int kIq4Levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
constexpr int kFp4Levels[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
constexpr int kOffset = 128;  // Of the symmetric 8-bit formats.

uint16_t LoadU16(const uint8_t* p) { return static_cast<uint16_t>(p[0] | (p[1] << 8)); }
uint32_t LoadU32(const uint8_t* p) { return LoadU16(p) | (static_cast<uint32_t>(LoadU16(p + 2)) << 16); }
float LoadHalf(const uint8_t* p) { return HalfToFloat(LoadU16(p)); }

// Nibble k of a block of 32 whose low nibbles come first.
int Nibble(const uint8_t* q, int k) { return k < 16 ? q[k] & 15 : q[k - 16] >> 4; }

void SetScale(IntegerGroup* g, float scale, float minimum) {
  g->scale[0] = g->scale[1] = scale;
  g->minimum[0] = g->minimum[1] = minimum;
}

void DecodeQ4_0(const uint8_t* b, IntegerGroup* g) {
  SetScale(g, LoadHalf(b), 0);
  for (int k = 0; k < 32; ++k) g->q[k] = static_cast<uint8_t>(Nibble(b + 2, k));
}
void DecodeQ4_1(const uint8_t* b, IntegerGroup* g) {
  SetScale(g, LoadHalf(b), LoadHalf(b + 2));
  for (int k = 0; k < 32; ++k) g->q[k] = static_cast<uint8_t>(Nibble(b + 4, k));
}
void DecodeQ5_0(const uint8_t* b, IntegerGroup* g) {
  SetScale(g, LoadHalf(b), 0);
  const uint32_t high = LoadU32(b + 2);
  for (int k = 0; k < 32; ++k) {
    g->q[k] = static_cast<uint8_t>((Nibble(b + 6, k) | static_cast<int>((high >> k) & 1) << 4) - 16 + kOffset);
  }
}
void DecodeQ5_1(const uint8_t* b, IntegerGroup* g) {
  SetScale(g, LoadHalf(b), LoadHalf(b + 2));
  const uint32_t high = LoadU32(b + 4);
  for (int k = 0; k < 32; ++k) g->q[k] = static_cast<uint8_t>(Nibble(b + 8, k) | static_cast<int>((high >> k) & 1) << 4);
}
void DecodeQ8_0(const uint8_t* b, IntegerGroup* g) {
  SetScale(g, LoadHalf(b), 0);
  for (int k = 0; k < 32; ++k) g->q[k] = static_cast<uint8_t>(static_cast<int8_t>(b[2 + k]) + kOffset);
}
void DecodeIQ4_NL(const uint8_t* b, IntegerGroup* g) {
  SetScale(g, LoadHalf(b), 0);
  for (int k = 0; k < 32; ++k) g->q[k] = static_cast<uint8_t>(kIq4Levels[Nibble(b + 2, k)] + kOffset);
}
// The levels are doubled, so the scale is half of the block's power of two; the two smallest are subnormal.
void DecodeMXFP4(const uint8_t* b, IntegerGroup* g) {
  const uint32_t exponent = b[0];
  SetScale(g, std::bit_cast<float>(exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23), 0);
  for (int k = 0; k < 32; ++k) g->q[k] = static_cast<uint8_t>(kFp4Levels[Nibble(b + 1, k)] + kOffset);
}

// Blocks of 256: eight groups of 32.

void DecodeQ2_K(const uint8_t* b, IntegerGroup* groups) {
  const float d = LoadHalf(b + 80), dmin = LoadHalf(b + 82);
  for (int i = 0; i < 8; ++i) {
    const uint8_t* q = b + 16 + (i / 4) * 32;
    for (int half = 0; half < 2; ++half) {
      const int packed = b[2 * i + half];
      groups[i].scale[half] = d * static_cast<float>(packed & 15);
      groups[i].minimum[half] = -(dmin * static_cast<float>(packed >> 4));
    }
    for (int k = 0; k < 32; ++k) groups[i].q[k] = static_cast<uint8_t>((q[k] >> (2 * (i % 4))) & 3);
  }
}

void DecodeQ3_K(const uint8_t* b, IntegerGroup* groups) {
  const uint8_t* packed = b + 96;
  const float d = LoadHalf(b + 108);
  for (int i = 0; i < 8; ++i) {
    const uint8_t* q = b + 32 + (i / 4) * 32;
    for (int half = 0; half < 2; ++half) {
      const int j = 2 * i + half;
      const int low = j < 8 ? packed[j] & 15 : packed[j - 8] >> 4;
      const int high = (packed[8 + j % 4] >> (2 * (j / 4))) & 3;
      groups[i].scale[half] = d * static_cast<float>((low | (high << 4)) - 32);
      groups[i].minimum[half] = 0;
    }
    for (int k = 0; k < 32; ++k) {
      const int value = ((q[k] >> (2 * (i % 4))) & 3) - ((b[k] >> i) & 1 ? 0 : 4);
      groups[i].q[k] = static_cast<uint8_t>(value + kOffset);
    }
  }
}

// The j-th of eight (scale, minimum) pairs of 6 bits in the 12 bytes that Q4_K and Q5_K share.
void UnpackScaleMin(const uint8_t* p, int j, int* scale, int* minimum) {
  *scale = j < 4 ? p[j] & 63 : (p[j + 4] & 15) | ((p[j - 4] >> 6) << 4);
  *minimum = j < 4 ? p[j + 4] & 63 : (p[j + 4] >> 4) | ((p[j] >> 6) << 4);
}

void DecodeQ4_K(const uint8_t* b, IntegerGroup* groups) {
  const float d = LoadHalf(b), dmin = LoadHalf(b + 2);
  for (int i = 0; i < 8; ++i) {
    int scale, minimum;
    UnpackScaleMin(b + 4, i, &scale, &minimum);
    SetScale(groups + i, d * static_cast<float>(scale), -(dmin * static_cast<float>(minimum)));
    const uint8_t* q = b + 16 + (i / 2) * 32;
    for (int k = 0; k < 32; ++k) groups[i].q[k] = static_cast<uint8_t>((q[k] >> (4 * (i % 2))) & 15);
  }
}

void DecodeQ5_K(const uint8_t* b, IntegerGroup* groups) {
  const float d = LoadHalf(b), dmin = LoadHalf(b + 2);
  for (int i = 0; i < 8; ++i) {
    int scale, minimum;
    UnpackScaleMin(b + 4, i, &scale, &minimum);
    SetScale(groups + i, d * static_cast<float>(scale), -(dmin * static_cast<float>(minimum)));
    const uint8_t* q = b + 48 + (i / 2) * 32;
    for (int k = 0; k < 32; ++k) {
      groups[i].q[k] = static_cast<uint8_t>(((q[k] >> (4 * (i % 2))) & 15) | (((b[16 + k] >> i) & 1) << 4));
    }
  }
}

void DecodeQ6_K(const uint8_t* b, IntegerGroup* groups) {
  const float d = LoadHalf(b + 208);
  for (int i = 0; i < 8; ++i) {
    const int run = i % 4;
    const uint8_t* low = b + (i / 4) * 64 + (run % 2) * 32;
    const uint8_t* high = b + 128 + (i / 4) * 32;
    for (int half = 0; half < 2; ++half) {
      groups[i].scale[half] = d * static_cast<float>(static_cast<int8_t>(b[192 + 2 * i + half]));
      groups[i].minimum[half] = 0;
    }
    for (int k = 0; k < 32; ++k) {
      const int value = ((low[k] >> (run / 2 * 4)) & 15) | (((high[k] >> (2 * run)) & 3) << 4);
      groups[i].q[k] = static_cast<uint8_t>(value - 32 + kOffset);
    }
  }
}

void DecodeIQ4_XS(const uint8_t* b, IntegerGroup* groups) {
  const float d = LoadHalf(b);
  const int scales_high = LoadU16(b + 2);
  for (int i = 0; i < 8; ++i) {
    const int low = (b[4 + i / 2] >> (4 * (i % 2))) & 15;
    SetScale(groups + i, d * static_cast<float>((low | (((scales_high >> (2 * i)) & 3) << 4)) - 32), 0);
    for (int k = 0; k < 32; ++k) groups[i].q[k] = static_cast<uint8_t>(kIq4Levels[Nibble(b + 8 + 16 * i, k)] + kOffset);
  }
}

using DecodeFn = void (*)(const uint8_t*, IntegerGroup*);

DecodeFn FunctionFor(GgmlType type) {
  switch (type) {
    case GgmlType::kQ4_0:
      return DecodeQ4_0;
    case GgmlType::kQ4_1:
      return DecodeQ4_1;
    case GgmlType::kQ5_0:
      return DecodeQ5_0;
    case GgmlType::kQ5_1:
      return DecodeQ5_1;
    case GgmlType::kQ8_0:
      return DecodeQ8_0;
    case GgmlType::kIQ4_NL:
      return DecodeIQ4_NL;
    case GgmlType::kMXFP4:
      return DecodeMXFP4;
    case GgmlType::kQ2_K:
      return DecodeQ2_K;
    case GgmlType::kQ3_K:
      return DecodeQ3_K;
    case GgmlType::kQ4_K:
      return DecodeQ4_K;
    case GgmlType::kQ5_K:
      return DecodeQ5_K;
    case GgmlType::kQ6_K:
      return DecodeQ6_K;
    case GgmlType::kIQ4_XS:
      return DecodeIQ4_XS;
    default:
      return nullptr;
  }
}

}  // namespace

void DecodeRow(GgmlType type, const uint8_t* bytes, int64_t count, IntegerGroup* groups) {
  const DecodeFn decode = FunctionFor(type);
  const GgmlTypeTraits& traits = TraitsOf(type);
  BATON_CHECK(decode != nullptr && count % traits.block_length == 0);
  for (int64_t i = 0; i < count; i += traits.block_length) {
    decode(bytes, groups);
    bytes += traits.block_bytes;
    groups += traits.block_length / 32;
  }
}

}  // namespace baton::cpu
