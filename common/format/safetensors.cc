// SPDX-License-Identifier: Apache-2.0
#include "common/format/safetensors.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/format/strict_json.h"

namespace baton {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxDims = 8;

struct Dtype {
  const char* name;
  GgmlType type;  // kOpaque where there is none.
  uint64_t bytes;
};

constexpr Dtype kDtypes[] = {
    {"F32", GgmlType::kF32, 4},     {"F16", GgmlType::kF16, 2},        {"BF16", GgmlType::kBF16, 2},
    {"F64", GgmlType::kF64, 8},     {"I64", GgmlType::kI64, 8},        {"I32", GgmlType::kI32, 4},
    {"I16", GgmlType::kI16, 2},     {"I8", GgmlType::kI8, 1},          {"U8", GgmlType::kOpaque, 1},
    {"U16", GgmlType::kOpaque, 2},  {"U32", GgmlType::kOpaque, 4},     {"U64", GgmlType::kOpaque, 8},
    {"BOOL", GgmlType::kOpaque, 1}, {"F8_E4M3", GgmlType::kOpaque, 1}, {"F8_E5M2", GgmlType::kOpaque, 1},
};

absl::Status TensorError(absl::string_view path, absl::string_view name, absl::string_view reason) {
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": tensor ", absl::Utf8SafeCHexEscape(name.substr(0, 200)), ": ", reason));
}

// A JSON value for a message, short whatever it is.
std::string Show(const Json& value) {
  if (value.is_array() && value.size() > 16) return absl::StrFormat("an array of %d elements", value.size());
  return value.dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 200);
}

absl::StatusOr<uint64_t> Unsigned(const Json& value, absl::string_view what) {
  if (!value.is_number_unsigned()) {
    return absl::InvalidArgumentError(absl::StrCat(what, " ", Show(value), " is no non-negative integer below 2^64"));
  }
  return value.get<uint64_t>();
}

// Element count times element size, refused where it passes 2^63 - 1.
absl::StatusOr<uint64_t> SizeOf(const TensorShape& shape, const Dtype& dtype) {
  uint64_t bytes = dtype.bytes;
  for (int64_t dim : shape) {
    const uint64_t d = static_cast<uint64_t>(dim);
    if (d != 0 && bytes > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) / d) {
      return absl::InvalidArgumentError(absl::StrCat("shape ", ShapeToString(shape), " overflows"));
    }
    bytes *= d;
  }
  return bytes;
}

absl::StatusOr<TensorShape> ParseShape(const Json& entry) {
  const auto it = entry.find("shape");
  if (it == entry.end() || !it->is_array()) return absl::InvalidArgumentError("shape is missing or no array");
  if (it->size() > kMaxDims) {
    return absl::InvalidArgumentError(
        absl::StrFormat("shape has %d dimensions, the limit is %d", it->size(), kMaxDims));
  }
  TensorShape shape;
  for (const Json& element : *it) {
    BATON_ASSIGN_OR_RETURN(const uint64_t dim, Unsigned(element, "dimension"));
    if (dim > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return absl::InvalidArgumentError(absl::StrFormat("dimension %d is over 2^63 - 1", dim));
    }
    shape.push_back(static_cast<int64_t>(dim));
  }
  return shape;
}

// Checks one header entry against a data section of data.size() bytes.
absl::StatusOr<TensorView> ParseTensor(const std::string& name, const Json& entry, std::span<const uint8_t> data) {
  if (!entry.is_object()) return absl::InvalidArgumentError("entry is no object");
  const auto dtype_name = entry.find("dtype");
  if (dtype_name == entry.end() || !dtype_name->is_string()) {
    return absl::InvalidArgumentError(
        absl::StrCat("dtype is ", dtype_name == entry.end() ? "missing" : Show(*dtype_name)));
  }
  const auto* dtype = std::find_if(std::begin(kDtypes), std::end(kDtypes),
                                   [&](const Dtype& d) { return dtype_name->get_ref<const std::string&>() == d.name; });
  if (dtype == std::end(kDtypes)) return absl::InvalidArgumentError(absl::StrCat("unknown dtype ", Show(*dtype_name)));
  TensorView tensor;
  tensor.name = name;
  tensor.type = dtype->type;
  BATON_ASSIGN_OR_RETURN(tensor.shape, ParseShape(entry));
  const auto offsets = entry.find("data_offsets");
  if (offsets == entry.end() || !offsets->is_array() || offsets->size() != 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        "data_offsets is ", offsets == entry.end() ? "missing" : Show(*offsets), ", must be [begin, end]"));
  }
  BATON_ASSIGN_OR_RETURN(const uint64_t begin, Unsigned((*offsets)[0], "data_offsets: begin"));
  BATON_ASSIGN_OR_RETURN(const uint64_t end, Unsigned((*offsets)[1], "data_offsets: end"));
  if (begin > end)
    return absl::InvalidArgumentError(absl::StrFormat("data_offsets [%d, %d] run backwards", begin, end));
  if (end > data.size()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("data_offsets [%d, %d] end outside the data section of %d bytes", begin, end, data.size()));
  }
  BATON_ASSIGN_OR_RETURN(const uint64_t bytes, SizeOf(tensor.shape, *dtype));
  if (bytes != end - begin) {
    return absl::InvalidArgumentError(absl::StrFormat("data_offsets [%d, %d] hold %d bytes, %s of shape %s needs %d",
                                                      begin, end, end - begin, dtype->name, ShapeToString(tensor.shape),
                                                      bytes));
  }
  tensor.data = data.data() + begin;
  tensor.bytes = bytes;
  return tensor;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const SafetensorsFile>> SafetensorsFile::Open(absl::string_view path) {
  BATON_ASSIGN_OR_RETURN(std::shared_ptr<const MappedFile> mapped, MappedFile::Open(path));
  std::shared_ptr<SafetensorsFile> file(new SafetensorsFile());
  file->path_ = mapped->path();
  file->bytes_ = mapped->bytes();
  file->file_ = std::move(mapped);
  BATON_RETURN_IF_ERROR(file->ParseHeader());
  return std::shared_ptr<const SafetensorsFile>(std::move(file));
}

absl::StatusOr<std::shared_ptr<const SafetensorsFile>> SafetensorsFile::Parse(std::span<const uint8_t> bytes,
                                                                              absl::string_view name) {
  std::shared_ptr<SafetensorsFile> file(new SafetensorsFile());
  file->path_ = std::string(name);
  file->bytes_ = bytes;
  BATON_RETURN_IF_ERROR(file->ParseHeader());
  return std::shared_ptr<const SafetensorsFile>(std::move(file));
}

absl::Status SafetensorsFile::ParseHeader() {
  if (bytes_.size() < 8) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: byte 0: file of %d bytes has no 8-byte header length", path_, bytes_.size()));
  }
  uint64_t length = 0;
  memcpy(&length, bytes_.data(), 8);
  const uint64_t room = bytes_.size() - 8;
  if (length > kMaxHeaderBytes || length > room) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: byte 0: header length %d, the limit is %d and the file has %d "
                        "bytes left",
                        path_, length, kMaxHeaderBytes, room));
  }
  const absl::string_view header(reinterpret_cast<const char*>(bytes_.data() + 8), length);
  if (header.size() < 2 || header[0] != '{') {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: byte 8: header of length %d does not start with a JSON object", path_, length));
  }
  const absl::StatusOr<Json> json = ParseStrictJson(header, /*max_depth=*/8);
  if (!json.ok()) return Annotate(json.status(), absl::StrCat(path_, ": header from byte 8"));
  const std::span<const uint8_t> data = bytes_.subspan(8 + length);
  for (const auto& [name, entry] : json->items()) {
    if (name == "__metadata__") continue;
    absl::StatusOr<TensorView> tensor = ParseTensor(name, entry, data);
    if (!tensor.ok()) return TensorError(path_, name, tensor.status().message());
    tensors_.push_back(*std::move(tensor));
  }
  std::sort(tensors_.begin(), tensors_.end(), [](const TensorView& a, const TensorView& b) {
    return a.data != b.data ? a.data < b.data : a.bytes < b.bytes;
  });
  for (size_t i = 0; i < tensors_.size(); ++i) index_.emplace(tensors_[i].name, i);
  return CheckTiling(data.size());
}

absl::Status SafetensorsFile::CheckTiling(uint64_t data_bytes) const {
  const uint8_t* const data = bytes_.data() + (bytes_.size() - data_bytes);
  uint64_t end = 0;
  for (const TensorView& tensor : tensors_) {
    const uint64_t begin = static_cast<uint64_t>(tensor.data - data);
    if (begin != end) {
      return TensorError(path_, tensor.name,
                         absl::StrFormat("begins at %d of the data section, where the tensor before ends at %d: %s",
                                         begin, end, begin < end ? "overlap" : "hole"));
    }
    end = begin + tensor.bytes;
  }
  if (end != data_bytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: tensors end at %d of a data section of %d bytes", path_, end, data_bytes));
  }
  return absl::OkStatus();
}

const TensorView* SafetensorsFile::FindTensor(absl::string_view name) const {
  const auto it = index_.find(name);
  return it == index_.end() ? nullptr : &tensors_[it->second];
}

}  // namespace baton
