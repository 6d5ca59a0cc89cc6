// SPDX-License-Identifier: Apache-2.0
#include "common/backend/cpu/cpu_backend.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/backend/cpu/calibration.h"
#include "common/backend/packing.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

using cpu::Epilogue;
using cpu::LinearInput;
using cpu::Matrix;

constexpr int64_t kRowBlock = cpu::LinearRunner::kRowBlock;

const Matrix& MatrixOf(const PackedMatrix& packed) { return *static_cast<const Matrix*>(packed.impl.get()); }

int64_t QkvWidth(const LayerShape& shape) {
  return static_cast<int64_t>(shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim;
}

// Calls body(row_begin, row_end) for blocks that fit the scratch.
template <typename Body>
void ForRowBlocks(int64_t num_rows, Body&& body) {
  for (int64_t begin = 0; begin < num_rows; begin += kRowBlock) body(begin, std::min(begin + kRowBlock, num_rows));
}

}  // namespace

CpuBackend::CpuBackend(const cpu::Kernels* kernels, int num_threads, const CpuPrecision& precision,
                       CpuMatmul matmul, std::unique_ptr<cpu::PackCache> pack_cache)
    : kernels_(*kernels),
      precision_(precision),
      matmul_(matmul),
      pack_cache_(std::move(pack_cache)),
      pool_(num_threads),
      linear_(kernels, &pool_),
      attention_(kernels, &pool_, &linear_) {}

std::string CpuBackend::numerics_id() const {
  // One letter per matrix of a layer, then the head. The instruction set is not part of it: all give the same bits.
  const auto letter = [](cpu::Terms terms) { return "1m2"[static_cast<int>(terms)]; };
  std::string layers = absl::StrFormat("i8g32x%c%c%c%c", letter(precision_.qkv), letter(precision_.attn_out),
                                       letter(precision_.gate_up), letter(precision_.down));
  if (matmul_ == CpuMatmul::kOneDnnBf16) layers = "onednn64-bf16-";
  if (matmul_ == CpuMatmul::kOneDnnF32) layers = "onednn64-f32-";
  return absl::StrFormat("cpu-%s%c-attn%d.%d/1", layers, letter(precision_.head), cpu::kKeyTile, cpu::kContextSplit);
}

std::string CpuBackend::description() const {
  return absl::StrFormat("cpu: %s%s, %d threads", kernels_.name, matmul_ == CpuMatmul::kInt8 ? "" : " and oneDNN",
                         pool_.num_threads());
}

MachinePeaks CpuBackend::MeasurePeaks(std::span<const PackedMatrix* const> weights) {
  constexpr int kMilliseconds = 32;
  std::vector<std::span<const uint8_t>> buffers;
  for (const PackedMatrix* matrix : weights) {
    const auto more = MatrixOf(*matrix).buffers();
    buffers.insert(buffers.end(), more.begin(), more.end());
  }
  // oneDNN takes tiles where the CPU has them, whatever these kernels do.
  const bool with_tiles = kernels_.isa == cpu::Isa::kAmx || matmul_ != CpuMatmul::kInt8;
  const cpu::PeakRates rates = cpu::MeasurePeaks(pool_, kernels_.isa, with_tiles, buffers, kMilliseconds);
  MachinePeaks peaks;
  peaks.int8_ops = rates.int8_ops;
  peaks.bf16_flops = rates.bf16_flops;
  peaks.fp32_flops = rates.fp32_flops;
  peaks.read_bytes = rates.read_bytes;
  peaks.attention_format = "fp32";
  const bool quantised = std::ranges::any_of(weights, [](const PackedMatrix* m) { return MatrixOf(*m).has_quant; });
  if (matmul_ == CpuMatmul::kOneDnnBf16) {
    peaks.matmul_ops = peaks.bf16_flops;
    peaks.matmul_format = "bf16";
  } else if (matmul_ == CpuMatmul::kInt8 && quantised) {
    peaks.matmul_ops = peaks.int8_ops;
    peaks.matmul_format = "int8";
  } else {
    peaks.matmul_ops = peaks.fp32_flops;
    peaks.matmul_format = "fp32";
  }
  return peaks;
}

absl::StatusOr<std::shared_ptr<uint8_t[]>> CpuBackend::Allocate(size_t bytes) { return AllocateHostMemory(bytes); }

absl::Status CpuBackend::Reserve(const LayerShape& shape, int max_rows) {
  const int64_t attention_width = static_cast<int64_t>(shape.num_heads) * shape.head_dim;
  const int64_t max_in = std::max<int64_t>({shape.hidden_size, attention_width, shape.intermediate_size});
  BATON_RETURN_IF_ERROR(linear_.Reserve(max_rows, max_in, int64_t{2} * shape.intermediate_size));
  BATON_RETURN_IF_ERROR(linear_.ReserveThreadScratch(slice_scratch_bytes_));
  BATON_RETURN_IF_ERROR(attention_.Reserve(shape, max_rows));
  const int64_t width = std::max<int64_t>({QkvWidth(shape), shape.intermediate_size, shape.hidden_size});
  const size_t bytes = static_cast<size_t>(std::min<int64_t>(max_rows, kRowBlock) * width) * sizeof(float);
  if (bytes > scratch_bytes_) {
    BATON_ASSIGN_OR_RETURN(scratch_, AllocateHostMemory(bytes));
    scratch_bytes_ = bytes;
  }
  rope_rows_.reserve(static_cast<size_t>(max_rows));
  return absl::OkStatus();
}

absl::StatusOr<PackedMatrix> CpuBackend::Pack(std::span<const TensorView> parts, const PackOptions& options) {
  const bool one_dnn = matmul_ != CpuMatmul::kInt8 && options.for_prefill;
  BATON_ASSIGN_OR_RETURN(Matrix matrix, one_dnn ? cpu::PackMatrixForOneDnn(parts, matmul_ == CpuMatmul::kOneDnnBf16)
                                                : cpu::PackMatrix(parts, pack_cache_.get()));
  size_t most = slice_scratch_bytes_;
  while (most < matrix.slice_scratch_bytes() &&
         !slice_scratch_bytes_.compare_exchange_weak(most, matrix.slice_scratch_bytes())) {
  }
  PackedMatrix packed;
  packed.out = matrix.out;
  packed.in = matrix.in;
  packed.bytes = matrix.bytes;
  packed.impl = std::make_shared<const Matrix>(std::move(matrix));
  return packed;
}

absl::StatusOr<PackedMatrix> CpuBackend::PackTable(const TensorView& table) { return TableOverFile(table); }

absl::StatusOr<std::shared_ptr<const float[]>> CpuBackend::PackVector(std::span<const TensorView> parts) {
  return DequantizeVector(parts);
}

void CpuBackend::Embed(const PackedMatrix& table, const StepRows& rows, float* x) {
  linear_.ForRows(rows.num_rows, rows.num_rows * table.in, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) DequantizeRow(table, rows.token_ids[row], x + row * table.in);
  });
}

void CpuBackend::LookUpRope(const LayerShape& shape, const StepRows& rows, const float* inv_freq) {
  const auto found = std::find_if(rope_tables_.begin(), rope_tables_.end(),
                                  [&](const auto& table) { return table->Matches(inv_freq, shape.head_dim); });
  cpu::RopeTable* table = found != rope_tables_.end() ? found->get() : nullptr;
  if (table == nullptr) {
    rope_tables_.push_back(std::make_unique<cpu::RopeTable>(inv_freq, shape.head_dim));
    table = rope_tables_.back().get();
  }
  rope_rows_.clear();
  for (int row = 0; row < rows.num_rows; ++row) rope_rows_.push_back(table->Row(rows.positions[row]));
}

void CpuBackend::QkvRope(const LayerShape& shape, const LayerWeights& weights, const StepRows& rows,
                         const float* inv_freq, const float* x, float* q, const KvLayerView& kv) {
  const int64_t width = QkvWidth(shape);
  const int64_t q_width = static_cast<int64_t>(shape.num_heads) * shape.head_dim;
  float* qkv = reinterpret_cast<float*>(scratch_.get());
  LookUpRope(shape, rows, inv_freq);
  ForRowBlocks(rows.num_rows, [&](int64_t begin, int64_t end) {
    BATON_CHECK_LE(static_cast<size_t>((end - begin) * width) * sizeof(float), scratch_bytes_);
    const LinearInput input = {x + begin * shape.hidden_size, shape.hidden_size, end - begin, weights.attn_norm.get(),
                               shape.norm_eps, precision_.qkv};
    linear_.Run(MatrixOf(weights.qkv), input, Epilogue::kStore, qkv, width);
    cpu::QkvEpilogueArgs args = {};
    args.qkv = qkv;
    args.bias = weights.qkv_bias.get();
    args.q_norm = weights.q_norm.get();
    args.k_norm = weights.k_norm.get();
    args.norm_eps = shape.norm_eps;
    args.cos_sin = rope_rows_.data() + begin;
    args.rope_interleaved = shape.rope_interleaved;
    args.num_heads = shape.num_heads;
    args.num_kv_heads = shape.num_kv_heads;
    args.head_dim = shape.head_dim;
    args.q = q + begin * q_width;
    args.slots = rows.slots + begin;
    args.k = kv.k;
    args.v = kv.v;
    args.block_stride = static_cast<int64_t>(kv.block_stride);
    args.block_size = kv.block_size;
    args.kv_type = cpu::KvFloatType(kv.dtype);
    linear_.ForRows(end - begin, (end - begin) * width,
                    [&](int64_t first, int64_t last) { kernels_.qkv_epilogue(args, first, last); });
  });
}

void CpuBackend::Attention(const LayerShape& shape, const StepRows& rows, const float* q, const KvLayerView& kv,
                           float* attention) {
  attention_.Run(shape, rows, q, kv, attention);
}

void CpuBackend::AttentionOut(const LayerShape& shape, const LayerWeights& weights, int num_rows,
                              const float* attention, float* x) {
  const int64_t width = static_cast<int64_t>(shape.num_heads) * shape.head_dim;
  const LinearInput input = {attention, width, num_rows, nullptr, 0, precision_.attn_out};
  linear_.Run(MatrixOf(weights.attn_out), input, Epilogue::kAccumulate, x, shape.hidden_size);
}

void CpuBackend::Mlp(const LayerShape& shape, const LayerWeights& weights, int num_rows, float* x) {
  const int64_t hidden = shape.hidden_size;
  const int64_t width = shape.intermediate_size;
  float* middle = reinterpret_cast<float*>(scratch_.get());
  ForRowBlocks(num_rows, [&](int64_t begin, int64_t end) {
    BATON_CHECK_LE(static_cast<size_t>((end - begin) * width) * sizeof(float), scratch_bytes_);
    float* rows = x + begin * hidden;
    const LinearInput input = {rows, hidden, end - begin, weights.mlp_norm.get(), shape.norm_eps,
                               precision_.gate_up};
    linear_.Run(MatrixOf(weights.gate_up), input, Epilogue::kSiluMul, middle, width);
    const LinearInput activated = {middle, width, end - begin, nullptr, 0, precision_.down};
    linear_.Run(MatrixOf(weights.down), activated, Epilogue::kAccumulate, rows, hidden);
  });
}

void CpuBackend::Head(const LayerShape& shape, const float* final_norm, const PackedMatrix& head,
                      std::span<const int32_t> row_indices, const float* x, float* logits) {
  const int64_t hidden = shape.hidden_size;
  float* gathered = reinterpret_cast<float*>(scratch_.get());
  ForRowBlocks(static_cast<int64_t>(row_indices.size()), [&](int64_t begin, int64_t end) {
    BATON_CHECK_LE(static_cast<size_t>((end - begin) * hidden) * sizeof(float), scratch_bytes_);
    for (int64_t i = begin; i < end; ++i) {
      std::memcpy(gathered + (i - begin) * hidden, x + row_indices[static_cast<size_t>(i)] * hidden,
                  static_cast<size_t>(hidden) * sizeof(float));
    }
    const LinearInput input = {gathered, hidden, end - begin, final_norm, shape.norm_eps, precision_.head};
    linear_.Run(MatrixOf(head), input, Epilogue::kStore, logits + begin * head.out, head.out);
  });
}

}  // namespace baton
