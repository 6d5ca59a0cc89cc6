// SPDX-License-Identifier: Apache-2.0
// Quantised matrices on AMX tiles; the rest of that table is AVX-512's (kernels.cc). Compiled with the flags of AVX-512: nothing
// else may be included here (see kernels.h).
#include "common/backend/cpu/kernels.h"
#include "common/backend/cpu/tile_amx.h"
#include "common/backend/cpu/vec_avx512.h"
#include "common/backend/cpu/rows_impl.h"
#include "common/backend/cpu/quant_format_impl.h"
#include "common/backend/cpu/linear_write_impl.h"
#include "common/backend/cpu/linear_tiles_impl.h"

namespace baton::cpu {

extern const Kernels kAvx512Kernels;
void LinearQuantisedAmx(const QuantLinearArgs& args);

void LinearQuantisedAmx(const QuantLinearArgs& args) {
  if (args.x.bf16_hi == nullptr || args.row_end - args.row_begin < kMinTileRows) {
    kAvx512Kernels.linear_quantised(args);
    return;
  }
  LinearTiles(args);
  // Tiles of outputs go in pairs; an odd one is left.
  if (args.epilogue != Epilogue::kSiluMul && (args.tile_end - args.tile_begin) % 2 != 0) {
    QuantLinearArgs last = args;
    last.tile_begin = args.tile_end - 1;
    kAvx512Kernels.linear_quantised(last);
  }
}

}  // namespace baton::cpu
