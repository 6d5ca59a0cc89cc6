// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_GPU_SIM_PTX_ACCESS_H_
#define BATON_TESTS_GPU_SIM_PTX_ACCESS_H_

#include <cstdint>

#include "tests/gpu_sim/ptx/warp.h"

namespace baton::ptx {

// Addresses that a memory instruction's lanes use: base register plus offset. `operand` is the address's, of `bytes` 4 or 8.
void Addresses(Warp& warp, const Instruction& i, int operand, int bytes, int64_t offset, uint64_t (&out)[kWarpSize]);

// One thread's access to `bytes` (1 to 16) at `address`, checked: bounds, alignment, races, and in shared memory whether what is
// read was written. Null after a finding that ends the launch; else where the bytes are.
uint8_t* Access(Warp& warp, const Instruction& i, Space space, int lane, uint64_t address, int bytes, AccessKind kind);

// Counts sectors or wavefronts of one instruction of `lanes`, each with `bytes` at its address. Local and parameters count nothing.
void CountTraffic(Warp& warp, Space space, uint32_t lanes, const uint64_t (&addresses)[kWarpSize], int bytes);

}  // namespace baton::ptx

#endif  // BATON_TESTS_GPU_SIM_PTX_ACCESS_H_
