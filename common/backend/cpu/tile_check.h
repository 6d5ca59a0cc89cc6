// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BACKEND_CPU_TILE_CHECK_H_
#define BATON_COMMON_BACKEND_CPU_TILE_CHECK_H_

#include "common/backend/cpu/kernels.h"

namespace baton::cpu {

// Whether `linear` gives the bits of `reference.linear_quantised`, for small matrices of four and of eight bits with odd edges, with one
// term and with two. A few hundred microseconds with AVX-512's table. Any thread.
//
// Why it is asked before tiles are used: the tile kernels are proven on emulated tiles, and a CPU, a hypervisor or a compiler that
// does something else would give wrong text with every sign of success.
bool GivesTheSameBits(const Kernels& reference, void (*linear)(const QuantLinearArgs& args));

}  // namespace baton::cpu

#endif  // BATON_COMMON_BACKEND_CPU_TILE_CHECK_H_
