// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_GPU_SIM_KERNELS_GPU_TEST_SUPPORT_H_
#define BATON_TESTS_GPU_SIM_KERNELS_GPU_TEST_SUPPORT_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/backend/cuda/cuda_api.h"
#include "gtest/gtest.h"
#include "tests/gpu_sim/cuda_sim/cuda_sim.h"

namespace baton::cuda::testing {

// Device memory of a test. Freed with the fixture.
template <typename T>
struct DeviceArray {
  CUdeviceptr pointer = 0;
  size_t count = 0;
  T* get() const { return reinterpret_cast<T*>(pointer); }  // As a kernel's argument; the host does not follow it.
};

// A GPU behind the driver's table: libcuda_sim, or the library that BATON_GPU_DRIVER names (then the checks that only the simulator
// can do are left out). Every test begins with a fresh state and ends with the demand that no finding was made.
class GpuTest : public ::testing::Test {
 protected:
  struct Dim { unsigned x = 1, y = 1, z = 1; };

  void SetUp() override;
  void TearDown() override;

  const CudaApi& api() const { return *api_; }
  bool simulated() const { return sim_set_ != nullptr; }
  void SimSet(const char* name, int64_t value);
  int64_t SimCount(const char* name) const { return simulated() ? sim_count_(name) : -1; }
  std::string SimFindings() const;
  // The test is about findings: it looks at them itself.
  void ExpectFindings() { findings_expected_ = true; }

  template <typename T>
  DeviceArray<T> Upload(const std::vector<T>& values) {
    const DeviceArray<T> array = Poisoned<T>(values.size());
    CopyTo(array.pointer, values.data(), values.size() * sizeof(T));
    return array;
  }
  // Every byte 0xff: as a float a NaN, as an index -1.
  template <typename T>
  DeviceArray<T> Poisoned(size_t count) { return {AllocatePoisoned(count * sizeof(T)), count}; }
  template <typename T>
  std::vector<T> Download(const DeviceArray<T>& array) {
    std::vector<T> values(array.count);
    CopyFrom(values.data(), array.pointer, array.count * sizeof(T));
    return values;
  }

  // Launches and waits. Any failure is a test failure.
  template <typename... P>
  void Run(const std::string& kernel, Dim grid, Dim block, P... parameters) {
    void* arguments[] = {&parameters..., nullptr};
    Launch(kernel, grid, block, 0, arguments);
    ASSERT_EQ(api().cuStreamSynchronize(stream_), CUDA_SUCCESS) << kernel << ": " << SimFindings();
  }
  CUfunction Function(const std::string& kernel);
  // Until the end of the test `kernel` is the shipped one with the n-th `instruction` (as written in its PTX, from 0) left out, and
  // findings are expected. False: it has no n-th one. Simulator only.
  bool LeaveOut(const std::string& kernel, const std::string& instruction, int n);
  // Findings since the last call.
  std::string TakeFindings();
  CUresult Launch(const std::string& kernel, Dim grid, Dim block, unsigned shared_bytes, void** arguments);

  CUstream stream_ = nullptr;

 private:
  CUdeviceptr AllocatePoisoned(size_t bytes);
  void CopyTo(CUdeviceptr to, const void* from, size_t bytes);
  void CopyFrom(void* to, CUdeviceptr from, size_t bytes);

  static const CudaApi* api_;
  static BatonCudaSimReset* sim_reset_;
  static BatonCudaSimSet* sim_set_;
  static BatonCudaSimCount* sim_count_;
  static BatonCudaSimFindings* sim_findings_;
  static std::map<std::string, CUfunction>* functions_;
  static std::vector<CUmodule>* modules_;
  std::vector<CUdeviceptr> allocations_;
  bool findings_expected_ = false;
  std::map<std::string, CUfunction> replaced_;
};

// Uniform in [-1, 1), from a seed.
std::vector<float> RandomFloats(size_t count, uint32_t seed);

}  // namespace baton::cuda::testing

#endif  // BATON_TESTS_GPU_SIM_KERNELS_GPU_TEST_SUPPORT_H_
