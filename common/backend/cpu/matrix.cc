// SPDX-License-Identifier: Apache-2.0
#include "common/backend/cpu/matrix.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/backend/packing.h"
#include "common/base/logging.h"
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

absl::StatusOr<Matrix> PackMatrix(std::span<const TensorView> parts, PackCache* cache) {
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
      BATON_ASSIGN_OR_RETURN(PackedQuant packed, PackQuant(run, cache));
      matrix.out += packed.matrix.out;
      matrix.bytes += packed.bytes();
      matrix.has_quant = true;
      segment.packed = std::move(packed);
    } else {
      BATON_ASSIGN_OR_RETURN(PackedFloat packed, PackFloat(run, cache));
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

absl::StatusOr<Matrix> PackMatrixForOneDnn(std::span<const TensorView> parts, bool bf16) {
  // Wide enough that oneDNN runs at full speed, small enough that the threads get even shares of a matrix.
  constexpr int64_t kSliceOutputs = 192;
  BATON_ASSIGN_OR_RETURN(const StackedShape shape, CheckMatrices(parts));
  Matrix matrix;
  matrix.out = shape.rows;
  matrix.in = shape.columns;
  matrix.has_float = true;
  const auto dequantize_row = [&](int64_t row, float* out) {
    const TensorView* part = parts.data();
    for (; row >= part->shape[0]; ++part) row -= part->shape[0];
    const size_t row_bytes = part->bytes / static_cast<size_t>(part->shape[0]);
    const absl::Status status = Dequantize(
        part->type, part->span().subspan(static_cast<size_t>(row) * row_bytes, row_bytes), shape.columns, out);
    BATON_CHECK(status.ok()) << status.message();  // CheckMatrices has seen the type.
  };
  for (int64_t begin = 0; begin < shape.rows; begin += kSliceOutputs) {
    const int64_t outputs = std::min(kSliceOutputs, shape.rows - begin);
    BATON_ASSIGN_OR_RETURN(
        std::unique_ptr<OneDnnLinear> linear,
        OneDnnLinear::Create([&](int64_t row, float* out) { dequantize_row(begin + row, out); }, outputs,
                             shape.columns, bf16));
    matrix.bytes += linear->weight_bytes();
    matrix.slices.push_back({begin, std::move(linear)});
  }
  return matrix;
}

std::vector<std::span<const uint8_t>> Matrix::buffers() const {
  std::vector<std::span<const uint8_t>> buffers;
  for (const MatrixSegment& segment : segments) buffers.push_back(segment.bytes());
  for (const OneDnnSlice& slice : slices) buffers.push_back(slice.linear->weights());
  return buffers;
}

size_t Matrix::slice_scratch_bytes() const {
  size_t bytes = 0;
  for (const OneDnnSlice& slice : slices) bytes = std::max(bytes, slice.linear->scratch_bytes());
  return bytes;
}

}  // namespace baton::cpu
