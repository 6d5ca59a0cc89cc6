// SPDX-License-Identifier: Apache-2.0
// The kernels of AMX: emulated AVX-512 and emulated tiles.
#include "tests/unit/backend/emulated_avx512.h"

#define kAvx512Kernels kEmulatedAvx512Kernels
#define LinearQuantisedEmulatedTiles LinearQuantisedAllEmulated
#define UseOfEmulatedTiles UseOfTilesAllEmulated
#include "tests/unit/backend/kernels_amx_emulated.cc"
