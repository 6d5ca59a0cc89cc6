// SPDX-License-Identifier: Apache-2.0
// KV over a simulated NCCL that fails in every way it can: each ends its transfers in time with an error, never with wrong blocks, and
// leaves no communicator behind that another transfer could hang on.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/kv_transfer/nccl/nccl_transport.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/gpu_sim/kv_transfer/device_transport_fixture.h"
#include "tests/gpu_sim/nccl_sim/nccl_test_support.h"
#include "tests/support/status_matchers.h"

namespace baton::testing {
namespace {

using cuda::testing::NcclSim;
using ::testing::HasSubstr;

constexpr absl::Duration kStall = absl::Seconds(1);

class NcclTransportTest : public DeviceTransportTest {
 protected:
  NcclTransportTest() : DeviceTransportTest(TransportKind::kNccl) {}
  void SetUp() override {
    DeviceTransportTest::SetUp();
    sim_.reset();
  }
  void TearDown() override {
    Disconnect();
    if (!findings_expected_) {
      EXPECT_EQ(sim_.Findings(), "");
    }
    EXPECT_EQ(cuda_.Count("findings"), 0) << cuda_.Findings();
    EXPECT_TRUE(Soon([this] { return sim_.count("communicators") == 0; })) << sim_.count("communicators");
    sim_.reset();
  }
  void ExpectFinding(const std::string& text) {
    findings_expected_ = true;
    EXPECT_THAT(sim_.Findings(), HasSubstr(text));
  }

  const NcclSim& sim_ = NcclSim::Get();
  bool findings_expected_ = false;
};

TEST_F(NcclTransportTest, ACommunicatorIsMadeAtTheFirstFrameAndUsedAgain) {
  Connect({});
  TestJob asking = Job(1);
  receiver_->OpenZone(asking.transfer, 1, {9, 2, 6, 5}, 0, kTokens);
  RunningJob running(sender_.get(), asking);
  ASSERT_TRUE(receiver_->WaitOpen(asking.transfer, 1));
  EXPECT_EQ(sim_.count("inits"), 0);
  running.PushAll(kLayers);
  EXPECT_EQ(running.Wait(), absl::OkStatus());
  for (uint64_t stream = 2; stream < 6; ++stream) ExpectDelivered(Job(stream));
  EXPECT_EQ(sim_.count("inits"), 2);
  EXPECT_EQ(sim_.count("communicators"), 2);
  // A layer is one operation at most, and four blocks of one need no more.
  EXPECT_LE(sim_.count("sends"), 5 * kLayers);
}

// Nobody may rely on an operation's having been issued, or done, because its call has returned.
TEST_F(NcclTransportTest, StreamsThatRunLateDeliverTheSame) {
  cuda_.Set("lazy_streams", 1);
  Connect({});
  for (uint64_t stream = 1; stream < 4; ++stream) ExpectDelivered(Job(stream));
  Disconnect();
  EXPECT_TRUE(Soon([this] { return sim_.count("communicators") == 0; }));
  cuda_.Set("lazy_streams", 0);
}

TEST_F(NcclTransportTest, AStallEndsByTheDeadlineAtEitherEnd) {
  for (const char* const stall : {"stall_send", "stall_recv"}) {
    SCOPED_TRACE(stall);
    Connect({.sender_stall = kStall});
    ExpectDelivered(Job(10));
    sim_.set(stall, 1);
    const Outcome outcome = Transfer(Job(1));
    EXPECT_THAT(outcome.sent, StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("NCCL moved nothing within 1s")));
    EXPECT_TRUE(receiver_->WaitLinkClosed({"p-1", 11, TransportKind::kNccl}));
    ExpectDelivered(Job(2));
    sender_.reset();
    Connect({.receiver_stall = kStall});
    ExpectDelivered(Job(10));
    sim_.set(stall, 1);
    EXPECT_THAT(Transfer(Job(1)).sent, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("KV link")));
    ExpectDelivered(Job(2));
    sender_.reset();
  }
}

TEST_F(NcclTransportTest, ErrorsOfNcclBreakTheLinkAndTheNextTransferHasANewOne) {
  for (const char* const error : {"error_send", "error_recv"}) {
    SCOPED_TRACE(error);
    Connect({});
    ExpectDelivered(Job(10));
    sim_.set(error, 1);
    EXPECT_THAT(Transfer(Job(1)).sent, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("KV link")));
    ExpectDelivered(Job(2));
    sender_.reset();
  }
}

TEST_F(NcclTransportTest, NoCommunicatorNoLink) {
  for (const int which : {1, 2}) {
    SCOPED_TRACE(which);
    Connect({.sender_stall = kStall, .receiver_stall = kStall});
    sim_.set("fail_init", which);  // The writer's comes first.
    const absl::Status sent = Transfer(Job(1)).sent;
    EXPECT_TRUE(absl::IsUnavailable(sent) || absl::IsDeadlineExceeded(sent)) << sent;
    EXPECT_THAT(std::string(sent.message()), HasSubstr("KV link"));
    ExpectDelivered(Job(2));
    sender_.reset();
  }
}

TEST_F(NcclTransportTest, AFlippedBitIsDataLossAndTheCommunicatorServesOn) {
  Connect({});
  ExpectDelivered(Job(10));
  sim_.set("flip_recv", 1);
  EXPECT_EQ(Transfer(Job(1)).verified.code(), absl::StatusCode::kDataLoss);
  ExpectDelivered(Job(2));
  EXPECT_EQ(sim_.count("inits"), 2);
}

TEST_F(NcclTransportTest, AnOperationOfTheWrongSizeBreaksTheLink) {
  Connect({});
  ExpectDelivered(Job(10));
  sim_.set("short_send", 1);
  EXPECT_EQ(Transfer(Job(1)).sent.code(), absl::StatusCode::kUnavailable);
  ExpectFinding("expects");
  ExpectDelivered(Job(2));
}

// Whatever the form on the host holds, at either end: whole cells are sent, summed up, verified and brought to their blocks on the devices.
TEST_F(NcclTransportTest, WhatLiesOnTheDeviceIsSentAndVerified) {
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
  for (const BlockId block : zone->blocks()) {
    EXPECT_TRUE(std::ranges::all_of(receiver_->pool().Cell(1, block), [](uint8_t byte) { return byte == 0; })) << "it was brought to the host";
  }
  on_host ^= 8;
  EXPECT_TRUE(SameTokens(*source_, job.blocks, receiver_->PoolWith(zone->blocks()), zone->blocks(), 0, kTokens));
}

// What must be converted, or lies on the host, is read there: an engine must know.
TEST_F(NcclTransportTest, WhatIsReadOnTheHostIsSaidToBe) {
  for (const bool other_layout : {false, true}) {
    Connect({.target = SmallLayout(other_layout ? 32 : 16), .source_on_device = other_layout});
    const TestJob job = Job(1);
    receiver_->OpenZone(job.transfer, 1, {9, 2, 6, 5}, 0, kTokens);
    RunningJob running(sender_.get(), job);
    running.PushAll(kLayers);
    EXPECT_EQ(running.Wait(), absl::OkStatus());
    EXPECT_FALSE(running.reads_device());
  }
}

// As many launches as batches, not as frames, at either end.
TEST_F(NcclTransportTest, ManyFramesAreSummedUpInOneLaunch) {
  constexpr int kBlocks = 90;
  Connect({.source_blocks = kBlocks, .target_blocks = kBlocks});
  TestJob job{.transfer = {1, 1}, .num_tokens = 16 * kBlocks};
  std::vector<BlockId> blocks;
  for (int block = 0; block < kBlocks; ++block) {
    job.blocks.push_back(block);
    blocks.push_back(kBlocks - 1 - block);
  }
  const int64_t before = cuda_.Count("launches");
  ExpectDelivered(job, blocks);
  EXPECT_GT(cuda_.Count("launches"), before);
  EXPECT_LT(cuda_.Count("launches") - before, kBlocks / 2) << "as many as frames";
}

// For measuring what they cost.
TEST_F(NcclTransportTest, WithoutChecksumsNoneIsMade) {
  Connect({.checksums = false});
  const int64_t before = cuda_.Count("launches");
  ExpectDelivered(Job(1));
  EXPECT_EQ(cuda_.Count("launches"), before);
}

// The last cell of a prompt is not in wire form as it lies: its bytes are the host's to send and to check. What follows it in a batch is not
// aligned as the kernel needs it.
TEST_F(NcclTransportTest, TheCellThatIsNotFullIsAFrameOfItsOwn) {
  Connect({.frame_bytes = 1 << 20});
  for (const int num_tokens : {1, 15, 16, 17, 47, 63}) {
    const Outcome outcome = Transfer(Job(static_cast<uint64_t>(num_tokens), num_tokens));
    EXPECT_THAT(outcome.verified, IsOk()) << num_tokens;
    EXPECT_TRUE(outcome.arrived) << num_tokens;
    EXPECT_EQ(outcome.stats.num_frames, kLayers * ((num_tokens >= 16 ? 1 : 0) + (num_tokens % 16 != 0 ? 1 : 0))) << num_tokens;
  }
}

TEST_F(NcclTransportTest, PoolsOfTheHostAtEitherEndServeAsWell) {
  uint64_t stream = 1;
  for (const bool source : {false, true}) {
    for (const bool target : {false, true}) {
      if (source && target) continue;
      SCOPED_TRACE(absl::StrCat("source ", source, ", target ", target));
      Connect({.source_on_device = source, .target_on_device = target});
      ExpectDelivered(Job(stream++));
      ExpectDelivered(Job(stream++, 33));
      sim_.set("flip_recv", 1);
      EXPECT_EQ(Transfer(Job(stream++)).verified.code(), absl::StatusCode::kDataLoss);
    }
  }
}

// Nothing that verifies is wrong, whichever operation the bit was flipped in, be it the device's or the host's to find.
TEST_F(NcclTransportTest, AFlippedBitOfAnyOperationIsDataLoss) {
  Connect({.frame_bytes = 1 << 20});
  for (const int num_tokens : {64, 63, 5}) {
    for (int operation = 1; operation <= 2 * kLayers; ++operation) {
      SCOPED_TRACE(absl::StrCat(num_tokens, " tokens, operation ", operation));
      const int64_t before = sim_.count("recvs");
      sim_.set("flip_recv", operation);
      const Outcome outcome = Transfer(Job(static_cast<uint64_t>(100 * num_tokens + operation), num_tokens));
      sim_.set("flip_recv", 0);
      // How much goes with one operation is a matter of time.
      const bool flipped = sim_.count("recvs") - before >= operation;
      EXPECT_TRUE(flipped || operation > 1);
      EXPECT_EQ(outcome.verified.code(), flipped ? absl::StatusCode::kDataLoss : absl::StatusCode::kOk);
    }
  }
}

// An attempt by the devices that came to nothing, and one by the host into the same blocks.
TEST_F(NcclTransportTest, WhatCameByTheHostLastIsWhatTheDeviceGets) {
  Connect({});
  const TestJob job = Job(1);
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

// What is under way comes to its end, into memory that belongs to no transfer.
TEST_F(NcclTransportTest, ACancelledTransferLeavesTheCommunicatorWhole) {
  Connect({});
  for (uint64_t stream = 1; stream < 9; ++stream) {
    const TestJob job = Job(stream);
    const auto zone = receiver_->OpenZone(job.transfer, 1, {9, 2, 6, 5}, 0, kTokens);
    RunningJob running(sender_.get(), job);
    running.PushLayers(0, static_cast<int>(stream % kLayers) + 1);
    receiver_->CloseZone(zone);
    running.Cancel();
    const auto done = running.Wait();
    ASSERT_TRUE(done.has_value());
    EXPECT_EQ(done->code(), absl::StatusCode::kCancelled);
    ExpectDelivered(Job(stream + 100));
  }
  EXPECT_EQ(sim_.count("inits"), 2);
}

TEST_F(NcclTransportTest, ADeafPathIsNoHang) {
  sim_.set("deaf", 1);
  Connect({});
  ExpectDelivered(Job(1));
  sim_.set("stall_send", 1);
  const TestJob job = Job(2);
  receiver_->OpenZone(job.transfer, 1, {9, 2, 6, 5}, 0, kTokens);
  RunningJob running(sender_.get(), job);
  running.PushAll(kLayers);
  ASSERT_TRUE(receiver_->WaitOpen(job.transfer, 1));
  receiver_->Stop();
  EXPECT_EQ(running.Wait().value_or(absl::OkStatus()).code(), absl::StatusCode::kUnavailable);
}

TEST_F(NcclTransportTest, CommunicatorsHaveABound) {
  const auto runtime = OpenNccl({.cuda_driver = cuda::testing::DriverLibrary(),
                                 .nccl_library = cuda::testing::NcclLibrary(),
                                 .max_communicators = 0});
  ASSERT_THAT(runtime, IsOk());
  Connect({});
  auto link = MakeNcclKvLink(*runtime, {.address = receiver_->offer().address}, {});
  const LinkHello hello = {{"p-2", 12, TransportKind::kNccl}, {"model-a", SmallLayout().fingerprint(), "n2"}};
  ASSERT_THAT(link->Open(hello, absl::Seconds(10)), IsOk());
  const std::vector<uint8_t> bytes(SmallLayout().block_layer_bytes());
  const std::span<const uint8_t> piece(bytes);
  const OutgoingFrame frame = {.transfer = {1, 1}, .attempt = 1, .header = {0, 0, 16, 0}, .payload = std::span(&piece, 1)};
  EXPECT_THAT(link->SendFrame(frame, [] { return absl::OkStatus(); }),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("0 communicators are open, no more")));
  EXPECT_FALSE(link->alive());
  link->Close(absl::Seconds(1));
}

TEST_F(NcclTransportTest, WhatIsMissingIsNamed) {
  EXPECT_THAT(OpenNccl({.cuda_driver = "libcuda_of_no_machine.so.1"}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("libcuda_of_no_machine.so.1")));
  EXPECT_THAT(OpenNccl({.cuda_driver = cuda::testing::DriverLibrary(), .nccl_library = "libnccl_of_no_machine.so.2"}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("libnccl_of_no_machine.so.2")));
  std::vector<TransportKind> kinds = {TransportKind::kNccl, TransportKind::kTcp};
  EXPECT_THAT(OpenDeviceTransports({.on_device = false}, &kinds), IsOk());
  EXPECT_EQ(kinds, std::vector<TransportKind>{TransportKind::kTcp});
  kinds = {TransportKind::kNccl};
  EXPECT_THAT(OpenDeviceTransports({.on_device = false}, &kinds),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("--transport nccl")));
}

}  // namespace
}  // namespace baton::testing
