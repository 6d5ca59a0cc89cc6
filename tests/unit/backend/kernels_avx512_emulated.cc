// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/backend/emulated_avx512.h"

#define kAvx512Kernels kEmulatedAvx512Kernels
#include "common/backend/cpu/kernels_avx512.cc"
