// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu_sim/kernels/gpu_test_support.h"

#include <algorithm>
#include <cstdlib>
#include <random>

#include "common/backend/cuda/dynamic_library.h"
#include "common/backend/cuda/kernels/kernel_images.h"
#include "tests/support/paths.h"

namespace baton::cuda::testing {

const CudaApi* GpuTest::api_ = nullptr;
BatonCudaSimReset* GpuTest::sim_reset_ = nullptr;
BatonCudaSimSet* GpuTest::sim_set_ = nullptr;
BatonCudaSimCount* GpuTest::sim_count_ = nullptr;
BatonCudaSimFindings* GpuTest::sim_findings_ = nullptr;
std::map<std::string, CUfunction>* GpuTest::functions_ = nullptr;
std::vector<CUmodule>* GpuTest::modules_ = nullptr;

void GpuTest::SetUp() {
  if (api_ == nullptr) {
    const char* const named = std::getenv("BATON_GPU_DRIVER");
    const std::string library = named != nullptr ? named : baton::testing::BuildPath("tests/libcuda_sim.so");
    auto api = CudaApi::Load(library);
    ASSERT_TRUE(api.ok()) << api.status();
    auto opened = DynamicLibrary::Open(library);
    ASSERT_TRUE(opened.ok()) << opened.status();
    sim_reset_ = reinterpret_cast<BatonCudaSimReset*>(opened->Find("baton_cuda_sim_reset"));
    sim_set_ = reinterpret_cast<BatonCudaSimSet*>(opened->Find("baton_cuda_sim_set"));
    sim_count_ = reinterpret_cast<BatonCudaSimCount*>(opened->Find("baton_cuda_sim_count"));
    sim_findings_ = reinterpret_cast<BatonCudaSimFindings*>(opened->Find("baton_cuda_sim_findings"));
    ASSERT_EQ(api->cuInit(0), CUDA_SUCCESS);
    CUdevice device = 0;
    CUcontext context = nullptr;
    int major = 0;
    ASSERT_EQ(api->cuDeviceGet(&device, 0), CUDA_SUCCESS);
    ASSERT_EQ(api->cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device), CUDA_SUCCESS);
    ASSERT_EQ(api->cuDevicePrimaryCtxRetain(&context, device), CUDA_SUCCESS);
    ASSERT_EQ(api->cuCtxSetCurrent(context), CUDA_SUCCESS);
    modules_ = new std::vector<CUmodule>;
    functions_ = new std::map<std::string, CUfunction>;
    for (const KernelImage& image : KernelImages()) {
      CUmodule module = nullptr;
      const char* const code = sim_set_ != nullptr ? image.ptx : major >= 9 ? image.sm_90 : image.sm_80;
      ASSERT_EQ(api->cuModuleLoadData(&module, code), CUDA_SUCCESS) << image.name;
      modules_->push_back(module);
    }
    api_ = new CudaApi(*std::move(api));
  }
  if (simulated()) sim_reset_();
  ASSERT_EQ(api().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
}

void GpuTest::TearDown() {
  if (api_ == nullptr) return;
  if (simulated()) {
    api().cuCtxSynchronize();
    if (!findings_expected_) {
      EXPECT_EQ(SimFindings(), "");
    }
    sim_reset_();
  }
  for (const CUdeviceptr pointer : allocations_) EXPECT_EQ(api().cuMemFree(pointer), CUDA_SUCCESS);
  EXPECT_EQ(api().cuStreamDestroy(stream_), CUDA_SUCCESS);
}

void GpuTest::SimSet(const char* name, int64_t value) {
  if (!simulated()) return;
  ASSERT_EQ(sim_set_(name, value), 0) << name;
}

std::string GpuTest::SimFindings() const {
  if (!simulated()) return "";
  std::vector<char> text(1 << 16);
  sim_findings_(text.data(), static_cast<int64_t>(text.size()));
  return text.data();
}

CUfunction GpuTest::Function(const std::string& kernel) {
  if (const auto found = replaced_.find(kernel); found != replaced_.end()) return found->second;
  CUfunction& function = (*functions_)[kernel];
  for (size_t i = 0; function == nullptr && i < modules_->size(); ++i) api().cuModuleGetFunction(&function, (*modules_)[i], kernel.c_str());
  EXPECT_NE(function, nullptr) << "no kernel " << kernel;
  return function;
}

bool GpuTest::LeaveOut(const std::string& kernel, const std::string& instruction, int n) {
  ExpectFindings();
  for (const KernelImage& image : KernelImages()) {
    std::string text = image.ptx;
    const size_t begin = text.find(".entry " + kernel + "(");
    if (begin == std::string::npos) continue;
    const size_t end = std::min(text.find(".entry ", begin + 1), text.size());
    size_t at = text.find(instruction, begin);
    for (int i = 0; i < n && at < end; ++i) at = text.find(instruction, at + 1);
    if (at >= end) return false;
    text.replace(at, text.find(';', at) - at, "");
    CUmodule module = nullptr;
    EXPECT_EQ(api().cuModuleLoadData(&module, text.c_str()), CUDA_SUCCESS);
    EXPECT_EQ(api().cuModuleGetFunction(&replaced_[kernel], module, kernel.c_str()), CUDA_SUCCESS);
    return true;
  }
  ADD_FAILURE() << "no kernel " << kernel;
  return false;
}

std::string GpuTest::TakeFindings() {
  const std::string findings = SimFindings();
  sim_reset_();
  return findings;
}

CUresult GpuTest::Launch(const std::string& kernel, Dim grid, Dim block, unsigned shared_bytes, void** arguments) {
  const CUresult result = api().cuLaunchKernel(Function(kernel), grid.x, grid.y, grid.z, block.x, block.y, block.z, shared_bytes, stream_, arguments, nullptr);
  EXPECT_TRUE(api().ToStatus(result, kernel).ok()) << api().ToStatus(result, kernel);
  return result;
}

CUdeviceptr GpuTest::AllocatePoisoned(size_t bytes) {
  CUdeviceptr pointer = 0;
  const CUresult result = api().cuMemAlloc(&pointer, bytes);
  EXPECT_TRUE(api().ToStatus(result, "allocating").ok()) << api().ToStatus(result, "allocating");
  allocations_.push_back(pointer);
  EXPECT_EQ(api().cuMemsetD8Async(pointer, 0xff, bytes, stream_), CUDA_SUCCESS);
  return pointer;
}

void GpuTest::CopyTo(CUdeviceptr to, const void* from, size_t bytes) {
  EXPECT_EQ(api().cuMemcpyHtoDAsync(to, from, bytes, stream_), CUDA_SUCCESS);
  EXPECT_EQ(api().cuStreamSynchronize(stream_), CUDA_SUCCESS);
}

void GpuTest::CopyFrom(void* to, CUdeviceptr from, size_t bytes) {
  EXPECT_EQ(api().cuMemcpyDtoHAsync(to, from, bytes, stream_), CUDA_SUCCESS);
  EXPECT_EQ(api().cuStreamSynchronize(stream_), CUDA_SUCCESS);
}

std::vector<float> RandomFloats(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random() >> 8) * 0x1p-23f - 1.0f;
  return values;
}

}  // namespace baton::cuda::testing
