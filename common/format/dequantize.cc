// SPDX-License-Identifier: Apache-2.0
// The layouts and the order of roundings are those of ggml (ggml-common.h and ggml-quants.c define them). Every product
// and sum below is rounded separately: this file is compiled without contraction to fused multiply-add.
#include <bit>
#include <cstring>

#include "absl/strings/str_format.h"
#include "common/base/half.h"
#include "common/format/ggml_types.h"

namespace baton {
namespace {

// The 16 levels of the IQ4 types and, doubled, of MXFP4's 4-bit floats.
constexpr int8_t kIq4Levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
constexpr int8_t kFp4Levels[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

uint16_t LoadU16(const uint8_t* p) { return static_cast<uint16_t>(p[0] | (p[1] << 8)); }
uint32_t LoadU32(const uint8_t* p) {
  return static_cast<uint32_t>(LoadU16(p)) | (static_cast<uint32_t>(LoadU16(p + 2)) << 16);
}
float LoadHalf(const uint8_t* p) { return HalfToFloat(LoadU16(p)); }

// Each function expands one block.

void BlockF32(const uint8_t* b, float* y) { *y = std::bit_cast<float>(LoadU32(b)); }
void BlockF16(const uint8_t* b, float* y) { *y = LoadHalf(b); }
void BlockBF16(const uint8_t* b, float* y) { *y = BFloat16ToFloat(LoadU16(b)); }

void BlockQ4_0(const uint8_t* b, float* y) {
  const float d = LoadHalf(b);
  const uint8_t* q = b + 2;
  for (int j = 0; j < 16; ++j) {
    y[j] = static_cast<float>((q[j] & 15) - 8) * d;
    y[j + 16] = static_cast<float>((q[j] >> 4) - 8) * d;
  }
}

void BlockQ4_1(const uint8_t* b, float* y) {
  const float d = LoadHalf(b);
  const float m = LoadHalf(b + 2);
  const uint8_t* q = b + 4;
  for (int j = 0; j < 16; ++j) {
    y[j] = static_cast<float>(q[j] & 15) * d + m;
    y[j + 16] = static_cast<float>(q[j] >> 4) * d + m;
  }
}

void BlockQ5_0(const uint8_t* b, float* y) {
  const float d = LoadHalf(b);
  const uint32_t high = LoadU32(b + 2);
  const uint8_t* q = b + 6;
  for (int j = 0; j < 16; ++j) {
    const int low_half = static_cast<int>((q[j] & 15) | (((high >> j) & 1) << 4));
    const int high_half = static_cast<int>((q[j] >> 4) | (((high >> (j + 16)) & 1) << 4));
    y[j] = static_cast<float>(low_half - 16) * d;
    y[j + 16] = static_cast<float>(high_half - 16) * d;
  }
}

void BlockQ5_1(const uint8_t* b, float* y) {
  const float d = LoadHalf(b);
  const float m = LoadHalf(b + 2);
  const uint32_t high = LoadU32(b + 4);
  const uint8_t* q = b + 8;
  for (int j = 0; j < 16; ++j) {
    const int low_half = static_cast<int>((q[j] & 15) | (((high >> j) & 1) << 4));
    const int high_half = static_cast<int>((q[j] >> 4) | (((high >> (j + 16)) & 1) << 4));
    y[j] = static_cast<float>(low_half) * d + m;
    y[j + 16] = static_cast<float>(high_half) * d + m;
  }
}

void BlockQ8_0(const uint8_t* b, float* y) {
  const float d = LoadHalf(b);
  for (int j = 0; j < 32; ++j) y[j] = static_cast<float>(static_cast<int8_t>(b[2 + j])) * d;
}

// scales[16] (4-bit scale, 4-bit minimum), quants[64], d, dmin. 16 groups of 16 elements.
void BlockQ2_K(const uint8_t* b, float* y) {
  const uint8_t* scales = b;
  const uint8_t* quants = b + 16;
  const float d = LoadHalf(b + 80);
  const float dmin = LoadHalf(b + 82);
  for (int group = 0; group < 16; ++group) {
    const float scale = d * static_cast<float>(scales[group] & 15);
    const float minimum = dmin * static_cast<float>(scales[group] >> 4);
    const uint8_t* q = quants + (group / 8) * 32 + (group % 2) * 16;
    const int shift = (group % 8) / 2 * 2;
    for (int l = 0; l < 16; ++l) y[group * 16 + l] = scale * static_cast<float>((q[l] >> shift) & 3) - minimum;
  }
}

// high bits[32], quants[64], scales[12] (sixteen of 6 bits), d.
void BlockQ3_K(const uint8_t* b, float* y) {
  const uint8_t* high = b;
  const uint8_t* quants = b + 32;
  const uint8_t* scales = b + 96;
  const float d = LoadHalf(b + 108);
  for (int group = 0; group < 16; ++group) {
    const int low4 = group < 8 ? scales[group] & 15 : scales[group - 8] >> 4;
    const int high2 = (scales[8 + group % 4] >> (2 * (group / 4))) & 3;
    const float scale = d * static_cast<float>((low4 | (high2 << 4)) - 32);
    const int column = (group % 2) * 16;
    const uint8_t* q = quants + (group / 8) * 32 + column;
    const int shift = (group % 8) / 2 * 2;
    for (int l = 0; l < 16; ++l) {
      const int value = ((q[l] >> shift) & 3) - ((high[column + l] >> (group / 2)) & 1 ? 0 : 4);
      y[group * 16 + l] = scale * static_cast<float>(value);
    }
  }
}

// The j-th (scale, minimum) of eight pairs of 6 bits in 12 bytes, as Q4_K and Q5_K pack them.
void UnpackScaleMin(const uint8_t* packed, int j, int* scale, int* minimum) {
  if (j < 4) {
    *scale = packed[j] & 63;
    *minimum = packed[j + 4] & 63;
  } else {
    *scale = (packed[j + 4] & 15) | ((packed[j - 4] >> 6) << 4);
    *minimum = (packed[j + 4] >> 4) | ((packed[j] >> 6) << 4);
  }
}

// d, dmin, scales[12], quants[128]: eight groups of 32, two of them (low and high nibbles) per 32 bytes.
void BlockQ4_K(const uint8_t* b, float* y) {
  const float d = LoadHalf(b);
  const float dmin = LoadHalf(b + 2);
  for (int group = 0; group < 8; ++group) {
    int scale, minimum;
    UnpackScaleMin(b + 4, group, &scale, &minimum);
    const float step = d * static_cast<float>(scale);
    const float offset = dmin * static_cast<float>(minimum);
    const uint8_t* q = b + 16 + (group / 2) * 32;
    const int shift = (group % 2) * 4;
    for (int l = 0; l < 32; ++l) y[group * 32 + l] = step * static_cast<float>((q[l] >> shift) & 15) - offset;
  }
}

// d, dmin, scales[12], high bits[32], quants[128].
void BlockQ5_K(const uint8_t* b, float* y) {
  const float d = LoadHalf(b);
  const float dmin = LoadHalf(b + 2);
  const uint8_t* high = b + 16;
  for (int group = 0; group < 8; ++group) {
    int scale, minimum;
    UnpackScaleMin(b + 4, group, &scale, &minimum);
    const float step = d * static_cast<float>(scale);
    const float offset = dmin * static_cast<float>(minimum);
    const uint8_t* q = b + 48 + (group / 2) * 32;
    const int shift = (group % 2) * 4;
    for (int l = 0; l < 32; ++l) {
      const int value = ((q[l] >> shift) & 15) + (((high[l] >> group) & 1) << 4);
      y[group * 32 + l] = step * static_cast<float>(value) - offset;
    }
  }
}

// low nibbles[128], high pairs[64], scales[16], d. Per half of 128: four runs of 32 share the bytes.
void BlockQ6_K(const uint8_t* b, float* y) {
  const uint8_t* scales = b + 192;
  const float d = LoadHalf(b + 208);
  for (int half = 0; half < 2; ++half) {
    const uint8_t* low = b + half * 64;
    const uint8_t* high = b + 128 + half * 32;
    for (int run = 0; run < 4; ++run) {
      for (int l = 0; l < 32; ++l) {
        const int nibble = (low[(run % 2) * 32 + l] >> (run / 2 * 4)) & 15;
        const int value = (nibble | (((high[l] >> (2 * run)) & 3) << 4)) - 32;
        const int scale = static_cast<int8_t>(scales[half * 8 + run * 2 + l / 16]);
        y[half * 128 + run * 32 + l] = d * static_cast<float>(scale) * static_cast<float>(value);
      }
    }
  }
}

void BlockIQ4_NL(const uint8_t* b, float* y) {
  const float d = LoadHalf(b);
  for (int j = 0; j < 16; ++j) {
    y[j] = d * static_cast<float>(kIq4Levels[b[2 + j] & 15]);
    y[j + 16] = d * static_cast<float>(kIq4Levels[b[2 + j] >> 4]);
  }
}

// d, high scale bits (16), low scale nibbles[4], quants[128].
void BlockIQ4_XS(const uint8_t* b, float* y) {
  const float d = LoadHalf(b);
  const int scales_high = LoadU16(b + 2);
  for (int group = 0; group < 8; ++group) {
    const int low4 = (b[4 + group / 2] >> (4 * (group % 2))) & 15;
    const int scale = low4 | (((scales_high >> (2 * group)) & 3) << 4);
    const float step = d * static_cast<float>(scale - 32);
    const uint8_t* q = b + 8 + group * 16;
    for (int j = 0; j < 16; ++j) {
      y[group * 32 + j] = step * static_cast<float>(kIq4Levels[q[j] & 15]);
      y[group * 32 + j + 16] = step * static_cast<float>(kIq4Levels[q[j] >> 4]);
    }
  }
}

// One power-of-two scale (E8M0), 16 bytes of 4-bit floats. Half the scale, as the levels are doubled; the two smallest
// exponents are subnormal.
void BlockMXFP4(const uint8_t* b, float* y) {
  const uint32_t exponent = b[0];
  const float d = std::bit_cast<float>(exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23);
  for (int j = 0; j < 16; ++j) {
    y[j] = d * static_cast<float>(kFp4Levels[b[1 + j] & 15]);
    y[j + 16] = d * static_cast<float>(kFp4Levels[b[1 + j] >> 4]);
  }
}

using BlockFunction = void (*)(const uint8_t*, float*);

BlockFunction FunctionFor(GgmlType type) {
  switch (type) {
    case GgmlType::kF32:
      return BlockF32;
    case GgmlType::kF16:
      return BlockF16;
    case GgmlType::kBF16:
      return BlockBF16;
    case GgmlType::kQ4_0:
      return BlockQ4_0;
    case GgmlType::kQ4_1:
      return BlockQ4_1;
    case GgmlType::kQ5_0:
      return BlockQ5_0;
    case GgmlType::kQ5_1:
      return BlockQ5_1;
    case GgmlType::kQ8_0:
      return BlockQ8_0;
    case GgmlType::kQ2_K:
      return BlockQ2_K;
    case GgmlType::kQ3_K:
      return BlockQ3_K;
    case GgmlType::kQ4_K:
      return BlockQ4_K;
    case GgmlType::kQ5_K:
      return BlockQ5_K;
    case GgmlType::kQ6_K:
      return BlockQ6_K;
    case GgmlType::kIQ4_NL:
      return BlockIQ4_NL;
    case GgmlType::kIQ4_XS:
      return BlockIQ4_XS;
    case GgmlType::kMXFP4:
      return BlockMXFP4;
    default:
      return nullptr;
  }
}

}  // namespace

absl::Status Dequantize(GgmlType type, std::span<const uint8_t> bytes, int64_t count, float* out) {
  const GgmlTypeTraits& traits = TraitsOf(type);
  const BlockFunction function = FunctionFor(type);
  if (function == nullptr) {
    return absl::InvalidArgumentError(absl::StrFormat("type %s cannot be expanded to fp32", traits.name));
  }
  if (count < 0 || count % traits.block_length != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%d elements are no whole blocks of %d (%s)", count, traits.block_length, traits.name));
  }
  const int64_t num_blocks = count / traits.block_length;
  if (static_cast<uint64_t>(num_blocks) > bytes.size() / static_cast<uint64_t>(traits.block_bytes)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%d bytes are too few for %d elements of %s", bytes.size(), count, traits.name));
  }
  const uint8_t* block = bytes.data();
  for (int64_t i = 0; i < num_blocks; ++i, block += traits.block_bytes, out += traits.block_length)
    function(block, out);
  return absl::OkStatus();
}

}  // namespace baton
