// SPDX-License-Identifier: Apache-2.0
// For builds without the CUDA toolkit.
#include "common/backend/cuda/cuda_device.h"

namespace baton::cuda {

std::string CudaDevice::description() const { return name; }

absl::StatusOr<CudaDevice> FindCudaDevice(const std::string& library, int ordinal) {
  return absl::FailedPreconditionError("this build has no CUDA: it was configured without the toolkit (BATON_CUDA)");
}

}  // namespace baton::cuda
