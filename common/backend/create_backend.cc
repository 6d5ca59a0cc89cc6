// SPDX-License-Identifier: Apache-2.0
#include "common/backend/create_backend.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "common/backend/cpu/cpu_backend.h"
#include "common/backend/cpu/kernels.h"
#include "common/backend/cuda/cuda_backend.h"
#include "common/backend/reference_backend.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/base/thread.h"

namespace baton {
namespace {

constexpr int kMaxThreads = 1024;

absl::StatusOr<const cpu::Kernels*> ChooseKernels(absl::string_view isa) {
  if (isa.empty()) return &cpu::BestKernels();
  for (const cpu::Isa candidate :
       {cpu::Isa::kScalar, cpu::Isa::kAvx2, cpu::Isa::kAvxVnni, cpu::Isa::kAvx512Vnni, cpu::Isa::kAmx}) {
    if (isa != cpu::IsaName(candidate)) continue;
    if (const cpu::Kernels* kernels = cpu::FindKernels(candidate)) return kernels;
    return absl::FailedPreconditionError(absl::StrFormat("this CPU cannot run the instruction set \"%s\"", isa));
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("instruction set \"%s\" is not one of scalar, avx2, avxvnni, avx512vnni, amx", isa));
}

absl::StatusOr<CpuPrecision> ChoosePrecision(absl::string_view activations) {
  if (activations.empty() || activations == "mixed") return CpuPrecision();
  if (activations == "one") return CpuPrecision::All(cpu::Terms::kOne);
  if (activations == "two") return CpuPrecision::All(cpu::Terms::kTwo);
  return absl::InvalidArgumentError(absl::StrFormat("activations \"%s\" is not one of mixed, one, two", activations));
}

absl::StatusOr<CpuMatmul> ChooseMatmul(absl::string_view matmul) {
  if (matmul.empty() || matmul == "int8") return CpuMatmul::kInt8;
  if (matmul == "onednn-bf16") return CpuMatmul::kOneDnnBf16;
  if (matmul == "onednn-f32") return CpuMatmul::kOneDnnF32;
  return absl::InvalidArgumentError(
      absl::StrFormat("matmul \"%s\" is not one of int8, onednn-bf16, onednn-f32", matmul));
}

absl::StatusOr<std::unique_ptr<Backend>> CreateCpu(int num_threads, const BackendOptions& options) {
  BATON_ASSIGN_OR_RETURN(const cpu::Kernels* kernels, ChooseKernels(options.isa));
  BATON_ASSIGN_OR_RETURN(const CpuPrecision precision, ChoosePrecision(options.activations));
  BATON_ASSIGN_OR_RETURN(const CpuMatmul matmul, ChooseMatmul(options.matmul));
  std::unique_ptr<cpu::PackCache> cache;
  if (!options.cache_dir.empty()) cache = std::make_unique<cpu::PackCache>(options.cache_dir, options.cache_bytes);
  return std::make_unique<CpuBackend>(kernels, num_threads, precision, matmul, std::move(cache));
}

absl::StatusOr<std::unique_ptr<Backend>> CreateCuda(const BackendOptions& options) {
  cuda::CudaBackendOptions cuda;
  cuda.driver = options.cuda_driver;
  cuda.cublas_library = options.cublas_library;
  if (options.matmul == "cublaslt" || (options.matmul.empty() && options.prefill_only)) {
    cuda.kernels = cuda::CudaKernels::kPrefill;
  } else if (!options.matmul.empty() && options.matmul != "quant") {
    return absl::InvalidArgumentError(absl::StrFormat("matmul \"%s\" on a GPU is not one of quant, cublaslt", options.matmul));
  }
  return cuda::CreateCudaBackend(cuda);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> CreateBackend(absl::string_view name, const BackendOptions& options) {
  if (options.num_threads < 0 || options.num_threads > kMaxThreads) {
    return absl::InvalidArgumentError(
        absl::StrFormat("threads %d is outside [0, %d]", options.num_threads, kMaxThreads));
  }
  const int num_threads = options.num_threads > 0 ? options.num_threads : NumUsableCpus();
  if (name == "reference") return std::make_unique<ReferenceBackend>(num_threads);
  if (name == "cpu") return CreateCpu(num_threads, options);
  if (name == "cuda") return CreateCuda(options);
  if (name == "auto") {
    auto gpu = CreateCuda(options);
    if (gpu.ok()) return gpu;
    BATON_LOG(INFO) << gpu.status().message() << "; staying on the CPU";
    return CreateCpu(num_threads, options);
  }
  return absl::InvalidArgumentError(absl::StrFormat("backend \"%s\" is not one of auto, cpu, reference, cuda", name));
}

}  // namespace baton
