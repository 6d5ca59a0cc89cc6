// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_GPU_SIM_KV_TRANSFER_DEVICE_TRANSPORT_FIXTURE_H_
#define BATON_TESTS_GPU_SIM_KV_TRANSFER_DEVICE_TRANSPORT_FIXTURE_H_

#include <functional>
#include <memory>
#include <vector>

#include "common/kv_transfer/transports/device_transports.h"
#include "gtest/gtest.h"
#include "tests/gpu_sim/backend/simulator.h"
#include "tests/support/transport_pair.h"

namespace baton::testing {

// Whether `done` came to hold before `limit`.
bool Soon(const std::function<bool()>& done, absl::Duration limit = absl::Seconds(20));

// A sender and a receiver of one kind that moves device memory, whose pools lie on a simulated GPU, in one process. Every test begins with a
// fresh simulator.
class DeviceTransportTest : public ::testing::Test {
 protected:
  static constexpr int kLayers = 3;
  static constexpr int kTokens = 64;
  struct Ends {
    absl::Duration sender_stall = absl::Seconds(10), receiver_stall = absl::Seconds(10);
    size_t frame_bytes = 1;  // A frame per block.
    KvLayout source = SmallLayout(), target = SmallLayout();
    int source_blocks = 16, target_blocks = 64;
    bool source_on_device = true, target_on_device = true;
    bool checksums = true;  // False: frames have none, and none is verified.
  };

  explicit DeviceTransportTest(TransportKind kind) : kind_(kind) {}
  void SetUp() override { cuda_.Reset(); }
  // Ends what Connect began before.
  void Connect(const Ends& ends);
  void Disconnect();

  // Tokens [0, kTokens) in four blocks, none of which is the neighbour of the next.
  TestJob Job(uint64_t stream, int num_tokens = kTokens) const { return {.transfer = {1, stream}, .blocks = {3, 1, 4, 15}, .num_tokens = num_tokens}; }
  struct Outcome {
    absl::Status sent, verified = absl::UnknownError("no manifest");
    bool arrived = false;  // What should be is in the blocks.
    LandingStats stats;
  };
  // Into these blocks, from beginning to end. What verifies and has not arrived is a failure.
  Outcome Transfer(const TestJob& job, const std::vector<BlockId>& to = {9, 2, 6, 5});
  // One that succeeds.
  void ExpectDelivered(const TestJob& job, const std::vector<BlockId>& to = {9, 2, 6, 5});

  const TransportKind kind_;
  Simulator cuda_;
  std::unique_ptr<KvPool> source_;
  std::unique_ptr<TestReceiver> receiver_;
  std::unique_ptr<LinkSender> sender_;
};

}  // namespace baton::testing

#endif  // BATON_TESTS_GPU_SIM_KV_TRANSFER_DEVICE_TRANSPORT_FIXTURE_H_
