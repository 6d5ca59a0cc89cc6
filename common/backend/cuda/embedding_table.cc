// SPDX-License-Identifier: Apache-2.0
#include "common/backend/cuda/embedding_table.h"

#include <utility>

#include "common/backend/packing.h"
#include "common/base/status_macros.h"

namespace baton::cuda {
namespace {

const char* KernelOf(GgmlType type) {
  switch (type) {
    case GgmlType::kF32: return "embed_f32";
    case GgmlType::kF16: return "embed_f16";
    case GgmlType::kBF16: return "embed_bf16";
    case GgmlType::kQ4_0: return "embed_q4_0";
    case GgmlType::kQ4_1: return "embed_q4_1";
    case GgmlType::kQ5_0: return "embed_q5_0";
    case GgmlType::kQ5_1: return "embed_q5_1";
    case GgmlType::kQ8_0: return "embed_q8_0";
    default: return nullptr;
  }
}

}  // namespace

absl::StatusOr<PackedMatrix> PackEmbeddingTable(CudaContext* context, const TensorView& tensor) {
  EmbeddingTable table;
  BATON_ASSIGN_OR_RETURN(table.file, TableOverFile(tensor));
  PackedMatrix packed = table.file;
  table.kernel = KernelOf(tensor.type);
  if (table.on_device()) {
    table.row_bytes = static_cast<int64_t>(tensor.bytes) / packed.out;
    BATON_ASSIGN_OR_RETURN(table.memory, context->Allocate(tensor.bytes));
    BATON_RETURN_IF_ERROR(context->Store(table.memory.get(), tensor.data, tensor.bytes));
  }
  packed.impl = std::make_shared<const EmbeddingTable>(std::move(table));
  return packed;
}

const EmbeddingTable& EmbeddingTableOf(const PackedMatrix& packed) { return *static_cast<const EmbeddingTable*>(packed.impl.get()); }

void EmbeddingTable::Gather(CudaContext* context, const int* token_ids, int num_rows, float* x) const {
  const int width = static_cast<int>(file.in);
  context->Launch(kernel, {static_cast<unsigned>((width + 255) / 256), static_cast<unsigned>(num_rows)}, 256, static_cast<const uint8_t*>(memory.get()),
                  static_cast<long long>(row_bytes), token_ids, width, x);
}

void EmbeddingTable::MakeRows(const StepRows& rows, float* x) const {
  for (int row = 0; row < rows.num_rows; ++row) DequantizeRow(file, rows.token_ids[row], x + row * file.in);
}

}  // namespace baton::cuda
