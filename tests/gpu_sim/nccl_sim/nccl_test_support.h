// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_GPU_SIM_NCCL_SIM_NCCL_TEST_SUPPORT_H_
#define BATON_TESTS_GPU_SIM_NCCL_SIM_NCCL_TEST_SUPPORT_H_

#include <string>

#include "common/backend/cuda/cuda_api.h"
#include "common/backend/cuda/nccl_api.h"
#include "tests/gpu_sim/cuda_sim/cuda_sim.h"
#include "tests/gpu_sim/nccl_sim/nccl_sim.h"

namespace baton::cuda::testing {

// The libraries that tests of NCCL open: the stand-ins, or those that BATON_GPU_DRIVER and BATON_NCCL_LIBRARY name.
std::string DriverLibrary();
std::string NcclLibrary();

// What the stand-ins offer beside the entry points; null members where the real ones were named. One for the process.
struct NcclSim {
  BatonNcclSimReset* reset = nullptr;
  BatonNcclSimSet* set = nullptr;
  BatonNcclSimCount* count = nullptr;
  BatonNcclSimFindings* findings = nullptr;
  BatonCudaSimSet* cuda_set = nullptr;

  static const NcclSim& Get();
  std::string Findings() const;
};

}  // namespace baton::cuda::testing

#endif  // BATON_TESTS_GPU_SIM_NCCL_SIM_NCCL_TEST_SUPPORT_H_
