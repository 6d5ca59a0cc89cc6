// SPDX-License-Identifier: Apache-2.0
// KV over a simulated NCCL that fails in every way it can: each ends its transfers in time with an error, never with wrong blocks, and
// leaves no communicator behind that another transfer could hang on.
#include <functional>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/kv_transfer/nccl/nccl_transport.h"
#include "common/kv_transfer/transports/device_transports.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/gpu_sim/nccl_sim/nccl_test_support.h"
#include "tests/support/faulty_kv_link.h"
#include "tests/support/status_matchers.h"
#include "tests/support/transport_pair.h"

namespace baton::testing {
namespace {

using cuda::testing::NcclSim;
using ::testing::HasSubstr;

constexpr int kLayers = 3;
constexpr int kTokens = 64;
constexpr absl::Duration kStall = absl::Seconds(1);

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

class NcclTransportTest : public ::testing::Test {
 protected:
  void SetUp() override { sim_.reset(); }
  void TearDown() override {
    sender_.reset();
    receiver_.reset();
    if (!findings_expected_) {
      EXPECT_EQ(sim_.Findings(), "");
    }
    EXPECT_TRUE(Soon([this] { return sim_.count("communicators") == 0; })) << sim_.count("communicators");
    sim_.reset();
  }
  void Connect(absl::Duration sender_stall = absl::Seconds(10), absl::Duration receiver_stall = absl::Seconds(10)) {
    std::vector<TransportKind> kinds = {TransportKind::kNccl};
    SetNcclLibrary(cuda::testing::NcclLibrary());
    ASSERT_THAT(OpenDeviceTransports({.on_device = true, .cuda_driver = cuda::testing::DriverLibrary(), .stall_timeout = receiver_stall}, &kinds),
                IsOk());
    receiver_ = std::make_unique<TestReceiver>(TestReceiver::Options{.kind = TransportKind::kNccl});
    source_ = FilledPool(SmallLayout(), 16, 5);
    SenderOptions options;
    options.pool = source_.get();
    options.transfer_timeout = sender_stall;
    options.max_frame_bytes = 1;
    sender_ = MakeSender(receiver_->offer(), options);
  }
  TestJob Job(uint64_t stream) const { return {.transfer = {1, stream}, .blocks = {3, 1, 4, 15}, .num_tokens = kTokens}; }
  struct Outcome {
    absl::Status sent, verified = absl::UnknownError("no manifest");
    bool arrived = false;
  };
  Outcome Transfer(uint64_t stream) {
    const TestJob job = Job(stream);
    const auto zone = receiver_->OpenZone(job.transfer, 1, {9, 2, 6, 5}, 0, kTokens);
    RunningJob running(sender_.get(), job);
    running.PushAll(kLayers);
    Outcome outcome;
    outcome.sent = running.Wait().value_or(absl::UnknownError("never done"));
    if (outcome.sent.ok()) {
      if (const auto manifest = receiver_->WaitManifest(job.transfer, 1)) outcome.verified = manifest->verified;
    }
    outcome.arrived = SameTokens(*source_, job.blocks, receiver_->pool(), zone->blocks(), 0, kTokens);
    receiver_->CloseZone(zone);
    EXPECT_TRUE(!outcome.verified.ok() || outcome.arrived) << "verified, but not what was sent";
    return outcome;
  }
  void ExpectDelivered(uint64_t stream) {
    const Outcome outcome = Transfer(stream);
    EXPECT_THAT(outcome.sent, IsOk());
    EXPECT_THAT(outcome.verified, IsOk());
    EXPECT_TRUE(outcome.arrived);
  }
  void ExpectFinding(const std::string& text) {
    findings_expected_ = true;
    EXPECT_THAT(sim_.Findings(), HasSubstr(text));
  }

  const NcclSim& sim_ = NcclSim::Get();
  std::unique_ptr<KvPool> source_;
  std::unique_ptr<TestReceiver> receiver_;
  std::unique_ptr<LinkSender> sender_;
  bool findings_expected_ = false;
};

TEST_F(NcclTransportTest, ACommunicatorIsMadeAtTheFirstFrameAndUsedAgain) {
  Connect();
  TestJob asking = Job(1);
  receiver_->OpenZone(asking.transfer, 1, {9, 2, 6, 5}, 0, kTokens);
  RunningJob running(sender_.get(), asking);
  ASSERT_TRUE(receiver_->WaitOpen(asking.transfer, 1));
  EXPECT_EQ(sim_.count("inits"), 0);
  running.PushAll(kLayers);
  EXPECT_EQ(running.Wait(), absl::OkStatus());
  for (uint64_t stream = 2; stream < 6; ++stream) ExpectDelivered(stream);
  EXPECT_EQ(sim_.count("inits"), 2);
  EXPECT_EQ(sim_.count("communicators"), 2);
  // A layer is one operation at most, and four blocks of one need no more.
  EXPECT_LE(sim_.count("sends"), 5 * kLayers);
}

// Nobody may rely on an operation's having been issued, or done, because its call has returned.
TEST_F(NcclTransportTest, StreamsThatRunLateDeliverTheSame) {
  sim_.cuda_set("lazy_streams", 1);
  Connect();
  for (uint64_t stream = 1; stream < 4; ++stream) ExpectDelivered(stream);
  sender_.reset();
  receiver_.reset();
  EXPECT_TRUE(Soon([this] { return sim_.count("communicators") == 0; }));
  sim_.cuda_set("lazy_streams", 0);
}

TEST_F(NcclTransportTest, AStallEndsByTheDeadlineAtEitherEnd) {
  for (const char* const stall : {"stall_send", "stall_recv"}) {
    SCOPED_TRACE(stall);
    Connect(kStall, absl::Seconds(10));
    ExpectDelivered(10);
    sim_.set(stall, 1);
    const Outcome outcome = Transfer(1);
    EXPECT_THAT(outcome.sent, StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("NCCL moved nothing within 1s")));
    EXPECT_TRUE(receiver_->WaitLinkClosed({"p-1", 11, TransportKind::kNccl}));
    ExpectDelivered(2);
    sender_.reset();
    Connect(absl::Seconds(10), kStall);
    ExpectDelivered(10);
    sim_.set(stall, 1);
    EXPECT_THAT(Transfer(1).sent, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("KV link")));
    ExpectDelivered(2);
    sender_.reset();
  }
}

TEST_F(NcclTransportTest, ErrorsOfNcclBreakTheLinkAndTheNextTransferHasANewOne) {
  for (const char* const error : {"error_send", "error_recv"}) {
    SCOPED_TRACE(error);
    Connect();
    ExpectDelivered(10);
    sim_.set(error, 1);
    EXPECT_THAT(Transfer(1).sent, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("KV link")));
    ExpectDelivered(2);
    sender_.reset();
  }
}

TEST_F(NcclTransportTest, NoCommunicatorNoLink) {
  for (const int which : {1, 2}) {
    SCOPED_TRACE(which);
    Connect(kStall, kStall);
    sim_.set("fail_init", which);  // The writer's comes first.
    const absl::Status sent = Transfer(1).sent;
    EXPECT_TRUE(absl::IsUnavailable(sent) || absl::IsDeadlineExceeded(sent)) << sent;
    EXPECT_THAT(std::string(sent.message()), HasSubstr("KV link"));
    ExpectDelivered(2);
    sender_.reset();
  }
}

TEST_F(NcclTransportTest, AFlippedBitIsDataLossAndTheCommunicatorServesOn) {
  Connect();
  ExpectDelivered(10);
  sim_.set("flip_recv", 1);
  EXPECT_EQ(Transfer(1).verified.code(), absl::StatusCode::kDataLoss);
  ExpectDelivered(2);
  EXPECT_EQ(sim_.count("inits"), 2);
}

TEST_F(NcclTransportTest, AnOperationOfTheWrongSizeBreaksTheLink) {
  Connect();
  ExpectDelivered(10);
  sim_.set("short_send", 1);
  EXPECT_EQ(Transfer(1).sent.code(), absl::StatusCode::kUnavailable);
  ExpectFinding("expects");
  ExpectDelivered(2);
}

// What is under way comes to its end, into memory that belongs to no transfer.
TEST_F(NcclTransportTest, ACancelledTransferLeavesTheCommunicatorWhole) {
  Connect();
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
    ExpectDelivered(stream + 100);
  }
  EXPECT_EQ(sim_.count("inits"), 2);
}

TEST_F(NcclTransportTest, ADeafPathIsNoHang) {
  sim_.set("deaf", 1);
  Connect(absl::Seconds(10), absl::Seconds(10));
  ExpectDelivered(1);
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
  Connect();
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
