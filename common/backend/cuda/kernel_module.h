// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BACKEND_CUDA_KERNEL_MODULE_H_
#define BATON_COMMON_BACKEND_CUDA_KERNEL_MODULE_H_

#include "absl/status/statusor.h"
#include "common/backend/cuda/cuda_api.h"
#include "common/backend/cuda/kernels/kernel_images.h"

namespace baton::cuda {

// Loads one file's kernels into the current context: the code for its architecture, or, where the driver does not take that, the PTX,
// which it compiles: a GPU that is newer than the code, and the simulator.
//   What the driver says of the PTX; names the file.
absl::StatusOr<CUmodule> LoadKernelModule(const CudaApi& api, const KernelImage& image, int compute_capability);

}  // namespace baton::cuda

#endif  // BATON_COMMON_BACKEND_CUDA_KERNEL_MODULE_H_
