// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu_sim/nccl_sim/nccl_test_support.h"

#include <cstdlib>

#include "common/backend/cuda/dynamic_library.h"
#include "common/base/logging.h"
#include "tests/support/paths.h"

namespace baton::cuda::testing {
namespace {

std::string Named(const char* variable, const char* stand_in) {
  const char* const named = std::getenv(variable);
  return named != nullptr ? named : baton::testing::BuildPath(stand_in);
}

}  // namespace

std::string DriverLibrary() { return Named("BATON_GPU_DRIVER", "tests/libcuda_sim.so"); }
std::string NcclLibrary() { return Named("BATON_NCCL_LIBRARY", "tests/libnccl_sim.so"); }

const NcclSim& NcclSim::Get() {
  static const NcclSim* const sim = [] {
    auto* const made = new NcclSim;
    const auto driver = DynamicLibrary::Open(DriverLibrary());
    BATON_CHECK(driver.ok()) << driver.status();
    const auto nccl = DynamicLibrary::Open(NcclLibrary());
    BATON_CHECK(nccl.ok()) << nccl.status();
    made->cuda_set = reinterpret_cast<BatonCudaSimSet*>(driver->Find("baton_cuda_sim_set"));
    made->reset = reinterpret_cast<BatonNcclSimReset*>(nccl->Find("baton_nccl_sim_reset"));
    made->set = reinterpret_cast<BatonNcclSimSet*>(nccl->Find("baton_nccl_sim_set"));
    made->count = reinterpret_cast<BatonNcclSimCount*>(nccl->Find("baton_nccl_sim_count"));
    made->findings = reinterpret_cast<BatonNcclSimFindings*>(nccl->Find("baton_nccl_sim_findings"));
    return made;
  }();
  return *sim;
}

std::string NcclSim::Findings() const {
  if (findings == nullptr) return "";
  std::string text(1 << 16, '\0');
  findings(text.data(), static_cast<int64_t>(text.size()));
  return text.c_str();
}

}  // namespace baton::cuda::testing
