// SPDX-License-Identifier: Apache-2.0
#include "common/format/ggml_types.h"

#include <array>
#include <limits>

#include "absl/strings/str_format.h"
#include "common/base/logging.h"

namespace baton {
namespace {

constexpr std::array<GgmlTypeTraits, 22> kTraits = {{
    {GgmlType::kF32, "F32", 1, 4, true},         {GgmlType::kF16, "F16", 1, 2, true},
    {GgmlType::kQ4_0, "Q4_0", 32, 18, true},     {GgmlType::kQ4_1, "Q4_1", 32, 20, true},
    {GgmlType::kQ5_0, "Q5_0", 32, 22, true},     {GgmlType::kQ5_1, "Q5_1", 32, 24, true},
    {GgmlType::kQ8_0, "Q8_0", 32, 34, true},     {GgmlType::kQ2_K, "Q2_K", 256, 84, true},
    {GgmlType::kQ3_K, "Q3_K", 256, 110, true},   {GgmlType::kQ4_K, "Q4_K", 256, 144, true},
    {GgmlType::kQ5_K, "Q5_K", 256, 176, true},   {GgmlType::kQ6_K, "Q6_K", 256, 210, true},
    {GgmlType::kIQ4_NL, "IQ4_NL", 32, 18, true}, {GgmlType::kIQ4_XS, "IQ4_XS", 256, 136, true},
    {GgmlType::kI8, "I8", 1, 1, false},          {GgmlType::kI16, "I16", 1, 2, false},
    {GgmlType::kI32, "I32", 1, 4, false},        {GgmlType::kI64, "I64", 1, 8, false},
    {GgmlType::kF64, "F64", 1, 8, false},        {GgmlType::kBF16, "BF16", 1, 2, true},
    {GgmlType::kMXFP4, "MXFP4", 32, 17, true},   {GgmlType::kOpaque, "opaque", 1, 1, false},
}};

}  // namespace

const GgmlTypeTraits* FindGgmlType(uint32_t number) {
  for (const GgmlTypeTraits& traits : kTraits) {
    if (static_cast<uint32_t>(traits.type) == number && traits.type != GgmlType::kOpaque) return &traits;
  }
  return nullptr;
}

const GgmlTypeTraits& TraitsOf(GgmlType type) {
  for (const GgmlTypeTraits& traits : kTraits) {
    if (traits.type == type) return traits;
  }
  BATON_CHECK(false) << "no such GgmlType: " << static_cast<uint32_t>(type);
  return kTraits.back();
}

absl::StatusOr<uint64_t> TensorBytes(GgmlType type, std::span<const int64_t> shape) {
  const GgmlTypeTraits& traits = TraitsOf(type);
  const int64_t row = shape.empty() ? 1 : shape.back();
  if (row % traits.block_length != 0) {
    return absl::InvalidArgumentError(absl::StrFormat("row of %d elements is no multiple of the %d-element block of %s",
                                                      row, traits.block_length, traits.name));
  }
  constexpr uint64_t kMax = std::numeric_limits<int64_t>::max();
  uint64_t bytes = static_cast<uint64_t>(traits.block_bytes);
  bool zero = false;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] < 0) return absl::InvalidArgumentError(absl::StrFormat("dimension %d is negative", shape[i]));
    const uint64_t factor = static_cast<uint64_t>(i + 1 == shape.size() ? shape[i] / traits.block_length : shape[i]);
    if (factor == 0) {
      zero = true;
    } else if (bytes > kMax / factor) {
      return absl::InvalidArgumentError("number of elements overflows");
    } else {
      bytes *= factor;
    }
  }
  return zero ? 0 : bytes;
}

}  // namespace baton
