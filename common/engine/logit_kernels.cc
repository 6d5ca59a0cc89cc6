// SPDX-License-Identifier: Apache-2.0
#include "common/engine/logit_kernels.h"

#include <cstring>
#include <limits>

namespace baton {
namespace {

constexpr int kLanes = 16;

namespace portable {
constexpr int kWidth = 4;
#include "common/engine/logit_kernels.inc"
}

#if defined(__x86_64__)
#pragma GCC push_options
#pragma GCC target("avx2")
namespace avx2 {
constexpr int kWidth = 8;
#include "common/engine/logit_kernels.inc"
}
#pragma GCC pop_options
bool HasAvx2() { return __builtin_cpu_supports("avx2"); }
#else
namespace avx2 = portable;
bool HasAvx2() { return false; }
#endif

const LogitKernels kVariants[] = {{portable::Scan, portable::ExpSums}, {avx2::Scan, avx2::ExpSums}};

}  // namespace

const LogitKernels* LogitKernelVariants(int* num_variants) {
  *num_variants = HasAvx2() ? 2 : 1;
  return kVariants;
}

const LogitKernels& GetLogitKernels() {
  static const LogitKernels& best = kVariants[HasAvx2() ? 1 : 0];
  return best;
}

}  // namespace baton
