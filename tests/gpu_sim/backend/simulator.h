// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_GPU_SIM_BACKEND_SIMULATOR_H_
#define BATON_TESTS_GPU_SIM_BACKEND_SIMULATOR_H_

#include <cstdint>
#include <cstdlib>
#include <string>

#include "common/backend/cuda/dynamic_library.h"
#include "gtest/gtest.h"
#include "tests/gpu_sim/cuda_sim/cuda_sim.h"
#include "tests/support/paths.h"
#include "tests/support/status_matchers.h"

namespace baton::testing {

// What libcuda_sim says of itself. With $BATON_GPU_DRIVER it is another driver, on which nothing can be planted.
class Simulator {
 public:
  Simulator() {
    auto library = cuda::DynamicLibrary::Open(Driver());
    EXPECT_THAT(library, IsOk());
    if (!library.ok()) return;
    reset_ = reinterpret_cast<BatonCudaSimReset*>(library->Find("baton_cuda_sim_reset"));
    set_ = reinterpret_cast<BatonCudaSimSet*>(library->Find("baton_cuda_sim_set"));
    count_ = reinterpret_cast<BatonCudaSimCount*>(library->Find("baton_cuda_sim_count"));
    is_device_ = reinterpret_cast<BatonCudaSimIsDevice*>(library->Find("baton_cuda_sim_is_device"));
    findings_ = reinterpret_cast<BatonCudaSimFindings*>(library->Find("baton_cuda_sim_findings"));
  }
  static std::string Driver() {
    const char* const named = std::getenv("BATON_GPU_DRIVER");
    return named != nullptr ? named : BuildPath("tests/libcuda_sim.so");
  }
  static std::string Cublas() { return std::getenv("BATON_GPU_DRIVER") != nullptr ? "" : BuildPath("tests/libcublas_sim.so"); }
  bool present() const { return reset_ != nullptr; }
  void Reset() {
    if (present()) reset_();
  }
  void Set(const char* name, int64_t value) { ASSERT_EQ(set_(name, value), 0) << name; }
  int64_t Count(const char* name) { return count_(name); }
  bool IsDevice(const void* pointer, int64_t bytes) { return is_device_(pointer, bytes) != 0; }
  std::string Findings() {
    if (!present()) return "";
    std::string text(1 << 16, '\0');
    findings_(text.data(), static_cast<int64_t>(text.size()));
    return text.c_str();
  }

 private:
  BatonCudaSimReset* reset_ = nullptr;
  BatonCudaSimSet* set_ = nullptr;
  BatonCudaSimCount* count_ = nullptr;
  BatonCudaSimIsDevice* is_device_ = nullptr;
  BatonCudaSimFindings* findings_ = nullptr;
};

}  // namespace baton::testing

#endif  // BATON_TESTS_GPU_SIM_BACKEND_SIMULATOR_H_
