// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BACKEND_CPU_QUANT_PACK_H_
#define BATON_COMMON_BACKEND_CPU_QUANT_PACK_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "absl/status/statusor.h"
#include "common/backend/cpu/kernels.h"
#include "common/backend/cpu/pack_cache.h"
#include "common/format/ggml_types.h"
#include "common/format/tensor.h"

namespace baton::cpu {

// Packed weights and the memory they live in.
struct PackedQuant {
  QuantMatrix matrix;
  std::shared_ptr<uint8_t[]> memory;
  size_t bytes() const { return static_cast<size_t>(matrix.num_tiles * (matrix.in / 32) * matrix.record_bytes); }
};
struct PackedFloat {
  FloatMatrix matrix;
  std::shared_ptr<uint8_t[]> memory;
  size_t bytes() const;
};

// The format that holds `type` exactly; nullopt for types that are not integers times a scale (F32, F16, BF16, ...).
std::optional<QuantFormat> QuantFormatFor(GgmlType type);

// Packs `parts`, stacked along their rows, from the file's own values, never rounded again. All parts have the same
// number of columns and types of one QuantFormat (PackQuant) or are anything that Dequantize reads (PackFloat). With a
// `cache` the result is looked for there first, and kept there; nobody writes to the memory afterwards.
//   INVALID_ARGUMENT  parts that do not fit together, a column count that is no multiple of 32 (PackQuant), a data size
//                     that does not match the shape.
absl::StatusOr<PackedQuant> PackQuant(std::span<const TensorView> parts, PackCache* cache = nullptr);
// F16 and BF16 parts of one type stay 16-bit; anything else becomes fp32.
absl::StatusOr<PackedFloat> PackFloat(std::span<const TensorView> parts, PackCache* cache = nullptr);

// Row `row` of the packed matrix as fp32: exactly what Dequantize gives for the file's row, up to the rounding of
// d q + m (symmetric formats: exact).
void UnpackRow(const QuantMatrix& matrix, int64_t row, float* out);
void UnpackRow(const FloatMatrix& matrix, int64_t row, float* out);

// Zeroed, 64-byte aligned, in 2 MiB pages where the system offers them. Null when there is no memory.
std::shared_ptr<uint8_t[]> AllocateAligned(size_t bytes);

}  // namespace baton::cpu

#endif  // BATON_COMMON_BACKEND_CPU_QUANT_PACK_H_
