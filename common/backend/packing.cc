// SPDX-License-Identifier: Apache-2.0
#include "common/backend/packing.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"

namespace baton {

absl::StatusOr<StackedShape> CheckMatrices(std::span<const TensorView> parts) {
  if (parts.empty()) return absl::InvalidArgumentError("no tensor to pack");
  StackedShape shape;
  for (const TensorView& part : parts) {
    if (part.shape.size() != 2 || part.shape[0] < 1 || part.shape[1] < 1) {
      return absl::InvalidArgumentError(
          absl::StrFormat("tensor %s has shape %s, expected a matrix", part.name, ShapeToString(part.shape)));
    }
    if (!TraitsOf(part.type).dequantizable) {
      return absl::InvalidArgumentError(
          absl::StrFormat("tensor %s has type %s, which cannot be computed with", part.name, GgmlTypeName(part.type)));
    }
    if (shape.rows > 0 && part.shape[1] != shape.columns) {
      return absl::InvalidArgumentError(absl::StrFormat("tensor %s has %d columns, %s has %d", part.name, part.shape[1],
                                                        parts.front().name, shape.columns));
    }
    shape.columns = part.shape[1];
    shape.rows += part.shape[0];
  }
  return shape;
}

absl::StatusOr<std::shared_ptr<const float[]>> DequantizeVector(std::span<const TensorView> parts) {
  int64_t length = 0;
  for (const TensorView& part : parts) length += part.num_elements();
  BATON_ASSIGN_OR_RETURN(std::shared_ptr<uint8_t[]> memory, AllocateHostMemory(static_cast<size_t>(length) * 4));
  float* out = reinterpret_cast<float*>(memory.get());
  for (const TensorView& part : parts) {
    if (absl::Status status = Dequantize(part.type, part.span(), part.num_elements(), out); !status.ok()) {
      return Annotate(status, absl::StrFormat("tensor %s", part.name));
    }
    out += part.num_elements();
  }
  return std::shared_ptr<const float[]>(memory, reinterpret_cast<const float*>(memory.get()));
}

absl::StatusOr<PackedMatrix> TableOverFile(const TensorView& table) {
  BATON_ASSIGN_OR_RETURN(const StackedShape shape, CheckMatrices({&table, 1}));
  PackedMatrix packed;
  packed.out = shape.rows;
  packed.in = shape.columns;
  packed.bytes = table.bytes / static_cast<size_t>(shape.rows);  // One row per token.
  packed.impl = std::make_shared<const TensorView>(table);
  return packed;
}

void DequantizeRow(const PackedMatrix& table, int64_t row, float* out) {
  const TensorView& tensor = *static_cast<const TensorView*>(table.impl.get());
  BATON_CHECK(row >= 0 && row < table.out) << "token " << row << " of " << table.out;
  const size_t row_bytes = tensor.bytes / static_cast<size_t>(table.out);
  const absl::Status status =
      Dequantize(tensor.type, tensor.span().subspan(static_cast<size_t>(row) * row_bytes, row_bytes), table.in, out);
  BATON_CHECK(status.ok()) << status.message();
}

absl::StatusOr<std::shared_ptr<uint8_t[]>> AllocateHostMemory(size_t bytes) {
  constexpr size_t kAlignment = 64;
  constexpr size_t kMapFrom = size_t{2} << 20;
  constexpr size_t kSlack = 64;  // Vector loads may read past the end, never write.
  const auto exhausted = [&] {
    return absl::ResourceExhaustedError(absl::StrFormat("cannot allocate %d bytes", static_cast<int64_t>(bytes)));
  };
  if (bytes > SIZE_MAX / 2) return exhausted();
  const size_t size = (bytes + kSlack + kAlignment - 1) / kAlignment * kAlignment;
  if (size >= kMapFrom) {
    void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return exhausted();
    madvise(memory, size, MADV_HUGEPAGE);  // A wish: the kernel may have none to offer.
    return std::shared_ptr<uint8_t[]>(static_cast<uint8_t*>(memory), [size](uint8_t* p) { munmap(p, size); });
  }
  void* memory = std::aligned_alloc(kAlignment, size);
  if (memory == nullptr) return exhausted();
  std::memset(memory, 0, size);
  return std::shared_ptr<uint8_t[]>(static_cast<uint8_t*>(memory), [](uint8_t* p) { std::free(p); });
}

}  // namespace baton
