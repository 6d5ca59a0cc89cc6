// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BACKEND_CPU_TILE_CONFIG_H_
#define BATON_COMMON_BACKEND_CPU_TILE_CONFIG_H_

#include <cstdint>

namespace baton::cpu {

// Shapes of the tile registers, as LDTILECFG reads them.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};  // At most 64; [8..15] stay 0.
  uint8_t rows[16] = {};        // At most 16.
};

}  // namespace baton::cpu

#endif  // BATON_COMMON_BACKEND_CPU_TILE_CONFIG_H_
