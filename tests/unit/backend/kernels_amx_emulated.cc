// SPDX-License-Identifier: Apache-2.0
// The kernels of AMX: real AVX-512 and emulated tiles.
#include "tests/unit/backend/emulated_tiles.h"

#define LinearQuantisedAmx LinearQuantisedEmulatedTiles
#include "common/backend/cpu/kernels_amx.cc"

namespace baton::cpu {

// Of the calling thread.
EmulatedTileUse UseOfEmulatedTiles();
EmulatedTileUse UseOfEmulatedTiles() { return {emulated_tiles.num_dots, emulated_tiles.configured}; }

}  // namespace baton::cpu
