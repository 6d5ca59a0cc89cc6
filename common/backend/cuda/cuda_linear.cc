// SPDX-License-Identifier: Apache-2.0
#include "common/backend/cuda/cuda_linear.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"

namespace baton::cuda {
namespace {

constexpr int kMaxVectors = 64;  // That quant_gemm multiplies at once.

unsigned Blocks(int64_t count, int64_t each) { return static_cast<unsigned>((count + each - 1) / each); }

}  // namespace

absl::Status CudaLinear::Prepare(const CudaMatrix& matrix) {
  if (!matrix.Has(MatrixForm::kF16) && !matrix.Has(MatrixForm::kBf16)) return absl::OkStatus();
  MutexLock lock(&mutex_);
  if (cublas_ != nullptr) return absl::OkStatus();
  BATON_ASSIGN_OR_RETURN(cublas_, CublasLtLinear::Create(context_, cublas_library_, panel_rows_));
  multiply_ = cublas_.get();
  return absl::OkStatus();
}

absl::Status CudaLinear::Reserve(int max_rows, int64_t max_in) {
  if (max_rows <= max_rows_ && max_in <= max_in_) return absl::OkStatus();
  max_rows = std::max(max_rows, max_rows_);
  max_in = std::max(max_in, max_in_);
  // Whole groups of vectors are read, too.
  const int padded_rows = std::max(PaddedRows(max_rows), (max_rows + kMaxVectors - 1) / kMaxVectors * kMaxVectors);
  const size_t padded = static_cast<size_t>(padded_rows) * static_cast<size_t>(max_in);
  context_->Synchronize();  // What is replaced may be in use.
  BATON_ASSIGN_OR_RETURN(floats_, context_->Allocate(padded * 4));
  BATON_ASSIGN_OR_RETURN(halves_, context_->Allocate(padded * 2));
  BATON_ASSIGN_OR_RETURN(quants_, context_->Allocate(padded));
  BATON_ASSIGN_OR_RETURN(scales_, context_->Allocate(padded / 32 * 8 + 8));
  max_rows_ = max_rows;
  max_in_ = max_in;
  return absl::OkStatus();
}

std::string CudaLinear::library() const {
  MutexLock lock(&mutex_);
  return cublas_ == nullptr ? "" : absl::StrCat("cuBLASLt ", cublas_->version());
}

void CudaLinear::Run(const CudaMatrix& matrix, const std::optional<InputNorm>& norm, int rows, const float* x, float* y) {
  RunFrom({x, norm, nullptr}, matrix, rows, y);
}

void CudaLinear::RunSilu(const CudaMatrix& matrix, int rows, const float* gate_up, float* y) { RunFrom({nullptr, {}, gate_up}, matrix, rows, y); }

void CudaLinear::RunFrom(const Source& source, const CudaMatrix& matrix, int rows, float* y) {
  BATON_CHECK(rows <= max_rows_ && matrix.in <= max_in_) << rows << " rows of " << matrix.in << ", reserved " << max_rows_ << " of " << max_in_;
  if (matrix.Has(MatrixForm::kQuant)) {
    const float* x = source.x;
    if (x == nullptr || source.norm.has_value()) {
      Form(source, rows, matrix.in, "f32", floats_.get());
      x = reinterpret_cast<const float*>(floats_.get());
    }
    const long long blocks = static_cast<long long>(rows) * matrix.in / 32;
    context_->Launch("quantize_rows", {std::min(Blocks(blocks, 4), 4096u)}, 128, x, blocks, quants_.get(), scales_.get());
  }
  for (const MatrixForm form : {MatrixForm::kQuant, MatrixForm::kF16, MatrixForm::kBf16}) {
    if (!matrix.Has(form)) continue;
    if (form != MatrixForm::kQuant) Form(source, rows, matrix.in, form == MatrixForm::kF16 ? "f16" : "bf16", halves_.get());
    for (const CudaSegment& segment : matrix.segments) {
      if (segment.form != form) continue;
      form == MatrixForm::kQuant ? RunQuant(matrix, segment, rows, y) : RunHalf(matrix, segment, rows, y);
    }
  }
}

void CudaLinear::Form(const Source& source, int rows, int64_t in, const char* type, void* to) {
  const unsigned num_rows = static_cast<unsigned>(rows);
  if (source.gate_up != nullptr) {
    context_->Launch(absl::StrCat("silu_mul_", type).c_str(), {Blocks(in, 256), num_rows}, 256, source.gate_up, static_cast<int>(in), to);
  } else if (source.norm.has_value()) {
    float* const x = const_cast<float*>(source.x);  // Written only where there is a residual to add.
    context_->Launch(absl::StrCat("rms_norm_", type).c_str(), {num_rows}, 256, x, static_cast<const float*>(nullptr), source.norm->weight,
                     source.norm->eps, static_cast<int>(in), to);
  } else {
    const long long count = static_cast<long long>(rows) * in;
    context_->Launch(absl::StrCat("round_", type).c_str(), {Blocks(count, 256)}, 256, source.x, count, to);
  }
}

// The weights are read once for each group of vectors: by 64 on tensor cores, what remains of eight or less by fours and one by one. The
// bits are the same.
void CudaLinear::RunQuant(const CudaMatrix& matrix, const CudaSegment& segment, int rows, float* y) {
  const int64_t blocks = matrix.in / 32;
  const bool gemm = segment.out * blocks < int64_t{1} << 28;
  for (int row = 0; row < rows;) {
    const int left = rows - row;
    if (gemm && left > 8) {
      const int vectors = left > 32 ? 64 : left > 16 ? 32 : 16, batch = std::min(left, vectors);
      const std::string name = absl::StrCat("quant_gemm_q", segment.bits, "_v", vectors);
      context_->Launch(name.c_str(), {Blocks(segment.out, vectors == 64 ? 16 : 32)}, 512, segment.quants, segment.high, segment.scales,
                       static_cast<const uint8_t*>(quants_.get() + row * matrix.in), static_cast<const uint8_t*>(scales_.get() + row * blocks * 8),
                       static_cast<int>(segment.out), static_cast<int>(blocks), batch, y + row * matrix.out + segment.out_begin,
                       static_cast<long long>(matrix.out));
      row += batch;
      continue;
    }
    const int batch = left >= 8 ? 8 : left >= 4 ? 4 : 1;
    const std::string name = absl::StrCat("quant_gemv_q", segment.bits, "_b", batch);
    context_->Launch(name.c_str(), {Blocks(segment.out, 4)}, 128, segment.quants, segment.high, segment.scales,
                     static_cast<const uint8_t*>(quants_.get() + row * matrix.in), static_cast<const uint8_t*>(scales_.get() + row * blocks * 8),
                     static_cast<int>(segment.out), static_cast<int>(blocks), y + row * matrix.out + segment.out_begin,
                     static_cast<long long>(matrix.out));
    row += batch;
  }
}

void CudaLinear::RunHalf(const CudaMatrix& matrix, const CudaSegment& segment, int rows, float* y) {
  for (int row = 0; row < rows; row += panel_rows_) {
    multiply_->Run(segment.quants, segment.form == MatrixForm::kBf16, segment.out, matrix.in, halves_.get() + 2 * row * matrix.in,
                   y + row * matrix.out + segment.out_begin, matrix.out);
  }
}

}  // namespace baton::cuda
