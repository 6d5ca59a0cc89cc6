// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BACKEND_PACKING_H_
#define BATON_COMMON_BACKEND_PACKING_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/backend/backend.h"
#include "common/format/tensor.h"

namespace baton {

// What backends on the host share when they take in weights.

// Rows of all parts and their common number of columns.
struct StackedShape {
  int64_t rows = 0;
  int64_t columns = 0;
};

// Checks that `parts` are matrices of one width that can be dequantised, and adds up their rows.
//   INVALID_ARGUMENT  names the tensor and what is wrong with it.
absl::StatusOr<StackedShape> CheckMatrices(std::span<const TensorView> parts);

// The parts as one fp32 vector, concatenated.
//   INVALID_ARGUMENT  a type that cannot be dequantised.
absl::StatusOr<std::shared_ptr<const float[]>> DequantizeVector(std::span<const TensorView> parts);

// A table whose rows stay in the file's own form; impl is a TensorView. Gather with DequantizeRow.
absl::StatusOr<PackedMatrix> TableOverFile(const TensorView& table);

// out[table.in] = row `row` of a TableOverFile. CHECKs 0 <= row < table.out: token ids are validated with the request.
void DequantizeRow(const PackedMatrix& table, int64_t row, float* out);

// Zeroed memory of this process, 64-byte aligned; from 2 MiB on straight from the system, so that pages cost nothing until they
// are written. A few bytes behind the end are readable. RESOURCE_EXHAUSTED names the size.
absl::StatusOr<std::shared_ptr<uint8_t[]>> AllocateHostMemory(size_t bytes);

}  // namespace baton

#endif  // BATON_COMMON_BACKEND_PACKING_H_
