// SPDX-License-Identifier: Apache-2.0
// KV from device to device: that it is what lies on the devices that is sent and verified, and that a copy which comes late writes to nobody
// else's blocks.
#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "common/base/thread.h"
#include "common/kv_transfer/cuda_ipc/cuda_ipc_transport.h"
#include "common/kv_transfer/transports/device_transports.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/gpu_sim/kv_transfer/device_transport_fixture.h"
#include "tests/support/status_matchers.h"

namespace baton::testing {
namespace {

using ::testing::HasSubstr;

const PeerId kWriter = {"p-1", 11, TransportKind::kCudaIpc};

class CudaIpcTransportTest : public DeviceTransportTest {
 protected:
  CudaIpcTransportTest() : DeviceTransportTest(TransportKind::kCudaIpc) {}
  void TearDown() override {
    cuda_.Set("stall_peer_copy", 0);
    Disconnect();
    EXPECT_EQ(cuda_.Count("findings"), 0);
    cuda_.Reset();
  }

  uint64_t next_ = 0;
};

TEST_F(CudaIpcTransportTest, CellsThatAreNeighboursAreOneCopy) {
  Connect({.frame_bytes = 1 << 20});
  ExpectDelivered(Job(1));
  EXPECT_EQ(cuda_.Count("peer_copies"), 4 * kLayers);
  TestJob job{.transfer = {1, 2}, .blocks = {4, 5, 6}, .num_tokens = 48};
  const auto zone = receiver_->OpenZone(job.transfer, 1, {20, 21, 22}, 0, 48);
  RunningJob running(sender_.get(), job);
  running.PushAll(kLayers);
  EXPECT_EQ(running.Wait(), absl::OkStatus());
  EXPECT_EQ(cuda_.Count("peer_copies"), 5 * kLayers);
}

// Whatever the form on the host holds, at either end: whole cells are sent, summed up and verified where the pools lie.
TEST_F(CudaIpcTransportTest, WhatLiesOnTheDeviceIsSentAndVerified) {
  Connect({});
  uint8_t& on_host = source_->Cell(1, 4)[7];
  on_host ^= 8;
  const TestJob job = Job(1);
  const auto zone = receiver_->OpenZone(job.transfer, 1, {9, 2, 6, 5}, 0, kTokens);
  RunningJob running(sender_.get(), job);
  running.PushAll(kLayers);
  EXPECT_EQ(running.Wait(), absl::OkStatus());
  EXPECT_TRUE(running.reads_device());
  const auto manifest = receiver_->WaitManifest(job.transfer, 1);
  ASSERT_TRUE(manifest.has_value());
  EXPECT_THAT(manifest->verified, IsOk());
  EXPECT_TRUE(std::ranges::all_of(receiver_->pool().Cell(1, 6), [](uint8_t byte) { return byte == 0; })) << "it was brought to the host";
  on_host ^= 8;
  EXPECT_TRUE(SameTokens(*source_, job.blocks, receiver_->PoolWith(zone->blocks()), zone->blocks(), 0, kTokens));
}

// The last cell of a prompt is not in wire form as it lies: its bytes are the host's to check.
TEST_F(CudaIpcTransportTest, TheCellThatIsNotFullIsAFrameOfItsOwn) {
  Connect({.frame_bytes = 1 << 20});
  for (const int num_tokens : {1, 15, 16, 17, 47, 63}) {
    const Outcome outcome = Transfer(Job(static_cast<uint64_t>(num_tokens), num_tokens));
    EXPECT_THAT(outcome.verified, IsOk());
    EXPECT_TRUE(outcome.arrived);
    EXPECT_EQ(outcome.stats.num_frames, kLayers * ((num_tokens >= 16 ? 1 : 0) + (num_tokens % 16 != 0 ? 1 : 0))) << num_tokens;
  }
  for (const int copy : {1, 2, 3, 4}) {  // A layer is a copy of a whole cell and one of the other.
    cuda_.Set("flip_peer_copy", copy);
    const Outcome outcome = Transfer(Job(100 + static_cast<uint64_t>(copy), 17));
    // A bit of the last cell's empty part is nobody's.
    EXPECT_TRUE(outcome.verified.ok() ? outcome.arrived : absl::IsDataLoss(outcome.verified)) << outcome.verified;
  }
}

// More frames than one launch has, in one batch.
TEST_F(CudaIpcTransportTest, ManyFramesAreSummedUpInTurns) {
  constexpr int kBlocks = 90;
  Connect({.source_blocks = kBlocks, .target_blocks = kBlocks});
  TestJob job{.transfer = {1, 1}, .num_tokens = 16 * kBlocks};
  std::vector<BlockId> blocks;
  for (int block = 0; block < kBlocks; ++block) {
    job.blocks.push_back(block);
    blocks.push_back(kBlocks - 1 - block);
  }
  ExpectDelivered(job, blocks);
  EXPECT_LT(cuda_.Count("launches"), kBlocks) << "as many as frames";
}

// For measuring what they cost: none is made, and none needs the host to see what has arrived.
TEST_F(CudaIpcTransportTest, WithoutChecksumsNoneIsMade) {
  Connect({.checksums = false});
  const int64_t before = cuda_.Count("launches");
  ExpectDelivered(Job(1));
  EXPECT_EQ(cuda_.Count("launches"), before);
  EXPECT_TRUE(Transfer(Job(2, 33)).verified.ok());
}

// An attempt by the devices that came to nothing, and one by the host into the same blocks.
TEST_F(CudaIpcTransportTest, WhatCameByTheHostLastIsWhatTheDeviceGets) {
  Connect({});
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
  Connect({});
  for (const int copy : {1, 5, 12}) {
    cuda_.Set("flip_peer_copy", copy);
    EXPECT_EQ(Transfer(Job(static_cast<uint64_t>(copy))).verified.code(), absl::StatusCode::kDataLoss) << copy;
    ExpectDelivered(Job(100 + static_cast<uint64_t>(copy)));
  }
}

// Nobody may rely on a copy's having happened because its call has returned.
TEST_F(CudaIpcTransportTest, StreamsThatRunLateDeliverTheSame) {
  cuda_.Set("lazy_streams", 1);
  Connect({});
  for (uint64_t stream = 1; stream < 4; ++stream) {
    ExpectDelivered(Job(stream, kTokens - static_cast<int>(stream) + 1));
  }
  Disconnect();
  cuda_.Set("lazy_streams", 0);
}

// More than the batches that may be on their way at once.
TEST_F(CudaIpcTransportTest, PayloadThatDoesNotLastGoesThroughBatches) {
  KvLayout layout = SmallLayout(64, KvDtype::kF32);
  layout.num_kv_heads = 8;
  layout.head_dim = 64;
  KvLayout other = layout;
  other.dtype = KvDtype::kF16;
  Connect({.frame_bytes = 1 << 20, .source = other, .target = layout, .source_blocks = 8, .target_blocks = 16});
  TestJob job{.transfer = {1, 1}, .blocks = {0, 1, 2, 3, 4, 5, 6, 7}, .num_tokens = 8 * 64 - 5};
  ExpectDelivered(job, {15, 0, 1, 2, 3, 4, 5, 6});
}

// The writer opens no new link, which would say that it writes no more, before that is so.
TEST_F(CudaIpcTransportTest, ACopyThatDoesNotEndKeepsTheBlocksFromOthers) {
  Connect({.sender_stall = absl::Seconds(1), .receiver_stall = absl::Seconds(1)});
  ExpectDelivered(Job(10));
  cuda_.Set("stall_peer_copy", 3);
  EXPECT_THAT(Transfer(Job(1)).sent, StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("the GPU copied nothing within 1s")));
  EXPECT_TRUE(receiver_->WaitLinkClosed(kWriter));
  const absl::Status next = Transfer(Job(2)).sent;
  EXPECT_THAT(next, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("have not ended")));
  cuda_.Set("stall_peer_copy", 0);
  EXPECT_TRUE(receiver_->WaitWriterGone(kWriter, 2));
  EXPECT_TRUE(Soon([this] { return Transfer(Job(3 + next_++)).verified.ok(); }));
}

// A receiver's end, with a writer in the middle of a copy: its pool goes when the writer has let go of it.
TEST_F(CudaIpcTransportTest, TheEndWaitsForWhoHasThePoolOpen) {
  Connect({});
  ExpectDelivered(Job(1));
  cuda_.Set("stall_peer_copy", 3);
  const auto zone = receiver_->OpenZone({1, 2}, 1, {9, 2, 6, 5}, 0, kTokens);
  RunningJob running(sender_.get(), Job(2));
  running.PushAll(kLayers);
  ASSERT_TRUE(Soon([this] { return cuda_.Count("stalled_peer_copies") == 1; }));
  std::atomic<bool> stopped = false;
  Thread stopper("stopper", [&] {
    receiver_->Stop();
    stopped = true;
  });
  EXPECT_FALSE(Soon([&] { return stopped.load(); }, absl::Milliseconds(100)));
  cuda_.Set("stall_peer_copy", 0);
  stopper.Join();
  const int64_t copies = cuda_.Count("peer_copies");
  EXPECT_EQ(running.Wait().value_or(absl::OkStatus()).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(cuda_.Count("peer_copies"), copies);
}

// One that does not let go in time may write there for ever: the memory stays, whatever becomes of the pool.
TEST_F(CudaIpcTransportTest, MemoryThatIsNotLetGoOfIsNotFreed) {
  Connect({.sender_stall = absl::Seconds(1), .receiver_stall = absl::Seconds(1)});
  ExpectDelivered(Job(1));
  cuda_.Set("stall_peer_copy", 3);
  const auto zone = receiver_->OpenZone({1, 2}, 1, {9, 2, 6, 5}, 0, kTokens);
  RunningJob running(sender_.get(), Job(2));
  running.PushAll(kLayers);
  ASSERT_TRUE(Soon([this] { return cuda_.Count("stalled_peer_copies") == 1; }));
  const uint8_t* const memory = receiver_->pool().Layer(0).k;
  receiver_.reset();
  EXPECT_TRUE(cuda_.IsDevice(memory, 1));
  EXPECT_FALSE(running.Wait().value_or(absl::OkStatus()).ok());
  cuda_.Set("stall_peer_copy", 0);
  Connect({});
  EXPECT_TRUE(Soon([this] { return Transfer(Job(10 + next_++)).verified.ok(); }));
  const uint8_t* const freed = receiver_->pool().Layer(0).k;
  receiver_.reset();
  EXPECT_FALSE(cuda_.IsDevice(freed, 1));
}

TEST_F(CudaIpcTransportTest, ACancelledTransferHasSettledWhenItSaysSo) {
  Connect({});
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
    const int64_t copies = cuda_.Count("peer_copies");
    ASSERT_TRUE(receiver_->WaitAborted(job.transfer, 1));
    EXPECT_EQ(cuda_.Count("peer_copies"), copies);
    ExpectDelivered(Job(stream + 100));
  }
}

TEST_F(CudaIpcTransportTest, WhatIsMissingIsNamed) {
  EXPECT_THAT(OpenCudaIpc({.cuda_driver = "libcuda_of_no_machine.so.1"}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("libcuda_of_no_machine.so.1")));
  cuda_.Set("no_ipc", 1);
  EXPECT_THAT(OpenCudaIpc({.cuda_driver = Simulator::Driver()}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("cannot be opened by other processes: cuIpcGetMemHandle: CUDA_ERROR_NOT_SUPPORTED")));
  std::vector<TransportKind> kinds = {TransportKind::kCudaIpc, TransportKind::kShm};
  EXPECT_THAT(OpenDeviceTransports({.on_device = true, .cuda_driver = Simulator::Driver()}, &kinds), IsOk());
  EXPECT_EQ(kinds, std::vector<TransportKind>{TransportKind::kShm});
  cuda_.Set("no_ipc", 0);
  const auto runtime = OpenCudaIpc({.cuda_driver = Simulator::Driver()});
  ASSERT_THAT(runtime, IsOk());
  const auto pool = FilledPool(SmallLayout(), 4, 1);
  LandingDirectory directory;
  EXPECT_THAT(StartCudaIpcKvReceiver(*runtime, absl::Seconds(10), true, {.worker = "d-1", .pool = pool.get()}, &directory, {}).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("not on a device")));
}

}  // namespace
}  // namespace baton::testing
