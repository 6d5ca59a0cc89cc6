// SPDX-License-Identifier: Apache-2.0
#include "common/backend/cpu/matrix.h"

#include <optional>
#include <utility>

#include "common/backend/packing.h"
#include "common/base/status_macros.h"

namespace baton::cpu {
namespace {

// Quantised blocks stay integers when rows are whole groups of 32; everything else is computed in floating point.
std::optional<QuantFormat> FormatOf(const TensorView& part) {
  return part.shape[1] % 32 == 0 ? QuantFormatFor(part.type) : std::nullopt;
}

bool SameForm(const TensorView& a, const TensorView& b) {
  const std::optional<QuantFormat> form = FormatOf(a);
  if (form != FormatOf(b)) return false;
  return form.has_value() || a.type == b.type;
}

}  // namespace

absl::StatusOr<Matrix> PackMatrix(std::span<const TensorView> parts) {
  BATON_ASSIGN_OR_RETURN(const StackedShape shape, CheckMatrices(parts));
  Matrix matrix;
  matrix.in = shape.columns;
  for (size_t begin = 0; begin < parts.size();) {
    size_t end = begin + 1;
    while (end < parts.size() && SameForm(parts[begin], parts[end])) ++end;
    const std::span<const TensorView> run = parts.subspan(begin, end - begin);
    MatrixSegment segment;
    segment.out_begin = matrix.out;
    if (FormatOf(run.front()).has_value()) {
      BATON_ASSIGN_OR_RETURN(PackedQuant packed, PackQuant(run));
      matrix.out += packed.matrix.out;
      matrix.bytes += packed.bytes();
      matrix.has_quant = true;
      segment.packed = std::move(packed);
    } else {
      BATON_ASSIGN_OR_RETURN(PackedFloat packed, PackFloat(run));
      matrix.out += packed.matrix.out;
      matrix.bytes += packed.bytes();
      matrix.has_float = true;
      segment.packed = std::move(packed);
    }
    matrix.segments.push_back(std::move(segment));
    begin = end;
  }
  return matrix;
}

}  // namespace baton::cpu
