// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_FORMAT_TENSOR_H_
#define BATON_COMMON_FORMAT_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "common/format/ggml_types.h"

namespace baton {

// Row-major, slowest first, as in Hugging Face's files: a weight is [out_features, in_features]. A GGUF file writes its
// dimensions the other way round; GgufFile has turned them.
using TensorShape = absl::InlinedVector<int64_t, 4>;

// A tensor's bytes inside a mapped file. It owns its name and shape only: whoever uses `data` keeps the file open.
struct TensorView {
  std::string name;
  GgmlType type = GgmlType::kF32;
  TensorShape shape;
  const uint8_t* data = nullptr;  // Aligned to 8 bytes in GGUF files; in safetensors to nothing.
  size_t bytes = 0;               // Exactly TensorBytes(type, shape).

  std::span<const uint8_t> span() const { return {data, bytes}; }
  int64_t num_elements() const {
    int64_t n = 1;
    for (int64_t d : shape) n *= d;
    return n;
  }
};

// "[49152, 576]"
std::string ShapeToString(std::span<const int64_t> shape);

}  // namespace baton

#endif  // BATON_COMMON_FORMAT_TENSOR_H_
