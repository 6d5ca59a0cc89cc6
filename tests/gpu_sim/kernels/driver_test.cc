// SPDX-License-Identifier: Apache-2.0
// The simulated driver: streams that really run at another time, events, memory, errors that stick; each check with the mistake
// that it must report.
#include <atomic>
#include <cstring>

#include "common/backend/cuda/cuda_device.h"
#include "gmock/gmock.h"
#include "tests/gpu_sim/kernels/gpu_test_support.h"
#include "tests/support/status_matchers.h"

namespace baton::cuda {
namespace {

using ::testing::HasSubstr;

// y[i] = x[i] + 1 for one block of n threads, and a kernel that writes behind its array.
constexpr char kPtx[] = R"(
.version 8.0
.target sm_80
.address_size 64
.visible .entry add_one(.param .u64 x, .param .u64 y, .param .u32 n)
{
  .reg .pred %p<2>; .reg .b32 %r<4>; .reg .b64 %d<6>;
  ld.param.u64 %d0, [x]; ld.param.u64 %d1, [y]; ld.param.u32 %r0, [n];
  mov.u32 %r1, %tid.x; setp.ge.u32 %p0, %r1, %r0; @%p0 ret;
  mul.wide.u32 %d2, %r1, 4; add.s64 %d3, %d0, %d2; add.s64 %d4, %d1, %d2;
  ld.global.u32 %r2, [%d3]; add.u32 %r2, %r2, 1; st.global.u32 [%d4], %r2;
  ret;
}
)";

class DriverTest : public testing::GpuTest {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(GpuTest::SetUp());
    if (!simulated()) GTEST_SKIP() << "checks of the simulator";
    CUmodule module = nullptr;
    ASSERT_EQ(api().cuModuleLoadData(&module, kPtx), CUDA_SUCCESS);
    ASSERT_EQ(api().cuModuleGetFunction(&add_one_, module, "add_one"), CUDA_SUCCESS);
    CUfunction none = nullptr;
    EXPECT_EQ(api().cuModuleGetFunction(&none, module, "add_two"), CUDA_ERROR_NOT_FOUND);
  }
  CUresult AddOne(CUdeviceptr x, CUdeviceptr y, uint32_t n, CUstream stream, unsigned threads = 64) {
    void* arguments[] = {&x, &y, &n};
    return api().cuLaunchKernel(add_one_, 1, 1, 1, threads, 1, 1, 0, stream, arguments, nullptr);
  }
  CUfunction add_one_ = nullptr;
};

TEST_F(DriverTest, IsADevice) {
  auto device = FindCudaDevice(api().library, 0);
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ(device->name, "PTX interpreter");
  EXPECT_EQ(device->compute_capability, 80);
  EXPECT_THAT(FindCudaDevice(api().library, 1).status(),
              baton::testing::StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("no CUDA device 1")));
}

TEST_F(DriverTest, StreamsRunInOrderAndEventsJoinThem) {
  const auto x = Upload(std::vector<uint32_t>{10, 20, 30});
  const auto y = Poisoned<uint32_t>(3), z = Poisoned<uint32_t>(3);
  CUstream other = nullptr;
  CUevent event = nullptr;
  ASSERT_EQ(api().cuStreamCreate(&other, 0), CUDA_SUCCESS);
  ASSERT_EQ(api().cuEventCreate(&event, 0), CUDA_SUCCESS);
  EXPECT_EQ(AddOne(x.pointer, y.pointer, 3, stream_), CUDA_SUCCESS);
  EXPECT_EQ(api().cuEventRecord(event, stream_), CUDA_SUCCESS);
  EXPECT_EQ(api().cuStreamWaitEvent(other, event, 0), CUDA_SUCCESS);
  EXPECT_EQ(AddOne(y.pointer, z.pointer, 3, other), CUDA_SUCCESS);
  EXPECT_EQ(api().cuStreamSynchronize(other), CUDA_SUCCESS);
  EXPECT_EQ(Download(z), (std::vector<uint32_t>{12, 22, 32}));
  EXPECT_EQ(api().cuEventQuery(event), CUDA_SUCCESS);
  EXPECT_EQ(api().cuEventDestroy(event), CUDA_SUCCESS);
  EXPECT_EQ(api().cuStreamDestroy(other), CUDA_SUCCESS);
}

// With lazy streams nothing happens until somebody waits: a missing wait reads what was there before.
TEST_F(DriverTest, LazyStreamsShowAMissingWait) {
  const auto x = Upload(std::vector<uint32_t>{1});
  const auto y = Upload(std::vector<uint32_t>{0});
  SimSet("lazy_streams", 1);
  EXPECT_EQ(AddOne(x.pointer, y.pointer, 1, stream_), CUDA_SUCCESS);
  EXPECT_EQ(*y.get(), 0u);  // Simulated memory is the host's.
  EXPECT_EQ(api().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(*y.get(), 2u);
  // An event pulls the work before it, also through another stream.
  CUstream other = nullptr;
  CUevent event = nullptr;
  ASSERT_EQ(api().cuStreamCreate(&other, 0), CUDA_SUCCESS);
  ASSERT_EQ(api().cuEventCreate(&event, 0), CUDA_SUCCESS);
  EXPECT_EQ(AddOne(y.pointer, y.pointer, 1, stream_), CUDA_SUCCESS);
  EXPECT_EQ(api().cuEventRecord(event, stream_), CUDA_SUCCESS);
  EXPECT_EQ(api().cuStreamWaitEvent(other, event, 0), CUDA_SUCCESS);
  EXPECT_EQ(api().cuStreamSynchronize(other), CUDA_SUCCESS);
  EXPECT_EQ(*y.get(), 3u);
  EXPECT_EQ(api().cuEventDestroy(event), CUDA_SUCCESS);
  EXPECT_EQ(api().cuStreamDestroy(other), CUDA_SUCCESS);
}

TEST_F(DriverTest, HostFunctionsRunInTheStream) {
  const auto x = Upload(std::vector<uint32_t>{1});
  static std::atomic<uint32_t> seen;
  seen = 0;
  EXPECT_EQ(AddOne(x.pointer, x.pointer, 1, stream_), CUDA_SUCCESS);
  EXPECT_EQ(api().cuLaunchHostFunc(stream_, [](void* value) { seen = *static_cast<uint32_t*>(value); }, x.get()), CUDA_SUCCESS);
  EXPECT_EQ(AddOne(x.pointer, x.pointer, 1, stream_), CUDA_SUCCESS);
  EXPECT_EQ(api().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(seen, 2u);
}

TEST_F(DriverTest, MemoryEndsWhereItWasTold) {
  SimSet("memory_limit", 1 << 20);
  CUdeviceptr first = 0, second = 0;
  EXPECT_EQ(api().cuMemAlloc(&first, 900 << 10), CUDA_SUCCESS);
  const CUresult full = api().cuMemAlloc(&second, 200 << 10);
  EXPECT_THAT(api().ToStatus(full, "allocating"), baton::testing::StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("allocating: CUDA_ERROR_OUT_OF_MEMORY 2")));
  EXPECT_EQ(api().cuMemFree(first), CUDA_SUCCESS);
  EXPECT_EQ(api().cuMemAlloc(&second, 200 << 10), CUDA_SUCCESS);
  EXPECT_EQ(api().cuMemFree(second), CUDA_SUCCESS);
  EXPECT_EQ(api().cuMemFree(second), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api().cuMemAlloc(&second, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(DriverTest, CopiesBeyondAnAllocationAreRefused) {
  const auto x = Poisoned<uint8_t>(100);
  std::vector<uint8_t> host(200);
  EXPECT_EQ(api().cuMemcpyHtoDAsync(x.pointer, host.data(), 101, stream_), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api().cuMemcpyDtoHAsync(host.data(), x.pointer + 1, 100, stream_), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api().cuMemsetD32Async(x.pointer, 0, 26, stream_), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api().cuMemcpyDtoHAsync(host.data(), x.pointer, 100, stream_), CUDA_SUCCESS);
  EXPECT_EQ(api().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(host[99], 0xff);  // Fresh memory is poison.
}

TEST_F(DriverTest, ErrorsStickToTheContext) {
  ExpectFindings();
  const auto x = Upload(std::vector<uint32_t>{1, 2, 3});
  EXPECT_EQ(AddOne(x.pointer, x.pointer, 4, stream_), CUDA_SUCCESS);  // One too many; the launch itself is fine.
  EXPECT_EQ(api().cuStreamSynchronize(stream_), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_THAT(SimFindings(), HasSubstr("thread 3: out of bounds: address"));
  EXPECT_EQ(AddOne(x.pointer, x.pointer, 1, stream_), CUDA_ERROR_ILLEGAL_ADDRESS);
  CUdeviceptr more = 0;
  EXPECT_EQ(api().cuMemAlloc(&more, 16), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_THAT(api().ToStatus(CUDA_ERROR_ILLEGAL_ADDRESS, "decoding"), baton::testing::StatusIs(absl::StatusCode::kInternal, HasSubstr("an illegal memory access")));
}

TEST_F(DriverTest, InjectedLaunchFailure) {
  const auto x = Upload(std::vector<uint32_t>{1});
  SimSet("fail_launch", 2);
  EXPECT_EQ(AddOne(x.pointer, x.pointer, 1, stream_), CUDA_SUCCESS);
  EXPECT_EQ(api().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(AddOne(x.pointer, x.pointer, 1, stream_), CUDA_SUCCESS);
  EXPECT_EQ(api().cuStreamSynchronize(stream_), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(*x.get(), 2u);  // The second one did nothing.
  EXPECT_EQ(SimCount("launches"), 1);
}

TEST_F(DriverTest, RefusesShapesAndImages) {
  const auto x = Upload(std::vector<uint32_t>{1});
  EXPECT_EQ(AddOne(x.pointer, x.pointer, 1, stream_, 1025), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(AddOne(x.pointer, x.pointer, 1, reinterpret_cast<CUstream>(&add_one_)), CUDA_ERROR_INVALID_HANDLE);
  // More than 48 KiB of dynamic shared memory must be asked for.
  uint32_t n = 0;
  CUdeviceptr none = 0;
  void* arguments[] = {&none, &none, &n};
  const auto launch = [&](unsigned shared) { return api().cuLaunchKernel(add_one_, 1, 1, 1, 32, 1, 1, shared, stream_, arguments, nullptr); };
  EXPECT_EQ(launch(48 * 1024 + 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api().cuFuncSetAttribute(add_one_, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100 * 1024), CUDA_SUCCESS);
  EXPECT_EQ(launch(48 * 1024 + 4), CUDA_SUCCESS);
  CUmodule module = nullptr;
  EXPECT_EQ(api().cuModuleLoadData(&module, ".version 8.0\n.visible .entry k() { wgmma.fence.sync.aligned; }"), CUDA_ERROR_INVALID_PTX);
}

}  // namespace
}  // namespace baton::cuda
