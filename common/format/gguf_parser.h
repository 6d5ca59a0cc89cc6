// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_FORMAT_GGUF_PARSER_H_
#define BATON_COMMON_FORMAT_GGUF_PARSER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/format/gguf.h"

namespace baton {

// Bytes of one scalar of `type`; 0 for strings, arrays and unknown types.
uint64_t GgufScalarBytes(GgufValueType type);

// Reads a GGUF container front to back into a GgufFile. Internal to GgufFile::Open and Parse.
class GgufParser {
 public:
  explicit GgufParser(GgufFile* file) : file_(*file), bytes_(file->bytes_) {}
  absl::Status Run();

 private:
  absl::Status ReadHeader(uint64_t* num_tensors, uint64_t* num_entries);
  absl::Status ReadEntry(uint64_t index);
  absl::Status ReadScalar(GgufValueType type);
  absl::Status ReadArray(GgufValue* value);
  absl::Status ReadAlignment();
  absl::Status ReadTensor(uint64_t index);
  absl::Status PlaceTensors();
  absl::Status CheckTiling() const;

  // Each reads at `at_` and moves on. `what` names the thing in the error.
  absl::Status ReadU32(const char* what, uint32_t* value);
  absl::Status ReadU64(const char* what, uint64_t* value);
  absl::Status ReadString(const char* what, uint64_t max_bytes, absl::string_view* value);

  uint64_t left() const { return bytes_.size() - at_; }
  absl::Status Error(uint64_t offset, const std::string& reason) const;
  absl::Status Unsupported(uint64_t offset, const std::string& reason) const;

  GgufFile& file_;
  const std::span<const uint8_t> bytes_;
  uint64_t at_ = 0;
  std::vector<uint64_t> relative_offsets_;  // Per tensor, from the start of the data section.
  std::vector<uint64_t> offset_fields_;     // Per tensor, where its offset is written, for messages.
};

}  // namespace baton

#endif  // BATON_COMMON_FORMAT_GGUF_PARSER_H_
