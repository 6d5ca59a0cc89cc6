// SPDX-License-Identifier: Apache-2.0
#include "common/kv_transfer/layout_conversion.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/half.h"
#include "common/base/logging.h"

namespace baton {
namespace {

float Load(const uint8_t* from, KvDtype dtype) {
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

// `count` neighbouring values.
void ConvertRun(const uint8_t* from, KvDtype from_dtype, size_t from_bytes, uint8_t* to, KvDtype to_dtype, size_t to_bytes,
                size_t count) {
  if (from_dtype == to_dtype) {
    std::memcpy(to, from, count * to_bytes);
    return;
  }
  for (size_t i = 0; i < count; ++i) Store(Load(from + i * from_bytes, from_dtype), to_dtype, to + i * to_bytes);
}

// One source block's part, `count` tokens from `offset` on, into the place of tokens [place, place + count) of a wire cell of
// `cell_tokens` tokens: K [heads, dim, cell_tokens], then V [heads, cell_tokens, dim].
void ReadPart(const KvPool& pool, const KvLayout& target, int layer, BlockId block, size_t offset, size_t count,
              size_t place, size_t cell_tokens, uint8_t* cell_out) {
  const KvLayout& source = pool.layout();
  const uint8_t* cell = pool.Cell(layer, block).data();
  const size_t heads = static_cast<size_t>(source.num_kv_heads), dim = static_cast<size_t>(source.head_dim);
  const size_t block_size = static_cast<size_t>(source.block_size);
  const size_t in = source.element_bytes(), out = target.element_bytes();
  for (size_t row = 0; row < heads * dim; ++row) {
    ConvertRun(cell + (row * block_size + offset) * in, source.dtype, in, cell_out + (row * cell_tokens + place) * out,
               target.dtype, out, count);
  }
  const uint8_t* v = cell + heads * dim * block_size * in;
  uint8_t* v_out = cell_out + heads * dim * cell_tokens * out;
  for (size_t head = 0; head < heads; ++head) {
    ConvertRun(v + (head * block_size + offset) * dim * in, source.dtype, in,
               v_out + (head * cell_tokens + place) * dim * out, target.dtype, out, count * dim);
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
      ReadPart(pool, target, layer, blocks[static_cast<size_t>(token / source_size)], static_cast<size_t>(offset),
               static_cast<size_t>(count), static_cast<size_t>(token - cell_begin), static_cast<size_t>(cell_end - cell_begin),
               cell_out);
      token += count;
    }
    cell_out += static_cast<size_t>(cell_end - cell_begin) * target.token_layer_bytes();
  }
}

}  // namespace baton
