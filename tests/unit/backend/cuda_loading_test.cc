// SPDX-License-Identifier: Apache-2.0
// What a process says where NVIDIA's libraries are absent or unfit, and that every name in the tables exists where they are.
#include <filesystem>
#include <memory>
#include <string>

#include "common/backend/create_backend.h"
#include "common/backend/cuda/cuda_device.h"
#include "common/backend/cuda/dynamic_library.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#ifdef BATON_HAVE_CUDA
#include "common/backend/cuda/cublas_lt_api.h"
#include "common/backend/cuda/cuda_api.h"
#include "common/backend/cuda/cuda_ipc_api.h"
#endif
#ifdef BATON_HAVE_NCCL
#include "common/backend/cuda/nccl_api.h"
#endif

namespace baton {
namespace {

using ::baton::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using enum absl::StatusCode;

constexpr char kNoSuchLibrary[] = "libcuda_of_no_machine.so.1";
constexpr char kNoDriver[] = "libm.so.6";  // A library, of something else.

TEST(DynamicLibraryTest, NamesWhatItCannotOpenOrFind) {
  EXPECT_THAT(cuda::DynamicLibrary::Open(kNoSuchLibrary).status(), StatusIs(kFailedPrecondition, HasSubstr(kNoSuchLibrary)));
  EXPECT_THAT(cuda::DynamicLibrary::Open("").status(), StatusIs(kInvalidArgument, HasSubstr("empty")));
  ASSERT_OK_AND_ASSIGN(const auto library, cuda::DynamicLibrary::Open(kNoDriver));
  double (*function)(double) = nullptr;
  EXPECT_THAT(library.Get("cosine", &function),
              StatusIs(kFailedPrecondition, HasSubstr("libm.so.6 has no function cosine")));
  EXPECT_EQ(function, nullptr);
  ASSERT_TRUE(library.Get("cos", &function).ok());
  EXPECT_EQ(function(0.0), 1.0);
}

TEST(DeviceTest, AskedForAGpuThatIsNotThereIsRefused) {
  const absl::Status status = CreateBackend("cuda", {.cuda_driver = kNoSuchLibrary}).status();
#ifdef BATON_HAVE_CUDA
  EXPECT_THAT(status, StatusIs(kFailedPrecondition, AllOf(HasSubstr("no CUDA driver"), HasSubstr(kNoSuchLibrary))));
  EXPECT_THAT(CreateBackend("cuda", {.cuda_driver = kNoDriver}).status(),
              StatusIs(kFailedPrecondition, HasSubstr("no CUDA driver: libm.so.6 has no function cuInit")));
#else
  EXPECT_THAT(status, StatusIs(kFailedPrecondition, HasSubstr("this build has no CUDA")));
#endif
}

TEST(DeviceTest, AutoStaysOnTheCpuAndSaysWhy) {
  ::testing::internal::CaptureStderr();
  auto backend = CreateBackend("auto", {.num_threads = 1, .cuda_driver = kNoSuchLibrary});
  const std::string log = ::testing::internal::GetCapturedStderr();
  ASSERT_TRUE(backend.ok()) << backend.status();
  EXPECT_THAT((*backend)->numerics_id(), HasSubstr("cpu-"));
  EXPECT_THAT(log, AllOf(HasSubstr("no CUDA"), HasSubstr("; staying on the CPU")));
}

// Options are checked whatever the device turns out to be.
TEST(DeviceTest, AutoRefusesWhatTheCpuRefuses) {
  EXPECT_THAT(CreateBackend("auto", {.isa = "mmx", .cuda_driver = kNoSuchLibrary}).status(),
              StatusIs(kInvalidArgument, HasSubstr("\"mmx\"")));
}

#ifdef BATON_HAVE_CUDA
std::string Toolkit(const char* library) {
  const std::string path = std::string(BATON_CUDA_ROOT) + "/lib64/" + library;
  return std::filesystem::exists(path) ? path : "";
}

// The toolkit's stub has every symbol of the driver and does nothing.
TEST(TablesTest, TheDriverHasEveryName) {
  const std::string path = Toolkit("stubs/libcuda.so");
  if (path.empty()) GTEST_SKIP() << "no libcuda.so stub in " << BATON_CUDA_ROOT;
  ASSERT_OK_AND_ASSIGN(const cuda::CudaApi api, cuda::CudaApi::Load(path));
  EXPECT_NE(api.cuMemAlloc, nullptr);
  ASSERT_OK_AND_ASSIGN(const cuda::CudaIpcApi ipc, cuda::CudaIpcApi::Load(path));
  EXPECT_NE(ipc.cuIpcOpenMemHandle, nullptr);
  // It refuses to be used, which is the device that is not there.
  EXPECT_THAT(cuda::FindCudaDevice(path, 0).status(), StatusIs(kFailedPrecondition, HasSubstr("cuInit")));
}

TEST(TablesTest, CublasLtHasEveryName) {
  EXPECT_THAT(cuda::CublasLtApi::Load(kNoSuchLibrary).status(), StatusIs(kFailedPrecondition, HasSubstr("no cuBLASLt: ")));
  const std::string path = Toolkit(cuda::CublasLtApi::DefaultLibrary().c_str());
  if (path.empty()) GTEST_SKIP() << "no cuBLASLt in " << BATON_CUDA_ROOT;
  ASSERT_OK_AND_ASSIGN(const cuda::CublasLtApi api, cuda::CublasLtApi::Load(path));
  EXPECT_THAT(api.ToStatus(CUBLAS_STATUS_ALLOC_FAILED, "multiplying"), StatusIs(kResourceExhausted, HasSubstr("multiplying: ")));
  EXPECT_THAT(api.ToStatus(CUBLAS_STATUS_EXECUTION_FAILED, "multiplying"), StatusIs(kInternal, HasSubstr("multiplying: ")));
}
#endif

#ifdef BATON_HAVE_NCCL
TEST(TablesTest, NcclHasEveryName) {
  EXPECT_THAT(cuda::NcclApi::Load(kNoSuchLibrary).status(), StatusIs(kFailedPrecondition, HasSubstr("no NCCL: ")));
  const std::string path = Toolkit("libnccl.so.2");
  if (path.empty()) GTEST_SKIP() << "no NCCL in " << BATON_CUDA_ROOT;
  ASSERT_OK_AND_ASSIGN(const cuda::NcclApi api, cuda::NcclApi::Load(path));
  EXPECT_TRUE(api.ToStatus(ncclInProgress, nullptr, "sending").ok());
  EXPECT_THAT(api.ToStatus(ncclRemoteError, nullptr, "sending"), StatusIs(kUnavailable, HasSubstr("sending: ")));
  EXPECT_THAT(api.ToStatus(ncclInvalidUsage, nullptr, "sending"), StatusIs(kInternal, HasSubstr("sending: ")));
}
#endif

}  // namespace
}  // namespace baton
