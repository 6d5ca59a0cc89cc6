// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BACKEND_CUDA_CUDA_DEVICE_H_
#define BATON_COMMON_BACKEND_CUDA_CUDA_DEVICE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace baton::cuda {

inline constexpr absl::string_view kDefaultDriver = "libcuda.so.1";

// A GPU as the driver describes it. No CUDA header: this is what code outside cuda/ may know.
struct CudaDevice {
  int ordinal = 0;
  std::string name;
  int compute_capability = 0;  // 10 major + minor: 80, 90.
  uint64_t memory_bytes = 0;
  int driver_version = 0;      // 1000 major + 10 minor.
  std::string description() const;
};

// Device `ordinal` of the driver in `library`, without creating a context: no memory of the device is taken.
//   FAILED_PRECONDITION  this build has no CUDA; no driver, no such device, or one older than compute capability 8.0; says which.
absl::StatusOr<CudaDevice> FindCudaDevice(const std::string& library, int ordinal);

}  // namespace baton::cuda

#endif  // BATON_COMMON_BACKEND_CUDA_CUDA_DEVICE_H_
