// SPDX-License-Identifier: Apache-2.0
#include "common/backend/cpu/quant_pack.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/backend/cpu/quant_blocks.h"
#include "common/base/half.h"
#include "common/base/status_macros.h"

namespace baton::cpu {
namespace {

struct FormatTraits {
  int bits;
  bool has_min;
  bool half_scales;
  int groups;  // Per 32 columns.
  int offset;

  int64_t quant_bytes() const { return bits == 4 ? 256 : 512; }
  int64_t scale_bytes() const { return half_scales ? 2 : 4; }
  int64_t record_bytes() const { return quant_bytes() + groups * (has_min ? 2 : 1) * 16 * scale_bytes(); }
};

FormatTraits TraitsOfFormat(QuantFormat format) {
  switch (format) {
    case QuantFormat::k4AsymF16:
      return {4, true, true, 1, 0};
    case QuantFormat::k4SymF16:
      return {4, false, true, 1, 8};
    case QuantFormat::k4AsymF32:
      return {4, true, false, 1, 0};
    case QuantFormat::k8SymF16:
      return {8, false, true, 1, 128};
    case QuantFormat::k8SymF32:
      return {8, false, false, 1, 128};
    case QuantFormat::k8AsymF32:
      return {8, true, false, 1, 0};
    case QuantFormat::k8SymF32G16:
      return {8, false, false, 2, 128};
    case QuantFormat::k8AsymF32G16:
      return {8, true, false, 2, 0};
  }
  return {};
}

// Where q of (lane, k) of a record lies: four consecutive k of one output side by side, outputs next; in 4-bit records
// the low nibbles hold k in [0, 16), the high ones [16, 32).
int64_t QuantOffset(int bits, int lane, int k) {
  const int step = bits == 4 ? (k / 4) % 4 : k / 4;
  return 64 * step + 4 * lane + k % 4;
}

void StoreScale(const FormatTraits& traits, uint8_t* scales, int index, float value) {
  if (traits.half_scales) {
    const uint16_t half = FloatToHalf(value);  // Exact: it was read from one.
    std::memcpy(scales + 2 * index, &half, 2);
  } else {
    std::memcpy(scales + 4 * index, &value, 4);
  }
}

float LoadScale(const FormatTraits& traits, const uint8_t* scales, int index) {
  if (traits.half_scales) {
    uint16_t half;
    std::memcpy(&half, scales + 2 * index, 2);
    return HalfToFloat(half);
  }
  float value;
  std::memcpy(&value, scales + 4 * index, 4);
  return value;
}

void StoreGroup32(const FormatTraits& traits, const IntegerGroup& group, uint8_t* record, int lane) {
  for (int k = 0; k < 32; ++k) {
    uint8_t* byte = record + QuantOffset(traits.bits, lane, k);
    *byte = traits.bits == 4 && k >= 16 ? static_cast<uint8_t>(*byte | (group.q[k] << 4)) : group.q[k];
  }
  uint8_t* scales = record + traits.quant_bytes();
  for (int half = 0; half < traits.groups; ++half) {
    StoreScale(traits, scales, 16 * half + lane, group.scale[half]);
    if (traits.has_min) StoreScale(traits, scales, 16 * (traits.groups + half) + lane, group.minimum[half]);
  }
}

absl::Status CheckParts(std::span<const TensorView> parts) {
  if (parts.empty()) return absl::InvalidArgumentError("no tensor to pack");
  for (const TensorView& part : parts) {
    if (part.shape.size() != 2) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: %d dimensions; a matrix has 2", part.name, part.shape.size()));
    }
    if (part.shape[1] != parts[0].shape[1]) {
      return absl::InvalidArgumentError(absl::StrFormat("%s has %d columns, %s has %d", part.name, part.shape[1],
                                                        parts[0].name, parts[0].shape[1]));
    }
    BATON_ASSIGN_OR_RETURN(const uint64_t bytes, TensorBytes(part.type, part.shape));
    if (bytes != part.bytes || part.data == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: %d bytes, its shape needs %d", part.name, part.bytes, bytes));
    }
  }
  return absl::OkStatus();
}

int64_t TotalRows(std::span<const TensorView> parts) {
  int64_t rows = 0;
  for (const TensorView& part : parts) rows += part.shape[0];
  return rows;
}

int64_t FloatBytes(FloatType type) { return type == FloatType::kF32 ? 4 : 2; }

// Fills `memory` from the cache, or by `pack` into new memory, which the cache then keeps.
template <typename Pack>
absl::Status FindOrPack(PackCache* cache, absl::string_view form, std::span<const TensorView> parts, size_t bytes,
                        std::shared_ptr<uint8_t[]>* memory, Pack&& pack) {
  const std::string key = cache == nullptr ? "" : PackCache::KeyOf(form, parts);
  if (cache != nullptr) *memory = cache->Find(key, bytes);
  if (*memory != nullptr) return absl::OkStatus();
  *memory = AllocateAligned(bytes);
  if (*memory == nullptr) {
    return absl::ResourceExhaustedError(absl::StrFormat("no memory for %d bytes of weights", bytes));
  }
  BATON_RETURN_IF_ERROR(pack(memory->get()));
  if (cache != nullptr) cache->Keep(key, {memory->get(), bytes});
  return absl::OkStatus();
}

// Into zeroed memory.
void FillQuant(std::span<const TensorView> parts, const FormatTraits& traits, uint8_t* memory) {
  const int64_t in = parts[0].shape[1];
  std::vector<IntegerGroup> groups(static_cast<size_t>(in / 32));
  int64_t row = 0;
  for (const TensorView& part : parts) {
    const int64_t row_bytes = static_cast<int64_t>(part.bytes) / part.shape[0];
    for (int64_t r = 0; r < part.shape[0]; ++r, ++row) {
      DecodeRow(part.type, part.data + r * row_bytes, in, groups.data());
      uint8_t* record = memory + (row / 16) * (in / 32) * traits.record_bytes();
      for (const IntegerGroup& group : groups) {
        StoreGroup32(traits, group, record, static_cast<int>(row % 16));
        record += traits.record_bytes();
      }
    }
  }
}

absl::Status FillFloat(std::span<const TensorView> parts, FloatType type, uint8_t* memory) {
  const int64_t in = parts[0].shape[1], element = FloatBytes(type);
  std::vector<uint8_t> line(static_cast<size_t>(in * 4));
  int64_t row = 0;
  for (const TensorView& part : parts) {
    const size_t row_bytes = part.shape[0] == 0 ? 0 : part.bytes / static_cast<size_t>(part.shape[0]);
    for (int64_t r = 0; r < part.shape[0]; ++r, ++row) {
      const std::span<const uint8_t> from = part.span().subspan(static_cast<size_t>(r) * row_bytes, row_bytes);
      if (type == FloatType::kF32) {
        BATON_RETURN_IF_ERROR(Dequantize(part.type, from, in, reinterpret_cast<float*>(line.data())));
      } else {
        std::memcpy(line.data(), from.data(), row_bytes);
      }
      uint8_t* to = memory + ((row / 16) * in * 16 + row % 16) * element;
      for (int64_t k = 0; k < in; ++k) {
        std::memcpy(to + k * 16 * element, line.data() + k * element, static_cast<size_t>(element));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

size_t PackedFloat::bytes() const {
  return static_cast<size_t>(matrix.num_tiles * matrix.in * 16 * FloatBytes(matrix.type));
}

std::optional<QuantFormat> QuantFormatFor(GgmlType type) {
  switch (type) {
    case GgmlType::kQ4_0:
      return QuantFormat::k4SymF16;
    case GgmlType::kQ4_1:
      return QuantFormat::k4AsymF16;
    case GgmlType::kQ4_K:
      return QuantFormat::k4AsymF32;
    case GgmlType::kQ5_0:
    case GgmlType::kQ8_0:
    case GgmlType::kIQ4_NL:
      return QuantFormat::k8SymF16;
    case GgmlType::kQ5_1:
    case GgmlType::kQ5_K:
      return QuantFormat::k8AsymF32;
    case GgmlType::kIQ4_XS:
    case GgmlType::kMXFP4:
      return QuantFormat::k8SymF32;
    case GgmlType::kQ3_K:
    case GgmlType::kQ6_K:
      return QuantFormat::k8SymF32G16;
    case GgmlType::kQ2_K:
      return QuantFormat::k8AsymF32G16;
    default:
      return std::nullopt;
  }
}

absl::StatusOr<PackedQuant> PackQuant(std::span<const TensorView> parts, PackCache* cache) {
  BATON_RETURN_IF_ERROR(CheckParts(parts));
  const std::optional<QuantFormat> format = QuantFormatFor(parts[0].type);
  for (const TensorView& part : parts) {
    if (!format || QuantFormatFor(part.type) != format) {
      return absl::InvalidArgumentError(absl::StrFormat("%s (%s) and %s (%s) have no common integer format",
                                                        parts[0].name, GgmlTypeName(parts[0].type), part.name,
                                                        GgmlTypeName(part.type)));
    }
  }
  const int64_t in = parts[0].shape[1], out = TotalRows(parts);
  if (in % 32 != 0 || in == 0 || out == 0) {
    return absl::InvalidArgumentError(absl::StrFormat("%s: [%d, %d] cannot be packed: columns are no multiple of 32",
                                                      parts[0].name, out, in));
  }
  const FormatTraits traits = TraitsOfFormat(*format);
  PackedQuant packed;
  packed.matrix = {*format, out, in, (out + 15) / 16, traits.record_bytes(), nullptr};
  BATON_RETURN_IF_ERROR(FindOrPack(cache, absl::StrCat("quant ", static_cast<int>(*format)), parts, packed.bytes(), &packed.memory,
                                   [&](uint8_t* memory) {
                                     FillQuant(parts, traits, memory);
                                     return absl::OkStatus();
                                   }));
  packed.matrix.data = packed.memory.get();
  return packed;
}

absl::StatusOr<PackedFloat> PackFloat(std::span<const TensorView> parts, PackCache* cache) {
  BATON_RETURN_IF_ERROR(CheckParts(parts));
  FloatType type = FloatType::kF32;
  if (parts[0].type == GgmlType::kF16) type = FloatType::kF16;
  if (parts[0].type == GgmlType::kBF16) type = FloatType::kBf16;
  for (const TensorView& part : parts) {
    if (part.type != parts[0].type) type = FloatType::kF32;
  }
  const int64_t in = parts[0].shape[1], out = TotalRows(parts);
  PackedFloat packed;
  packed.matrix = {type, out, in, (out + 15) / 16, nullptr};
  BATON_RETURN_IF_ERROR(FindOrPack(cache, absl::StrCat("float ", static_cast<int>(type)), parts, packed.bytes(), &packed.memory,
                                   [&](uint8_t* memory) { return FillFloat(parts, type, memory); }));
  packed.matrix.data = packed.memory.get();
  return packed;
}

void UnpackRow(const QuantMatrix& matrix, int64_t row, float* out) {
  const FormatTraits traits = TraitsOfFormat(matrix.format);
  const int lane = static_cast<int>(row % 16);
  const uint8_t* record = matrix.data + (row / 16) * (matrix.in / 32) * matrix.record_bytes;
  for (int64_t g = 0; g < matrix.in / 32; ++g, record += matrix.record_bytes) {
    const uint8_t* scales = record + traits.quant_bytes();
    for (int k = 0; k < 32; ++k) {
      int q = record[QuantOffset(traits.bits, lane, k)];
      if (traits.bits == 4) q = k < 16 ? q & 15 : q >> 4;
      const int half = traits.groups == 2 ? k / 16 : 0;
      const float d = LoadScale(traits, scales, 16 * half + lane);
      float value = static_cast<float>(q - traits.offset) * d;
      if (traits.has_min) value += LoadScale(traits, scales, 16 * (traits.groups + half) + lane);
      out[g * 32 + k] = value;
    }
  }
}

void UnpackRow(const FloatMatrix& matrix, int64_t row, float* out) {
  const int64_t element = FloatBytes(matrix.type);
  const uint8_t* from = matrix.data + ((row / 16) * matrix.in * 16 + row % 16) * element;
  for (int64_t k = 0; k < matrix.in; ++k, from += 16 * element) {
    if (matrix.type == FloatType::kF32) {
      std::memcpy(out + k, from, 4);
      continue;
    }
    uint16_t bits;
    std::memcpy(&bits, from, 2);
    out[k] = matrix.type == FloatType::kF16 ? HalfToFloat(bits) : BFloat16ToFloat(bits);
  }
}

std::shared_ptr<uint8_t[]> AllocateAligned(size_t bytes) {
  constexpr size_t kHugePage = size_t{2} << 20;
  const size_t alignment = bytes >= kHugePage ? kHugePage : 64;
  const size_t padded = (bytes + alignment) / alignment * alignment;
  if (padded < bytes) return nullptr;
  uint8_t* memory = static_cast<uint8_t*>(std::aligned_alloc(alignment, padded));
  if (memory == nullptr) return nullptr;
  if (alignment == kHugePage) madvise(memory, padded, MADV_HUGEPAGE);  // Only a hint.
  std::memset(memory, 0, padded);
  return std::shared_ptr<uint8_t[]>(memory, [](uint8_t* p) { std::free(p); });
}

}  // namespace baton::cpu
