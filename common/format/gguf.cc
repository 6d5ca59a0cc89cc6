// SPDX-License-Identifier: Apache-2.0
#include "common/format/gguf.h"

#include <cstring>
#include <limits>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/format/gguf_parser.h"

namespace baton {
namespace {

const char* ScalarTypeName(GgufValueType type) {
  switch (type) {
    case GgufValueType::kU8:
      return "u8";
    case GgufValueType::kI8:
      return "i8";
    case GgufValueType::kU16:
      return "u16";
    case GgufValueType::kI16:
      return "i16";
    case GgufValueType::kU32:
      return "u32";
    case GgufValueType::kI32:
      return "i32";
    case GgufValueType::kF32:
      return "f32";
    case GgufValueType::kBool:
      return "bool";
    case GgufValueType::kString:
      return "string";
    case GgufValueType::kArray:
      return "array";
    case GgufValueType::kU64:
      return "u64";
    case GgufValueType::kI64:
      return "i64";
    case GgufValueType::kF64:
      return "f64";
  }
  return "unknown";
}

template <typename T>
T Load(const uint8_t* p) {
  T value;
  memcpy(&value, p, sizeof(T));
  return value;
}

bool IsInteger(GgufValueType type) {
  switch (type) {
    case GgufValueType::kU8:
    case GgufValueType::kI8:
    case GgufValueType::kU16:
    case GgufValueType::kI16:
    case GgufValueType::kU32:
    case GgufValueType::kI32:
    case GgufValueType::kU64:
    case GgufValueType::kI64:
      return true;
    default:
      return false;
  }
}

// False if the value is over 2^63 - 1.
bool LoadInteger(GgufValueType type, const uint8_t* p, int64_t* value) {
  switch (type) {
    case GgufValueType::kU8:
      *value = Load<uint8_t>(p);
      return true;
    case GgufValueType::kI8:
      *value = Load<int8_t>(p);
      return true;
    case GgufValueType::kU16:
      *value = Load<uint16_t>(p);
      return true;
    case GgufValueType::kI16:
      *value = Load<int16_t>(p);
      return true;
    case GgufValueType::kU32:
      *value = Load<uint32_t>(p);
      return true;
    case GgufValueType::kI32:
      *value = Load<int32_t>(p);
      return true;
    case GgufValueType::kI64:
      *value = Load<int64_t>(p);
      return true;
    case GgufValueType::kU64: {
      const uint64_t bits = Load<uint64_t>(p);
      *value = static_cast<int64_t>(bits);
      return bits <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    }
    default:
      return false;
  }
}

}  // namespace

std::string GgufTypeName(const GgufValue& value) {
  if (value.type != GgufValueType::kArray) return ScalarTypeName(value.type);
  return absl::StrCat("array of ", ScalarTypeName(value.element_type));
}

absl::StatusOr<std::shared_ptr<const GgufFile>> GgufFile::Open(absl::string_view path) {
  BATON_ASSIGN_OR_RETURN(std::shared_ptr<GgufFile> file, OpenPart(path));
  BATON_RETURN_IF_ERROR(file->AddParts());
  return std::shared_ptr<const GgufFile>(std::move(file));
}

absl::StatusOr<std::shared_ptr<GgufFile>> GgufFile::OpenPart(absl::string_view path) {
  BATON_ASSIGN_OR_RETURN(std::shared_ptr<const MappedFile> mapped, MappedFile::Open(path));
  std::shared_ptr<GgufFile> file(new GgufFile());
  file->path_ = mapped->path();
  file->bytes_ = mapped->bytes();
  file->file_ = std::move(mapped);
  BATON_RETURN_IF_ERROR(GgufParser(file.get()).Run());
  return file;
}

absl::StatusOr<std::shared_ptr<const GgufFile>> GgufFile::Parse(std::span<const uint8_t> bytes,
                                                                absl::string_view name) {
  std::shared_ptr<GgufFile> file(new GgufFile());
  file->path_ = std::string(name);
  file->bytes_ = bytes;
  BATON_RETURN_IF_ERROR(GgufParser(file.get()).Run());
  return std::shared_ptr<const GgufFile>(std::move(file));
}

const GgufValue* GgufFile::Find(absl::string_view key) const {
  const auto it = entry_index_.find(key);
  return it == entry_index_.end() ? nullptr : &entries_[it->second].value;
}

const TensorView* GgufFile::FindTensor(absl::string_view name) const {
  const auto it = tensor_index_.find(name);
  return it == tensor_index_.end() ? nullptr : &tensors_[it->second];
}

absl::Status GgufFile::TypeError(absl::string_view key, absl::string_view wanted, const GgufValue& found) const {
  return absl::InvalidArgumentError(
      absl::StrFormat("%s: key %s: expected %s, found %s", path_, key, wanted, GgufTypeName(found)));
}

absl::StatusOr<const GgufValue*> GgufFile::Require(absl::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return absl::NotFoundError(absl::StrCat(path_, ": key ", key, " is missing"));
  return value;
}

absl::StatusOr<absl::string_view> GgufFile::GetString(absl::string_view key) const {
  BATON_ASSIGN_OR_RETURN(const GgufValue* value, Require(key));
  if (value->type != GgufValueType::kString) return TypeError(key, "string", *value);
  return absl::string_view(reinterpret_cast<const char*>(bytes_.data() + value->offset), value->count);
}

absl::StatusOr<uint64_t> GgufFile::GetU64(absl::string_view key) const {
  BATON_ASSIGN_OR_RETURN(const GgufValue* value, Require(key));
  if (value->type == GgufValueType::kU64) return Load<uint64_t>(bytes_.data() + value->offset);
  BATON_ASSIGN_OR_RETURN(const int64_t number, GetI64(key));
  if (number < 0) {
    return absl::InvalidArgumentError(absl::StrFormat("%s: key %s is %d, must not be negative", path_, key, number));
  }
  return static_cast<uint64_t>(number);
}

absl::StatusOr<int64_t> GgufFile::GetI64(absl::string_view key) const {
  BATON_ASSIGN_OR_RETURN(const GgufValue* value, Require(key));
  if (!IsInteger(value->type)) return TypeError(key, "integer", *value);
  int64_t number = 0;
  if (!LoadInteger(value->type, bytes_.data() + value->offset, &number)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: key %s is %d, over 2^63 - 1", path_, key, static_cast<uint64_t>(number)));
  }
  return number;
}

absl::StatusOr<double> GgufFile::GetF64(absl::string_view key) const {
  BATON_ASSIGN_OR_RETURN(const GgufValue* value, Require(key));
  if (value->type == GgufValueType::kF32) return static_cast<double>(Load<float>(bytes_.data() + value->offset));
  if (value->type == GgufValueType::kF64) return Load<double>(bytes_.data() + value->offset);
  return TypeError(key, "f32 or f64", *value);
}

absl::StatusOr<bool> GgufFile::GetBool(absl::string_view key) const {
  BATON_ASSIGN_OR_RETURN(const GgufValue* value, Require(key));
  if (value->type != GgufValueType::kBool) return TypeError(key, "bool", *value);
  return bytes_[value->offset] != 0;
}

absl::StatusOr<std::vector<absl::string_view>> GgufFile::GetStringArray(absl::string_view key) const {
  BATON_ASSIGN_OR_RETURN(const GgufValue* value, Require(key));
  if (value->type != GgufValueType::kArray || value->element_type != GgufValueType::kString) {
    return TypeError(key, "array of string", *value);
  }
  std::vector<absl::string_view> strings;
  strings.reserve(value->count);  // The parser has seen all of them.
  uint64_t at = value->offset;
  for (uint64_t i = 0; i < value->count; ++i) {
    const uint64_t length = Load<uint64_t>(bytes_.data() + at);
    strings.emplace_back(reinterpret_cast<const char*>(bytes_.data() + at + 8), length);
    at += 8 + length;
  }
  return strings;
}

absl::StatusOr<std::vector<int64_t>> GgufFile::GetI64Array(absl::string_view key) const {
  BATON_ASSIGN_OR_RETURN(const GgufValue* value, Require(key));
  if (value->type != GgufValueType::kArray || !IsInteger(value->element_type)) {
    return TypeError(key, "array of integer", *value);
  }
  const uint64_t size = GgufScalarBytes(value->element_type);
  std::vector<int64_t> numbers(value->count);
  for (uint64_t i = 0; i < value->count; ++i) {
    if (!LoadInteger(value->element_type, bytes_.data() + value->offset + i * size, &numbers[i])) {
      return absl::InvalidArgumentError(absl::StrFormat("%s: key %s: element %d is over 2^63 - 1", path_, key, i));
    }
  }
  return numbers;
}

absl::StatusOr<std::vector<float>> GgufFile::GetF32Array(absl::string_view key) const {
  BATON_ASSIGN_OR_RETURN(const GgufValue* value, Require(key));
  if (value->type != GgufValueType::kArray || value->element_type != GgufValueType::kF32) {
    return TypeError(key, "array of f32", *value);
  }
  std::vector<float> numbers(value->count);
  if (!numbers.empty()) memcpy(numbers.data(), bytes_.data() + value->offset, numbers.size() * sizeof(float));
  return numbers;
}

absl::StatusOr<uint64_t> GgufFile::GetU64Or(absl::string_view key, uint64_t fallback) const {
  if (!Has(key)) return fallback;
  return GetU64(key);
}

absl::StatusOr<double> GgufFile::GetF64Or(absl::string_view key, double fallback) const {
  if (!Has(key)) return fallback;
  return GetF64(key);
}

absl::StatusOr<bool> GgufFile::GetBoolOr(absl::string_view key, bool fallback) const {
  if (!Has(key)) return fallback;
  return GetBool(key);
}

absl::StatusOr<absl::string_view> GgufFile::GetStringOr(absl::string_view key, absl::string_view fallback) const {
  if (!Has(key)) return fallback;
  return GetString(key);
}

}  // namespace baton
