// SPDX-License-Identifier: Apache-2.0
#include "common/backend/cpu/linear.h"

#include <algorithm>

#include "common/backend/packing.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"

namespace baton::cpu {
namespace {

absl::Status Grow(size_t bytes, size_t* have, std::shared_ptr<uint8_t[]>* memory) {
  if (bytes <= *have) return absl::OkStatus();
  BATON_ASSIGN_OR_RETURN(*memory, AllocateHostMemory(bytes));
  *have = bytes;
  return absl::OkStatus();
}

// Tiles per task: a pair of tiles shares its input loads, and eight tasks per thread even out what the threads get.
int64_t TilesPerTask(int64_t num_tiles, int num_threads) {
  const int64_t wanted = num_tiles / (8 * num_threads);
  return std::clamp<int64_t>(wanted + (wanted & 1), 2, 64);
}

bool HasEightBits(const MatrixSegment& segment) {
  return segment.quant() != nullptr && !IsFourBit(segment.quant()->matrix.format);
}

}  // namespace

absl::Status LinearRunner::Reserve(int64_t max_rows, int64_t max_in, int64_t max_out) {
  const int64_t rows = std::min(max_rows, kRowBlock);
  const int64_t padded_in = (max_in + 31) / 32 * 32;
  BATON_RETURN_IF_ERROR(Grow(QuantisedRowsBytes(rows, padded_in, true, {kernels_.wide_bytes, kernels_.bf16_rows}), &quantised_bytes_, &quantised_));
  BATON_RETURN_IF_ERROR(Grow(static_cast<size_t>(rows * max_in) * sizeof(float), &normed_bytes_, &normed_));
  BATON_RETURN_IF_ERROR(Grow(static_cast<size_t>(rows * max_out) * sizeof(float), &gate_up_bytes_, &gate_up_));
  return ReserveThreadScratch(LinearScratchBytes(padded_in));
}

absl::Status LinearRunner::ReserveThreadScratch(size_t bytes) {
  if (bytes <= thread_scratch_bytes_) return absl::OkStatus();
  thread_scratch_.resize(static_cast<size_t>(pool_.num_threads()));
  for (std::shared_ptr<uint8_t[]>& scratch : thread_scratch_) {
    BATON_ASSIGN_OR_RETURN(scratch, AllocateHostMemory(bytes));
  }
  thread_scratch_bytes_ = bytes;
  return absl::OkStatus();
}

void LinearRunner::Run(const Matrix& w, const LinearInput& input, Epilogue epilogue, float* y, int64_t ldy) {
  for (int64_t begin = 0; begin < input.num_rows; begin += kRowBlock) {
    LinearInput block = input;
    block.x += begin * input.ldx;
    block.num_rows = std::min(kRowBlock, input.num_rows - begin);
    RunBlock(w, block, epilogue, y + begin * ldy, ldy);
  }
}

LinearRunner::Prepared LinearRunner::Prepare(const Matrix& w, const LinearInput& input) {
  Prepared prepared;
  const int64_t rows = input.num_rows;
  if (w.has_quant) {
    const bool two_terms = input.terms != Terms::kOne;
    const RowForms forms = {
        .wide = kernels_.wide_bytes && std::any_of(w.segments.begin(), w.segments.end(), HasEightBits),
        .bf16 = kernels_.bf16_rows && rows >= kMinTileRows,
    };
    BATON_CHECK_LE(QuantisedRowsBytes(rows, w.in, two_terms, forms), quantised_bytes_);
    prepared.quantised = QuantisedRowsIn(quantised_.get(), rows, w.in, two_terms, forms,
                                         input.terms == Terms::kTwo ? 0.0f : kLoThreshold);
    ForRows(rows, rows * w.in, [&](int64_t begin, int64_t end) {
      if (input.norm != nullptr) {
        kernels_.rms_norm_quantise_rows(input.x, input.ldx, input.norm, input.norm_eps, begin, end,
                                        &prepared.quantised);
      } else {
        kernels_.quantise_rows(input.x, input.ldx, begin, end, &prepared.quantised);
      }
    });
  }
  if (!w.has_float) return prepared;
  prepared.floats = input.x;
  prepared.ld_floats = input.ldx;
  if (input.norm != nullptr) {
    BATON_CHECK_LE(static_cast<size_t>(rows * w.in) * sizeof(float), normed_bytes_);
    float* normed = reinterpret_cast<float*>(normed_.get());
    ForRows(rows, rows * w.in, [&](int64_t begin, int64_t end) {
      kernels_.rms_norm_rows(input.x, input.ldx, input.norm, input.norm_eps, w.in, begin, end, normed, w.in);
    });
    prepared.floats = normed;
    prepared.ld_floats = w.in;
  }
  return prepared;
}

void LinearRunner::RunBlock(const Matrix& w, const LinearInput& input, Epilogue epilogue, float* y, int64_t ldy) {
  if (epilogue == Epilogue::kSiluMul && (w.segments.size() != 1 || w.out % 32 != 0)) {
    // Gate and up do not lie in whole tiles of one segment (or in oneDNN's slices): through scratch.
    BATON_CHECK_LE(static_cast<size_t>(input.num_rows * w.out) * sizeof(float), gate_up_bytes_);
    float* gate_up = reinterpret_cast<float*>(gate_up_.get());
    RunBlock(w, input, Epilogue::kStore, gate_up, w.out);
    ForRows(input.num_rows, input.num_rows * w.out, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const float* gate = gate_up + row * w.out;
        kernels_.silu_mul(gate, gate + w.out / 2, w.out / 2, y + row * ldy);
      }
    });
    return;
  }
  const Prepared prepared = Prepare(w, input);
  if (!w.slices.empty()) RunSlices(w, prepared, input.num_rows, epilogue, y, ldy);
  for (const MatrixSegment& segment : w.segments) {
    const int64_t num_tiles = epilogue == Epilogue::kSiluMul ? w.out / 32 : segment.num_tiles();
    const int64_t step = TilesPerTask(num_tiles, pool_.num_threads());
    pool_.ParallelFor((num_tiles + step - 1) / step, [&](int64_t task, int thread) {
      RunSegment(segment, prepared, input.num_rows, task * step, std::min(num_tiles, (task + 1) * step), thread,
                 epilogue, y, ldy);
    });
  }
}

void LinearRunner::RunSlices(const Matrix& w, const Prepared& prepared, int64_t num_rows, Epilogue epilogue, float* y,
                             int64_t ldy) {
  const int64_t panels = (num_rows + OneDnnLinear::kRows - 1) / OneDnnLinear::kRows;
  const int64_t num_slices = static_cast<int64_t>(w.slices.size());
  pool_.ParallelFor(num_slices * panels, [&](int64_t task, int thread) {
    const OneDnnSlice& slice = w.slices[static_cast<size_t>(task / panels)];
    const int64_t begin = task % panels * OneDnnLinear::kRows;
    slice.linear->Run(kernels_, prepared.floats + begin * prepared.ld_floats, prepared.ld_floats,
                      std::min(OneDnnLinear::kRows, num_rows - begin), y + begin * ldy + slice.out_begin, ldy,
                      epilogue, thread_scratch(thread));
  });
}

void LinearRunner::RunSegment(const MatrixSegment& segment, const Prepared& prepared, int64_t num_rows,
                              int64_t tile_begin, int64_t tile_end, int thread, Epilogue epilogue, float* y,
                              int64_t ldy) {
  if (const PackedQuant* quant = segment.quant()) {
    QuantLinearArgs args = {};
    args.w = &quant->matrix;
    args.x = prepared.quantised;
    args.row_end = num_rows;
    args.tile_begin = tile_begin;
    args.tile_end = tile_end;
    args.y = y + segment.out_begin;
    args.ldy = ldy;
    args.epilogue = epilogue;
    args.scratch = thread_scratch(thread);
    kernels_.linear_quantised(args);
    return;
  }
  FloatLinearArgs args = {};
  args.w = &segment.floats()->matrix;
  args.x = prepared.floats;
  args.ldx = prepared.ld_floats;
  args.row_end = num_rows;
  args.tile_begin = tile_begin;
  args.tile_end = tile_end;
  args.y = y + segment.out_begin;
  args.ldy = ldy;
  args.epilogue = epilogue;
  kernels_.linear_float(args);
}

}  // namespace baton::cpu
