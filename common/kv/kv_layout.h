// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_KV_LAYOUT_H_
#define BATON_COMMON_KV_KV_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/backend/backend.h"

namespace baton {

// Exact geometry of a KV pool. Two pools whose layouts have the same fingerprint may exchange raw block bytes.
//
// A pool is [num_layers][num_blocks][block_layer_bytes]; one (layer, block) cell is K [num_kv_heads, head_dim, block_size]
// followed by V [num_kv_heads, block_size, head_dim] (backend.h, KvLayerView); with kInt8 the scales of a head's tokens,
// [block_size], follow its values in both.
struct KvLayout {
  int num_layers = 0;
  int num_kv_heads = 0;  // Of this rank; with tensor parallelism a slice of the model's heads.
  int head_dim = 0;
  int block_size = 16;  // Tokens; a multiple of 16, so that token_hash units never straddle blocks.
  KvDtype dtype = KvDtype::kF16;
  int rank = 0;  // Which slice of the heads, of how many: today always 0 of 1; the transfer plan keeps the seam.
  int num_ranks = 1;

  // INVALID_ARGUMENT names the field, value and bound.
  absl::Status Validate() const;

  size_t element_bytes() const;        // 4, 2 or 1.
  size_t scale_bytes() const;          // Of one token and head, K or V: 4 with kInt8, else 0.
  size_t token_layer_bytes() const;    // K and V of one token in one layer.
  size_t block_layer_bytes() const;    // One (layer, block) cell: block_size * token_layer_bytes().
  size_t block_bytes() const;          // One block over all layers.
  size_t token_bytes() const;          // K and V of one token over all layers.

  // "kv1:L30:H3:D64:B16:f16:r0/1". Readable, so that a mismatch names both values.
  std::string fingerprint() const;
  // What two pools must share so that KV can move between them at all: everything but block size and dtype, which are
  // converted on the way. "kvg1:L30:H3:D64:r0/1".
  std::string geometry() const;

  friend bool operator==(const KvLayout&, const KvLayout&) = default;
};

// The inverse of fingerprint(). INVALID_ARGUMENT for any other text, or a layout that does not validate.
absl::StatusOr<KvLayout> ParseKvLayout(absl::string_view fingerprint);

// "f32", "f16", "bf16" or "int8".
const char* KvDtypeName(KvDtype dtype);
// The inverse. INVALID_ARGUMENT lists the names.
absl::StatusOr<KvDtype> ParseKvDtype(absl::string_view name);

}  // namespace baton

#endif  // BATON_COMMON_KV_KV_LAYOUT_H_
