// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BACKEND_CPU_MATRIX_H_
#define BATON_COMMON_BACKEND_CPU_MATRIX_H_

#include <cstdint>
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "common/backend/cpu/kernels.h"
#include "common/backend/cpu/onednn_linear.h"
#include "common/backend/cpu/quant_pack.h"
#include "common/format/tensor.h"

namespace baton::cpu {

// Consecutive outputs of a matrix that are stored in one form.
struct MatrixSegment {
  int64_t out_begin = 0;
  std::variant<PackedQuant, PackedFloat> packed;

  const PackedQuant* quant() const { return std::get_if<PackedQuant>(&packed); }
  const PackedFloat* floats() const { return std::get_if<PackedFloat>(&packed); }
  int64_t num_tiles() const { return quant() ? quant()->matrix.num_tiles : floats()->matrix.num_tiles; }
  std::span<const uint8_t> bytes() const {
    return quant() ? std::span(quant()->matrix.data, quant()->bytes()) : std::span(floats()->matrix.data, floats()->bytes());
  }
};

// Consecutive outputs that oneDNN multiplies in one call.
struct OneDnnSlice {
  int64_t out_begin = 0;
  std::shared_ptr<const OneDnnLinear> linear;
};

// A matrix as the CPU backend multiplies with it. Files mix types (Q4_K_M stores V with more bits than Q and K), so a stack of
// parts is a list of segments; most have one.
struct Matrix {
  int64_t out = 0;
  int64_t in = 0;
  size_t bytes = 0;  // As read by one decode step.
  std::vector<MatrixSegment> segments;
  std::vector<OneDnnSlice> slices;  // Instead of segments, when packed for oneDNN.
  bool has_quant = false;  // Some segment wants its input as integers,
  bool has_float = false;  // some as fp32. A matrix of slices has_float.

  // The memory of the packed form, in order.
  std::vector<std::span<const uint8_t>> buffers() const;
  // Per thread, of the slices; 0 without.
  size_t slice_scratch_bytes() const;
};

// Packs `parts`, stacked along their rows, from the file's own values. Neighbours of one form become one segment.
// `cache`: see PackQuant. Any thread.
//   INVALID_ARGUMENT  see CheckMatrices (common/backend/packing.h).
absl::StatusOr<Matrix> PackMatrix(std::span<const TensorView> parts, PackCache* cache = nullptr);

// The same for oneDNN: weights dequantised, then kept as bf16 or fp32. Any thread.
//   FAILED_PRECONDITION  oneDNN cannot do this on this CPU.
absl::StatusOr<Matrix> PackMatrixForOneDnn(std::span<const TensorView> parts, bool bf16);

}  // namespace baton::cpu

#endif  // BATON_COMMON_BACKEND_CPU_MATRIX_H_
