// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu_sim/kv_transfer/device_transport_fixture.h"

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "tests/support/device_pool.h"
#include "tests/support/paths.h"
#include "tests/support/status_matchers.h"

namespace baton::testing {

bool Soon(const std::function<bool()>& done, absl::Duration limit) {
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

void DeviceTransportTest::Disconnect() {
  sender_.reset();
  receiver_.reset();
}

void DeviceTransportTest::Connect(const Ends& ends) {
  Disconnect();
  std::vector<TransportKind> kinds = {kind_};
  SetNcclLibrary(BuildPath("tests/libnccl_sim.so"));
  ASSERT_THAT(OpenDeviceTransports({.on_device = true, .cuda_driver = Simulator::Driver(), .stall_timeout = ends.receiver_stall}, &kinds), IsOk());
  receiver_ = std::make_unique<TestReceiver>(
      TestReceiver::Options{.kind = kind_, .layout = ends.target, .num_blocks = ends.target_blocks, .on_device = ends.target_on_device,
                            .verify_frames = ends.checksums});
  source_ = FilledPool(ends.source, ends.source_blocks, 5);
  if (ends.source_on_device) source_ = OnDevice(*source_);
  SenderOptions options;
  options.pool = source_.get();
  options.transfer_timeout = ends.sender_stall;
  options.max_frame_bytes = ends.frame_bytes;
  options.checksum_frames = ends.checksums;
  sender_ = MakeSender(receiver_->offer(), options);
}

DeviceTransportTest::Outcome DeviceTransportTest::Transfer(const TestJob& job, const std::vector<BlockId>& to) {
  const auto zone = receiver_->OpenZone(job.transfer, 1, to, 0, job.num_tokens);
  RunningJob running(sender_.get(), job);
  running.PushAll(kLayers);
  Outcome outcome;
  outcome.sent = running.Wait().value_or(absl::UnknownError("never done"));
  if (outcome.sent.ok()) {
    if (const auto manifest = receiver_->WaitManifest(job.transfer, 1)) {
      outcome.verified = manifest->verified;
      outcome.stats = manifest->stats;
    }
  }
  outcome.arrived = SameTokens(*source_, job.blocks, receiver_->PoolWith(zone->blocks()), zone->blocks(), 0, job.num_tokens);
  receiver_->CloseZone(zone);
  EXPECT_TRUE(!outcome.verified.ok() || outcome.arrived) << "verified, but not what was sent";
  return outcome;
}

void DeviceTransportTest::ExpectDelivered(const TestJob& job, const std::vector<BlockId>& to) {
  const Outcome outcome = Transfer(job, to);
  EXPECT_THAT(outcome.sent, IsOk());
  EXPECT_THAT(outcome.verified, IsOk());
  EXPECT_TRUE(outcome.arrived);
}

}  // namespace baton::testing
