// SPDX-License-Identifier: Apache-2.0
#include "common/backend/cuda/cuda_backend.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/backend/cuda/copy_queue.h"
#include "common/backend/cuda/cuda_context.h"
#include "common/backend/cuda/cuda_linear.h"
#include "common/backend/cuda/cuda_matrix.h"
#include "common/backend/cuda/embedding_table.h"
#include "common/backend/cuda/kernels/kernel_types.h"
#include "common/backend/cuda/pass_graphs.h"
#include "common/backend/cuda/rotary_table.h"
#include "common/backend/cuda/step_arrays.h"
#include "common/backend/cuda/token_chooser.h"
#include "common/backend/packing.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"

namespace baton::cuda {
namespace {

// Rows are taken through in blocks of so many, so that scratch does not grow with the prompt. A multiple of both panels.
constexpr int kRowBlock = 256;
constexpr int kHeadBlock = 64;  // Rows of logits at once.
constexpr int kDecodePanel = 64, kPrefillPanel = 256;  // Of cuBLASLt's.
constexpr int kSplitTokens = 512;  // Where decode attention cuts a context.

const CudaMatrix& Matrix(const PackedMatrix& packed) { return *static_cast<const CudaMatrix*>(packed.impl.get()); }
unsigned Blocks(int64_t count, int64_t each) { return static_cast<unsigned>((count + each - 1) / each); }
float* Floats(const std::shared_ptr<uint8_t[]>& memory) { return reinterpret_cast<float*>(memory.get()); }
const char* TypeName(KvDtype dtype) { return dtype == KvDtype::kF16 ? "f16" : "bf16"; }

// A kernel of attention for a shape.
std::string DecodeKernel(const LayerShape& shape, KvDtype dtype) {
  return absl::StrCat("decode_attention_", TypeName(dtype), "_g", shape.num_heads / shape.num_kv_heads, "_d", shape.head_dim);
}
std::string PrefillKernel(const LayerShape& shape, KvDtype dtype) {
  return absl::StrCat("prefill_attention_", TypeName(dtype), "_d", shape.head_dim);
}

KvParams Pool(const KvLayerView& kv) {
  return {kv.k, kv.v, static_cast<long long>(kv.block_stride), kv.block_size, kv.num_kv_heads, kv.head_dim};
}

class CudaBackend final : public Backend {
 public:
  CudaBackend(std::shared_ptr<CudaContext> context, const CudaBackendOptions& options)
      : context_(std::move(context)),
        kernels_(options.kernels),
        linear_(context_.get(), options.cublas_library.empty() ? CublasLtApi::DefaultLibrary() : options.cublas_library,
                options.kernels == CudaKernels::kDecode ? kDecodePanel : kPrefillPanel),
        copies_(context_.get()),
        graphs_(context_.get()),
        arrays_(context_.get(), [this] { graphs_.Forget(); }),
        rotary_(context_.get(), [this] { graphs_.Forget(); }),
        chooser_(context_.get(), [this] { graphs_.Forget(); }) {}

  std::string numerics_id() const override;
  std::string description() const override;
  bool host_visible() const override { return false; }
  std::optional<int64_t> free_bytes() const override { return context_->free_bytes(); }
  absl::Status status() const override { return context_->status(); }
  absl::Status CheckShape(const LayerShape& shape, KvDtype dtype) const override;

  absl::StatusOr<std::shared_ptr<uint8_t[]>> Allocate(size_t bytes) override { return context_->Allocate(bytes); }
  absl::StatusOr<std::shared_ptr<uint8_t[]>> AllocateHost(size_t bytes) override { return context_->AllocateHost(bytes); }
  void CopyWithin(std::span<const MemoryCopy> copies) override;
  CopyTicket StartCopyToHost(std::span<const MemoryCopy> copies) override { return copies_.Order(copies, CopyQueue::Direction::kToHost); }
  CopyTicket StartCopyFromHost(std::span<const MemoryCopy> copies) override { return copies_.Order(copies, CopyQueue::Direction::kToDevice); }
  bool CopiesEnded(CopyTicket ticket) override { return copies_.Ended(ticket); }
  void WaitCopies(CopyTicket ticket) override { copies_.Wait(ticket); }
  absl::Status Reserve(const LayerShape& shape, int max_rows) override;

  absl::StatusOr<PackedMatrix> Pack(std::span<const TensorView> parts, const PackOptions& options) override;
  absl::StatusOr<PackedMatrix> PackTable(const TensorView& table) override { return PackEmbeddingTable(context_.get(), table); }
  absl::StatusOr<std::shared_ptr<const float[]>> PackVector(std::span<const TensorView> parts) override;

  void BeginPass(const PassShape& shape) override;
  void EndPass(bool complete) override;
  void Embed(const PackedMatrix& table, const StepRows& rows, float* x) override;
  void QkvRope(const LayerShape& shape, const LayerWeights& weights, const StepRows& rows, const float* inv_freq, const float* x, float* q,
               const KvLayerView& kv) override;
  void Attention(const LayerShape& shape, const StepRows& rows, const float* q, const KvLayerView& kv, float* attention) override;
  void AttentionOut(const LayerShape& shape, const LayerWeights& weights, int num_rows, const float* attention, float* x) override;
  void Mlp(const LayerShape& shape, const LayerWeights& weights, int num_rows, float* x) override;
  void Head(const LayerShape& shape, const float* final_norm, const PackedMatrix& head, std::span<const int32_t> row_indices, const float* x,
            float* logits) override {
    RunHead(shape, final_norm, head, row_indices, x, {}, logits, nullptr);
  }
  bool chooses_tokens(int vocab_size) const override { return vocab_size <= TokenChooser::kMaxVocabulary; }
  void HeadAndChoose(const LayerShape& shape, const float* final_norm, const PackedMatrix& head, std::span<const int32_t> row_indices,
                     const float* x, std::span<const TokenChoice> choices, float* logits, int32_t* tokens) override {
    BATON_CHECK_EQ(choices.size(), row_indices.size());
    RunHead(shape, final_norm, head, row_indices, x, choices, logits, tokens);
  }

 private:
  void RunHead(const LayerShape& shape, const float* final_norm, const PackedMatrix& head, std::span<const int32_t> row_indices, const float* x,
               std::span<const TokenChoice> choices, float* logits, int32_t* tokens);
  void PrefillAttention(const LayerShape& shape, const StepRows& rows, const float* q, const KvLayerView& kv, float* attention);
  void DecodeAttention(const LayerShape& shape, const StepRows& rows, const float* q, const KvLayerView& kv, float* attention);
  void Add(float* x, const float* y, int64_t count);
  // `memory` of at least `bytes`. False after an error.
  bool Grow(std::shared_ptr<uint8_t[]>* memory, size_t* size, size_t bytes);

  const std::shared_ptr<CudaContext> context_;
  const CudaKernels kernels_;
  CudaLinear linear_;
  CopyQueue copies_;
  PassGraphs graphs_;
  StepArrays arrays_;
  RotaryTable rotary_;
  TokenChooser chooser_;
  // Scratch: outputs of a multiply, and of the next one in a chain.
  std::shared_ptr<uint8_t[]> wide_, narrow_, partial_, partial_max_sum_, head_rows_, logits_, pinned_x_, head_indices_;
  size_t wide_bytes_ = 0, narrow_bytes_ = 0, partial_bytes_ = 0, partial_max_sum_bytes_ = 0, head_rows_bytes_ = 0, logits_bytes_ = 0;
  size_t head_indices_bytes_ = 0;
  int pinned_rows_ = 0;
};

std::string CudaBackend::numerics_id() const {
  if (kernels_ == CudaKernels::kDecode) return "cuda-i8g32-split512/1";
  // cuBLASLt's sums are in an order of its own.
  return absl::StrCat("cuda-lt", kPrefillPanel, "-sm", context_->device().compute_capability, "-mma64.32/1");
}

std::string CudaBackend::description() const {
  const std::string library = linear_.library();
  return absl::StrCat(context_->device().description(), kernels_ == CudaKernels::kDecode ? ", kernels for decode" : ", kernels for prefill",
                      library.empty() ? "" : ", ", library);
}

absl::Status CudaBackend::CheckShape(const LayerShape& shape, KvDtype dtype) const {
  if (dtype != KvDtype::kF16 && dtype != KvDtype::kBf16) {
    return absl::FailedPreconditionError("the CUDA backend keeps KV in f16 or bf16, not in f32 or int8");
  }
  if (shape.hidden_size % 4 != 0) {
    return absl::FailedPreconditionError(absl::StrFormat("the CUDA backend wants a hidden size that is a multiple of 4, not %d", shape.hidden_size));
  }
  const std::string kernel = kernels_ == CudaKernels::kDecode ? DecodeKernel(shape, dtype) : PrefillKernel(shape, dtype);
  if (context_->HasKernel(kernel)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrFormat(
      "the CUDA backend has no attention for heads of %d, %d to a KV head, in %s (kernel %s)", shape.head_dim,
      shape.num_heads / shape.num_kv_heads, TypeName(dtype), kernel));
}

// ---- Memory.

// Also in the middle of a pass that is recorded or done again: it has nothing to do with these.
void CudaBackend::CopyWithin(std::span<const MemoryCopy> copies) {
  for (const MemoryCopy& copy : copies) {
    if (!status().ok()) return;
    const CUdeviceptr target = reinterpret_cast<CUdeviceptr>(copy.to), source = reinterpret_cast<CUdeviceptr>(copy.from);
    context_->Check(context_->api().cuMemcpyDtoDAsync(target, source, copy.bytes, context_->stream()), "cuMemcpyDtoDAsync");
  }
}

bool CudaBackend::Grow(std::shared_ptr<uint8_t[]>* memory, size_t* size, size_t bytes) {
  if (bytes <= *size) return true;
  context_->Synchronize();  // The old one may be in use.
  auto grown = context_->Allocate(bytes);
  if (!grown.ok()) {
    context_->Fail(grown.status());
    return false;
  }
  graphs_.Forget();
  *memory = *std::move(grown);
  *size = bytes;
  return true;
}

absl::Status CudaBackend::Reserve(const LayerShape& shape, int max_rows) {
  const int rows = std::min(max_rows, kRowBlock);
  const int64_t q_width = int64_t{shape.num_heads} * shape.head_dim;
  const int64_t qkv_width = q_width + int64_t{2} * shape.num_kv_heads * shape.head_dim;
  const int64_t widest_in = std::max({int64_t{shape.hidden_size}, q_width, int64_t{shape.intermediate_size}});
  graphs_.Forget();
  BATON_RETURN_IF_ERROR(linear_.Reserve(rows, widest_in));
  const int64_t padded = linear_.PaddedRows(rows);
  const size_t wide = static_cast<size_t>(padded * std::max(qkv_width, int64_t{2} * shape.intermediate_size)) * sizeof(float);
  const size_t narrow = static_cast<size_t>(padded * shape.hidden_size) * sizeof(float);
  if (!Grow(&wide_, &wide_bytes_, wide) || !Grow(&narrow_, &narrow_bytes_, narrow)) return status();
  if (max_rows > pinned_rows_) {
    context_->Synchronize();
    BATON_ASSIGN_OR_RETURN(pinned_x_, context_->AllocateHost(static_cast<size_t>(max_rows) * shape.hidden_size * sizeof(float)));
    pinned_rows_ = max_rows;
  }
  return status();
}

// ---- Packing.

absl::StatusOr<PackedMatrix> CudaBackend::Pack(std::span<const TensorView> parts, const PackOptions&) {
  BATON_ASSIGN_OR_RETURN(CudaMatrix matrix, PackCudaMatrix(context_.get(), parts, kernels_ == CudaKernels::kDecode));
  BATON_RETURN_IF_ERROR(linear_.Prepare(matrix));
  PackedMatrix packed;
  packed.out = matrix.out;
  packed.in = matrix.in;
  packed.bytes = matrix.bytes;
  packed.impl = std::make_shared<const CudaMatrix>(std::move(matrix));
  return packed;
}

absl::StatusOr<std::shared_ptr<const float[]>> CudaBackend::PackVector(std::span<const TensorView> parts) {
  int64_t length = 0;
  for (const TensorView& part : parts) length += part.num_elements();
  BATON_ASSIGN_OR_RETURN(const std::shared_ptr<const float[]> host, DequantizeVector(parts));
  BATON_ASSIGN_OR_RETURN(const std::shared_ptr<uint8_t[]> memory, context_->Allocate(static_cast<size_t>(length) * sizeof(float)));
  BATON_RETURN_IF_ERROR(context_->Store(memory.get(), host.get(), static_cast<size_t>(length) * sizeof(float)));
  return std::shared_ptr<const float[]>(memory, Floats(memory));
}

// ---- A step.

void CudaBackend::BeginPass(const PassShape& shape) {
  int tokens = kSplitTokens;  // Few sizes: a graph serves as long as the longest context stays within one.
  while (tokens < shape.longest_context) tokens *= 2;
  arrays_.set_recordable(tokens);
  // Before what is recorded: there may be more of it the next time.
  if (!shape.choices.empty()) chooser_.Send(shape.choices);
  graphs_.Begin(shape, tokens, shape.choices.empty() ? Choosing::kNone : TokenChooser::AnyByHost(shape.choices) ? Choosing::kSome : Choosing::kAll);
}

void CudaBackend::EndPass(bool complete) {
  graphs_.End(complete);
  arrays_.set_recordable(0);
}

void CudaBackend::Embed(const PackedMatrix& packed, const StepRows& rows, float* x) {
  const EmbeddingTable& table = EmbeddingTableOf(packed);
  if (table.on_device()) {
    arrays_.Send(rows);
    return table.Gather(context_.get(), arrays_.token_ids(), rows.num_rows, x);
  }
  BATON_CHECK_LE(rows.num_rows, pinned_rows_);
  context_->Synchronize();  // The last rows have left the page-locked buffer.
  table.MakeRows(rows, Floats(pinned_x_));
  context_->Upload(x, pinned_x_.get(), static_cast<size_t>(rows.num_rows * packed.in) * sizeof(float));
}

void CudaBackend::QkvRope(const LayerShape& shape, const LayerWeights& weights, const StepRows& rows, const float* inv_freq, const float* x,
                          float* q, const KvLayerView& kv) {
  arrays_.set_block_size(kv.block_size);
  arrays_.Send(rows);
  const float* const cos_sin = rotary_.Get(inv_freq, shape.head_dim, arrays_.longest_context());
  if (!status().ok()) return;
  const int64_t width = weights.qkv.out;
  for (int begin = 0; begin < rows.num_rows; begin += kRowBlock) {
    const int count = std::min(kRowBlock, rows.num_rows - begin);
    linear_.Run(Matrix(weights.qkv), InputNorm{weights.attn_norm.get(), shape.norm_eps}, count, x + int64_t{begin} * shape.hidden_size, Floats(wide_));
    RopeCacheParams p = {};
    p.qkv = Floats(wide_);
    p.bias = weights.qkv_bias.get();
    p.q_norm = weights.q_norm.get();
    p.k_norm = weights.k_norm.get();
    p.cos_sin = cos_sin;
    p.positions = arrays_.positions() + begin;
    p.slots = arrays_.slots() + begin;
    p.q = q + int64_t{begin} * shape.num_heads * shape.head_dim;
    p.kv = Pool(kv);
    p.norm_eps = shape.norm_eps;
    p.num_heads = shape.num_heads;
    p.interleaved = shape.rope_interleaved ? 1 : 0;
    const char* const kernel = kv.dtype == KvDtype::kF16 ? "rope_cache_f16" : "rope_cache_bf16";
    context_->Launch(kernel, {static_cast<unsigned>(count), Blocks(width / shape.head_dim, 4)}, 128, p);
  }
}

void CudaBackend::Attention(const LayerShape& shape, const StepRows& rows, const float* q, const KvLayerView& kv, float* attention) {
  arrays_.set_block_size(kv.block_size);
  arrays_.Send(rows);
  if (!status().ok()) return;
  kernels_ == CudaKernels::kPrefill ? PrefillAttention(shape, rows, q, kv, attention) : DecodeAttention(shape, rows, q, kv, attention);
}

void CudaBackend::PrefillAttention(const LayerShape& shape, const StepRows& rows, const float* q, const KvLayerView& kv, float* attention) {
  PrefillAttentionParams p = {};
  p.q = q;
  p.query_starts = arrays_.query_starts();
  p.positions = arrays_.positions();
  p.block_tables = arrays_.block_tables();
  p.out = attention;
  p.kv = Pool(kv);
  p.scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
  p.num_heads = shape.num_heads;
  p.max_blocks = arrays_.max_blocks();
  context_->Launch(PrefillKernel(shape, kv.dtype).c_str(),
                   {Blocks(arrays_.longest_sequence(), 64), static_cast<unsigned>(shape.num_heads), static_cast<unsigned>(rows.num_sequences)}, 128, p);
}

void CudaBackend::DecodeAttention(const LayerShape& shape, const StepRows& rows, const float* q, const KvLayerView& kv, float* attention) {
  const int num_splits = (arrays_.longest_context() + kSplitTokens - 1) / kSplitTokens;
  const int64_t q_width = int64_t{shape.num_heads} * shape.head_dim;
  const int64_t parts = int64_t{std::min(rows.num_rows, kRowBlock)} * shape.num_heads * num_splits;
  if (!Grow(&partial_, &partial_bytes_, static_cast<size_t>(parts * shape.head_dim) * sizeof(float))) return;
  if (!Grow(&partial_max_sum_, &partial_max_sum_bytes_, static_cast<size_t>(2 * parts) * sizeof(float))) return;
  const std::string kernel = DecodeKernel(shape, kv.dtype);
  for (int begin = 0; begin < rows.num_rows; begin += kRowBlock) {
    const unsigned count = static_cast<unsigned>(std::min(kRowBlock, rows.num_rows - begin));
    DecodeAttentionParams p = {};
    p.q = q + begin * q_width;
    p.block_tables = arrays_.block_tables();
    p.table_of = arrays_.table_of() + begin;
    p.context_lengths = arrays_.contexts() + begin;
    p.partial = Floats(partial_);
    p.partial_max_sum = Floats(partial_max_sum_);
    p.out = attention + begin * q_width;
    p.kv = Pool(kv);
    p.scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
    p.num_heads = shape.num_heads;
    p.max_blocks = arrays_.max_blocks();
    p.num_splits = num_splits;
    p.split_tokens = kSplitTokens;
    context_->Launch(kernel.c_str(), {static_cast<unsigned>(num_splits), static_cast<unsigned>(shape.num_kv_heads), count}, 128, p);
    context_->Launch("attention_combine", {static_cast<unsigned>(shape.num_heads), count}, static_cast<unsigned>(shape.head_dim), p);
  }
}

void CudaBackend::Add(float* x, const float* y, int64_t count) {
  context_->Launch("add_rows", {Blocks(count, 256)}, 256, x, y, static_cast<long long>(count));
}

void CudaBackend::AttentionOut(const LayerShape& shape, const LayerWeights& weights, int num_rows, const float* attention, float* x) {
  const int64_t q_width = int64_t{shape.num_heads} * shape.head_dim;
  for (int begin = 0; begin < num_rows; begin += kRowBlock) {
    const int count = std::min(kRowBlock, num_rows - begin);
    linear_.Run(Matrix(weights.attn_out), std::nullopt, count, attention + begin * q_width, Floats(narrow_));
    Add(x + int64_t{begin} * shape.hidden_size, Floats(narrow_), int64_t{count} * shape.hidden_size);
  }
}

void CudaBackend::Mlp(const LayerShape& shape, const LayerWeights& weights, int num_rows, float* x) {
  for (int begin = 0; begin < num_rows; begin += kRowBlock) {
    const int count = std::min(kRowBlock, num_rows - begin);
    float* const rows = x + int64_t{begin} * shape.hidden_size;
    linear_.Run(Matrix(weights.gate_up), InputNorm{weights.mlp_norm.get(), shape.norm_eps}, count, rows, Floats(wide_));
    linear_.RunSilu(Matrix(weights.down), count, Floats(wide_), Floats(narrow_));
    Add(rows, Floats(narrow_), int64_t{count} * shape.hidden_size);
  }
}

void CudaBackend::RunHead(const LayerShape& shape, const float* final_norm, const PackedMatrix& head, std::span<const int32_t> row_indices,
                          const float* x, std::span<const TokenChoice> choices, float* logits, int32_t* tokens) {
  const int64_t hidden = shape.hidden_size, num_rows = static_cast<int64_t>(row_indices.size());
  const int64_t block = std::min<int64_t>(num_rows, kHeadBlock);
  const size_t padded = static_cast<size_t>(linear_.PaddedRows(static_cast<int>(block)));
  bool all = true;  // Rows 0, 1, 2 ...: a decode step. They are taken where they lie.
  for (int64_t i = 0; i < num_rows; ++i) all = all && row_indices[static_cast<size_t>(i)] == i;
  if (!Grow(&head_indices_, &head_indices_bytes_, static_cast<size_t>(num_rows) * sizeof(int32_t))) return;
  if (!Grow(&head_rows_, &head_rows_bytes_, static_cast<size_t>(block * hidden) * sizeof(float))) return;
  if (!Grow(&logits_, &logits_bytes_, padded * static_cast<size_t>(head.out) * sizeof(float))) return;
  if (const absl::Status stored = all ? absl::OkStatus() : context_->Store(head_indices_.get(), row_indices.data(), row_indices.size_bytes()); !stored.ok()) {
    return context_->Fail(stored);
  }
  if (!choices.empty() && !graphs_.open()) chooser_.Send(choices);
  const bool to_host = choices.empty() || TokenChooser::AnyByHost(choices);
  for (int64_t begin = 0; begin < num_rows; begin += block) {
    const int64_t count = std::min(block, num_rows - begin);
    const int* const indices = reinterpret_cast<const int*>(head_indices_.get()) + begin;
    const float* const rows = all ? x + begin * hidden : Floats(head_rows_);
    if (!all) {
      context_->Launch("gather_rows", {Blocks(hidden, 256), static_cast<unsigned>(count)}, 256, x, indices, static_cast<int>(hidden), Floats(head_rows_));
    }
    linear_.Run(Matrix(head), InputNorm{final_norm, shape.norm_eps}, static_cast<int>(count), rows, Floats(logits_));
    if (to_host) context_->Download(logits + begin * head.out, logits_.get(), static_cast<size_t>(count * head.out) * sizeof(float));
    if (!choices.empty()) chooser_.Choose(static_cast<int>(begin), static_cast<int>(count), Floats(logits_), static_cast<int>(head.out));
  }
  if (!choices.empty()) chooser_.Download(tokens);
  context_->Synchronize();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(const CudaBackendOptions& options) {
  BATON_ASSIGN_OR_RETURN(std::shared_ptr<CudaContext> context, CudaContext::Open(options.driver, options.ordinal));
  return std::make_unique<CudaBackend>(std::move(context), options);
}

}  // namespace baton::cuda
