// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BACKEND_CREATE_BACKEND_H_
#define BATON_COMMON_BACKEND_CREATE_BACKEND_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/backend/backend.h"

namespace baton {

// What a worker's flags choose. Empty strings and zeros are the defaults that serve best.
struct BackendOptions {
  int num_threads = 0;  // Compute threads, the caller's included; 0: every CPU this process may use.
  std::string isa;      // "cpu" only: scalar, avx2, avxvnni, avx512vnni, amx; empty: the widest this CPU runs.
  // "cpu" only: with how many 8-bit terms activations are rounded before they meet quantised weights. "mixed" (also empty):
  // the measured default; "one": the fastest; "two": as exact as fp32. Part of the numerics id.
  std::string activations;
  // Who multiplies the matrices of the layers. Of "cuda": "quant", kernels for few rows on the file's quantised values; "cublaslt", for
  // many; empty: the one that prefill_only says. Of "cpu": "int8" (also empty): own kernels on the file's quantised values;
  // "onednn-bf16", "onednn-f32": oneDNN at fixed panels of 64 rows, for prefill workers on CPUs where it is faster (AMX). Part
  // of the numerics id.
  std::string matmul;
  // "cpu" only: folder where weights packed for the int8 kernels are kept for the next start; empty keeps none. At most
  // cache_bytes of files, the least recently used go first.
  std::string cache_dir;
  uint64_t cache_bytes = uint64_t{64} << 30;
  bool prefill_only = false;  // Nothing but prompts is computed here.
  // "cuda" and "auto": the driver's library, by file name or path.
  std::string cuda_driver = "libcuda.so.1";
  std::string cublas_library;  // cuBLASLt's; empty: the one that belongs to this build.
};

// `name`: "cpu" (serves), "reference" (plain fp32, slow), "cuda", or "auto": cuda where it can serve, else cpu, with a line in the
// log that says why.
//   INVALID_ARGUMENT     unknown name, thread count or option; names the value and what is possible.
//   FAILED_PRECONDITION  this CPU cannot run the instruction set; there is no CUDA driver, device or backend: says which.
absl::StatusOr<std::unique_ptr<Backend>> CreateBackend(absl::string_view name, const BackendOptions& options = {});

}  // namespace baton

#endif  // BATON_COMMON_BACKEND_CREATE_BACKEND_H_
