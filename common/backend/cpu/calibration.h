// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BACKEND_CPU_CALIBRATION_H_
#define BATON_COMMON_BACKEND_CPU_CALIBRATION_H_

#include "common/backend/cpu/thread_pool.h"

namespace baton::cpu {

// What this machine's arithmetic and memory can do at most with the threads of a pool, measured: operations (two per
// multiply-add) and bytes per second. 0 where the CPU has no such instruction.
struct MachinePeaks {
  double int8_ops = 0;    // u8 x s8 dot products
  double bf16_flops = 0;  // bf16 dot products
  double fp32_flops = 0;  // fused multiply-adds
  double read_bytes = 0;  // Streaming read of more than the caches hold.
};

// Register-blocked loops with operands in registers, and a streaming read of `read_buffer_bytes`. Takes about
// `milliseconds` in all; the best of several tries, as other processes can only slow it down.
MachinePeaks MeasurePeaks(ThreadPool& pool, int milliseconds, size_t read_buffer_bytes);

// One thread's loops: `iterations` rounds; the operations done. Null where the CPU lacks the instructions.
using PeakLoop = double (*)(long iterations);
struct PeakLoops {
  PeakLoop int8 = nullptr, bf16 = nullptr, fp32 = nullptr;
};
PeakLoops LoopsForThisCpu();

}  // namespace baton::cpu

#endif  // BATON_COMMON_BACKEND_CPU_CALIBRATION_H_
