// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_FORMAT_GGML_TYPES_H_
#define BATON_COMMON_FORMAT_GGML_TYPES_H_

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace baton {

// Element types of tensors, with the numbers that GGUF files use. The quantised types hold rows of blocks: a block is
// `block_length` consecutive elements of a row in `block_bytes` bytes.
enum class GgmlType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kIQ4_NL = 20,
  kIQ4_XS = 23,
  kI8 = 24,
  kI16 = 25,
  kI32 = 26,
  kI64 = 27,
  kF64 = 28,
  kBF16 = 30,
  kMXFP4 = 39,
  // A safetensors type with no counterpart above (BOOL, U8, F8_E4M3, ...): one-byte blocks nobody here computes with.
  kOpaque = 0xffffffff,
};

struct GgmlTypeTraits {
  GgmlType type;
  const char* name;      // As files and people write it: "Q4_1".
  int64_t block_length;  // Elements per block; 1 for the plain types.
  int64_t block_bytes;
  bool dequantizable;  // Dequantize() reads it.
};

// nullptr for a number that is no type above (or one this build does not read).
const GgmlTypeTraits* FindGgmlType(uint32_t number);

// Of one of the enumerators.
const GgmlTypeTraits& TraitsOf(GgmlType type);
inline const char* GgmlTypeName(GgmlType type) { return TraitsOf(type).name; }

// Bytes of a tensor of `shape` (row-major, slowest first; the last dimension is the row). Overflow-safe.
//   INVALID_ARGUMENT  negative dimension, a row that is no multiple of the block, or a size over 2^63 - 1.
absl::StatusOr<uint64_t> TensorBytes(GgmlType type, std::span<const int64_t> shape);

// Expands `count` elements (whole blocks) at the start of `bytes` into out[0, count), in fp32, bit-exact to ggml's own
// definition of each type. `bytes` needs no alignment. Any thread.
//   INVALID_ARGUMENT  count is no multiple of the block or negative, bytes are too few, or the type has no fp32
//   meaning.
absl::Status Dequantize(GgmlType type, std::span<const uint8_t> bytes, int64_t count, float* out);

}  // namespace baton

#endif  // BATON_COMMON_FORMAT_GGML_TYPES_H_
