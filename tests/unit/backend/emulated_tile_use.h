// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_UNIT_BACKEND_EMULATED_TILE_USE_H_
#define BATON_TESTS_UNIT_BACKEND_EMULATED_TILE_USE_H_

#include <cstdint>

namespace baton::cpu {

// What a thread did with emulated tiles (emulated_tiles.h).
struct EmulatedTileUse {
  int64_t num_dots;  // Dot products of tiles, ever.
  bool configured;   // Now.
};

}  // namespace baton::cpu

#endif  // BATON_TESTS_UNIT_BACKEND_EMULATED_TILE_USE_H_
