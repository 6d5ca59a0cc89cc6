// SPDX-License-Identifier: Apache-2.0
// AVX2, FMA and F16C. Compiled with those flags: nothing else may be included here (see kernels.h).
#include "common/backend/cpu/kernels.h"
#include "common/backend/cpu/vec_avx2.h"
#include "common/backend/cpu/rows_impl.h"
#include "common/backend/cpu/quantise_impl.h"
#include "common/backend/cpu/quant_format_impl.h"
#include "common/backend/cpu/linear_dots_avx2_impl.h"
#include "common/backend/cpu/linear_block_impl.h"
#include "common/backend/cpu/linear_write_impl.h"
#include "common/backend/cpu/linear_quant_impl.h"
#include "common/backend/cpu/linear_float_impl.h"
#include "common/backend/cpu/attention_impl.h"
#include "common/backend/cpu/qkv_impl.h"
#include "common/backend/cpu/kernels_table.h"

namespace baton::cpu {

extern const Kernels kAvx2Kernels;
const Kernels kAvx2Kernels = MakeTable(Isa::kAvx2, "avx2");

}  // namespace baton::cpu
