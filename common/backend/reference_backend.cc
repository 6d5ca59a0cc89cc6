// SPDX-License-Identifier: Apache-2.0
#include "common/backend/reference_backend.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/backend/packing.h"
#include "common/backend/reference_ops.h"
#include "common/base/status_macros.h"
#include "common/base/thread.h"

namespace baton {
namespace {

const float* Floats(const PackedMatrix& matrix) { return static_cast<const float*>(matrix.impl.get()); }

}  // namespace

std::string ReferenceBackend::description() const {
  return absl::StrFormat("reference: plain fp32 loops, %d threads", num_threads_);
}

absl::StatusOr<std::shared_ptr<uint8_t[]>> ReferenceBackend::Allocate(size_t bytes) {
  return AllocateHostMemory(bytes);
}

absl::StatusOr<PackedMatrix> ReferenceBackend::Pack(std::span<const TensorView> parts, const PackOptions& options) {
  BATON_ASSIGN_OR_RETURN(const StackedShape shape, CheckMatrices(parts));
  PackedMatrix packed;
  packed.out = shape.rows;
  packed.in = shape.columns;
  packed.bytes = static_cast<size_t>(shape.rows * shape.columns) * sizeof(float);
  BATON_ASSIGN_OR_RETURN(std::shared_ptr<uint8_t[]> memory, AllocateHostMemory(packed.bytes));
  float* out = reinterpret_cast<float*>(memory.get());
  for (const TensorView& part : parts) {
    if (absl::Status status = Dequantize(part.type, part.span(), part.num_elements(), out); !status.ok()) {
      return Annotate(status, absl::StrFormat("tensor %s", part.name));
    }
    out += part.num_elements();
  }
  packed.impl = std::shared_ptr<const void>(memory, memory.get());
  return packed;
}

absl::StatusOr<PackedMatrix> ReferenceBackend::PackTable(const TensorView& table) { return TableOverFile(table); }

absl::StatusOr<std::shared_ptr<const float[]>> ReferenceBackend::PackVector(std::span<const TensorView> parts) {
  return DequantizeVector(parts);
}

void ReferenceBackend::Embed(const PackedMatrix& table, const StepRows& rows, float* x) {
  for (int row = 0; row < rows.num_rows; ++row) DequantizeRow(table, rows.token_ids[row], x + row * table.in);
}

void ReferenceBackend::QkvRope(const LayerShape& shape, const LayerWeights& weights, const StepRows& rows,
                               const float* inv_freq, const float* x, float* q, const KvLayerView& kv) {
  const int hidden = shape.hidden_size;
  const int q_width = shape.num_heads * shape.head_dim;
  const int kv_width = shape.num_kv_heads * shape.head_dim;
  const int width = q_width + 2 * kv_width;
  std::vector<float> normed(static_cast<size_t>(rows.num_rows) * hidden);
  for (int row = 0; row < rows.num_rows; ++row) {
    ReferenceRmsNorm(x + row * hidden, weights.attn_norm.get(), hidden, shape.norm_eps, normed.data() + row * hidden);
  }
  std::vector<float> qkv(static_cast<size_t>(rows.num_rows) * width);  // [num_rows, q then k then v]
  Linear(weights.qkv, rows.num_rows, normed.data(), qkv.data());
  for (int row = 0; row < rows.num_rows; ++row) {
    float* out = qkv.data() + row * width;
    if (shape.has_qkv_bias) {
      for (int i = 0; i < width; ++i) out[i] += weights.qkv_bias[i];
    }
    for (int h = 0; h < shape.num_heads + shape.num_kv_heads; ++h) {  // Query heads, then key heads.
      float* head = out + h * shape.head_dim;
      if (shape.has_qk_norm) {
        const float* norm = h < shape.num_heads ? weights.q_norm.get() : weights.k_norm.get();
        ReferenceRmsNorm(head, norm, shape.head_dim, shape.norm_eps, head);
      }
      ReferenceRope(rows.positions[row], inv_freq, shape.head_dim, shape.rope_interleaved, head);
    }
    std::memcpy(q + row * q_width, out, static_cast<size_t>(q_width) * sizeof(float));
    ReferenceWriteKv(kv, rows.slots[row], out + q_width, out + q_width + kv_width);
  }
}

void ReferenceBackend::Attention(const LayerShape& shape, const StepRows& rows, const float* q, const KvLayerView& kv,
                                 float* attention) {
  const int heads_per_kv_head = shape.num_heads / shape.num_kv_heads;
  for (int s = 0; s < rows.num_sequences; ++s) {
    const int first = rows.query_starts[s];
    const int num_rows = rows.query_starts[s + 1] - first;
    ForRange(static_cast<int64_t>(num_rows) * shape.num_heads, [&](int64_t begin, int64_t end) {
      std::vector<float> scores;
      for (int64_t i = begin; i < end; ++i) {
        const int row = first + static_cast<int>(i / shape.num_heads);
        const int head = static_cast<int>(i % shape.num_heads);
        const int64_t at = (static_cast<int64_t>(row) * shape.num_heads + head) * shape.head_dim;
        ReferenceAttention(kv, rows.block_tables[s], rows.positions[row], head / heads_per_kv_head, q + at, &scores,
                           attention + at);
      }
    });
  }
}

void ReferenceBackend::AttentionOut(const LayerShape& shape, const LayerWeights& weights, int num_rows,
                                    const float* attention, float* x) {
  std::vector<float> y(static_cast<size_t>(num_rows) * shape.hidden_size);
  Linear(weights.attn_out, num_rows, attention, y.data());
  for (size_t i = 0; i < y.size(); ++i) x[i] += y[i];
}

void ReferenceBackend::Mlp(const LayerShape& shape, const LayerWeights& weights, int num_rows, float* x) {
  const int hidden = shape.hidden_size;
  const int width = shape.intermediate_size;
  std::vector<float> normed(static_cast<size_t>(num_rows) * hidden);
  for (int row = 0; row < num_rows; ++row) {
    ReferenceRmsNorm(x + row * hidden, weights.mlp_norm.get(), hidden, shape.norm_eps, normed.data() + row * hidden);
  }
  std::vector<float> gate_up(static_cast<size_t>(num_rows) * 2 * width);  // [num_rows, gate then up]
  Linear(weights.gate_up, num_rows, normed.data(), gate_up.data());
  std::vector<float> activated(static_cast<size_t>(num_rows) * width);
  for (int row = 0; row < num_rows; ++row) {
    const float* gate = gate_up.data() + row * 2 * width;
    for (int i = 0; i < width; ++i) activated[row * width + i] = ReferenceSilu(gate[i]) * gate[width + i];
  }
  std::vector<float> y(static_cast<size_t>(num_rows) * hidden);
  Linear(weights.down, num_rows, activated.data(), y.data());
  for (size_t i = 0; i < y.size(); ++i) x[i] += y[i];
}

void ReferenceBackend::Head(const LayerShape& shape, const float* final_norm, const PackedMatrix& head,
                            std::span<const int32_t> row_indices, const float* x, float* logits) {
  const int hidden = shape.hidden_size;
  std::vector<float> normed(row_indices.size() * static_cast<size_t>(hidden));
  for (size_t i = 0; i < row_indices.size(); ++i) {
    ReferenceRmsNorm(x + static_cast<int64_t>(row_indices[i]) * hidden, final_norm, hidden, shape.norm_eps,
                     normed.data() + i * static_cast<size_t>(hidden));
  }
  Linear(head, static_cast<int>(row_indices.size()), normed.data(), logits);
}

void ReferenceBackend::Linear(const PackedMatrix& w, int num_rows, const float* x, float* y) {
  ForRange(w.out, [&](int64_t begin, int64_t end) {
    ReferenceLinear(Floats(w), x, num_rows, w.out, w.in, begin, end, y);
  });
}

void ReferenceBackend::ForRange(int64_t n, const std::function<void(int64_t begin, int64_t end)>& body) {
  constexpr int64_t kMinPiece = 64;  // Less is not worth a thread.
  const int64_t pieces = std::clamp<int64_t>(n / kMinPiece, 1, num_threads_);
  std::vector<Thread> threads;
  for (int64_t i = 1; i < pieces; ++i) {
    threads.emplace_back("reference", [&, i] { body(n * i / pieces, n * (i + 1) / pieces); });
  }
  body(0, n / pieces);
  for (Thread& thread : threads) thread.Join();
}

}  // namespace baton
