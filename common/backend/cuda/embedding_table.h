// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BACKEND_CUDA_EMBEDDING_TABLE_H_
#define BATON_COMMON_BACKEND_CUDA_EMBEDDING_TABLE_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "common/backend/backend.h"
#include "common/backend/cuda/cuda_context.h"

namespace baton::cuda {

// The rows that a step's tokens begin with. Of the types that a kernel dequantises the table lies on the device, as it lies in the file; of
// others the host makes them. Immutable.
struct EmbeddingTable {
  bool on_device() const { return kernel != nullptr; }
  // x[row, width] = table[token_ids[row]], dequantised exactly: ordered on the compute stream. `token_ids` is the device's.
  void Gather(CudaContext* context, const int* token_ids, int num_rows, float* x) const;
  // The same rows by the host, into memory of the host.
  void MakeRows(const StepRows& rows, float* x) const;

  PackedMatrix file;  // TableOverFile's.
  const char* kernel = nullptr;  // Null: the host's.
  std::shared_ptr<uint8_t[]> memory;
  int64_t row_bytes = 0;
};

// As Backend::PackTable. RESOURCE_EXHAUSTED names the size.
absl::StatusOr<PackedMatrix> PackEmbeddingTable(CudaContext* context, const TensorView& tensor);
const EmbeddingTable& EmbeddingTableOf(const PackedMatrix& packed);

}  // namespace baton::cuda

#endif  // BATON_COMMON_BACKEND_CUDA_EMBEDDING_TABLE_H_
