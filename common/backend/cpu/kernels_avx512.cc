// SPDX-License-Identifier: Apache-2.0
// AVX-512 (F, BW, VL, DQ) with VNNI. Compiled with those flags: nothing else may be included here (see kernels.h).
#include "common/backend/cpu/kernels.h"
#include "common/backend/cpu/vec_avx512.h"
#include "common/backend/cpu/rows_impl.h"
#include "common/backend/cpu/quantise_impl.h"
#include "common/backend/cpu/quant_format_impl.h"
#include "common/backend/cpu/linear_dots_impl.h"
#include "common/backend/cpu/linear_block_impl.h"
#include "common/backend/cpu/linear_write_impl.h"
#include "common/backend/cpu/linear_quant_impl.h"
#include "common/backend/cpu/linear_float_impl.h"
#include "common/backend/cpu/attention_impl.h"
#include "common/backend/cpu/qkv_impl.h"
#include "common/backend/cpu/kernels_table.h"

namespace baton::cpu {

extern const Kernels kAvx512Kernels;
const Kernels kAvx512Kernels = MakeTable(Isa::kAvx512Vnni, "avx512-vnni");

}  // namespace baton::cpu
