// SPDX-License-Identifier: Apache-2.0
// The simulated NCCL: bytes between two ranks, at their streams' time; each check with the mistake that it must report. What one rank can
// do with itself runs on the real one too (tests/device/run).
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/backend/cuda/cuda_device.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/gpu_sim/nccl_sim/nccl_test_support.h"

namespace baton::cuda {
namespace {

using testing::NcclSim;
using ::testing::HasSubstr;

bool Soon(const std::function<bool()>& done) {
  const MonotonicTime deadline = Clock::Real()->Now() + absl::Seconds(20);
  Mutex mutex;
  CondVar never;
  while (!done()) {
    if (Clock::Real()->Now() >= deadline) return false;
    MutexLock lock(&mutex);
    never.WaitFor(&mutex, absl::Milliseconds(1));
  }
  return true;
}

class NcclSimTest : public ::testing::Test {
 protected:
  struct Rank {
    ncclComm_t comm = nullptr;
    CUstream stream = nullptr;
  };

  void SetUp() override {
    auto found = FindCudaDevice(testing::DriverLibrary(), 0);
    ASSERT_TRUE(found.ok()) << found.status();
    auto cuda = CudaApi::Load(testing::DriverLibrary());
    ASSERT_TRUE(cuda.ok()) << cuda.status();
    cuda_ = *cuda;
    auto nccl = NcclApi::Load(testing::NcclLibrary());
    ASSERT_TRUE(nccl.ok()) << nccl.status();
    nccl_ = *nccl;
    CUdevice device = 0;
    CUcontext context = nullptr;
    ASSERT_EQ(cuda_.cuDeviceGet(&device, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuda_.cuDevicePrimaryCtxRetain(&context, device), CUDA_SUCCESS);
    ASSERT_EQ(cuda_.cuCtxSetCurrent(context), CUDA_SUCCESS);
    if (simulated()) sim_.reset();
  }
  void TearDown() override {
    for (const Rank& rank : ranks_) {
      if (rank.comm != nullptr) nccl_.ncclCommAbort(rank.comm);
      EXPECT_EQ(cuda_.cuStreamSynchronize(rank.stream), CUDA_SUCCESS);
      cuda_.cuStreamDestroy(rank.stream);
    }
    for (const CUdeviceptr pointer : memory_) cuda_.cuMemFree(pointer);
    if (!simulated()) return;
    if (!findings_expected_) {
      EXPECT_EQ(sim_.Findings(), "");
    }
    EXPECT_EQ(sim_.count("communicators"), 0);
    sim_.reset();
  }

  bool simulated() const { return sim_.set != nullptr; }
  void ExpectFinding(const std::string& text) {
    findings_expected_ = true;
    EXPECT_THAT(sim_.Findings(), HasSubstr(text));
  }
  // `num_ranks` communicators of one id, ready.
  void Make(int num_ranks) {
    ncclUniqueId id;
    ASSERT_EQ(nccl_.ncclGetUniqueId(&id), ncclSuccess);
    ranks_.resize(static_cast<size_t>(num_ranks));
    for (int i = 0; i < num_ranks; ++i) {
      ASSERT_EQ(cuda_.cuStreamCreate(&ranks_[i].stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;
      const ncclResult_t made = nccl_.ncclCommInitRankConfig(&ranks_[i].comm, num_ranks, id, i, &config);
      ASSERT_TRUE(made == ncclSuccess || made == ncclInProgress) << made;
    }
    for (const Rank& rank : ranks_) ASSERT_EQ(Settle(rank), ncclSuccess);
  }
  ncclResult_t State(const Rank& rank) const {
    ncclResult_t state = ncclSuccess;
    EXPECT_EQ(nccl_.ncclCommGetAsyncError(rank.comm, &state), ncclSuccess);
    return state;
  }
  // What it comes to when nothing is in progress any more.
  ncclResult_t Settle(const Rank& rank) const {
    ncclResult_t state = ncclInProgress;
    Soon([&] { return (state = State(rank)) != ncclInProgress; });
    return state;
  }
  uint8_t* Device(size_t bytes, uint8_t value) {
    CUdeviceptr pointer = 0;
    EXPECT_EQ(cuda_.cuMemAlloc(&pointer, bytes), CUDA_SUCCESS);
    memory_.push_back(pointer);
    EXPECT_EQ(cuda_.cuMemsetD8Async(pointer, value, bytes, ranks_[0].stream), CUDA_SUCCESS);
    EXPECT_EQ(cuda_.cuStreamSynchronize(ranks_[0].stream), CUDA_SUCCESS);
    return reinterpret_cast<uint8_t*>(pointer);
  }
  void Send(const Rank& from, int to, const uint8_t* buffer, size_t bytes, ncclResult_t expected = ncclInProgress) {
    EXPECT_EQ(nccl_.ncclSend(buffer, bytes, ncclUint8, to, from.comm, from.stream), expected);
  }
  void Receive(const Rank& at, int from, uint8_t* buffer, size_t bytes, ncclResult_t expected = ncclInProgress) {
    EXPECT_EQ(nccl_.ncclRecv(buffer, bytes, ncclUint8, from, at.comm, at.stream), expected);
  }
  bool Is(const Rank& rank, const uint8_t* device, size_t bytes, uint8_t value) {
    std::vector<uint8_t> host(bytes);
    EXPECT_EQ(cuda_.cuMemcpyDtoHAsync(host.data(), reinterpret_cast<CUdeviceptr>(device), bytes, rank.stream), CUDA_SUCCESS);
    EXPECT_EQ(cuda_.cuStreamSynchronize(rank.stream), CUDA_SUCCESS);
    return host == std::vector<uint8_t>(bytes, value);
  }

  const NcclSim& sim_ = NcclSim::Get();
  CudaApi cuda_;
  NcclApi nccl_;
  std::vector<Rank> ranks_;
  std::vector<CUdeviceptr> memory_;
  bool findings_expected_ = false;
};

// Real NCCL allows this with one GPU.
TEST_F(NcclSimTest, ARankSendsToItself) {
  ASSERT_NO_FATAL_FAILURE(Make(1));
  constexpr size_t kBytes = 3 << 20;
  uint8_t* const from = Device(kBytes, 7);
  uint8_t* const to = Device(kBytes, 1);
  ASSERT_EQ(nccl_.ncclGroupStart(), ncclSuccess);
  Send(ranks_[0], 0, from, kBytes, ncclSuccess);
  Receive(ranks_[0], 0, to, kBytes, ncclSuccess);
  const ncclResult_t ended = nccl_.ncclGroupEnd();
  EXPECT_TRUE(ended == ncclSuccess || ended == ncclInProgress) << ended;
  EXPECT_EQ(Settle(ranks_[0]), ncclSuccess);
  EXPECT_TRUE(Is(ranks_[0], to, kBytes, 7));
  const ncclResult_t finalized = nccl_.ncclCommFinalize(ranks_[0].comm);
  EXPECT_TRUE(finalized == ncclSuccess || finalized == ncclInProgress) << finalized;
  EXPECT_EQ(Settle(ranks_[0]), ncclSuccess);
  EXPECT_EQ(nccl_.ncclCommDestroy(std::exchange(ranks_[0].comm, nullptr)), ncclSuccess);
}

// What follows is about the simulator.
class NcclPairTest : public NcclSimTest {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(NcclSimTest::SetUp());
    if (!simulated()) GTEST_SKIP() << "two ranks on one GPU, or a check of the simulator";
    ASSERT_NO_FATAL_FAILURE(Make(2));
  }
  static constexpr size_t kBytes = 1 << 20;
};

TEST_F(NcclPairTest, BytesArriveInOrder) {
  uint8_t* const first = Device(kBytes, 3);
  uint8_t* const second = Device(64, 4);
  uint8_t* const to = Device(kBytes, 0);
  uint8_t* const behind = Device(64, 0);
  for (const Rank& rank : ranks_) {
    ASSERT_EQ(nccl_.ncclGroupStart(), ncclSuccess);
    if (rank.comm == ranks_[0].comm) {
      Send(rank, 1, first, kBytes, ncclSuccess);
      Send(rank, 1, second, 64, ncclSuccess);
    } else {
      Receive(rank, 0, to, kBytes, ncclSuccess);
      Receive(rank, 0, behind, 64, ncclSuccess);
    }
    ASSERT_EQ(nccl_.ncclGroupEnd(), ncclInProgress);
  }
  for (const Rank& rank : ranks_) EXPECT_EQ(Settle(rank), ncclSuccess);
  EXPECT_TRUE(Is(ranks_[1], to, kBytes, 3));
  EXPECT_TRUE(Is(ranks_[1], behind, 64, 4));
  EXPECT_EQ(sim_.count("received_bytes"), static_cast<int64_t>(kBytes) + 64);
  int count = 0, rank = -1;
  EXPECT_EQ(nccl_.ncclCommCount(ranks_[1].comm, &count), ncclSuccess);
  EXPECT_EQ(nccl_.ncclCommUserRank(ranks_[1].comm, &rank), ncclSuccess);
  EXPECT_EQ(count, 2);
  EXPECT_EQ(rank, 1);
}

TEST_F(NcclPairTest, AGroupGoesBothWaysAtOnce) {
  uint8_t* const buffers[4] = {Device(kBytes, 5), Device(kBytes, 6), Device(kBytes, 0), Device(kBytes, 0)};
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(nccl_.ncclGroupStart(), ncclSuccess);
    Send(ranks_[i], 1 - i, buffers[i], kBytes, ncclSuccess);
    Receive(ranks_[i], 1 - i, buffers[2 + i], kBytes, ncclSuccess);
    ASSERT_EQ(nccl_.ncclGroupEnd(), ncclInProgress);
  }
  for (const Rank& rank : ranks_) EXPECT_EQ(Settle(rank), ncclSuccess);
  EXPECT_TRUE(Is(ranks_[0], buffers[2], kBytes, 6));
  EXPECT_TRUE(Is(ranks_[1], buffers[3], kBytes, 5));
}

TEST_F(NcclPairTest, NothingHappensUntilTheStateIsAskedFor) {
  uint8_t* const from = Device(64, 3);
  uint8_t* const to = Device(64, 9);
  Send(ranks_[0], 1, from, 64);
  Receive(ranks_[1], 0, to, 64);
  // Who takes the return for the issue waits for an empty stream.
  EXPECT_TRUE(Is(ranks_[1], to, 64, 9));
  EXPECT_EQ(sim_.count("recvs"), 0);
  for (const Rank& rank : ranks_) EXPECT_EQ(Settle(rank), ncclSuccess);
  EXPECT_TRUE(Is(ranks_[1], to, 64, 3));
}

TEST_F(NcclPairTest, ASendWaitsForItsReceive) {
  uint8_t* const from = Device(16, 3);
  uint8_t* const to = Device(16, 9);
  Send(ranks_[0], 1, from, 16);
  EXPECT_EQ(Settle(ranks_[0]), ncclSuccess);
  EXPECT_EQ(cuda_.cuStreamQuery(ranks_[0].stream), CUDA_ERROR_NOT_READY);
  Receive(ranks_[1], 0, to, 16);
  EXPECT_EQ(Settle(ranks_[1]), ncclSuccess);
  EXPECT_TRUE(Is(ranks_[1], to, 16, 3));
  EXPECT_TRUE(Soon([&] { return cuda_.cuStreamQuery(ranks_[0].stream) == CUDA_SUCCESS; }));
}

TEST_F(NcclPairTest, SizesThatDifferAreReportedByBothEnds) {
  uint8_t* const from = Device(64, 3);
  uint8_t* const to = Device(64, 9);
  Send(ranks_[0], 1, from, 64);
  Receive(ranks_[1], 0, to, 48);
  for (const Rank& rank : ranks_) Settle(rank);
  for (const Rank& rank : ranks_) EXPECT_TRUE(Soon([&] { return State(rank) == ncclInvalidUsage; }));
  ExpectFinding("rank 0 sends 64 bytes, rank 1 expects 48");
  ExpectFinding("rank 1 receives 48 bytes, rank 0 sends 64");
}

TEST_F(NcclPairTest, AReceiveWithoutASendIsReportedInTheEnd) {
  sim_.set("patience_ms", 30);
  Receive(ranks_[1], 0, Device(64, 9), 64);
  EXPECT_EQ(Settle(ranks_[1]), ncclSuccess);
  EXPECT_TRUE(Soon([&] { return State(ranks_[1]) == ncclSystemError; }));
  ExpectFinding("it never posted what matches");
}

TEST_F(NcclPairTest, OnlyDeviceMemoryIsTaken) {
  std::vector<uint8_t> host(64);
  Send(ranks_[0], 1, host.data(), 64, ncclInvalidArgument);
  ExpectFinding("not in one allocation of device memory");
  uint8_t* const device = Device(64, 3);
  Receive(ranks_[1], 0, device + 1, 64, ncclInvalidArgument);  // Over its end.
}

TEST_F(NcclPairTest, WrongRanksAndLonelySelfSendsAreRefused) {
  uint8_t* const device = Device(64, 3);
  Send(ranks_[0], 2, device, 64, ncclInvalidArgument);
  Send(ranks_[0], 0, device, 64, ncclInvalidArgument);
  ExpectFinding("rank 2 of 2 from rank 0");
  ncclUniqueId id;
  ASSERT_EQ(nccl_.ncclGetUniqueId(&id), ncclSuccess);
  Rank alone;
  ASSERT_EQ(nccl_.ncclCommInitRank(&alone.comm, 1, id, 0), ncclSuccess);
  alone.stream = ranks_[0].stream;
  Send(alone, 0, device, 64, ncclInvalidUsage);
  ExpectFinding("without a matching receive");
  EXPECT_EQ(nccl_.ncclCommDestroy(alone.comm), ncclSuccess);
  EXPECT_EQ(nccl_.ncclGroupEnd(), ncclInvalidUsage);
  ncclUniqueId none = {};
  EXPECT_EQ(nccl_.ncclCommInitRank(&alone.comm, 1, none, 0), ncclInvalidArgument);
}

TEST_F(NcclPairTest, ACallWhileSomethingIsInProgressIsReported) {
  uint8_t* const device = Device(64, 3);
  Send(ranks_[0], 1, device, 64);
  Send(ranks_[0], 1, device, 64, ncclInvalidUsage);
  ExpectFinding("is in progress");
}

TEST_F(NcclPairTest, AFreedCommunicatorIsNotUsed) {
  const ncclComm_t freed = std::exchange(ranks_[0].comm, nullptr);
  EXPECT_EQ(nccl_.ncclCommDestroy(freed), ncclSuccess);
  Send({freed, ranks_[0].stream}, 1, Device(64, 3), 64, ncclInvalidArgument);
  ExpectFinding("the communicator was freed");
}

TEST_F(NcclPairTest, DestroyingWhatIsAtWorkIsReported) {
  Send(ranks_[0], 1, Device(64, 3), 64);
  EXPECT_EQ(Settle(ranks_[0]), ncclSuccess);
  EXPECT_EQ(nccl_.ncclCommDestroy(ranks_[0].comm), ncclInvalidUsage);
  ExpectFinding("1 operations are under way");
}

TEST_F(NcclPairTest, AStreamThatIsCapturedIsRefused) {
  uint8_t* const device = Device(64, 3);
  ASSERT_EQ(cuda_.cuStreamBeginCapture(ranks_[0].stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  Send(ranks_[0], 1, device, 64, ncclInvalidUsage);
  CUgraph graph = nullptr;
  EXPECT_EQ(cuda_.cuStreamEndCapture(ranks_[0].stream, &graph), CUDA_SUCCESS);
  cuda_.cuGraphDestroy(graph);
  ExpectFinding("on a stream that is captured");
}

// ---- Failures to order.

TEST_F(NcclPairTest, AStallEndsWithAnAbort) {
  sim_.set("stall_recv", 1);
  uint8_t* const to = Device(64, 9);
  Receive(ranks_[1], 0, to, 64);
  EXPECT_EQ(Settle(ranks_[1]), ncclSuccess);
  EXPECT_TRUE(Soon([&] { return to[0] == 0xff; }));  // What was there before is gone: a simulated GPU's memory is the host's.
  EXPECT_EQ(cuda_.cuStreamQuery(ranks_[1].stream), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(nccl_.ncclCommAbort(std::exchange(ranks_[1].comm, nullptr)), ncclSuccess);
  EXPECT_TRUE(Is(ranks_[1], to, 64, 0xff));
}

TEST_F(NcclPairTest, APeerThatGoesIsARemoteError) {
  Receive(ranks_[1], 0, Device(64, 9), 64);
  EXPECT_EQ(Settle(ranks_[1]), ncclSuccess);
  EXPECT_EQ(nccl_.ncclCommAbort(std::exchange(ranks_[0].comm, nullptr)), ncclSuccess);
  EXPECT_TRUE(Soon([&] { return State(ranks_[1]) == ncclRemoteError; }));
  EXPECT_THAT(nccl_.ncclGetLastError(ranks_[1].comm), HasSubstr("the peer is gone"));
}

TEST_F(NcclPairTest, OnADeafPathNobodyNotices) {
  sim_.set("deaf", 1);
  Receive(ranks_[1], 0, Device(64, 9), 64);
  EXPECT_EQ(Settle(ranks_[1]), ncclSuccess);
  EXPECT_EQ(nccl_.ncclCommAbort(std::exchange(ranks_[0].comm, nullptr)), ncclSuccess);
  EXPECT_EQ(State(ranks_[1]), ncclSuccess);
  EXPECT_EQ(cuda_.cuStreamQuery(ranks_[1].stream), CUDA_ERROR_NOT_READY);
}

TEST_F(NcclPairTest, ErrorsAndFlippedBitsComeWhereTheyWereOrdered) {
  uint8_t* const from = Device(64, 3);
  uint8_t* const to = Device(64, 9);
  sim_.set("flip_recv", 2);
  for (const bool flipped : {false, true}) {
    Send(ranks_[0], 1, from, 64);
    Receive(ranks_[1], 0, to, 64);
    for (const Rank& rank : ranks_) EXPECT_EQ(Settle(rank), ncclSuccess);
    EXPECT_EQ(Is(ranks_[1], to, 64, 3), !flipped);
  }
  EXPECT_EQ(to[32], 3 ^ 4);
  sim_.set("error_send", 1);
  Send(ranks_[0], 1, from, 64);
  EXPECT_TRUE(Soon([&] { return State(ranks_[0]) == ncclRemoteError; }));
  sim_.set("fail_init", 1);
  ncclUniqueId id;
  ASSERT_EQ(nccl_.ncclGetUniqueId(&id), ncclSuccess);
  ncclComm_t comm = nullptr;
  EXPECT_EQ(nccl_.ncclCommInitRank(&comm, 1, id, 0), ncclSystemError);
  EXPECT_EQ(sim_.set("no_such_failure", 1), 1);
  EXPECT_EQ(sim_.count("no_such_count"), -1);
}

}  // namespace
}  // namespace baton::cuda
