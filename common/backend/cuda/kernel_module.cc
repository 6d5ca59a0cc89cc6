// SPDX-License-Identifier: Apache-2.0
#include "common/backend/cuda/kernel_module.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace baton::cuda {

absl::StatusOr<CUmodule> LoadKernelModule(const CudaApi& api, const KernelImage& image, int compute_capability) {
  CUmodule module = nullptr;
  const CUresult native = api.cuModuleLoadData(&module, compute_capability >= 90 ? image.sm_90 : image.sm_80);
  if (native == CUDA_SUCCESS) return module;
  BATON_RETURN_IF_ERROR(api.ToStatus(api.cuModuleLoadData(&module, image.ptx), absl::StrCat("kernels of ", image.name)));
  return module;
}

}  // namespace baton::cuda
