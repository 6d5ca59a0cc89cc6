// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_ENGINE_LOGIT_KERNELS_H_
#define BATON_COMMON_ENGINE_LOGIT_KERNELS_H_

#include <cstdint>

namespace baton {

// Logits per chunk of the passes below: selection looks into few chunks only.
inline constexpr int kLogitChunk = 64;
constexpr int NumLogitChunks(int n) { return (n + kLogitChunk - 1) / kLogitChunk; }

// Passes over a vector of logits, n >= 1. The instruction set is chosen at run time; the bits do not depend on it.
struct LogitKernels {
  // chunk_max[c] = the largest of chunk c. False when any of x is NaN or infinite; chunk_max is then meaningless only where
  // there are NaNs.
  bool (*scan)(const float* x, int n, float* chunk_max);
  // weights[i] = exp((x[i] - max) * scale), 0 below e^-87; chunk_sums[c] = their sum in chunk c. max >= all x, scale > 0.
  // Relative error under 1e-6. `weights` may be null: sums only.
  void (*exp_sums)(const float* x, int n, float max, float scale, float* weights, double* chunk_sums);
};

const LogitKernels& GetLogitKernels();

// Every variant this machine can run, for tests: entry 0 is the portable one.
const LogitKernels* LogitKernelVariants(int* num_variants);

}  // namespace baton

#endif  // BATON_COMMON_ENGINE_LOGIT_KERNELS_H_
