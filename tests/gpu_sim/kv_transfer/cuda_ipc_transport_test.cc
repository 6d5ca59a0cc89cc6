// SPDX-License-Identifier: Apache-2.0
// KV from device to device: that it is what lies on the devices that is sent and verified, and that a copy which comes late writes to nobody
// else's blocks.
#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/backend/cuda/dynamic_library.h"
#include "common/base/thread.h"
#include "common/kv_transfer/cuda_ipc/cuda_ipc_transport.h"
#include "common/kv_transfer/transports/device_transports.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/gpu_sim/cuda_sim/cuda_sim.h"
#include "tests/support/device_pool.h"
#include "tests/support/paths.h"
#include "tests/support/status_matchers.h"
#include "tests/support/transport_pair.h"

namespace baton::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kLayers = 3;
constexpr int kTokens = 64;
const PeerId kWriter = {"p-1", 11, TransportKind::kCudaIpc};

std::string Driver() { return BuildPath("tests/libcuda_sim.so"); }

bool Soon(const std::function<bool()>& done, absl::Duration limit = absl::Seconds(20)) {
  const MonotonicTime deadline = Clock::Real()->Now() + limit;
  Mutex mutex;
  CondVar never;
  while (!done()) {
    if (Clock::Real()->Now() >= deadline) return false;
    MutexLock lock(&mutex);
    never.WaitFor(&mutex, absl::Milliseconds(1));
  }
  return true;
}

class CudaIpcTransportTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto driver = cuda::DynamicLibrary::Open(Driver());
    ASSERT_THAT(driver, IsOk());
    reset_ = reinterpret_cast<BatonCudaSimReset*>(driver->Find("baton_cuda_sim_reset"));
    set_ = reinterpret_cast<BatonCudaSimSet*>(driver->Find("baton_cuda_sim_set"));
    count_ = reinterpret_cast<BatonCudaSimCount*>(driver->Find("baton_cuda_sim_count"));
    is_device_ = reinterpret_cast<BatonCudaSimIsDevice*>(driver->Find("baton_cuda_sim_is_device"));
    reset_();
  }
  void TearDown() override {
    set_("stall_peer_copy", 0);
    sender_.reset();
    receiver_.reset();
    EXPECT_EQ(count_("findings"), 0);
    reset_();
  }
  void Connect(absl::Duration stall = absl::Seconds(10), size_t frame_bytes = 1) {
    sender_.reset();
    receiver_.reset();
    std::vector<TransportKind> kinds = {TransportKind::kCudaIpc};
    ASSERT_THAT(OpenDeviceTransports({.on_device = true, .cuda_driver = Driver(), .stall_timeout = stall}, &kinds), IsOk());
    receiver_ = std::make_unique<TestReceiver>(TestReceiver::Options{.kind = TransportKind::kCudaIpc});
    source_ = OnDevice(*FilledPool(SmallLayout(), 16, 5));
    SenderOptions options;
    options.pool = source_.get();
    options.transfer_timeout = stall;
    options.max_frame_bytes = frame_bytes;
    sender_ = MakeSender(receiver_->offer(), options);
  }
  TestJob Job(uint64_t stream) const { return {.transfer = {1, stream}, .blocks = {3, 1, 4, 15}, .num_tokens = kTokens}; }
  struct Outcome {
    absl::Status sent, verified = absl::UnknownError("no manifest");
    bool arrived = false;
  };
  Outcome Transfer(const TestJob& job) {
    const auto zone = receiver_->OpenZone(job.transfer, 1, {9, 2, 6, 5}, 0, job.num_tokens);
    RunningJob running(sender_.get(), job);
    running.PushAll(kLayers);
    Outcome outcome;
    outcome.sent = running.Wait().value_or(absl::UnknownError("never done"));
    if (outcome.sent.ok()) {
      if (const auto manifest = receiver_->WaitManifest(job.transfer, 1)) outcome.verified = manifest->verified;
    }
    outcome.arrived = SameTokens(*source_, job.blocks, receiver_->PoolWith(zone->blocks()), zone->blocks(), 0, job.num_tokens);
    receiver_->CloseZone(zone);
    EXPECT_TRUE(!outcome.verified.ok() || outcome.arrived) << "verified, but not what was sent";
    return outcome;
  }
  void ExpectDelivered(const TestJob& job) {
    const Outcome outcome = Transfer(job);
    EXPECT_THAT(outcome.sent, IsOk());
    EXPECT_THAT(outcome.verified, IsOk());
    EXPECT_TRUE(outcome.arrived);
  }

  BatonCudaSimReset* reset_ = nullptr;
  BatonCudaSimSet* set_ = nullptr;
  BatonCudaSimCount* count_ = nullptr;
  BatonCudaSimIsDevice* is_device_ = nullptr;
  std::unique_ptr<KvPool> source_;
  std::unique_ptr<TestReceiver> receiver_;
  std::unique_ptr<LinkSender> sender_;
  uint64_t next_ = 0;
};

TEST_F(CudaIpcTransportTest, CellsThatAreNeighboursAreOneCopy) {
  Connect(absl::Seconds(10), 1 << 20);
  ExpectDelivered(Job(1));
  EXPECT_EQ(count_("peer_copies"), 4 * kLayers);
  TestJob job{.transfer = {1, 2}, .blocks = {4, 5, 6}, .num_tokens = 48};
  const auto zone = receiver_->OpenZone(job.transfer, 1, {20, 21, 22}, 0, 48);
  RunningJob running(sender_.get(), job);
  running.PushAll(kLayers);
  EXPECT_EQ(running.Wait(), absl::OkStatus());
  EXPECT_EQ(count_("peer_copies"), 5 * kLayers);
}

// Whatever the form on the host holds, at either end: whole cells are sent, summed up and verified where the pools lie.
TEST_F(CudaIpcTransportTest, WhatLiesOnTheDeviceIsSentAndVerified) {
  Connect();
  uint8_t& on_host = source_->Cell(1, 4)[7];
  on_host ^= 8;
  const TestJob job = Job(1);
  const auto zone = receiver_->OpenZone(job.transfer, 1, {9, 2, 6, 5}, 0, kTokens);
  RunningJob running(sender_.get(), job);
  running.PushAll(kLayers);
  EXPECT_EQ(running.Wait(), absl::OkStatus());
  const auto manifest = receiver_->WaitManifest(job.transfer, 1);
  ASSERT_TRUE(manifest.has_value());
  EXPECT_THAT(manifest->verified, IsOk());
  EXPECT_TRUE(std::ranges::all_of(receiver_->pool().Cell(1, 6), [](uint8_t byte) { return byte == 0; })) << "it was brought to the host";
  on_host ^= 8;
  EXPECT_TRUE(SameTokens(*source_, job.blocks, receiver_->PoolWith(zone->blocks()), zone->blocks(), 0, kTokens));
}

// The last cell of a prompt is not in wire form as it lies: its bytes are the host's to check.
TEST_F(CudaIpcTransportTest, TheCellThatIsNotFullIsAFrameOfItsOwn) {
  Connect(absl::Seconds(10), 1 << 20);
  for (const int num_tokens : {1, 15, 16, 17, 47, 63}) {
    TestJob job = Job(static_cast<uint64_t>(num_tokens));
    job.num_tokens = num_tokens;
    ExpectDelivered(job);
    const auto manifest = receiver_->WaitManifest(job.transfer, 1);
    ASSERT_TRUE(manifest.has_value());
    EXPECT_EQ(manifest->stats.num_frames, kLayers * ((num_tokens >= 16 ? 1 : 0) + (num_tokens % 16 != 0 ? 1 : 0))) << num_tokens;
  }
  for (const int copy : {1, 2, 3, 4}) {  // A layer is a copy of a whole cell and one of the other.
    TestJob job = Job(100 + static_cast<uint64_t>(copy));
    job.num_tokens = 17;
    set_("flip_peer_copy", copy);
    const Outcome outcome = Transfer(job);
    // A bit of the last cell's empty part is nobody's.
    EXPECT_TRUE(outcome.verified.ok() ? outcome.arrived : absl::IsDataLoss(outcome.verified)) << outcome.verified;
  }
}

// More frames than one launch has, in one batch.
TEST_F(CudaIpcTransportTest, ManyFramesAreSummedUpInTurns) {
  std::vector<TransportKind> kinds = {TransportKind::kCudaIpc};
  ASSERT_THAT(OpenDeviceTransports({.on_device = true, .cuda_driver = Driver()}, &kinds), IsOk());
  constexpr int kBlocks = 90;
  receiver_ = std::make_unique<TestReceiver>(TestReceiver::Options{.kind = TransportKind::kCudaIpc, .num_blocks = kBlocks});
  source_ = OnDevice(*FilledPool(SmallLayout(), kBlocks, 5));
  SenderOptions options;
  options.pool = source_.get();
  options.max_frame_bytes = 1;
  sender_ = MakeSender(receiver_->offer(), options);
  TestJob job{.transfer = {1, 1}, .num_tokens = 16 * kBlocks};
  std::vector<BlockId> blocks;
  for (int block = 0; block < kBlocks; ++block) {
    job.blocks.push_back(block);
    blocks.push_back(kBlocks - 1 - block);
  }
  const auto zone = receiver_->OpenZone(job.transfer, 1, blocks, 0, job.num_tokens);
  RunningJob running(sender_.get(), job);
  running.PushAll(kLayers);
  EXPECT_EQ(running.Wait(), absl::OkStatus());
  const auto manifest = receiver_->WaitManifest(job.transfer, 1);
  ASSERT_TRUE(manifest.has_value());
  EXPECT_THAT(manifest->verified, IsOk());
  EXPECT_TRUE(SameTokens(*source_, job.blocks, receiver_->PoolWith(blocks), blocks, 0, job.num_tokens));
  EXPECT_LT(count_("launches"), kBlocks) << "as many as frames";
}

// An attempt by the devices that came to nothing, and one by the host into the same blocks.
TEST_F(CudaIpcTransportTest, WhatCameByTheHostLastIsWhatTheDeviceGets) {
  Connect();
  TestJob job = Job(1);
  const auto first = receiver_->OpenZone(job.transfer, 1, {9, 2, 6, 5}, 0, kTokens);
  RunningJob running(sender_.get(), job);
  running.PushAll(kLayers);
  EXPECT_EQ(running.Wait(), absl::OkStatus());
  ASSERT_TRUE(receiver_->WaitManifest(job.transfer, 1).has_value());
  receiver_->CloseZone(first);
  const auto other = FilledPool(SmallLayout(), 16, 6);
  const auto zone = receiver_->OpenZone({1, 2}, 1, {9, 2, 6, 5}, 0, kTokens);
  for (int layer = 0; layer < kLayers; ++layer) {
    for (int block = 0; block < 4; ++block) {
      const std::span<const uint8_t> cell = other->Cell(layer, block);
      EXPECT_THAT(zone->Write({layer, 16 * block, 16 * block + 16, FrameChecksum(cell)}, cell), IsOk());
    }
  }
  const std::vector<BlockId> sent = {0, 1, 2, 3};
  EXPECT_TRUE(SameTokens(*other, sent, receiver_->PoolWith(zone->blocks()), zone->blocks(), 0, kTokens));
}

TEST_F(CudaIpcTransportTest, ABitThatChangesOnTheWayIsDataLoss) {
  Connect();
  for (const int copy : {1, 5, 12}) {
    set_("flip_peer_copy", copy);
    EXPECT_EQ(Transfer(Job(static_cast<uint64_t>(copy))).verified.code(), absl::StatusCode::kDataLoss) << copy;
    ExpectDelivered(Job(100 + static_cast<uint64_t>(copy)));
  }
}

// Nobody may rely on a copy's having happened because its call has returned.
TEST_F(CudaIpcTransportTest, StreamsThatRunLateDeliverTheSame) {
  set_("lazy_streams", 1);
  Connect();
  for (uint64_t stream = 1; stream < 4; ++stream) {
    TestJob job = Job(stream);
    job.num_tokens = kTokens - static_cast<int>(stream) + 1;
    ExpectDelivered(job);
  }
  sender_.reset();
  receiver_.reset();
  set_("lazy_streams", 0);
}

// More than the batches that may be on their way at once.
TEST_F(CudaIpcTransportTest, PayloadThatDoesNotLastGoesThroughBatches) {
  std::vector<TransportKind> kinds = {TransportKind::kCudaIpc};
  ASSERT_THAT(OpenDeviceTransports({.on_device = true, .cuda_driver = Driver()}, &kinds), IsOk());
  KvLayout layout = SmallLayout(64, KvDtype::kF32);
  layout.num_kv_heads = 8;
  layout.head_dim = 64;
  KvLayout other = layout;
  other.dtype = KvDtype::kF16;
  receiver_ = std::make_unique<TestReceiver>(TestReceiver::Options{.kind = TransportKind::kCudaIpc, .layout = layout, .num_blocks = 16});
  source_ = OnDevice(*FilledPool(other, 8, 5));
  SenderOptions options;
  options.pool = source_.get();
  sender_ = MakeSender(receiver_->offer(), options);
  TestJob job{.transfer = {1, 1}, .blocks = {0, 1, 2, 3, 4, 5, 6, 7}, .num_tokens = 8 * 64 - 5};
  const std::vector<BlockId> blocks = {15, 0, 1, 2, 3, 4, 5, 6};
  const auto zone = receiver_->OpenZone(job.transfer, 1, blocks, 0, job.num_tokens);
  RunningJob running(sender_.get(), job);
  running.PushAll(kLayers);
  EXPECT_EQ(running.Wait(), absl::OkStatus());
  const auto manifest = receiver_->WaitManifest(job.transfer, 1);
  ASSERT_TRUE(manifest.has_value());
  EXPECT_THAT(manifest->verified, IsOk());
  EXPECT_TRUE(SameTokens(*source_, job.blocks, receiver_->PoolWith(blocks), blocks, 0, job.num_tokens));
}

// The writer opens no new link, which would say that it writes no more, before that is so.
TEST_F(CudaIpcTransportTest, ACopyThatDoesNotEndKeepsTheBlocksFromOthers) {
  Connect(absl::Seconds(1));
  ExpectDelivered(Job(10));
  set_("stall_peer_copy", 3);
  EXPECT_THAT(Transfer(Job(1)).sent, StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("the GPU copied nothing within 1s")));
  EXPECT_TRUE(receiver_->WaitLinkClosed(kWriter));
  const absl::Status next = Transfer(Job(2)).sent;
  EXPECT_THAT(next, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("have not ended")));
  set_("stall_peer_copy", 0);
  EXPECT_TRUE(receiver_->WaitWriterGone(kWriter, 2));
  EXPECT_TRUE(Soon([this] { return Transfer(Job(3 + next_++)).verified.ok(); }));
}

// A receiver's end, with a writer in the middle of a copy: its pool goes when the writer has let go of it.
TEST_F(CudaIpcTransportTest, TheEndWaitsForWhoHasThePoolOpen) {
  Connect();
  ExpectDelivered(Job(1));
  set_("stall_peer_copy", 3);
  const auto zone = receiver_->OpenZone({1, 2}, 1, {9, 2, 6, 5}, 0, kTokens);
  RunningJob running(sender_.get(), Job(2));
  running.PushAll(kLayers);
  ASSERT_TRUE(Soon([this] { return count_("stalled_peer_copies") == 1; }));
  std::atomic<bool> stopped = false;
  Thread stopper("stopper", [&] {
    receiver_->Stop();
    stopped = true;
  });
  EXPECT_FALSE(Soon([&] { return stopped.load(); }, absl::Milliseconds(100)));
  set_("stall_peer_copy", 0);
  stopper.Join();
  const int64_t copies = count_("peer_copies");
  EXPECT_EQ(running.Wait().value_or(absl::OkStatus()).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(count_("peer_copies"), copies);
}

// One that does not let go in time may write there for ever: the memory stays, whatever becomes of the pool.
TEST_F(CudaIpcTransportTest, MemoryThatIsNotLetGoOfIsNotFreed) {
  Connect(absl::Seconds(1));
  ExpectDelivered(Job(1));
  set_("stall_peer_copy", 3);
  const auto zone = receiver_->OpenZone({1, 2}, 1, {9, 2, 6, 5}, 0, kTokens);
  RunningJob running(sender_.get(), Job(2));
  running.PushAll(kLayers);
  ASSERT_TRUE(Soon([this] { return count_("stalled_peer_copies") == 1; }));
  const uint8_t* const memory = receiver_->pool().Layer(0).k;
  receiver_.reset();
  EXPECT_EQ(is_device_(memory, 1), 1);
  EXPECT_FALSE(running.Wait().value_or(absl::OkStatus()).ok());
  set_("stall_peer_copy", 0);
  Connect();
  EXPECT_TRUE(Soon([this] { return Transfer(Job(10 + next_++)).verified.ok(); }));
  const uint8_t* const freed = receiver_->pool().Layer(0).k;
  receiver_.reset();
  EXPECT_EQ(is_device_(freed, 1), 0);
}

TEST_F(CudaIpcTransportTest, ACancelledTransferHasSettledWhenItSaysSo) {
  Connect();
  for (uint64_t stream = 1; stream < 9; ++stream) {
    const TestJob job = Job(stream);
    const auto zone = receiver_->OpenZone(job.transfer, 1, {9, 2, 6, 5}, 0, kTokens);
    RunningJob running(sender_.get(), job);
    ASSERT_TRUE(receiver_->WaitOpen(job.transfer, 1));
    running.PushLayers(0, static_cast<int>(stream % kLayers) + 1);
    receiver_->CloseZone(zone);
    running.Cancel();
    const auto done = running.Wait();
    ASSERT_TRUE(done.has_value());
    EXPECT_EQ(done->code(), absl::StatusCode::kCancelled);
    const int64_t copies = count_("peer_copies");
    ASSERT_TRUE(receiver_->WaitAborted(job.transfer, 1));
    EXPECT_EQ(count_("peer_copies"), copies);
    ExpectDelivered(Job(stream + 100));
  }
}

TEST_F(CudaIpcTransportTest, WhatIsMissingIsNamed) {
  EXPECT_THAT(OpenCudaIpc({.cuda_driver = "libcuda_of_no_machine.so.1"}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("libcuda_of_no_machine.so.1")));
  set_("no_ipc", 1);
  EXPECT_THAT(OpenCudaIpc({.cuda_driver = Driver()}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("cannot be opened by other processes: cuIpcGetMemHandle: CUDA_ERROR_NOT_SUPPORTED")));
  std::vector<TransportKind> kinds = {TransportKind::kCudaIpc, TransportKind::kShm};
  EXPECT_THAT(OpenDeviceTransports({.on_device = true, .cuda_driver = Driver()}, &kinds), IsOk());
  EXPECT_EQ(kinds, std::vector<TransportKind>{TransportKind::kShm});
  set_("no_ipc", 0);
  const auto runtime = OpenCudaIpc({.cuda_driver = Driver()});
  ASSERT_THAT(runtime, IsOk());
  const auto pool = FilledPool(SmallLayout(), 4, 1);
  LandingDirectory directory;
  EXPECT_THAT(StartCudaIpcKvReceiver(*runtime, absl::Seconds(10), true, {.worker = "d-1", .pool = pool.get()}, &directory, {}).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("not on a device")));
}

}  // namespace
}  // namespace baton::testing
