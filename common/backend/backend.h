// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BACKEND_BACKEND_H_
#define BATON_COMMON_BACKEND_BACKEND_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/backend/token_choice.h"
#include "common/base/logging.h"
#include "common/format/tensor.h"

namespace baton {

// What a transformer layer looks like to a backend. Plain numbers: the meaning (architecture, file format) stays in
// common/model.
struct LayerShape {
  int hidden_size = 0;
  int num_heads = 0;
  int num_kv_heads = 0;       // Divides num_heads.
  int head_dim = 0;           // Even, <= 256.
  int intermediate_size = 0;  // Width of gate and up.
  float norm_eps = 1e-5f;
  bool rope_interleaved = false;  // Pairs (2i, 2i+1) instead of (i, i + head_dim/2).
  bool has_qkv_bias = false;
  bool has_qk_norm = false;       // RMSNorm per head on q and k before the rotary embedding.
};

// A matrix in the form the backend multiplies with: `y[out] = W[out, in] x[in]`. Immutable after packing; any thread.
struct PackedMatrix {
  int64_t out = 0;
  int64_t in = 0;
  size_t bytes = 0;                  // As read by one decode step.
  std::shared_ptr<const void> impl;  // Owned by the backend that made it; only it looks inside.
};

// One layer's weights, packed. Vectors are backend memory, fp32.
struct LayerWeights {
  PackedMatrix qkv;      // [(num_heads + 2 num_kv_heads) head_dim, hidden]: q rows, then k, then v.
  PackedMatrix attn_out; // [hidden, num_heads head_dim]
  PackedMatrix gate_up;  // [2 intermediate, hidden]: gate rows, then up.
  PackedMatrix down;     // [hidden, intermediate]
  std::shared_ptr<const float[]> attn_norm, mlp_norm;  // [hidden]
  std::shared_ptr<const float[]> qkv_bias;             // [(num_heads + 2 num_kv_heads) head_dim] or null
  std::shared_ptr<const float[]> q_norm, k_norm;       // [head_dim] or null
};

// kInt8: signed integers, with an fp32 scale per token and KV head, K and V apart: x = scale q (kv_int8.h).
enum class KvDtype : uint8_t { kF32, kF16, kBf16, kInt8 };

// One layer of a paged KV pool. Block b holds block_size consecutive positions of one sequence:
//   K: [num_kv_heads, head_dim, block_size] at k + b * block_stride   (transposed: 16 keys fill a vector register)
//   V: [num_kv_heads, block_size, head_dim] at v + b * block_stride
// With kInt8 the [block_size] scales of a head's tokens follow its values, in K and in V.
// K is stored after qk-norm and rotary embedding. Values are rounded once, when written, before any read.
struct KvLayerView {
  uint8_t* k = nullptr;
  uint8_t* v = nullptr;
  size_t block_stride = 0;  // Bytes.
  int block_size = 0;       // Multiple of 16.
  int num_kv_heads = 0;
  int head_dim = 0;
  KvDtype dtype = KvDtype::kF16;
};

// The rows (tokens) of one step, or of one panel of it, flattened over sequences. Rows of a sequence are consecutive
// positions, ascending. All arrays are host memory and outlive the call.
struct StepRows {
  int num_rows = 0;
  const int32_t* token_ids = nullptr;   // [num_rows]
  const int32_t* positions = nullptr;   // [num_rows]; a row attends to positions 0..positions[row] of its sequence.
  const int32_t* slots = nullptr;       // [num_rows]; block id * block_size + offset where the row's K and V go.
  int num_sequences = 0;
  const int32_t* query_starts = nullptr;        // [num_sequences + 1]; rows of sequence s.
  const int32_t* const* block_tables = nullptr; // [num_sequences]; block ids in position order.
};

struct PackOptions {
  // Which shapes of work the matrix meets: many rows, few rows. A backend may choose its form by it. The head is packed for
  // decode alone.
  bool for_prefill = true;
  bool for_decode = true;
};

// What the machine can do at most with a backend's threads, measured: operations (two per multiply-add) and bytes per second.
// 0: not measured, or no such instructions.
struct MachinePeaks {
  double int8_ops = 0;
  double bf16_flops = 0;
  double fp32_flops = 0;
  double read_bytes = 0;   // Streaming read of as many bytes as the weights have.
  double matmul_ops = 0;   // The one of the first three that the backend multiplies the layers' matrices in,
  const char* matmul_format = "";  // and its name: "int8", "bf16" or "fp32".
  const char* attention_format = "";  // The name of the one that attention is computed in.
};

// Bytes of one copy between the host and a backend's memory, or within it.
struct MemoryCopy {
  void* to = nullptr;
  const void* from = nullptr;
  size_t bytes = 0;
};

// What passes have in common that a backend may take for the same.
struct PassShape {
  int num_rows = 0;
  int longest_context = 0;          // In tokens, the pass's own included.
  const void* buffers = nullptr;    // Where they compute, and
  const void* pool = nullptr;       // keep keys and values: the same address, the same memory.
  std::span<const TokenChoice> choices = {};  // Of HeadAndChoose, if that is what comes at the end.
};

// Memory and a dozen coarse operations on one device. A step is: Embed, then per layer and row panel QkvRope, Attention,
// AttentionOut, Mlp, and at the end Head for the rows that need logits. Operations are coarse so that a backend can fuse
// (norm + quantise + matmul, gate + up + SiLU + down) and a device can capture them.
//
// Numerics: within one numerics_id() every row's result is a function of that row's token, position and the KV contents of
// its sequence alone, bit for bit: never of the other rows, of the panel size, or of the number of threads.
//
// Pointers named x, q, attention are backend memory from Allocate, fp32, row-major; logits is host memory. All operations are called
// from one thread at a time (the engine thread). On a device they may still be under way when they return, in order; Head and the
// copies to the host are complete.
// Copies that were started; 0: nothing that could be waited for.
using CopyTicket = uint64_t;

class Backend {
 public:
  virtual ~Backend() = default;

  // "cpu-avx512vnni-q8g32/1" and the like: everything that decides the bits.
  virtual std::string numerics_id() const = 0;
  // For people: instruction sets in use, threads.
  virtual std::string description() const = 0;

  // Measures the machine, in a few tens of milliseconds; what decode reads is `weights`, packed here. Zeros where the backend
  // has no peak that it could be compared with.
  virtual MachinePeaks MeasurePeaks(std::span<const PackedMatrix* const> weights);

  // OK, or why nothing that was computed since the last time it was OK can be trusted: a device that failed. It does not get well
  // again. Asked before results are used. Any thread.
  virtual absl::Status status() const { return absl::OkStatus(); }

  // Whether the operations exist for layers of this shape and a pool of this type.
  //   FAILED_PRECONDITION  names what is not there.
  virtual absl::Status CheckShape(const LayerShape& shape, KvDtype dtype) const;

  // Zeroed memory, 64-byte aligned at least. RESOURCE_EXHAUSTED names the size.
  virtual absl::StatusOr<std::shared_ptr<uint8_t[]>> Allocate(size_t bytes) = 0;
  // Of the device, what Allocate could still give; nothing where that is the host's memory.
  virtual std::optional<int64_t> free_bytes() const { return std::nullopt; }
  // Whether the host may read and write what Allocate gives.
  virtual bool host_visible() const { return true; }
  // Zeroed memory that the host uses and that copies to and from the device are fast with.
  virtual absl::StatusOr<std::shared_ptr<uint8_t[]>> AllocateHost(size_t bytes) { return Allocate(bytes); }
  // Copies after all operations before, and before all after. To and from the host they are complete on return.
  void CopyToHost(std::span<const MemoryCopy> copies) { WaitCopies(StartCopyToHost(copies)); }
  void CopyFromHost(std::span<const MemoryCopy> copies) { WaitCopies(StartCopyFromHost(copies)); }
  virtual void CopyWithin(std::span<const MemoryCopy> copies);
  // The same after all operations before, and beside those after: what uses the copies, or changes what they are made of, must wait for
  // their end. No copies at all: the end of the operations before.
  virtual CopyTicket StartCopyToHost(std::span<const MemoryCopy> copies);
  virtual CopyTicket StartCopyFromHost(std::span<const MemoryCopy> copies);
  virtual bool CopiesEnded(CopyTicket /*ticket*/) { return true; }
  virtual void WaitCopies(CopyTicket /*ticket*/) {}

  // Sizes the backend's scratch for operations on up to max_rows rows of layers of this shape (and for any smaller one), so
  // that serving allocates nothing. Scratch only grows. RESOURCE_EXHAUSTED names the size.
  virtual absl::Status Reserve(const LayerShape& shape, int max_rows) = 0;

  // Packs `parts`, stacked along their rows (all have the same number of columns), from the file's own values. Pack, PackTable
  // and PackVector may be called by several threads at once.
  //   INVALID_ARGUMENT  parts differ in columns, or a type that cannot be dequantised.
  virtual absl::StatusOr<PackedMatrix> Pack(std::span<const TensorView> parts, const PackOptions& options) = 0;
  // A table whose rows Embed gathers. The tensor's bytes stay readable for as long as the table is used: a backend on the host
  // reads the file's own rows.
  //   INVALID_ARGUMENT  not a matrix, or a type that cannot be dequantised.
  virtual absl::StatusOr<PackedMatrix> PackTable(const TensorView& table) = 0;
  // Copies a vector (norm weight, bias), dequantised to fp32, into backend memory. Several parts are concatenated.
  virtual absl::StatusOr<std::shared_ptr<const float[]>> PackVector(std::span<const TensorView> parts) = 0;

  // A pass in one panel of single rows, with logits of all (a decode step), of which many will follow that differ in their numbers only:
  // all its operations lie between, and nothing else of the backend but copies to and from the host. A device may keep it as a whole.
  // `complete`: it went to its end; else nothing of it is used.
  virtual void BeginPass(const PassShape&) {}
  virtual void EndPass(bool /*complete*/) {}

  // x[row, hidden] = row token_ids[row] of the table (from PackTable), dequantised exactly.
  virtual void Embed(const PackedMatrix& table, const StepRows& rows, float* x) = 0;

  // q[row, num_heads head_dim] = rope(qk_norm(W_q norm(x) + b)); K and V of each row are written to its slot.
  //   inv_freq  [head_dim / 2] rotary inverse frequencies, host memory.
  virtual void QkvRope(const LayerShape& shape, const LayerWeights& weights, const StepRows& rows,
                       const float* inv_freq, const float* x, float* q, const KvLayerView& kv) = 0;

  // attention[row, num_heads head_dim] = softmax(q K^T / sqrt(head_dim)) V over the row's context, causal.
  virtual void Attention(const LayerShape& shape, const StepRows& rows, const float* q, const KvLayerView& kv,
                         float* attention) = 0;

  // x += W_o attention
  virtual void AttentionOut(const LayerShape& shape, const LayerWeights& weights, int num_rows, const float* attention,
                            float* x) = 0;

  // x += W_down (silu(W_gate norm(x)) * (W_up norm(x)))
  virtual void Mlp(const LayerShape& shape, const LayerWeights& weights, int num_rows, float* x) = 0;

  // logits[i, vocab] = W_head norm(x[row_indices[i]]); logits is memory from AllocateHost.
  virtual void Head(const LayerShape& shape, const float* final_norm, const PackedMatrix& head,
                    std::span<const int32_t> row_indices, const float* x, float* logits) = 0;

  // Whether HeadAndChoose is there for a vocabulary of this size.
  virtual bool chooses_tokens(int /*vocab_size*/) const { return false; }
  // As Head, and tokens[i] as choices[i] has it: -1 where a logit is NaN or infinite. Logits are there for rows that are chosen by the
  // host, of the others they may be. A row's token depends on its logits and its choice alone. `tokens` is memory from AllocateHost.
  virtual void HeadAndChoose(const LayerShape& shape, const float* final_norm, const PackedMatrix& head,
                             std::span<const int32_t> row_indices, const float* x, std::span<const TokenChoice> choices,
                             float* logits, int32_t* tokens);
};

inline absl::Status Backend::CheckShape(const LayerShape&, KvDtype) const { return absl::OkStatus(); }
inline void Backend::CopyWithin(std::span<const MemoryCopy> copies) {
  for (const MemoryCopy& copy : copies) std::memcpy(copy.to, copy.from, copy.bytes);
}
inline CopyTicket Backend::StartCopyToHost(std::span<const MemoryCopy> copies) {
  CopyWithin(copies);
  return 0;
}
inline CopyTicket Backend::StartCopyFromHost(std::span<const MemoryCopy> copies) {
  CopyWithin(copies);
  return 0;
}
inline void Backend::HeadAndChoose(const LayerShape&, const float*, const PackedMatrix&, std::span<const int32_t>, const float*,
                                   std::span<const TokenChoice>, float*, int32_t*) {
  BATON_CHECK(false) << "this backend chooses no tokens";
}
inline MachinePeaks Backend::MeasurePeaks(std::span<const PackedMatrix* const>) { return {}; }

}  // namespace baton

#endif  // BATON_COMMON_BACKEND_BACKEND_H_
