// SPDX-License-Identifier: Apache-2.0
#include "common/backend/cuda/cuda_matrix.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/backend/cpu/quant_blocks.h"
#include "common/backend/packing.h"
#include "common/base/half.h"
#include "common/base/status_macros.h"

namespace baton::cuda {
namespace {

// How the kernels store a type: bits, and what its smallest integer stands for: w = scale * (quant + lowest) + minimum.
struct QuantType {
  int bits = 0;  // 0: not one of theirs.
  int lowest = 0;
  int offset = 0;  // Of IntegerGroup's integers over the quants.
};
QuantType QuantTypeOf(GgmlType type) {
  switch (type) {
    case GgmlType::kQ4_0: return {4, -8, 0};
    case GgmlType::kQ4_1: return {4, 0, 0};
    case GgmlType::kQ5_0: return {5, -16, 128 - 16};
    case GgmlType::kQ5_1: return {5, 0, 0};
    case GgmlType::kQ8_0: return {8, 0, 128};
    default: return {};
  }
}

MatrixForm FormOf(GgmlType type, bool keep_quantised) {
  if (keep_quantised && QuantTypeOf(type).bits > 0) return MatrixForm::kQuant;
  return type == GgmlType::kF16 ? MatrixForm::kF16 : MatrixForm::kBf16;
}

// A segment's arrays on the host.
struct HostQuants {
  std::vector<uint8_t> quants;
  std::vector<uint32_t> high;
  std::vector<uint16_t> scales;  // Pairs: scale, minimum.
};

void Append(const cpu::IntegerGroup& group, const QuantType& type, HostQuants* out) {
  int quants[32];
  for (int k = 0; k < 32; ++k) quants[k] = group.q[k] - type.offset;
  if (type.bits == 8) {
    for (int k = 0; k < 32; ++k) out->quants.push_back(static_cast<uint8_t>(quants[k]));
  } else {
    for (int k = 0; k < 16; ++k) out->quants.push_back(static_cast<uint8_t>((quants[k] & 15) | (quants[k + 16] & 15) << 4));
  }
  if (type.bits == 5) {
    uint32_t high = 0;
    for (int k = 0; k < 32; ++k) high |= static_cast<uint32_t>(quants[k] >> 4 & 1) << k;
    out->high.push_back(high);
  }
  // Both are exact: a half times a power of two, of a type that has no minimum, or the file's own halves.
  out->scales.push_back(FloatToHalf(group.scale[0]));
  out->scales.push_back(FloatToHalf(group.minimum[0] + group.scale[0] * static_cast<float>(type.lowest)));
}

absl::Status AppendPart(const TensorView& part, const QuantType& type, HostQuants* out) {
  BATON_ASSIGN_OR_RETURN(const uint64_t bytes, TensorBytes(part.type, part.shape));
  if (bytes != part.bytes) return absl::InvalidArgumentError(absl::StrCat("tensor ", part.name, " has ", part.bytes, " bytes, its shape needs ", bytes));
  const int64_t rows = part.shape[0], columns = part.shape[1];
  const size_t row_bytes = part.bytes / static_cast<size_t>(rows);
  std::vector<cpu::IntegerGroup> groups(static_cast<size_t>(columns / 32));
  for (int64_t row = 0; row < rows; ++row) {
    cpu::DecodeRow(part.type, part.data + static_cast<size_t>(row) * row_bytes, columns, groups.data());
    for (const cpu::IntegerGroup& group : groups) Append(group, type, out);
  }
  return absl::OkStatus();
}

size_t Aligned(size_t bytes) { return (bytes + 255) / 256 * 256; }

absl::Status PackQuantised(CudaContext* context, std::span<const TensorView> parts, CudaSegment* segment) {
  const QuantType type = QuantTypeOf(parts[0].type);
  HostQuants host;
  for (const TensorView& part : parts) BATON_RETURN_IF_ERROR(AppendPart(part, QuantTypeOf(part.type), &host));
  segment->bits = type.bits;
  const size_t high_at = Aligned(host.quants.size()), scales_at = high_at + Aligned(host.high.size() * 4);
  BATON_ASSIGN_OR_RETURN(segment->memory, context->Allocate(scales_at + host.scales.size() * 2));
  uint8_t* const base = segment->memory.get();
  BATON_RETURN_IF_ERROR(context->Store(base, host.quants.data(), host.quants.size()));
  if (!host.high.empty()) BATON_RETURN_IF_ERROR(context->Store(base + high_at, host.high.data(), host.high.size() * 4));
  BATON_RETURN_IF_ERROR(context->Store(base + scales_at, host.scales.data(), host.scales.size() * 2));
  segment->quants = base;
  segment->high = base + high_at;
  segment->scales = base + scales_at;
  return absl::OkStatus();
}

absl::Status PackHalves(CudaContext* context, std::span<const TensorView> parts, CudaSegment* segment) {
  std::vector<uint16_t> values;
  std::vector<float> wide;
  for (const TensorView& part : parts) {
    wide.resize(static_cast<size_t>(part.num_elements()));
    if (absl::Status status = Dequantize(part.type, part.span(), part.num_elements(), wide.data()); !status.ok()) {
      return Annotate(status, absl::StrCat("tensor ", part.name));
    }
    const bool f16 = segment->form == MatrixForm::kF16;
    for (const float value : wide) values.push_back(f16 ? FloatToHalf(value) : FloatToBFloat16(value));
  }
  BATON_ASSIGN_OR_RETURN(segment->memory, context->Allocate(values.size() * 2));
  segment->quants = segment->memory.get();
  return context->Store(segment->memory.get(), values.data(), values.size() * 2);
}

}  // namespace

bool CudaMatrix::Has(MatrixForm form) const {
  return std::any_of(segments.begin(), segments.end(), [form](const CudaSegment& segment) { return segment.form == form; });
}

absl::StatusOr<CudaMatrix> PackCudaMatrix(CudaContext* context, std::span<const TensorView> parts, bool keep_quantised) {
  BATON_ASSIGN_OR_RETURN(const StackedShape shape, CheckMatrices(parts));
  CudaMatrix matrix;
  matrix.out = shape.rows;
  matrix.in = shape.columns;
  int64_t row = 0;
  for (size_t begin = 0; begin < parts.size();) {
    CudaSegment segment;
    segment.out_begin = row;
    segment.form = FormOf(parts[begin].type, keep_quantised);
    const int bits = QuantTypeOf(parts[begin].type).bits;
    size_t end = begin;
    for (; end < parts.size() && FormOf(parts[end].type, keep_quantised) == segment.form; ++end) {
      if (segment.form == MatrixForm::kQuant && QuantTypeOf(parts[end].type).bits != bits) break;
      segment.out += parts[end].shape[0];
    }
    const auto same = parts.subspan(begin, end - begin);
    BATON_RETURN_IF_ERROR(segment.form == MatrixForm::kQuant ? PackQuantised(context, same, &segment) : PackHalves(context, same, &segment));
    const int64_t bits_each = segment.form == MatrixForm::kQuant ? segment.bits + 1 : 16;  // Scale and minimum: 32 bits per 32 columns.
    matrix.bytes += static_cast<size_t>(segment.out * matrix.in * bits_each / 8);
    row += segment.out;
    begin = end;
    matrix.segments.push_back(std::move(segment));
  }
  return matrix;
}

}  // namespace baton::cuda
