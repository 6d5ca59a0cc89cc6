// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_SUPPORT_GGUF_WRITER_H_
#define BATON_TESTS_SUPPORT_GGUF_WRITER_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/format/ggml_types.h"
#include "common/format/gguf.h"
#include "tests/support/temp_files.h"  // For what was built.

namespace baton::testing {

// Builds GGUF files in memory, good ones and bad ones. Nothing is checked: what the test says is written. Setting a key
// again replaces its value in place.
class GgufWriter {
 public:
  struct Tensor {
    std::string name;
    uint32_t type = 0;
    std::vector<int64_t> shape;  // Row-major, slowest first; written reversed.
    std::string data;
  };
  // A u32 or u64 of the header, of a string length, an array length or a tensor info, for tests that spoil them in
  // turn.
  struct Field {
    std::string what;  // "number of tensors", "tensor blk.0.attn_q.weight: dimension 1", ...
    size_t offset = 0;
    int bytes = 0;  // 4 or 8
  };

  uint32_t version = 3;
  uint32_t alignment = 32;  // Of the layout; written as general.alignment unless it is 32.
  std::vector<Tensor> tensors;

  GgufWriter& SetU32(absl::string_view key, uint32_t value);
  GgufWriter& SetI32(absl::string_view key, int32_t value);
  GgufWriter& SetU64(absl::string_view key, uint64_t value);
  GgufWriter& SetF32(absl::string_view key, float value);
  GgufWriter& SetBool(absl::string_view key, bool value);
  GgufWriter& SetString(absl::string_view key, absl::string_view value);
  GgufWriter& SetStrings(absl::string_view key, const std::vector<std::string>& values);
  GgufWriter& SetI32s(absl::string_view key, const std::vector<int32_t>& values);
  GgufWriter& SetF32s(absl::string_view key, const std::vector<float>& values);
  // `payload`: everything after the type number, as it is to lie in the file.
  GgufWriter& SetRaw(absl::string_view key, GgufValueType type, std::string payload);
  GgufWriter& Remove(absl::string_view key);
  // Adds a second entry of a key that is already there.
  GgufWriter& Duplicate(absl::string_view key);
  std::vector<std::string> Keys() const;

  GgufWriter& AddTensor(absl::string_view name, GgmlType type, std::vector<int64_t> shape, std::string data);
  Tensor& tensor(absl::string_view name);  // Aborts if absent.
  GgufWriter& RemoveTensor(absl::string_view name);

  // The file. `fields`, if given, receives where the numbers lie; `data_offset` where the tensor data begins.
  std::string Build(std::vector<Field>* fields = nullptr, size_t* data_offset = nullptr) const;

 private:
  struct Entry {
    std::string key;
    GgufValueType type;
    std::string payload;
  };
  std::vector<Entry> entries_;
};

// Values in the bytes of `type`: F32, F16, BF16, Q8_0, Q4_0, Q4_1 (plain round-to-nearest quantisers; aborts for
// others). Whole blocks.
std::string Quantize(GgmlType type, std::span<const float> values);

// Blocks of any block type with random quants and scales such that values are about `magnitude` in size. For the types
// without a quantiser above.
std::string RandomBlocks(GgmlType type, int64_t count, float magnitude, uint64_t seed);

}  // namespace baton::testing

#endif  // BATON_TESTS_SUPPORT_GGUF_WRITER_H_
