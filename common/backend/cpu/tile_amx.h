// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BACKEND_CPU_TILE_AMX_H_
#define BATON_COMMON_BACKEND_CPU_TILE_AMX_H_

// AMX's instructions, by the number of the tile register. In assembly, because g++ 12's intrinsics take literals only and do not
// tell the compiler that a tile load reads memory. Included by one .cc; tests put emulated_tiles.h in its place.
#include "common/backend/cpu/tile_config.h"

namespace baton::cpu {
namespace {

// This thread's tiles get shapes and zeros. The process must have been granted tiles (kernels.cc).
inline void ConfigureTiles(const TileConfig& config) { __asm__ volatile("ldtilecfg %0" : : "m"(config)); }
// Nothing is left for a context switch to save.
inline void ReleaseTiles() { __asm__ volatile("tilerelease"); }

template <int kTile>
inline void ZeroTile() {
  __asm__ volatile("tilezero %%tmm%c0" : : "i"(kTile));
}
// Rows `stride` bytes apart.
template <int kTile>
inline void LoadTile(const void* p, int64_t stride) {
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(p), "r"(stride), "i"(kTile) : "memory");
}
template <int kTile>
inline void StoreTile(void* p, int64_t stride) {
  __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(p), "r"(stride), "i"(kTile) : "memory");
}
// Sums (fp32) += A (rows of pairs of bf16) times B (pairs of rows, interleaved).
template <int kSums, int kA, int kB>
inline void DotBf16() {
  __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kA), "i"(kB));
}

}  // namespace
}  // namespace baton::cpu

#endif  // BATON_COMMON_BACKEND_CPU_TILE_AMX_H_
