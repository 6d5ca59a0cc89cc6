// SPDX-License-Identifier: Apache-2.0
// Plain C++: the reference of every other file here, and the one that runs anywhere.
#include "common/backend/cpu/kernels.h"
#include "common/backend/cpu/vec_scalar.h"
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

extern const Kernels kScalarKernels;
const Kernels kScalarKernels = MakeTable(Isa::kScalar, "scalar");

}  // namespace baton::cpu
