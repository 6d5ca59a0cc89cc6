// SPDX-License-Identifier: Apache-2.0
// Device memory of another process, through the simulated driver: the same bytes in both; each wrong use with what it reports.
#include <fcntl.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <optional>

#include "common/backend/cuda/cuda_ipc_api.h"
#include "common/base/thread.h"
#include "gmock/gmock.h"
#include "tests/gpu_sim/kernels/gpu_test_support.h"
#include "tests/support/paths.h"

namespace baton::cuda {
namespace {

using ::testing::HasSubstr;

constexpr size_t kBytes = 10000;  // No whole number of pages.

// ipc_peer as a process.
class Peer {
 public:
  explicit Peer(const std::string& driver) {
    int in[2], out[2];
    EXPECT_EQ(pipe2(in, O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(out, O_CLOEXEC), 0);
    const std::string program = baton::testing::BuildPath("tests/ipc_peer"), bytes = std::to_string(kBytes);
    process_ = fork();
    if (process_ == 0) {
      dup2(in[0], 0);
      dup2(out[1], 1);
      execl(program.c_str(), program.c_str(), driver.c_str(), bytes.c_str(), nullptr);
      _exit(127);
    }
    close(in[0]);
    close(out[1]);
    to_ = fdopen(in[1], "w");
    from_ = fdopen(out[0], "r");
    const std::string digits = Line();
    EXPECT_EQ(digits.size(), 2 * sizeof(handle.reserved));
    for (size_t i = 0; 2 * i + 1 < digits.size(); ++i) handle.reserved[i] = static_cast<char>(std::stoi(digits.substr(2 * i, 2), nullptr, 16));
  }
  ~Peer() { Kill(); }
  std::string Ask(const char* command) {
    std::fprintf(to_, "%s\n", command);
    std::fflush(to_);
    return Line();
  }
  void Kill() {
    if (process_ <= 0) return;
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
    process_ = 0;
    std::fclose(to_);
    std::fclose(from_);
  }
  CUipcMemHandle handle = {};

 private:
  std::string Line() {
    char line[256] = {};
    if (std::fgets(line, sizeof(line), from_) == nullptr) return "";
    return std::string(line, std::strcspn(line, "\n"));
  }
  pid_t process_ = 0;
  FILE* to_ = nullptr;
  FILE* from_ = nullptr;
};

class DriverIpcTest : public testing::GpuTest {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(GpuTest::SetUp());
    if (!simulated()) GTEST_SKIP() << "checks of the simulator";
    auto ipc = CudaIpcApi::Load(api().library);
    ASSERT_TRUE(ipc.ok()) << ipc.status();
    ipc_ = *ipc;
  }
  CUresult Open(const CUipcMemHandle& handle, unsigned flags = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) {
    return ipc_.cuIpcOpenMemHandle(&memory_, handle, flags);
  }
  CUresult CopyTo(CUdeviceptr to, size_t bytes, unsigned char value) {
    host_.assign(bytes, value);
    return api().cuMemcpyHtoDAsync(to, host_.data(), bytes, stream_);
  }
  void ExpectFinding(const std::string& text) {
    ExpectFindings();
    EXPECT_THAT(TakeFindings(), HasSubstr(text));
  }
  CudaIpcApi ipc_;
  CUdeviceptr memory_ = 0;
  std::vector<unsigned char> host_;
};

TEST_F(DriverIpcTest, BothHaveTheSameBytes) {
  Peer peer(api().library);
  ASSERT_EQ(Open(peer.handle), CUDA_SUCCESS);
  std::vector<unsigned char> read(kBytes);
  ASSERT_EQ(api().cuMemcpyDtoHAsync(read.data(), memory_, kBytes, stream_), CUDA_SUCCESS);
  ASSERT_EQ(api().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(read, std::vector<unsigned char>(kBytes, 0x5a));
  ASSERT_EQ(CopyTo(memory_, 100, 0x11), CUDA_SUCCESS);
  ASSERT_EQ(api().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(peer.Ask("read"), "11 5a");
  EXPECT_EQ(CopyTo(memory_ + kBytes - 10, 11, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(SimCount("peer_copies"), 1);
  // A second time it is the same memory, and takes two to close.
  const CUdeviceptr first = memory_;
  ASSERT_EQ(Open(peer.handle), CUDA_SUCCESS);
  EXPECT_EQ(memory_, first);
  EXPECT_EQ(ipc_.cuIpcCloseMemHandle(memory_), CUDA_SUCCESS);
  EXPECT_EQ(CopyTo(memory_, 1, 0), CUDA_SUCCESS);
  ASSERT_EQ(api().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(ipc_.cuIpcCloseMemHandle(memory_), CUDA_SUCCESS);
  EXPECT_EQ(SimCount("ipc_open"), 0);
  EXPECT_EQ(peer.Ask("free"), "0");
  EXPECT_EQ(peer.Ask("findings"), "0");
}

TEST_F(DriverIpcTest, TheBytesOutliveTheProcessThatHadThem) {
  Peer peer(api().library);
  ASSERT_EQ(Open(peer.handle), CUDA_SUCCESS);
  peer.Kill();
  EXPECT_EQ(CopyTo(memory_, kBytes, 1), CUDA_SUCCESS);
  EXPECT_EQ(api().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(ipc_.cuIpcCloseMemHandle(memory_), CUDA_SUCCESS);
}

TEST_F(DriverIpcTest, OnesOwnHandle) {
  const auto own = Poisoned<uint8_t>(kBytes);
  CUipcMemHandle handle = {};
  ASSERT_EQ(ipc_.cuIpcGetMemHandle(&handle, own.pointer), CUDA_SUCCESS);
  EXPECT_EQ(*own.get(), 0xff);  // Exporting changes nothing.
  EXPECT_EQ(Open(handle), CUDA_ERROR_INVALID_CONTEXT);
  ExpectFinding("opened its own handle");
}

TEST_F(DriverIpcTest, WhatIsNoAllocationIsNotExported) {
  const auto own = Poisoned<uint8_t>(kBytes);
  CUipcMemHandle handle = {};
  EXPECT_EQ(ipc_.cuIpcGetMemHandle(&handle, own.pointer + 256), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ipc_.cuIpcGetMemHandle(&handle, reinterpret_cast<CUdeviceptr>(&handle)), CUDA_ERROR_INVALID_VALUE);
  SimSet("no_ipc", 1);
  EXPECT_EQ(ipc_.cuIpcGetMemHandle(&handle, own.pointer), CUDA_ERROR_NOT_SUPPORTED);
}

TEST_F(DriverIpcTest, AHandleOfFreedMemory) {
  Peer peer(api().library);
  EXPECT_EQ(peer.Ask("free"), "0");
  EXPECT_EQ(Open(peer.handle), CUDA_ERROR_MAP_FAILED);
  ExpectFinding("a handle was opened of memory that is freed");
}

TEST_F(DriverIpcTest, AHandleOfAProcessThatHasEnded) {
  Peer peer(api().library);
  peer.Kill();
  EXPECT_EQ(Open(peer.handle), CUDA_ERROR_MAP_FAILED);
  ExpectFinding("of a process that has ended");
}

TEST_F(DriverIpcTest, AChangedHandleAndWrongFlags) {
  Peer peer(api().library);
  EXPECT_EQ(Open(peer.handle, 0), CUDA_ERROR_INVALID_VALUE);
  CUipcMemHandle changed = peer.handle;
  changed.reserved[17] = static_cast<char>(changed.reserved[17] ^ 1);
  EXPECT_EQ(Open(changed), CUDA_ERROR_INVALID_VALUE);
  ExpectFinding("a handle was opened that is none");
}

TEST_F(DriverIpcTest, MemoryThatIsFreedWhileAnotherProcessHasItOpen) {
  Peer peer(api().library);
  ASSERT_EQ(Open(peer.handle), CUDA_SUCCESS);
  EXPECT_EQ(peer.Ask("free"), "0");
  EXPECT_EQ(peer.Ask("findings"), "1");
  EXPECT_EQ(ipc_.cuIpcCloseMemHandle(memory_), CUDA_SUCCESS);
}

TEST_F(DriverIpcTest, UseAfterClosing) {
  Peer peer(api().library);
  ASSERT_EQ(Open(peer.handle), CUDA_SUCCESS);
  EXPECT_EQ(ipc_.cuIpcCloseMemHandle(memory_), CUDA_SUCCESS);
  EXPECT_EQ(CopyTo(memory_, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ipc_.cuIpcCloseMemHandle(memory_), CUDA_ERROR_INVALID_VALUE);
  ExpectFinding("memory was closed that is not open");
}

TEST_F(DriverIpcTest, ClosingBeforeACopyHasEnded) {
  Peer peer(api().library);
  ASSERT_EQ(Open(peer.handle), CUDA_SUCCESS);
  SimSet("lazy_streams", 1);
  EXPECT_EQ(CopyTo(memory_, 1, 0), CUDA_SUCCESS);
  CUevent event = nullptr;
  ASSERT_EQ(api().cuEventCreate(&event, 0), CUDA_SUCCESS);
  EXPECT_EQ(api().cuEventRecord(event, stream_), CUDA_SUCCESS);
  // The right form waits; a copy that somebody has seen the end of is no finding.
  EXPECT_EQ(api().cuEventSynchronize(event), CUDA_SUCCESS);
  SimSet("lazy_streams", 0);
  SimSet("stall_peer_copy", 1);
  EXPECT_EQ(CopyTo(memory_, 1, 0), CUDA_SUCCESS);
  std::optional<CUresult> closed;
  Thread closer("close", [&] { closed = ipc_.cuIpcCloseMemHandle(memory_); });
  while (SimCount("findings") == 0) sched_yield();
  SimSet("stall_peer_copy", 0);
  closer.Join();
  EXPECT_EQ(closed, CUDA_SUCCESS);
  ExpectFinding("closed while a copy to or from it was under way");
  EXPECT_EQ(api().cuEventDestroy(event), CUDA_SUCCESS);
}

TEST_F(DriverIpcTest, FreeingWhatIsAnothersIsNoWayToCloseIt) {
  Peer peer(api().library);
  ASSERT_EQ(Open(peer.handle), CUDA_SUCCESS);
  EXPECT_EQ(api().cuMemFree(memory_), CUDA_ERROR_INVALID_VALUE);
  ExpectFinding("freed instead of closed");
  EXPECT_EQ(ipc_.cuIpcCloseMemHandle(memory_), CUDA_SUCCESS);
}

TEST_F(DriverIpcTest, GpusThatDoNotReachEachOther) {
  Peer peer(api().library);
  SimSet("fail_ipc_open", 1);
  EXPECT_EQ(Open(peer.handle), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
  EXPECT_EQ(Open(peer.handle), CUDA_SUCCESS);
  EXPECT_EQ(ipc_.cuIpcCloseMemHandle(memory_), CUDA_SUCCESS);
}

}  // namespace
}  // namespace baton::cuda
