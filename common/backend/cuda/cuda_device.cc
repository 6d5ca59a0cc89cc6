// SPDX-License-Identifier: Apache-2.0
#include "common/backend/cuda/cuda_device.h"

#include "absl/strings/str_format.h"
#include "common/backend/cuda/cuda_api.h"
#include "common/base/status_macros.h"

namespace baton::cuda {
namespace {

constexpr int kMinComputeCapability = 80;  // The kernels use cp.async and bf16 tensor cores.

}  // namespace

std::string CudaDevice::description() const {
  return absl::StrFormat("CUDA device %d (%s, compute capability %d.%d, %.1f GiB, driver %d.%d)", ordinal, name,
                         compute_capability / 10, compute_capability % 10, static_cast<double>(memory_bytes) / (1 << 30),
                         driver_version / 1000, driver_version % 1000 / 10);
}

absl::StatusOr<CudaDevice> FindCudaDevice(const std::string& library, int ordinal) {
  BATON_ASSIGN_OR_RETURN(const CudaApi api, CudaApi::Load(library));
  BATON_RETURN_IF_ERROR(api.ToStatus(api.cuInit(0), library + ": cuInit"));
  int count = 0;
  BATON_RETURN_IF_ERROR(api.ToStatus(api.cuDeviceGetCount(&count), library + ": cuDeviceGetCount"));
  if (ordinal < 0 || ordinal >= count) {
    return absl::FailedPreconditionError(absl::StrFormat("no CUDA device %d: %s has %d", ordinal, library, count));
  }
  CUdevice device = 0;
  BATON_RETURN_IF_ERROR(api.ToStatus(api.cuDeviceGet(&device, ordinal), "cuDeviceGet"));
  CudaDevice found;
  found.ordinal = ordinal;
  char name[256] = {};
  BATON_RETURN_IF_ERROR(api.ToStatus(api.cuDeviceGetName(name, sizeof(name) - 1, device), "cuDeviceGetName"));
  found.name = name;
  size_t bytes = 0;
  BATON_RETURN_IF_ERROR(api.ToStatus(api.cuDeviceTotalMem(&bytes, device), "cuDeviceTotalMem"));
  found.memory_bytes = bytes;
  int major = 0, minor = 0;
  BATON_RETURN_IF_ERROR(api.ToStatus(
      api.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device), "cuDeviceGetAttribute"));
  BATON_RETURN_IF_ERROR(api.ToStatus(
      api.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device), "cuDeviceGetAttribute"));
  found.compute_capability = 10 * major + minor;
  BATON_RETURN_IF_ERROR(api.ToStatus(api.cuDriverGetVersion(&found.driver_version), "cuDriverGetVersion"));
  if (found.compute_capability < kMinComputeCapability) {
    return absl::FailedPreconditionError(absl::StrFormat("%s is too old: compute capability %d.%d is needed", found.description(),
                                                         kMinComputeCapability / 10, kMinComputeCapability % 10));
  }
  return found;
}

}  // namespace baton::cuda
