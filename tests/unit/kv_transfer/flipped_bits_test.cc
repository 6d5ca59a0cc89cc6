// SPDX-License-Identifier: Apache-2.0
// One flipped bit somewhere in an attempt: caught, 10,000 of 10,000, over every transport whose messages are our own; and every
// single bit of the messages of byte streams. (gRPC's own parser refuses some flips, and no answer comes: its flips are in the
// transports' contract.)
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/kv_transfer/stream/wire_format.h"
#include "gtest/gtest.h"
#include "tests/support/faulty_kv_link.h"
#include "tests/support/sanitizers.h"
#include "tests/support/transport_pair.h"

namespace baton::testing {
namespace {

constexpr int kLayers = 3;
constexpr int kAttempts = 10000;
constexpr int kAttemptsWhereSlow = 1000;  // Under sanitizers.

template <class T>
void FlipIn(T* value, uint64_t bit) {
  auto* bytes = reinterpret_cast<uint8_t*>(value);
  bytes[bit / 8 % sizeof(T)] ^= static_cast<uint8_t>(1u << (bit % 8));
}

void FlipIn(std::string* text, uint64_t bit) { FlipIn(&(*text)[bit / 8 % text->size()], bit % 8); }

// The bit of the attempt under way that is to be another.
struct Plan {
  int frame = -1;  // Which frame; -1: none.
  int field = 0;
  uint64_t bit = 0;
  int next_frame = 0;

  void OnFrame(FrameHeader* header, std::vector<uint8_t>* payload) {
    if (next_frame++ != frame) return;
    switch (field) {
      case 0: return FlipIn(&header->layer, bit);
      case 1: return FlipIn(&header->token_begin, bit);
      case 2: return FlipIn(&header->token_end, bit);
      case 3: return FlipIn(&header->checksum, bit);
      default: return FlipIn(&(*payload)[bit / 8 % payload->size()], bit % 8);
    }
  }
  void OnManifest(Manifest* manifest) {
    if (frame >= 0) return;
    switch (field) {
      case 0: return FlipIn(&manifest->model_fingerprint, bit);
      case 1: return FlipIn(&manifest->kv_layout, bit);
      case 2: return FlipIn(&manifest->numerics, bit);
      case 3: return FlipIn(&manifest->first_token, bit);
      case 4: return FlipIn(&manifest->num_tokens, bit);
      case 5: return FlipIn(&manifest->token_hash, bit);
      case 6: return FlipIn(&manifest->payload_bytes, bit);
      default: return FlipIn(&manifest->checksum, bit);
    }
  }
};

class FlippedBitsTest : public ::testing::TestWithParam<TransportKind> {
 protected:
  void SetUp() override { SetLogOptions({.min_severity = LogSeverity::kERROR}); }
  void TearDown() override { SetLogOptions({}); }
};

TEST_P(FlippedBitsTest, EachIsCaught) {
  TestReceiver::Options receiver_options;
  receiver_options.kind = GetParam();
  TestReceiver receiver(receiver_options);
  const auto source = FilledPool(SmallLayout(), 4, 5);
  auto plan = std::make_shared<Plan>();
  SenderOptions options;
  options.pool = source.get();
  options.max_frame_bytes = 1;  // A frame per block.
  options.decorate = [plan](std::unique_ptr<KvLink> link) -> std::unique_ptr<KvLink> {
    LinkFaults faults;
    faults.change_frame = [plan](FrameHeader* header, std::vector<uint8_t>* payload) { plan->OnFrame(header, payload); };
    faults.change_manifest = [plan](Manifest* manifest) { plan->OnManifest(manifest); };
    return std::make_unique<FaultyKvLink>(std::move(link), faults);
  };
  const auto sender = MakeSender(receiver.offer(), options);
  std::mt19937_64 rng(11);
  const int count = kSlowness > 1 ? kAttemptsWhereSlow : kAttempts;
  int caught = 0;
  for (int i = 0; i < count; ++i) {
    const bool in_manifest = rng() % 8 == 0;
    const int num_frames = 2 * kLayers;
    *plan = {.frame = in_manifest ? -1 : static_cast<int>(rng() % num_frames),
             .field = static_cast<int>(rng() % 8),
             .bit = rng()};
    const TestJob job{.transfer = {1, static_cast<uint64_t>(i + 1)}, .blocks = {2, 0}, .num_tokens = 21};
    const auto zone = receiver.OpenZone(job.transfer, 1, {(2 * i) % 64, (2 * i + 1) % 64}, 0, job.num_tokens);
    RunningJob running(sender.get(), job);
    running.PushAll(kLayers);
    const auto sent = running.Wait();
    ASSERT_TRUE(sent.has_value()) << i;
    bool verified = false;
    if (sent->ok()) {
      const auto manifest = receiver.WaitManifest(job.transfer, 1);
      ASSERT_TRUE(manifest.has_value()) << i << ": frame " << plan->frame << ", field " << plan->field << ", bit " << plan->bit;
      verified = manifest->verified.ok();
    }
    receiver.CloseZone(zone);
    caught += !verified;
    ASSERT_FALSE(verified) << i << ": frame " << plan->frame << ", field " << plan->field << ", bit " << plan->bit;
  }
  EXPECT_EQ(caught, count);
  // And without a flip it arrives.
  *plan = {.frame = 1000};
  const TestJob job{.transfer = {2, 1}, .blocks = {2, 0}, .num_tokens = 21};
  const auto zone = receiver.OpenZone(job.transfer, 1, {4, 7}, 0, job.num_tokens);
  RunningJob running(sender.get(), job);
  running.PushAll(kLayers);
  const auto manifest = receiver.WaitManifest(job.transfer, 1);
  ASSERT_TRUE(manifest.has_value());
  EXPECT_TRUE(manifest->verified.ok()) << manifest->verified;
}

INSTANTIATE_TEST_SUITE_P(Kinds, FlippedBitsTest,
                         ::testing::Values(TransportKind::kInproc, TransportKind::kShm, TransportKind::kTcp),
                         [](const auto& info) { return std::string(TransportName(info.param)); });

// ---- On the wire of tcp and of the sockets of shm and nccl.

TEST(FlippedWireBitsTest, NoMessageWithOneIsTaken) {
  const Manifest manifest{.model_fingerprint = "model-a", .kv_layout = "kv1", .numerics = "n", .num_tokens = 21, .num_frames = 6};
  const StreamHello hello{.hello = {{"p-1", 11, TransportKind::kTcp}, {"model-a", "kv1", "n"}}, .link = 5, .num_connections = 2};
  const TransferId transfer{3, 4};
  const std::vector<std::vector<uint8_t>> messages = {
      EncodeMessage(MessageType::kHello, {}, 0, EncodeHello(hello)),
      EncodeMessage(MessageType::kOpen, transfer, 1),
      EncodeMessage(MessageType::kManifest, transfer, 2, EncodeManifest(manifest)),
      EncodeMessage(MessageType::kAborted, transfer, 1),
      EncodeMessage(MessageType::kGrant, transfer, 1, EncodeGrant({.one_sided = true, .blocks = {3, -1, 7}})),
      EncodeMessage(MessageType::kDeny, transfer, 1, EncodeError(absl::AbortedError("not current"))),
      EncodeMessage(MessageType::kInvite, {}, 0, std::vector<uint8_t>(128, 9)),
      EncodeMessage(MessageType::kBatch, {}, 0, EncodeBatch(std::vector<BatchedFrame>{{transfer, 1, {0, 0, 16, 7}, 512}, {transfer, 1, {0, 16, 21, 8}, 160}})),
  };
  for (size_t which = 0; which < messages.size(); ++which) {
    for (size_t bit = 0; bit < messages[which].size() * 8; ++bit) {
      std::vector<uint8_t> bad = messages[which];
      bad[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
      const auto header = DecodeHeader(std::span<const uint8_t>(bad).first(kHeaderBytes));
      const bool taken = header.ok() && header->body_bytes == bad.size() - kHeaderBytes &&
                         CheckBody(*header, std::span<const uint8_t>(bad).subspan(kHeaderBytes)).ok();
      ASSERT_FALSE(taken) << "message " << which << ", bit " << bit;
    }
  }
}

}  // namespace
}  // namespace baton::testing
