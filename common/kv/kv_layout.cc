// SPDX-License-Identifier: Apache-2.0
#include "common/kv/kv_layout.h"

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace baton {
namespace {

// The field `name` has `value`, which must be within [min, max].
absl::Status CheckRange(const char* name, int value, int min, int max) {
  if (value >= min && value <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("kv layout: %s %d is outside [%d, %d]", name, value, min, max));
}

}  // namespace

const char* KvDtypeName(KvDtype dtype) {
  switch (dtype) {
    case KvDtype::kF32:
      return "f32";
    case KvDtype::kF16:
      return "f16";
    case KvDtype::kBf16:
      return "bf16";
    case KvDtype::kInt8:
      return "int8";
  }
  return "unknown";
}

absl::StatusOr<KvDtype> ParseKvDtype(absl::string_view name) {
  if (name == "f32") return KvDtype::kF32;
  if (name == "f16") return KvDtype::kF16;
  if (name == "bf16") return KvDtype::kBf16;
  if (name == "int8") return KvDtype::kInt8;
  return absl::InvalidArgumentError(absl::StrFormat("kv dtype \"%s\" is not one of f32, f16, bf16, int8", name));
}

absl::Status KvLayout::Validate() const {
  if (auto s = CheckRange("num_layers", num_layers, 1, 1 << 16); !s.ok()) return s;
  if (auto s = CheckRange("num_kv_heads", num_kv_heads, 1, 1 << 16); !s.ok()) return s;
  if (auto s = CheckRange("head_dim", head_dim, 2, 256); !s.ok()) return s;
  if (auto s = CheckRange("block_size", block_size, 16, 1024); !s.ok()) return s;
  if (auto s = CheckRange("num_ranks", num_ranks, 1, 1024); !s.ok()) return s;
  if (auto s = CheckRange("rank", rank, 0, num_ranks - 1); !s.ok()) return s;
  if (head_dim % 2 != 0) {
    return absl::InvalidArgumentError(absl::StrFormat("kv layout: head_dim %d is odd", head_dim));
  }
  if (block_size % 16 != 0) {
    return absl::InvalidArgumentError(absl::StrFormat("kv layout: block_size %d is no multiple of 16", block_size));
  }
  if (dtype != KvDtype::kF32 && dtype != KvDtype::kF16 && dtype != KvDtype::kBf16 && dtype != KvDtype::kInt8) {
    return absl::InvalidArgumentError(absl::StrFormat("kv layout: dtype %d is unknown", static_cast<int>(dtype)));
  }
  return absl::OkStatus();
}

size_t KvLayout::element_bytes() const { return dtype == KvDtype::kF32 ? 4 : dtype == KvDtype::kInt8 ? 1 : 2; }

size_t KvLayout::scale_bytes() const { return dtype == KvDtype::kInt8 ? sizeof(float) : 0; }

size_t KvLayout::token_layer_bytes() const {
  return 2 * static_cast<size_t>(num_kv_heads) * (static_cast<size_t>(head_dim) * element_bytes() + scale_bytes());
}

size_t KvLayout::block_layer_bytes() const { return static_cast<size_t>(block_size) * token_layer_bytes(); }

size_t KvLayout::block_bytes() const { return static_cast<size_t>(num_layers) * block_layer_bytes(); }

size_t KvLayout::token_bytes() const { return static_cast<size_t>(num_layers) * token_layer_bytes(); }

std::string KvLayout::fingerprint() const {
  return absl::StrFormat("kv1:L%d:H%d:D%d:B%d:%s:r%d/%d", num_layers, num_kv_heads, head_dim, block_size,
                         KvDtypeName(dtype), rank, num_ranks);
}

std::string KvLayout::geometry() const {
  return absl::StrFormat("kvg1:L%d:H%d:D%d:r%d/%d", num_layers, num_kv_heads, head_dim, rank, num_ranks);
}

absl::StatusOr<KvLayout> ParseKvLayout(absl::string_view fingerprint) {
  const auto invalid = [&] {
    return absl::InvalidArgumentError(absl::StrFormat("\"%s\" is no kv layout", fingerprint.substr(0, 100)));
  };
  const std::vector<absl::string_view> parts = absl::StrSplit(fingerprint, ':');
  if (parts.size() != 7 || parts[0] != "kv1") return invalid();
  KvLayout layout;
  const auto number = [&](size_t part, char letter, int* value) {
    return !parts[part].empty() && parts[part][0] == letter && absl::SimpleAtoi(parts[part].substr(1), value);
  };
  const std::vector<absl::string_view> rank = absl::StrSplit(parts[6], '/');
  if (!number(1, 'L', &layout.num_layers) || !number(2, 'H', &layout.num_kv_heads) || !number(3, 'D', &layout.head_dim) ||
      !number(4, 'B', &layout.block_size) || rank.size() != 2 || rank[0].substr(0, 1) != "r" ||
      !absl::SimpleAtoi(rank[0].substr(1), &layout.rank) || !absl::SimpleAtoi(rank[1], &layout.num_ranks)) {
    return invalid();
  }
  const absl::StatusOr<KvDtype> dtype = ParseKvDtype(parts[5]);
  if (!dtype.ok()) return invalid();
  layout.dtype = *dtype;
  if (absl::Status status = layout.Validate(); !status.ok()) return status;
  if (layout.fingerprint() != fingerprint) return invalid();  // Leading zeros, spaces.
  return layout;
}

}  // namespace baton
