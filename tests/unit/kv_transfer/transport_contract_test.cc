// SPDX-License-Identifier: Apache-2.0
// What every transport promises, once for each kind and once more for each thing that can go wrong on the way.
#include <algorithm>
#include <atomic>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/logging.h"
#include "common/kv_transfer/layout_conversion.h"
#include "common/kv_transfer/transports/device_transports.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/faulty_kv_link.h"
#include "tests/support/paths.h"
#include "tests/support/status_matchers.h"
#include "tests/support/transport_pair.h"

namespace baton::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kLayers = 3;
constexpr int kBlocks = 16;

// `count` different blocks of a pool, in no order.
std::vector<BlockId> SomeBlocks(int count, int num_blocks, uint32_t seed) {
  std::vector<BlockId> all(static_cast<size_t>(num_blocks));
  std::iota(all.begin(), all.end(), 0);
  std::shuffle(all.begin(), all.end(), std::mt19937(seed));
  all.resize(static_cast<size_t>(count));
  return all;
}

int BlocksFor(int num_tokens, int block_size) { return (num_tokens + block_size - 1) / block_size; }

class TransportContractTest : public ::testing::TestWithParam<TransportKind> {
 protected:
  void Connect(const TestReceiver::Options& receiver_options = {}, const KvLayout& source = SmallLayout(),
               SenderOptions sender_options = {}) {
    sender_.reset();
    receiver_.reset();
    TestReceiver::Options options = receiver_options;
    options.kind = GetParam();
    receiver_ = std::make_unique<TestReceiver>(options);
    source_ = FilledPool(source, kBlocks, 5);
    sender_options.pool = source_.get();
    sender_ = MakeSender(receiver_->offer(), sender_options);
  }
  void ConnectWith(const LinkFaults& faults, absl::Duration timeout = absl::Seconds(10)) {
    SenderOptions options;
    options.max_frame_bytes = 1;  // A frame per block, so that there is something to mix up.
    options.transfer_timeout = timeout;
    options.decorate = [faults](std::unique_ptr<KvLink> link) { return std::make_unique<FaultyKvLink>(std::move(link), faults); };
    Connect({}, SmallLayout(), options);
  }
  PeerId Writer() const { return {"p-1", 11, GetParam()}; }

  TestJob Job(int first_token, int num_tokens, uint64_t stream = 1, int attempt = 1) {
    TestJob job{.transfer = {1, stream}, .attempt = attempt};
    job.blocks = SomeBlocks(BlocksFor(num_tokens, source_->layout().block_size), kBlocks, static_cast<uint32_t>(stream));
    job.first_token = first_token;
    job.num_tokens = num_tokens;
    return job;
  }
  std::shared_ptr<LandingZone> Land(const TestJob& job) {
    const int count = BlocksFor(job.num_tokens, receiver_->options().layout.block_size);
    return receiver_->OpenZone(job.transfer, job.attempt,
                               SomeBlocks(count, receiver_->options().num_blocks, static_cast<uint32_t>(job.transfer.stream) + 100),
                               job.first_token, job.num_tokens);
  }
  bool Arrived(const TestJob& job, const LandingZone& zone) {
    const KvLayout wire = receiver_->wire_layout();
    if (wire == receiver_->options().layout) {
      return SameTokens(*source_, job.blocks, receiver_->PoolWith(zone.blocks()), zone.blocks(), job.first_token, job.num_tokens);
    }
    const auto sent = AsOnTheWire(*source_, job.blocks, wire, job.num_tokens);
    std::vector<BlockId> in_order(static_cast<size_t>(sent->num_blocks()));
    std::iota(in_order.begin(), in_order.end(), 0);
    return SameTokens(*sent, in_order, receiver_->PoolWith(zone.blocks()), zone.blocks(), job.first_token, job.num_tokens);
  }
  // One attempt from beginning to end: sent, verified, and what should be is in its blocks.
  void ExpectDelivered(const TestJob& job) {
    const auto zone = Land(job);
    RunningJob running(sender_.get(), job);
    running.PushAll(kLayers);
    const auto sent = running.Wait();
    ASSERT_TRUE(sent.has_value());
    ASSERT_THAT(*sent, IsOk());
    const auto manifest = receiver_->WaitManifest(job.transfer, job.attempt);
    ASSERT_TRUE(manifest.has_value());
    ASSERT_THAT(manifest->verified, IsOk());
    EXPECT_EQ(manifest->peer, Writer());
    EXPECT_EQ(manifest->stats.numerics, "n2");
    const int64_t bytes = static_cast<int64_t>(job.num_tokens - job.first_token) *
                          static_cast<int64_t>(receiver_->wire_layout().token_bytes());
    EXPECT_EQ(manifest->stats.payload_bytes, bytes);
    EXPECT_EQ(running.stats().payload_bytes, bytes);
    EXPECT_TRUE(Arrived(job, *zone));
    receiver_->CloseZone(zone);
  }
  // What came of an attempt that something happened to; the one thing that may never be is a landing that is not right.
  struct Outcome {
    absl::Status sent, verified = absl::UnknownError("no manifest");
    bool arrived = false;
  };
  Outcome Attempt(const TestJob& job) {
    const auto zone = Land(job);
    RunningJob running(sender_.get(), job);
    running.PushAll(kLayers);
    Outcome outcome;
    const auto sent = running.Wait();
    outcome.sent = sent.value_or(absl::UnknownError("never done"));
    if (outcome.sent.ok()) {
      if (const auto manifest = receiver_->WaitManifest(job.transfer, job.attempt)) outcome.verified = manifest->verified;
    }
    outcome.arrived = Arrived(job, *zone);
    receiver_->CloseZone(zone);
    EXPECT_TRUE(!outcome.verified.ok() || outcome.arrived) << "verified, but not what was sent";
    return outcome;
  }

  std::unique_ptr<KvPool> source_;
  std::unique_ptr<TestReceiver> receiver_;
  std::unique_ptr<LinkSender> sender_;
};

TEST_P(TransportContractTest, WhatIsSentArrives) {
  Connect();
  uint64_t stream = 0;
  for (const int first : {0, 16, 48}) {
    for (const int count : {1, 15, 16, 17, 48, 100}) {
      SCOPED_TRACE(absl::StrCat(count, " tokens from ", first, " on"));
      ExpectDelivered(Job(first, first + count, ++stream));
    }
  }
}

TEST_P(TransportContractTest, ChunksMayEndAnywhere) {
  Connect();
  uint64_t stream = 0;
  for (const int chunk : {1, 7, 16, 33}) {
    TestJob job = Job(16, 101, ++stream);
    job.chunk_tokens = chunk;
    ExpectDelivered(job);
  }
}

TEST_P(TransportContractTest, TheReceiversLayoutWins) {
  uint64_t stream = 0;
  for (const int from : {16, 32, 48}) {
    for (const int to : {16, 32, 64}) {
      for (const KvDtype dtype : {KvDtype::kF32, KvDtype::kF16, KvDtype::kBf16, KvDtype::kInt8}) {
        SCOPED_TRACE(absl::StrCat("blocks of ", from, " to ", to, ", to ", KvDtypeName(dtype)));
        Connect({.layout = SmallLayout(to, dtype)}, SmallLayout(from, KvDtype::kF16));
        TestJob job = Job(64, 179, ++stream);
        job.chunk_tokens = 21;
        ExpectDelivered(job);
      }
    }
  }
}

// Frames through memory come in the wire's type, whoever writes into the pool writes the pool's.
TEST_P(TransportContractTest, TheWireMayHaveEightBits) {
  uint64_t stream = 0;
  for (const KvDtype dtype : {KvDtype::kF32, KvDtype::kF16, KvDtype::kBf16, KvDtype::kInt8}) {
    for (const int from : {16, 48}) {
      SCOPED_TRACE(absl::StrCat("blocks of ", from, ", to ", KvDtypeName(dtype)));
      Connect({.layout = SmallLayout(32, dtype), .int8_wire = true}, SmallLayout(from, KvDtype::kF16));
      TestJob job = Job(64, 179, ++stream);
      job.chunk_tokens = 21;
      ExpectDelivered(job);
    }
  }
}

// As a prefill worker does for what is sent from a decode worker's cache.
TEST_P(TransportContractTest, AReceiverMayKeepItsPoolToItself) {
  Connect({.share_pool = false});
  ExpectDelivered(Job(0, 100, 1));
  ExpectDelivered(Job(16, 84, 2));
  Connect({.layout = SmallLayout(32, KvDtype::kF32), .share_pool = false});
  ExpectDelivered(Job(32, 150, 3));
  SenderOptions options;
  options.max_frame_bytes = 1;
  options.decorate = [](std::unique_ptr<KvLink> link) {
    return std::make_unique<FaultyKvLink>(std::move(link), LinkFaults{.flip_frame = 4, .flip_bit = 99});
  };
  Connect({.share_pool = false}, SmallLayout(), options);
  EXPECT_EQ(Attempt(Job(0, 43, 4)).verified.code(), absl::StatusCode::kDataLoss);
  ExpectDelivered(Job(0, 43, 5));
}

TEST_P(TransportContractTest, ManyAtOnceDoNotMix) {
  Connect();
  std::vector<TestJob> jobs;
  std::vector<std::shared_ptr<LandingZone>> zones;
  std::vector<std::unique_ptr<RunningJob>> running;
  // Blocks of their own, in both pools.
  for (int i = 0; i < 8; ++i) {
    TestJob job{.transfer = {1, static_cast<uint64_t>(i + 1)}, .blocks = {2 * i, 2 * i + 1}, .num_tokens = 17 + i};
    zones.push_back(receiver_->OpenZone(job.transfer, 1, {40 - 2 * i, 41 - 2 * i}, 0, job.num_tokens));
    jobs.push_back(job);
  }
  for (const TestJob& job : jobs) running.push_back(std::make_unique<RunningJob>(sender_.get(), job));
  for (int layer = 0; layer < kLayers; ++layer) {
    for (auto& job : running) job->PushLayers(layer, layer + 1);
  }
  for (auto& job : running) job->FinishManifest();
  for (size_t i = 0; i < jobs.size(); ++i) {
    const auto manifest = receiver_->WaitManifest(jobs[i].transfer, 1);
    ASSERT_TRUE(manifest.has_value());
    EXPECT_THAT(manifest->verified, IsOk());
    EXPECT_TRUE(Arrived(jobs[i], *zones[i]));
  }
}

TEST_P(TransportContractTest, CancelEndsAnAttemptAndTellsTheReceiver) {
  Connect();
  const TestJob job = Job(0, 100);
  const auto zone = Land(job);
  RunningJob running(sender_.get(), job);
  running.PushLayers(0, 1);
  ASSERT_TRUE(receiver_->WaitOpen(job.transfer, 1));
  running.Cancel();
  const auto done = running.Wait();
  ASSERT_TRUE(done.has_value());
  EXPECT_THAT(*done, StatusIs(absl::StatusCode::kCancelled, HasSubstr("cancelled")));
  EXPECT_TRUE(receiver_->WaitAborted(job.transfer, 1));
  receiver_->CloseZone(zone);
  ExpectDelivered(Job(0, 100, 2));
}

TEST_P(TransportContractTest, AFencedWriterStopsAndSaysSo) {
  Connect();
  const TestJob job = Job(0, 100);
  const auto zone = Land(job);
  RunningJob running(sender_.get(), job);
  ASSERT_TRUE(receiver_->WaitOpen(job.transfer, 1));
  receiver_->CloseZone(zone);
  receiver_->receiver().Abort(Writer(), job.transfer, 1);
  const auto done = running.Wait();
  ASSERT_TRUE(done.has_value());
  EXPECT_THAT(*done, StatusIs(absl::StatusCode::kAborted, HasSubstr("fenced")));
  EXPECT_TRUE(receiver_->WaitAborted(job.transfer, 1));
}

TEST_P(TransportContractTest, AnAttemptThatIsNotCurrentIsDeniedAndChangesNothing) {
  Connect();
  TestJob job = Job(0, 64);
  const auto zone = receiver_->OpenZone(job.transfer, 2, {0, 1, 2, 3}, 0, 64);
  const std::vector<uint8_t> before(receiver_->pool().Cell(0, 0).begin(), receiver_->pool().Cell(0, 0).end());
  RunningJob running(sender_.get(), job);
  // A two-sided writer does not wait for the answer.
  running.PushLayers(0, kLayers);
  const auto done = running.Wait();
  ASSERT_TRUE(done.has_value());
  EXPECT_THAT(*done, StatusIs(absl::StatusCode::kAborted, HasSubstr("not current")));
  ASSERT_TRUE(receiver_->WaitAborted(job.transfer, 1));
  EXPECT_TRUE(std::equal(before.begin(), before.end(), receiver_->pool().Cell(0, 0).begin()));
  EXPECT_EQ(receiver_->num_manifests(), 0);
  job.attempt = 2;
  RunningJob current(sender_.get(), job);
  current.PushAll(kLayers);
  const auto manifest = receiver_->WaitManifest(job.transfer, 2);
  ASSERT_TRUE(manifest.has_value());
  EXPECT_THAT(manifest->verified, IsOk());
  EXPECT_TRUE(Arrived(job, *zone));
}

TEST_P(TransportContractTest, AnotherProcessThereIsNotTheOneThatReserved) {
  Connect();
  TestJob job = Job(0, 32);
  job.peer_incarnation = 8;
  Land(job);
  RunningJob running(sender_.get(), job);
  const auto done = running.Wait();
  ASSERT_TRUE(done.has_value());
  EXPECT_THAT(*done, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("not the one that reserved")));
}

TEST_P(TransportContractTest, PairsThatCannotWorkTogetherSayWhy) {
  Connect({.model = "model-b"});
  RunningJob other_model(sender_.get(), Job(0, 32));
  const auto model = other_model.Wait();
  ASSERT_TRUE(model.has_value());
  EXPECT_THAT(*model, StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("peer model-a, local model-b")));
  KvLayout wider = SmallLayout();
  wider.num_kv_heads = 4;
  Connect({.layout = wider});
  RunningJob other_heads(sender_.get(), Job(0, 32));
  const auto heads = other_heads.Wait();
  ASSERT_TRUE(heads.has_value());
  EXPECT_THAT(*heads, StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("L3:H2:D8")));
  EXPECT_THAT(*heads, StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("L3:H4:D8")));
}

TEST_P(TransportContractTest, NobodyThereIsUnavailable) {
  Connect();
  receiver_->Stop();
  RunningJob running(sender_.get(), Job(0, 32));
  running.PushAll(kLayers);
  const auto done = running.Wait();
  ASSERT_TRUE(done.has_value());
  EXPECT_THAT(*done, StatusIs(absl::StatusCode::kUnavailable, HasSubstr(receiver_->options().kind == TransportKind::kInproc
                                                                            ? "inproc"
                                                                            : "KV link")));
}

TEST_P(TransportContractTest, AReceiverThatGoesEndsOpenAttempts) {
  Connect();
  const TestJob job = Job(0, 100);
  Land(job);
  RunningJob running(sender_.get(), job);
  running.PushLayers(0, 1);
  ASSERT_TRUE(receiver_->WaitOpen(job.transfer, 1));
  receiver_->Stop();
  const auto done = running.Wait();
  ASSERT_TRUE(done.has_value());
  EXPECT_EQ(done->code(), absl::StatusCode::kUnavailable) << *done;
}

TEST_P(TransportContractTest, ASenderThatGoesEndsItsAttemptsAndItsLink) {
  Connect();
  const TestJob job = Job(0, 100);
  Land(job);
  RunningJob running(sender_.get(), job);
  ASSERT_TRUE(receiver_->WaitOpen(job.transfer, 1));
  sender_->Stop();
  const auto done = running.Wait();
  ASSERT_TRUE(done.has_value());
  EXPECT_THAT(*done, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("shutting down")));
  EXPECT_TRUE(receiver_->WaitAborted(job.transfer, 1));
  EXPECT_TRUE(receiver_->WaitLinkClosed(Writer()));
}

TEST_P(TransportContractTest, WhatWasSentArrivesThoughTheSenderStops) {
  Connect();
  const TestJob job = Job(0, 200);
  const auto zone = Land(job);
  RunningJob running(sender_.get(), job);
  running.PushAll(kLayers);
  const auto done = running.Wait();
  ASSERT_TRUE(done.has_value());
  sender_->Stop();
  ASSERT_THAT(*done, IsOk());
  const auto manifest = receiver_->WaitManifest(job.transfer, 1);
  ASSERT_TRUE(manifest.has_value());
  EXPECT_THAT(manifest->verified, IsOk());
  EXPECT_TRUE(Arrived(job, *zone));
}

TEST_P(TransportContractTest, APieceWithAHoleIsABugThatIsReported) {
  Connect();
  TestJob job = Job(0, 64);
  Land(job);
  RunningJob running(sender_.get(), job);
  running.PushLayers(0, 2);
  running.FinishManifest();
  const auto done = running.Wait();
  ASSERT_TRUE(done.has_value());
  EXPECT_THAT(*done, StatusIs(absl::StatusCode::kInternal, HasSubstr("layer 2: only 0 of 64 tokens")));
}

// ---- Faults.

TEST_P(TransportContractTest, SlowLinksDeliver) {
  ConnectWith({.delay = absl::Milliseconds(1)});
  ExpectDelivered(Job(0, 40));
  ConnectWith({.bytes_per_second = 1 << 20});
  ExpectDelivered(Job(0, 40));
}

TEST_P(TransportContractTest, FramesInAnyOrderDeliver) {
  ConnectWith({.reorder = true});
  ExpectDelivered(Job(0, 100, 1));
  ExpectDelivered(Job(16, 84, 2));
}

TEST_P(TransportContractTest, ADoubledFrameIsDataLoss) {
  for (const int frame : {0, 4, 8}) {
    ConnectWith({.duplicate_frame = frame});
    const Outcome outcome = Attempt(Job(0, 48));
    // Over several connections the second one may come after everything was proven, when nothing is taken any more.
    const bool too_late = GetParam() == TransportKind::kTcp && outcome.verified.ok();
    EXPECT_TRUE(too_late || absl::IsDataLoss(outcome.verified)) << frame << ": " << outcome.verified;
    ExpectDelivered(Job(0, 48, 2));
  }
}

TEST_P(TransportContractTest, ATruncatedFrameDoesNotVerify) {
  for (const int frame : {0, 4, 8}) {
    ConnectWith({.truncate_frame = frame});
    const Outcome outcome = Attempt(Job(0, 48));
    EXPECT_FALSE(outcome.sent.ok() && outcome.verified.ok()) << frame;
    ExpectDelivered(Job(0, 48, 2));
  }
}

TEST_P(TransportContractTest, AFlippedBitIsDataLoss) {
  std::mt19937 rng(3);
  for (int i = 0; i < 20; ++i) {
    ConnectWith({.flip_frame = static_cast<int>(rng() % 9), .flip_bit = rng()});
    EXPECT_EQ(Attempt(Job(0, 43)).verified.code(), absl::StatusCode::kDataLoss) << i;
    ExpectDelivered(Job(0, 43, 2));
  }
}

TEST_P(TransportContractTest, AStallEndsByTheDeadline) {
  ConnectWith({.stall_after_bytes = 3000, .stall_timeout = absl::Milliseconds(50)});
  const Outcome outcome = Attempt(Job(0, 200));
  EXPECT_EQ(outcome.sent.code(), absl::StatusCode::kDeadlineExceeded) << outcome.sent;
  EXPECT_EQ(receiver_->num_manifests(), 0);
}

// What takes nothing for one attempt takes nothing for the next.
TEST_P(TransportContractTest, AStallEndsTheLinkAndTheNextHasANewOne) {
  int links = 0;
  SenderOptions options;
  options.decorate = [&links](std::unique_ptr<KvLink> link) -> std::unique_ptr<KvLink> {
    if (links++ > 0) return link;
    return std::make_unique<FaultyKvLink>(std::move(link), LinkFaults{.stall_after_bytes = 3000, .stall_timeout = absl::Milliseconds(50)});
  };
  Connect({}, SmallLayout(), options);
  EXPECT_EQ(Attempt(Job(0, 200)).sent.code(), absl::StatusCode::kDeadlineExceeded);
  ExpectDelivered(Job(0, 200, 2));
  EXPECT_EQ(links, 2);
}

TEST_P(TransportContractTest, AStalledAttemptCanBeCancelled) {
  ConnectWith({.stall_after_bytes = 0, .stall_timeout = absl::Hours(1)});
  const TestJob job = Job(0, 200);
  Land(job);
  RunningJob running(sender_.get(), job);
  running.PushAll(kLayers);
  ASSERT_TRUE(receiver_->WaitOpen(job.transfer, 1));
  running.Cancel();
  const auto done = running.Wait();
  ASSERT_TRUE(done.has_value());
  EXPECT_EQ(done->code(), absl::StatusCode::kCancelled);
}

TEST_P(TransportContractTest, ACutEndsTheAttemptAndTheNextHasANewLink) {
  int links = 0;
  SenderOptions options;
  options.max_frame_bytes = 1;
  options.decorate = [&links](std::unique_ptr<KvLink> link) -> std::unique_ptr<KvLink> {
    if (links++ > 0) return link;
    return std::make_unique<FaultyKvLink>(std::move(link), LinkFaults{.cut_after_bytes = 3000});
  };
  Connect({}, SmallLayout(), options);
  const Outcome outcome = Attempt(Job(0, 200));
  EXPECT_EQ(outcome.sent.code(), absl::StatusCode::kUnavailable) << outcome.sent;
  EXPECT_TRUE(receiver_->WaitLinkClosed(Writer()));
  ExpectDelivered(Job(0, 200, 2));
  EXPECT_EQ(links, 2);
}

// What it may still write to stays in quarantine until the receiver hears that it has ended: by the next Hello.
TEST_P(TransportContractTest, AOneSidedWriterWhoseLinkBrokeComesBackWithoutAJob) {
  if (!TransportOf(GetParam()).one_sided) GTEST_SKIP() << "a closed link ends a two-sided writer";
  std::atomic<int> links = 0;
  SenderOptions options;
  options.max_frame_bytes = 1;
  options.decorate = [&links](std::unique_ptr<KvLink> link) {
    return std::make_unique<FaultyKvLink>(std::move(link),
                                          links++ > 0 ? LinkFaults{} : LinkFaults{.cut_after_bytes = 3000});
  };
  Connect({}, SmallLayout(), options);
  EXPECT_EQ(Attempt(Job(0, 200)).sent.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(receiver_->WaitWriterGone(Writer(), 2));
  const MonotonicTime deadline = Clock::Real()->Now() + absl::Seconds(20);
  while (links < 2 && Clock::Real()->Now() < deadline) std::this_thread::yield();
  EXPECT_EQ(links, 2);
}

// The process may live on, as another program: it says itself that it has closed the pool, and then writes no more.
TEST_P(TransportContractTest, AOneSidedWriterThatEndsInOrderLetsGoOfThePool) {
  if (!TransportOf(GetParam()).one_sided) GTEST_SKIP() << "a closed link ends a two-sided writer";
  Connect();
  ExpectDelivered(Job(0, 64));
  EXPECT_TRUE(receiver_->WaitWriterGone(Writer(), 1));  // Hello: of what it had before.
  sender_.reset();
  EXPECT_TRUE(receiver_->WaitLinkClosed(Writer()));
  EXPECT_TRUE(receiver_->WaitWriterGone(Writer(), 2));
}

// Those of this build; what moves device memory does so on simulated devices.
std::vector<TransportKind> BuiltTransports() {
  SetNcclLibrary(BuildPath("tests/libnccl_sim.so"));
  std::vector<TransportKind> kinds;
  for (const TransportInfo& info : Transports()) {
    if (ParseTransportKind(info.name).ok()) kinds.push_back(info.kind);
  }
  const size_t num_kinds = kinds.size();
  const absl::Status opened = OpenDeviceTransports({.on_device = true, .cuda_driver = BuildPath("tests/libcuda_sim.so")}, &kinds);
  BATON_CHECK(opened.ok() && kinds.size() == num_kinds) << opened;
  return kinds;
}

INSTANTIATE_TEST_SUITE_P(Kinds, TransportContractTest, ::testing::ValuesIn(BuiltTransports()),
                         [](const auto& info) { return std::string(TransportName(info.param)); });

}  // namespace
}  // namespace baton::testing
