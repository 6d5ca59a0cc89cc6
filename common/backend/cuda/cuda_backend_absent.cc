// SPDX-License-Identifier: Apache-2.0
#include "common/backend/cuda/cuda_backend.h"
#include "common/backend/cuda/cuda_device.h"

namespace baton::cuda {

// In a build without the toolkit: what FindCudaDevice says there.
absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(const CudaBackendOptions& options) {
  return FindCudaDevice(options.driver, options.ordinal).status();
}

}  // namespace baton::cuda
