// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_FORMAT_GGUF_H_
#define BATON_COMMON_FORMAT_GGUF_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/format/mapped_file.h"
#include "common/format/tensor.h"

namespace baton {

// Types of metadata values, with the numbers the format uses.
enum class GgufValueType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

// One metadata value: where it lies in the file. Everything it says has been checked against the file's size.
struct GgufValue {
  GgufValueType type = GgufValueType::kU8;
  GgufValueType element_type = GgufValueType::kU8;  // Of an array's elements.
  uint64_t count = 1;                               // Elements of an array, bytes of a string, 1 for a scalar.
  uint64_t offset = 0;                              // Of the scalar, the string's first byte, or the first element.
};

struct GgufEntry {
  absl::string_view key;  // Into the mapping.
  GgufValue value;
};

// A GGUF file (version 2 or 3, little-endian), mapped and checked in full by Open: every length and offset against the
// file's size, without allocating from a count the file claims. Nothing in it is given a meaning but
// `general.alignment`. Immutable; any thread. Views that it hands out live as long as it does.
//
// A model in parts ("NAME-00001-of-00003.gguf", as llama-gguf-split writes them) is one file here: the first part's metadata
// and the tensors of all.
//
// The lookups name the key, the type wanted and the type found:
//   NOT_FOUND         no such key.
//   INVALID_ARGUMENT  another type, or a value outside the result's range.
class GgufFile {
 public:
  // Limits of this reader, above anything real files hold.
  static constexpr uint64_t kMaxTensorNameBytes = 64;
  static constexpr uint64_t kMaxKeyBytes = 65535;
  static constexpr uint64_t kMaxAlignment = uint64_t{1} << 20;
  static constexpr uint32_t kMaxDims = 4;

  // Codes of MappedFile::Open, and INVALID_ARGUMENT for a file that is malformed ("model.gguf: byte 24: ...") or
  // FAILED_PRECONDITION for one that is well-formed but of a kind this reader does not know (version 1, big-endian, a
  // tensor type without an implementation). Of a model in parts `path` is the first, the others are beside it:
  //   NOT_FOUND         a part is missing (names it).
  //   INVALID_ARGUMENT  `path` is not the first part or not named like one, or the parts contradict each other.
  static absl::StatusOr<std::shared_ptr<const GgufFile>> Open(absl::string_view path);

  // The same over bytes that the caller keeps alive; `name` is what messages call the file. Of a model in parts it is one
  // part alone.
  static absl::StatusOr<std::shared_ptr<const GgufFile>> Parse(std::span<const uint8_t> bytes, absl::string_view name);

  const std::string& path() const { return path_; }
  uint32_t version() const { return version_; }
  uint64_t num_parts() const { return 1 + more_parts_.size(); }  // That have been read.
  uint64_t alignment() const { return alignment_; }
  uint64_t data_offset() const { return data_offset_; }  // Of the first tensor byte, from the start of the file.

  std::span<const GgufEntry> entries() const { return entries_; }  // In file order.
  bool Has(absl::string_view key) const { return Find(key) != nullptr; }
  const GgufValue* Find(absl::string_view key) const;

  absl::StatusOr<absl::string_view> GetString(absl::string_view key) const;
  absl::StatusOr<uint64_t> GetU64(absl::string_view key) const;  // From any integer type; negative is refused.
  absl::StatusOr<int64_t> GetI64(absl::string_view key) const;   // From any integer type.
  absl::StatusOr<double> GetF64(absl::string_view key) const;    // From f32 or f64; may be NaN or infinite.
  absl::StatusOr<bool> GetBool(absl::string_view key) const;
  absl::StatusOr<std::vector<absl::string_view>> GetStringArray(absl::string_view key) const;
  absl::StatusOr<std::vector<int64_t>> GetI64Array(absl::string_view key) const;  // From any integer element type.
  absl::StatusOr<std::vector<float>> GetF32Array(absl::string_view key) const;    // From f32 elements only.

  // The same, with `fallback` where the key is absent (a value of another type is still an error).
  absl::StatusOr<uint64_t> GetU64Or(absl::string_view key, uint64_t fallback) const;
  absl::StatusOr<double> GetF64Or(absl::string_view key, double fallback) const;
  absl::StatusOr<bool> GetBoolOr(absl::string_view key, bool fallback) const;
  absl::StatusOr<absl::string_view> GetStringOr(absl::string_view key, absl::string_view fallback) const;

  std::span<const TensorView> tensors() const { return tensors_; }  // In file order, part by part.
  const TensorView* FindTensor(absl::string_view name) const;       // nullptr if absent.

 private:
  friend class GgufParser;
  GgufFile() = default;

  absl::Status TypeError(absl::string_view key, absl::string_view wanted, const GgufValue& found) const;
  absl::StatusOr<const GgufValue*> Require(absl::string_view key) const;
  static absl::StatusOr<std::shared_ptr<GgufFile>> OpenPart(absl::string_view path);
  absl::Status AddParts();
  absl::Status AddPart(std::shared_ptr<const GgufFile> part, uint64_t index, uint64_t count);

  std::shared_ptr<const MappedFile> file_;  // Null for Parse.
  std::vector<std::shared_ptr<const GgufFile>> more_parts_;
  std::string path_;
  std::span<const uint8_t> bytes_;
  uint32_t version_ = 0;
  uint64_t alignment_ = 32;
  uint64_t data_offset_ = 0;
  std::vector<GgufEntry> entries_;
  std::vector<TensorView> tensors_;
  absl::flat_hash_map<absl::string_view, size_t> entry_index_;
  absl::flat_hash_map<std::string, size_t> tensor_index_;
};

// "u32", "string", "array of f32"
std::string GgufTypeName(const GgufValue& value);

}  // namespace baton

#endif  // BATON_COMMON_FORMAT_GGUF_H_
