// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BACKEND_CPU_CALIBRATION_H_
#define BATON_COMMON_BACKEND_CPU_CALIBRATION_H_

#include <cstdint>
#include <span>

#include "common/backend/cpu/kernels.h"
#include "common/backend/cpu/thread_pool.h"

namespace baton::cpu {

// What arithmetic and memory can do at most with the threads of a pool, measured: operations (two per multiply-add) and
// bytes per second. 0 where the instruction set has no such instruction.
struct PeakRates {
  double int8_ops = 0;    // u8 x s8 products, summed in 32 bits.
  double bf16_flops = 0;  // bf16 products, summed in fp32.
  double fp32_flops = 0;
  double read_bytes = 0;  // Streaming read of the buffers given.
};

// Arithmetic: blocks in registers over operands in the first-level cache, in the widest instructions that go with `isa` on
// this CPU, AMX tiles included if `with_tiles`. Reading: `buffers`, at most
// 256 MiB of them. All threads work at once; each one's rate is the median over many short spans, so that a span in which
// another process had the core does not count. Takes about `milliseconds` in all. The pool's owner thread.
PeakRates MeasurePeaks(ThreadPool& pool, Isa isa, bool with_tiles, std::span<const std::span<const uint8_t>> buffers,
                       int milliseconds);

// One thread's loops: `iterations` rounds; returns the operations done. Null where the CPU lacks the instructions.
using PeakLoop = double (*)(long iterations);
struct PeakLoops {
  PeakLoop int8 = nullptr, bf16 = nullptr, fp32 = nullptr;
};
PeakLoops LoopsFor(Isa isa, bool with_tiles);

// Sum of the 64-bit words, as fast as they can be read. 16-byte aligned; a tail of less than 128 bytes is left out.
uint64_t ReadBytes(const uint8_t* data, size_t bytes);

}  // namespace baton::cpu

#endif  // BATON_COMMON_BACKEND_CPU_CALIBRATION_H_
