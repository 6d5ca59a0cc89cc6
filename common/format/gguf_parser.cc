// SPDX-License-Identifier: Apache-2.0
#include "common/format/gguf_parser.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <numeric>

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

constexpr uint64_t kMinEntryBytes = 8 + 4 + 1;           // Empty key, type, one-byte value.
constexpr uint64_t kMinTensorBytes = 8 + 4 + 8 + 4 + 8;  // Empty name, one dimension, type, offset.

bool IsKnownType(uint32_t type) { return type <= static_cast<uint32_t>(GgufValueType::kF64); }

// Types that ggml defines (or defined) and Dequantize() does not read, so that the refusal can say which it is.
const char* UnreadTypeName(uint32_t type) {
  switch (type) {
    case 4:
      return "Q4_2 (withdrawn)";
    case 5:
      return "Q4_3 (withdrawn)";
    case 9:
      return "Q8_1";
    case 15:
      return "Q8_K";
    case 16:
      return "IQ2_XXS";
    case 17:
      return "IQ2_XS";
    case 18:
      return "IQ3_XXS";
    case 19:
      return "IQ1_S";
    case 21:
      return "IQ3_S";
    case 22:
      return "IQ2_S";
    case 29:
      return "IQ1_M";
    case 34:
      return "TQ1_0";
    case 35:
      return "TQ2_0";
    default:
      return nullptr;
  }
}

}  // namespace

uint64_t GgufScalarBytes(GgufValueType type) {
  switch (type) {
    case GgufValueType::kU8:
    case GgufValueType::kI8:
    case GgufValueType::kBool:
      return 1;
    case GgufValueType::kU16:
    case GgufValueType::kI16:
      return 2;
    case GgufValueType::kU32:
    case GgufValueType::kI32:
    case GgufValueType::kF32:
      return 4;
    case GgufValueType::kU64:
    case GgufValueType::kI64:
    case GgufValueType::kF64:
      return 8;
    default:
      return 0;
  }
}

absl::Status GgufParser::Error(uint64_t offset, const std::string& reason) const {
  return absl::InvalidArgumentError(absl::StrFormat("%s: byte %d: %s", file_.path_, offset, reason));
}

absl::Status GgufParser::Unsupported(uint64_t offset, const std::string& reason) const {
  return absl::FailedPreconditionError(absl::StrFormat("%s: byte %d: %s", file_.path_, offset, reason));
}

absl::Status GgufParser::ReadU32(const char* what, uint32_t* value) {
  if (left() < 4) return Error(at_, absl::StrFormat("file ends inside %s: 4 bytes needed, %d left", what, left()));
  memcpy(value, bytes_.data() + at_, 4);
  at_ += 4;
  return absl::OkStatus();
}

absl::Status GgufParser::ReadU64(const char* what, uint64_t* value) {
  if (left() < 8) return Error(at_, absl::StrFormat("file ends inside %s: 8 bytes needed, %d left", what, left()));
  memcpy(value, bytes_.data() + at_, 8);
  at_ += 8;
  return absl::OkStatus();
}

absl::Status GgufParser::ReadString(const char* what, uint64_t max_bytes, absl::string_view* value) {
  const uint64_t start = at_;
  uint64_t length = 0;
  BATON_RETURN_IF_ERROR(ReadU64(what, &length));
  if (length > left()) {
    return Error(start, absl::StrFormat("length of %s is %d bytes, the file has %d left", what, length, left()));
  }
  if (length > max_bytes) {
    return Error(start, absl::StrFormat("length of %s is %d bytes, the limit is %d", what, length, max_bytes));
  }
  *value = absl::string_view(reinterpret_cast<const char*>(bytes_.data() + at_), length);
  at_ += length;
  return absl::OkStatus();
}

absl::Status GgufParser::Run() {
  static_assert(std::endian::native == std::endian::little, "the mapping is read in place");
  uint64_t num_tensors = 0, num_entries = 0;
  BATON_RETURN_IF_ERROR(ReadHeader(&num_tensors, &num_entries));
  for (uint64_t i = 0; i < num_entries; ++i) BATON_RETURN_IF_ERROR(ReadEntry(i));
  BATON_RETURN_IF_ERROR(ReadAlignment());
  if (num_tensors > left() / kMinTensorBytes) {
    return Error(8, absl::StrFormat("%d tensors claimed, the %d bytes left hold at most %d", num_tensors, left(),
                                    left() / kMinTensorBytes));
  }
  for (uint64_t i = 0; i < num_tensors; ++i) BATON_RETURN_IF_ERROR(ReadTensor(i));
  return PlaceTensors();
}

absl::Status GgufParser::ReadHeader(uint64_t* num_tensors, uint64_t* num_entries) {
  if (bytes_.size() < 4 || memcmp(bytes_.data(), "GGUF", 4) != 0) {
    if (bytes_.size() >= 2 && bytes_[0] == 0x1f && bytes_[1] == 0x8b) {
      return Error(0, "not a GGUF file but a gzip archive: decompress it first");
    }
    const std::string start(reinterpret_cast<const char*>(bytes_.data()), std::min<size_t>(bytes_.size(), 4));
    return Error(0, absl::StrFormat("not a GGUF file: it starts with \"%s\", not \"GGUF\"", absl::CHexEscape(start)));
  }
  at_ = 4;
  BATON_RETURN_IF_ERROR(ReadU32("the version", &file_.version_));
  if (file_.version_ != 2 && file_.version_ != 3) {
    const uint32_t swapped = __builtin_bswap32(file_.version_);
    if (swapped >= 1 && swapped <= 3) {
      return Unsupported(4, absl::StrFormat("big-endian GGUF (version %d) is not supported", swapped));
    }
    return Unsupported(4, absl::StrFormat("GGUF version %d is not supported, versions 2 and 3 are", file_.version_));
  }
  BATON_RETURN_IF_ERROR(ReadU64("the number of tensors", num_tensors));
  BATON_RETURN_IF_ERROR(ReadU64("the number of metadata entries", num_entries));
  if (*num_entries > left() / kMinEntryBytes) {
    return Error(16, absl::StrFormat("%d metadata entries claimed, the %d bytes left hold at most %d", *num_entries,
                                     left(), left() / kMinEntryBytes));
  }
  return absl::OkStatus();
}

absl::Status GgufParser::ReadEntry(uint64_t index) {
  const uint64_t start = at_;
  GgufEntry entry;
  BATON_RETURN_IF_ERROR(ReadString("a key", GgufFile::kMaxKeyBytes, &entry.key));
  const std::string key = absl::CHexEscape(entry.key.substr(0, 200));
  if (entry.key.empty()) return Error(start, absl::StrFormat("metadata entry %d has an empty key", index));
  if (!file_.entry_index_.emplace(entry.key, file_.entries_.size()).second) {
    return Error(start, absl::StrFormat("key %s occurs twice", key));
  }
  uint32_t type = 0;
  BATON_RETURN_IF_ERROR(ReadU32("a value type", &type));
  if (!IsKnownType(type)) return Error(at_ - 4, absl::StrFormat("key %s: unknown value type %d", key, type));
  entry.value.type = static_cast<GgufValueType>(type);
  absl::Status status;
  if (entry.value.type == GgufValueType::kString) {
    absl::string_view text;
    status = ReadString("a string value", std::numeric_limits<uint64_t>::max(), &text);
    entry.value.count = text.size();
    entry.value.offset = at_ - text.size();
  } else if (entry.value.type == GgufValueType::kArray) {
    status = ReadArray(&entry.value);
  } else {
    entry.value.offset = at_;
    status = ReadScalar(entry.value.type);
  }
  if (!status.ok()) return absl::Status(status.code(), absl::StrCat(status.message(), " (key ", key, ")"));
  file_.entries_.push_back(entry);
  return absl::OkStatus();
}

absl::Status GgufParser::ReadScalar(GgufValueType type) {
  const uint64_t size = GgufScalarBytes(type);
  if (left() < size) {
    return Error(at_, absl::StrFormat("file ends inside a value: %d bytes needed, %d left", size, left()));
  }
  if (type == GgufValueType::kBool && bytes_[at_] > 1) {
    return Error(at_, absl::StrFormat("bool value is %d, neither 0 nor 1", bytes_[at_]));
  }
  at_ += size;
  return absl::OkStatus();
}

absl::Status GgufParser::ReadArray(GgufValue* value) {
  const uint64_t start = at_;
  uint32_t type = 0;
  BATON_RETURN_IF_ERROR(ReadU32("an array's element type", &type));
  if (!IsKnownType(type)) return Error(start, absl::StrFormat("unknown array element type %d", type));
  value->element_type = static_cast<GgufValueType>(type);
  if (value->element_type == GgufValueType::kArray) return Error(start, "an array of arrays is not supported");
  BATON_RETURN_IF_ERROR(ReadU64("an array's length", &value->count));
  value->offset = at_;
  const bool strings = value->element_type == GgufValueType::kString;
  const uint64_t min_bytes = strings ? 8 : GgufScalarBytes(value->element_type);
  if (value->count > left() / min_bytes) {
    return Error(start + 4, absl::StrFormat("array of %d elements of at least %d bytes, the file has %d left",
                                            value->count, min_bytes, left()));
  }
  if (strings) {
    for (uint64_t i = 0; i < value->count; ++i) {
      absl::string_view text;
      BATON_RETURN_IF_ERROR(ReadString("an array's string", std::numeric_limits<uint64_t>::max(), &text));
    }
    return absl::OkStatus();
  }
  if (value->element_type == GgufValueType::kBool) {
    for (uint64_t i = 0; i < value->count; ++i) BATON_RETURN_IF_ERROR(ReadScalar(value->element_type));
    return absl::OkStatus();
  }
  at_ += value->count * min_bytes;
  return absl::OkStatus();
}

absl::Status GgufParser::ReadAlignment() {
  const GgufValue* value = file_.Find("general.alignment");
  if (value == nullptr) return absl::OkStatus();
  if (value->type != GgufValueType::kU32) {
    return Error(value->offset, absl::StrCat("general.alignment: expected u32, found ", GgufTypeName(*value)));
  }
  uint32_t alignment = 0;
  memcpy(&alignment, bytes_.data() + value->offset, 4);
  if (!std::has_single_bit(alignment) || alignment < 8 || alignment > GgufFile::kMaxAlignment) {
    return Error(value->offset, absl::StrFormat("general.alignment is %d, not a power of two in [8, %d]", alignment,
                                                GgufFile::kMaxAlignment));
  }
  file_.alignment_ = alignment;
  return absl::OkStatus();
}

absl::Status GgufParser::ReadTensor(uint64_t index) {
  const uint64_t start = at_;
  absl::string_view raw_name;
  BATON_RETURN_IF_ERROR(ReadString("a tensor name", GgufFile::kMaxTensorNameBytes, &raw_name));
  if (raw_name.empty()) return Error(start, absl::StrFormat("tensor %d has an empty name", index));
  const std::string name = absl::CHexEscape(raw_name);
  TensorView tensor;
  tensor.name = std::string(raw_name);
  if (!file_.tensor_index_.emplace(tensor.name, file_.tensors_.size()).second) {
    return Error(start, absl::StrFormat("tensor %s occurs twice", name));
  }
  uint32_t num_dims = 0;
  BATON_RETURN_IF_ERROR(ReadU32("a tensor's number of dimensions", &num_dims));
  if (num_dims < 1 || num_dims > GgufFile::kMaxDims) {
    return Error(at_ - 4, absl::StrFormat("tensor %s has %d dimensions, 1 to %d are allowed", name, num_dims,
                                          GgufFile::kMaxDims));
  }
  const uint64_t dims_start = at_;
  for (uint32_t i = 0; i < num_dims; ++i) {
    uint64_t dim = 0;
    BATON_RETURN_IF_ERROR(ReadU64("a tensor's dimension", &dim));
    if (dim == 0 || dim > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return Error(at_ - 8, absl::StrFormat("tensor %s: dimension %d is %d, not in [1, 2^63 - 1]", name, i, dim));
    }
    tensor.shape.push_back(static_cast<int64_t>(dim));
  }
  std::reverse(tensor.shape.begin(), tensor.shape.end());  // The file writes the fastest first.
  uint32_t type = 0;
  BATON_RETURN_IF_ERROR(ReadU32("a tensor's type", &type));
  const GgmlTypeTraits* traits = FindGgmlType(type);
  if (traits == nullptr) {
    if (const char* unread = UnreadTypeName(type)) {
      return Unsupported(at_ - 4, absl::StrFormat("tensor %s: type %s is not supported", name, unread));
    }
    return Error(at_ - 4, absl::StrFormat("tensor %s: unknown type %d", name, type));
  }
  tensor.type = traits->type;
  const absl::StatusOr<uint64_t> size = TensorBytes(tensor.type, tensor.shape);
  if (!size.ok()) return Error(dims_start, absl::StrCat("tensor ", name, ": ", size.status().message()));
  tensor.bytes = *size;
  uint64_t offset = 0;
  BATON_RETURN_IF_ERROR(ReadU64("a tensor's offset", &offset));
  if (offset % file_.alignment_ != 0) {
    return Error(at_ - 8, absl::StrFormat("tensor %s: offset %d is no multiple of the alignment %d", name, offset,
                                          file_.alignment_));
  }
  relative_offsets_.push_back(offset);
  offset_fields_.push_back(at_ - 8);
  file_.tensors_.push_back(std::move(tensor));
  return absl::OkStatus();
}

absl::Status GgufParser::PlaceTensors() {
  file_.data_offset_ = (at_ + file_.alignment_ - 1) / file_.alignment_ * file_.alignment_;
  const uint64_t room = bytes_.size() > file_.data_offset_ ? bytes_.size() - file_.data_offset_ : 0;
  for (size_t i = 0; i < file_.tensors_.size(); ++i) {
    TensorView& tensor = file_.tensors_[i];
    const uint64_t offset = relative_offsets_[i];
    if (offset > room || tensor.bytes > room - offset) {
      return Error(
          offset_fields_[i],
          absl::StrFormat("tensor %s: offset %d + %d bytes end outside the file, whose data section has %d bytes "
                          "from byte %d",
                          absl::CHexEscape(tensor.name), offset, tensor.bytes, room, file_.data_offset_));
    }
    tensor.data = bytes_.data() + file_.data_offset_ + offset;
  }
  return CheckTiling();
}

// The tensors tile the data section, each padded to the alignment, as every writer lays them out. So a type or a
// dimension that was changed shows, even where the bytes would still be inside the file.
absl::Status GgufParser::CheckTiling() const {
  std::vector<size_t> order(file_.tensors_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return relative_offsets_[a] < relative_offsets_[b]; });
  const uint64_t alignment = file_.alignment_;
  uint64_t end = 0;  // Padded. The padding of the last tensor may be missing.
  for (size_t i : order) {
    const TensorView& tensor = file_.tensors_[i];
    if (relative_offsets_[i] != end) {
      return Error(offset_fields_[i], absl::StrFormat("tensor %s has offset %d, the tensor before ends at %d: %s",
                                                      absl::CHexEscape(tensor.name), relative_offsets_[i], end,
                                                      relative_offsets_[i] < end ? "overlap" : "hole"));
    }
    end = relative_offsets_[i] + (tensor.bytes + alignment - 1) / alignment * alignment;
  }
  const uint64_t data_bytes = bytes_.size() > file_.data_offset_ ? bytes_.size() - file_.data_offset_ : 0;
  if (!order.empty() && data_bytes > end) {
    return Error(file_.data_offset_ + end, absl::StrFormat("%d bytes follow the last tensor", data_bytes - end));
  }
  return absl::OkStatus();
}

}  // namespace baton
