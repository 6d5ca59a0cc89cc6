// SPDX-License-Identifier: Apache-2.0
#include "tests/support/gguf_writer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "absl/strings/str_cat.h"
#include "common/base/half.h"
#include "common/base/logging.h"

namespace baton::testing {
namespace {

template <typename T>
std::string Raw(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(T));
}

std::string RawString(absl::string_view text) { return absl::StrCat(Raw<uint64_t>(text.size()), text); }

std::string ArrayHead(GgufValueType type, size_t count) {
  return absl::StrCat(Raw(static_cast<uint32_t>(type)), Raw<uint64_t>(count));
}

template <typename T>
std::string RawArray(GgufValueType type, const std::vector<T>& values) {
  std::string payload = ArrayHead(type, values.size());
  payload.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  return payload;
}

void AppendBlock(GgmlType type, const float* x, std::string* out) {
  const auto [low, high] = std::minmax_element(x, x + 32);
  const float max_abs = std::max(std::fabs(*low), std::fabs(*high));
  const auto half = [&](float value) {
    const uint16_t bits = FloatToHalf(value);
    absl::StrAppend(out, Raw(bits));
    return HalfToFloat(bits);
  };
  const auto nibbles = [&](auto quantise) {
    for (int j = 0; j < 16; ++j) out->push_back(static_cast<char>(quantise(x[j]) | (quantise(x[j + 16]) << 4)));
  };
  const auto level = [](float value, int max) { return std::clamp(static_cast<int>(std::lround(value)), 0, max); };
  if (type == GgmlType::kQ8_0) {
    const float d = half(max_abs / 127);
    for (int j = 0; j < 32; ++j) {
      const long q = d == 0 ? 0 : std::clamp(std::lround(x[j] / d), -127L, 127L);
      out->push_back(static_cast<char>(q));
    }
  } else if (type == GgmlType::kQ4_0) {
    const float d = half(max_abs / 7);
    nibbles([&](float v) { return d == 0 ? 8 : level(v / d + 8, 15); });
  } else {
    BATON_CHECK(type == GgmlType::kQ4_1) << GgmlTypeName(type);
    const float d = half((*high - *low) / 15);
    const float m = half(*low);
    nibbles([&](float v) { return d == 0 ? 0 : level((v - m) / d, 15); });
  }
}

// Where a block keeps its fp16 scales, and the largest value one unit of the (first) scale can make.
struct ScaleSpots {
  std::vector<int> offsets;
  float reach;
};

ScaleSpots SpotsOf(GgmlType type) {
  switch (type) {
    case GgmlType::kQ4_0:
    case GgmlType::kQ8_0:
    case GgmlType::kQ5_0:
      return {{0}, type == GgmlType::kQ8_0 ? 128.f : 16.f};
    case GgmlType::kQ4_1:
    case GgmlType::kQ5_1:
      return {{0, 2}, 32.f};
    case GgmlType::kQ2_K:
      return {{80, 82}, 45.f};
    case GgmlType::kQ3_K:
      return {{108}, 128.f};
    case GgmlType::kQ4_K:
    case GgmlType::kQ5_K:
      return {{0, 2}, 63.f * 31.f};
    case GgmlType::kQ6_K:
      return {{208}, 128.f * 32.f};
    case GgmlType::kIQ4_NL:
      return {{0}, 127.f};
    case GgmlType::kIQ4_XS:
      return {{0}, 127.f * 32.f};
    default:
      return {{}, 1.f};
  }
}

}  // namespace

GgufWriter& GgufWriter::SetRaw(absl::string_view key, GgufValueType type, std::string payload) {
  for (Entry& entry : entries_) {
    if (entry.key == key) {
      entry.type = type;
      entry.payload = std::move(payload);
      return *this;
    }
  }
  entries_.push_back({std::string(key), type, std::move(payload)});
  return *this;
}

GgufWriter& GgufWriter::SetU32(absl::string_view key, uint32_t v) { return SetRaw(key, GgufValueType::kU32, Raw(v)); }
GgufWriter& GgufWriter::SetI32(absl::string_view key, int32_t v) { return SetRaw(key, GgufValueType::kI32, Raw(v)); }
GgufWriter& GgufWriter::SetU64(absl::string_view key, uint64_t v) { return SetRaw(key, GgufValueType::kU64, Raw(v)); }
GgufWriter& GgufWriter::SetF32(absl::string_view key, float v) { return SetRaw(key, GgufValueType::kF32, Raw(v)); }
GgufWriter& GgufWriter::SetBool(absl::string_view key, bool v) { return SetRaw(key, GgufValueType::kBool, Raw(v)); }

GgufWriter& GgufWriter::SetString(absl::string_view key, absl::string_view value) {
  return SetRaw(key, GgufValueType::kString, RawString(value));
}

GgufWriter& GgufWriter::SetStrings(absl::string_view key, const std::vector<std::string>& values) {
  std::string payload = ArrayHead(GgufValueType::kString, values.size());
  for (const std::string& value : values) absl::StrAppend(&payload, RawString(value));
  return SetRaw(key, GgufValueType::kArray, std::move(payload));
}

GgufWriter& GgufWriter::SetI32s(absl::string_view key, const std::vector<int32_t>& values) {
  return SetRaw(key, GgufValueType::kArray, RawArray(GgufValueType::kI32, values));
}

GgufWriter& GgufWriter::SetF32s(absl::string_view key, const std::vector<float>& values) {
  return SetRaw(key, GgufValueType::kArray, RawArray(GgufValueType::kF32, values));
}

GgufWriter& GgufWriter::Remove(absl::string_view key) {
  std::erase_if(entries_, [&](const Entry& entry) { return entry.key == key; });
  return *this;
}

GgufWriter& GgufWriter::Duplicate(absl::string_view key) {
  const auto it = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.key == key; });
  BATON_CHECK(it != entries_.end()) << std::string(key);
  entries_.push_back(Entry(*it));
  return *this;
}

std::vector<std::string> GgufWriter::Keys() const {
  std::vector<std::string> keys;
  for (const Entry& entry : entries_) keys.push_back(entry.key);
  return keys;
}

GgufWriter& GgufWriter::AddTensor(absl::string_view name, GgmlType type, std::vector<int64_t> shape, std::string data) {
  tensors.push_back({std::string(name), static_cast<uint32_t>(type), std::move(shape), std::move(data)});
  return *this;
}

GgufWriter::Tensor& GgufWriter::tensor(absl::string_view name) {
  const auto it = std::find_if(tensors.begin(), tensors.end(), [&](const Tensor& t) { return t.name == name; });
  BATON_CHECK(it != tensors.end()) << std::string(name);
  return *it;
}

GgufWriter& GgufWriter::RemoveTensor(absl::string_view name) {
  std::erase_if(tensors, [&](const Tensor& t) { return t.name == name; });
  return *this;
}

std::string GgufWriter::Build(std::vector<Field>* fields, size_t* data_offset) const {
  std::vector<Field> ignored;
  if (fields == nullptr) fields = &ignored;
  fields->clear();
  std::string out = "GGUF";
  const auto number = [&](const std::string& what, auto value) {
    fields->push_back({what, out.size(), static_cast<int>(sizeof(value))});
    absl::StrAppend(&out, Raw(value));
  };
  std::vector<Entry> entries = entries_;
  const bool has_alignment =
      std::any_of(entries.begin(), entries.end(), [](const Entry& e) { return e.key == "general.alignment"; });
  if (alignment != 32 && !has_alignment) entries.push_back({"general.alignment", GgufValueType::kU32, Raw(alignment)});
  number("version", version);
  number("number of tensors", static_cast<uint64_t>(tensors.size()));
  number("number of entries", static_cast<uint64_t>(entries.size()));
  for (const Entry& entry : entries) {
    number("key length of " + entry.key, static_cast<uint64_t>(entry.key.size()));
    out += entry.key;
    number("type of " + entry.key, static_cast<uint32_t>(entry.type));
    if (entry.type == GgufValueType::kString) fields->push_back({"string length of " + entry.key, out.size(), 8});
    if (entry.type == GgufValueType::kArray) {
      fields->push_back({"element type of " + entry.key, out.size(), 4});
      fields->push_back({"array length of " + entry.key, out.size() + 4, 8});
    }
    out += entry.payload;
  }
  const auto align = [&](size_t size) { return (size + alignment - 1) / alignment * alignment; };
  uint64_t offset = 0;
  for (const Tensor& tensor : tensors) {
    const std::string what = "tensor " + tensor.name + ": ";
    number(what + "name length", static_cast<uint64_t>(tensor.name.size()));
    out += tensor.name;
    number(what + "number of dimensions", static_cast<uint32_t>(tensor.shape.size()));
    for (size_t i = 0; i < tensor.shape.size(); ++i) {
      number(absl::StrCat(what, "dimension ", i), static_cast<uint64_t>(tensor.shape[tensor.shape.size() - 1 - i]));
    }
    number(what + "type", tensor.type);
    number(what + "offset", offset);
    offset += align(tensor.data.size());
  }
  out.resize(align(out.size()));
  if (data_offset != nullptr) *data_offset = out.size();
  for (size_t i = 0; i < tensors.size(); ++i) {
    out.resize(align(out.size()));
    out += tensors[i].data;
  }
  return out;
}

std::string Quantize(GgmlType type, std::span<const float> values) {
  std::string out;
  const GgmlTypeTraits& traits = TraitsOf(type);
  BATON_CHECK(values.size() % static_cast<size_t>(traits.block_length) == 0) << values.size();
  for (size_t i = 0; i < values.size(); i += static_cast<size_t>(traits.block_length)) {
    if (type == GgmlType::kF32) {
      absl::StrAppend(&out, Raw(values[i]));
    } else if (type == GgmlType::kF16) {
      absl::StrAppend(&out, Raw(FloatToHalf(values[i])));
    } else if (type == GgmlType::kBF16) {
      absl::StrAppend(&out, Raw(FloatToBFloat16(values[i])));
    } else {
      AppendBlock(type, values.data() + i, &out);
    }
  }
  return out;
}

std::string RandomBlocks(GgmlType type, int64_t count, float magnitude, uint64_t seed) {
  const GgmlTypeTraits& traits = TraitsOf(type);
  BATON_CHECK(traits.block_length > 1 && count % traits.block_length == 0) << traits.name << " " << count;
  std::mt19937_64 rng(seed);
  const ScaleSpots spots = SpotsOf(type);
  std::string out;
  for (int64_t i = 0; i < count / traits.block_length; ++i) {
    std::string block(static_cast<size_t>(traits.block_bytes), '\0');
    for (char& c : block) c = static_cast<char>(rng());
    for (size_t k = 0; k < spots.offsets.size(); ++k) {
      // The second scale is a minimum, of half the reach or, where it is added as it is, of half the magnitude.
      const bool added = k == 1 && (type == GgmlType::kQ4_1 || type == GgmlType::kQ5_1);
      const float jitter = 0.75f + static_cast<float>(rng() % 1024) / 2048.0f;
      const float scale = added ? -magnitude : 2 * magnitude / spots.reach;
      const uint16_t bits = FloatToHalf(scale * jitter);
      memcpy(&block[static_cast<size_t>(spots.offsets[k])], &bits, 2);
    }
    if (type == GgmlType::kMXFP4) block[0] = static_cast<char>(127 + std::lround(std::log2(magnitude / 6)));
    out += block;
  }
  return out;
}

}  // namespace baton::testing
