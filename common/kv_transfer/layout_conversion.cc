// SPDX-License-Identifier: Apache-2.0
#include "common/kv_transfer/layout_conversion.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/backend/kv_int8.h"
#include "common/base/half.h"
#include "common/base/logging.h"

namespace baton {
namespace {

float Load(const uint8_t* from, KvDtype dtype) {
  if (dtype == KvDtype::kInt8) return static_cast<int8_t>(*from);
  if (dtype == KvDtype::kF32) {
    float value;
    std::memcpy(&value, from, sizeof(value));
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, from, sizeof(bits));
  return dtype == KvDtype::kF16 ? HalfToFloat(bits) : BFloat16ToFloat(bits);
}

void Store(float value, KvDtype dtype, uint8_t* to) {
  if (dtype == KvDtype::kF32) {
    std::memcpy(to, &value, sizeof(value));
    return;
  }
  const uint16_t bits = dtype == KvDtype::kF16 ? FloatToHalf(value) : FloatToBFloat16(value);
  std::memcpy(to, &bits, sizeof(bits));
}

// The values of one head in a cell or a wire cell of `cell_tokens` tokens, K [dim, tokens] or V [tokens, dim], and its scales.
template <class Byte>
struct HeadView {
  HeadView(const KvLayout& layout, Byte* base, size_t index, bool v, size_t cell_tokens)
      : dtype(layout.dtype), element(layout.element_bytes()), dim(static_cast<size_t>(layout.head_dim)) {
    values = base + index * cell_tokens * (dim * element + layout.scale_bytes());
    scales = values + cell_tokens * dim * element;
    token_stride = v ? dim : 1;
    dim_stride = v ? 1 : cell_tokens;
  }
  Byte* At(size_t token, size_t d) const { return values + (token * token_stride + d * dim_stride) * element; }
  float Scale(size_t token) const {
    float scale;
    std::memcpy(&scale, scales + token * sizeof(scale), sizeof(scale));
    return scale;
  }

  KvDtype dtype;
  size_t element, dim;
  Byte* values;
  Byte* scales;
  size_t token_stride, dim_stride;  // In elements.
};

using Source = HeadView<const uint8_t>;
using Target = HeadView<uint8_t>;

// Tokens [first, first + count) of one head to [place, place + count) of another one of the same type.
void CopyTokens(const Source& from, size_t first, const Target& to, size_t place, size_t count) {
  if (from.dim_stride == 1) {
    std::memcpy(to.At(place, 0), from.At(first, 0), count * from.dim * from.element);
  } else {
    for (size_t d = 0; d < from.dim; ++d) std::memcpy(to.At(place, d), from.At(first, d), count * from.element);
  }
  if (from.dtype == KvDtype::kInt8) {
    std::memcpy(to.scales + place * sizeof(float), from.scales + first * sizeof(float), count * sizeof(float));
  }
}

// One token of one head on its way.
struct TokenScratch {
  std::vector<float> values;
  std::vector<int8_t> integers;
};

void ConvertToken(const Source& from, size_t token, const Target& to, size_t place, TokenScratch* scratch) {
  float* const values = scratch->values.data();
  const float scale = from.dtype == KvDtype::kInt8 ? from.Scale(token) : 1.0f;
  for (size_t d = 0; d < from.dim; ++d) values[d] = scale * Load(from.At(token, d), from.dtype);
  if (to.dtype != KvDtype::kInt8) {
    for (size_t d = 0; d < to.dim; ++d) Store(values[d], to.dtype, to.At(place, d));
    return;
  }
  const float to_scale = QuantiseKvHead(values, to.dim, scratch->integers.data());
  for (size_t d = 0; d < to.dim; ++d) *to.At(place, d) = static_cast<uint8_t>(scratch->integers[d]);
  std::memcpy(to.scales + place * sizeof(float), &to_scale, sizeof(to_scale));
}

// A cell, of a pool or on the wire.
template <class Byte>
struct CellView {
  const KvLayout& layout;
  Byte* bytes;
  size_t tokens;  // That it has room for.
};

// Tokens [offset, offset + count) of one cell to [place, place + count) of another.
void ConvertPart(const CellView<const uint8_t>& from, size_t offset, size_t count, const CellView<uint8_t>& to, size_t place) {
  const KvLayout& source = from.layout;
  const KvLayout& target = to.layout;
  const size_t dim = static_cast<size_t>(source.head_dim);
  TokenScratch scratch{std::vector<float>(dim), std::vector<int8_t>(dim)};
  for (const bool v : {false, true}) {
    const uint8_t* const in = from.bytes + (v ? from.tokens * source.token_layer_bytes() / 2 : 0);
    uint8_t* const out = to.bytes + (v ? to.tokens * target.token_layer_bytes() / 2 : 0);
    for (size_t head = 0; head < static_cast<size_t>(source.num_kv_heads); ++head) {
      const Source source_head(source, in, head, v, from.tokens);
      const Target target_head(target, out, head, v, to.tokens);
      if (source.dtype == target.dtype) {
        CopyTokens(source_head, offset, target_head, place, count);
        continue;
      }
      for (size_t i = 0; i < count; ++i) ConvertToken(source_head, offset + i, target_head, place + i, &scratch);
    }
  }
}

}  // namespace

absl::Status CheckConvertible(const KvLayout& peer, const KvLayout& local) {
  if (peer.geometry() == local.geometry()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("kv layout mismatch: peer ", peer.fingerprint(), ", local ", local.fingerprint()));
}

void ReadTokensAs(const KvPool& pool, const KvLayout& target, int layer, std::span<const BlockId> blocks, int token_begin,
                  int token_end, std::span<uint8_t> out) {
  const int source_size = pool.layout().block_size;
  BATON_CHECK_EQ(token_begin % target.block_size, 0);
  BATON_CHECK_EQ(out.size(), static_cast<size_t>(token_end - token_begin) * target.token_layer_bytes());
  uint8_t* cell_out = out.data();
  for (int cell_begin = token_begin; cell_begin < token_end; cell_begin += target.block_size) {
    const int cell_end = std::min(token_end, cell_begin + target.block_size);
    for (int token = cell_begin; token < cell_end;) {
      const int offset = token % source_size;
      const int count = std::min(cell_end - token, source_size - offset);
      const uint8_t* const cell = pool.Cell(layer, blocks[static_cast<size_t>(token / source_size)]).data();
      ConvertPart({pool.layout(), cell, static_cast<size_t>(source_size)}, static_cast<size_t>(offset), static_cast<size_t>(count),
                  {target, cell_out, static_cast<size_t>(cell_end - cell_begin)}, static_cast<size_t>(token - cell_begin));
      token += count;
    }
    cell_out += static_cast<size_t>(cell_end - cell_begin) * target.token_layer_bytes();
  }
}

void WriteTokensFrom(const KvPool& pool, const KvLayout& wire, int layer, std::span<const BlockId> blocks, int token_begin,
                     int token_end, std::span<const uint8_t> in) {
  const int block_size = pool.layout().block_size;
  BATON_CHECK_EQ(wire.block_size, block_size);
  BATON_CHECK_EQ(token_begin % block_size, 0);
  BATON_CHECK_EQ(in.size(), static_cast<size_t>(token_end - token_begin) * wire.token_layer_bytes());
  const uint8_t* cell_in = in.data();
  for (int token = token_begin; token < token_end; token += block_size) {
    const size_t count = static_cast<size_t>(std::min(block_size, token_end - token));
    uint8_t* const cell = pool.Cell(layer, blocks[static_cast<size_t>(token / block_size)]).data();
    ConvertPart({wire, cell_in, count}, 0, count, {pool.layout(), cell, static_cast<size_t>(block_size)}, 0);
    cell_in += count * wire.token_layer_bytes();
  }
}

}  // namespace baton
