// SPDX-License-Identifier: Apache-2.0
// Only the writer that was named for an attempt may write to its landing, over whatever transport.
#include "common/kv_transfer/write_token.h"

#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/kv_transfer/checksum.h"
#include "common/kv_transfer/layout_conversion.h"
#include "common/kv_transfer/transports/make_link.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/transport_pair.h"

namespace baton::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kLayers = 3;
constexpr int kBlocks = 8;
constexpr int kTokens = 100;

std::vector<BlockId> Blocks(int first = 0) {
  std::vector<BlockId> blocks(kBlocks);
  std::iota(blocks.begin(), blocks.end(), first);
  return blocks;
}

TEST(WriteTokenTest, MatchesItselfAlone) {
  const WriteToken token = WriteToken::Draw();
  EXPECT_EQ(token.bytes().size(), 16u);
  EXPECT_TRUE(token.Matches(WriteToken(token.bytes())));
  for (size_t i = 0; i < WriteToken::kBytes; ++i) {
    std::string other = token.bytes();
    other[i] = static_cast<char>(other[i] ^ 1);
    EXPECT_FALSE(token.Matches(WriteToken(other))) << i;
  }
  EXPECT_FALSE(token.Matches(WriteToken::Draw()));
  EXPECT_FALSE(token.Matches(WriteToken(token.bytes().substr(1))));
  EXPECT_FALSE(token.Matches(WriteToken(token.bytes() + token.bytes())));
  EXPECT_FALSE(token.Matches({}));
  EXPECT_FALSE(WriteToken().Matches({}));  // Who has none is nobody in particular.
}

class TokenTransportTest : public ::testing::TestWithParam<TransportKind> {
 protected:
  void Connect(bool require) {
    sender_.reset();
    receiver_ = std::make_unique<TestReceiver>(TestReceiver::Options{.kind = GetParam(), .require_tokens = require});
    source_ = FilledPool(SmallLayout(), kBlocks, 5);
    // A frame per block: with several connections they overtake each other, and would the Open.
    sender_ = MakeSender(receiver_->offer(), {.pool = source_.get(), .max_frame_bytes = 1});
  }
  std::shared_ptr<LandingZone> Land(uint64_t stream, int attempt = 1) {
    return receiver_->OpenZone({1, stream}, attempt, Blocks(static_cast<int>(stream) * kBlocks), 0, kTokens);
  }
  static TestJob Job(uint64_t stream, int attempt, const WriteToken& token) {
    TestJob job{.transfer = {1, stream}, .attempt = attempt, .blocks = Blocks(), .num_tokens = kTokens};
    job.token = token;
    return job;
  }
  absl::Status Send(uint64_t stream, int attempt, const WriteToken& token) {
    RunningJob running(sender_.get(), Job(stream, attempt, token));
    running.PushAll(kLayers);
    return running.Wait().value_or(absl::UnknownError("never done"));
  }
  // The answer to who has sent nothing yet: a denial.
  absl::Status Ask(uint64_t stream, int attempt, const WriteToken& token) {
    return RunningJob(sender_.get(), Job(stream, attempt, token)).Wait().value_or(absl::UnknownError("never done"));
  }
  // It was sent, it verifies, and it is in its blocks.
  void ExpectDelivered(uint64_t stream, int attempt, const LandingZone& zone, const WriteToken& token) {
    ASSERT_THAT(Send(stream, attempt, token), IsOk());
    const auto manifest = receiver_->WaitManifest({1, stream}, attempt);
    ASSERT_TRUE(manifest.has_value());
    EXPECT_THAT(manifest->verified, IsOk());
    EXPECT_TRUE(SameTokens(*source_, Blocks(), receiver_->pool(), zone.blocks(), 0, kTokens));
  }

  std::unique_ptr<KvPool> source_;
  std::unique_ptr<TestReceiver> receiver_;
  std::unique_ptr<LinkSender> sender_;
};

TEST_P(TokenTransportTest, WhoHasTheTokenWrites) {
  Connect(/*require=*/true);
  for (uint64_t stream = 1; stream <= 5; ++stream) {
    const auto zone = Land(stream);
    ExpectDelivered(stream, 1, *zone, zone->token());
    receiver_->CloseZone(zone);
  }
  EXPECT_EQ(receiver_->num_denied(), 0);
}

TEST_P(TokenTransportTest, AWrongTokenOrNoneIsDeniedAndNothingLands) {
  Connect(/*require=*/true);
  const auto zone = Land(1);
  const std::string secret = zone->token().bytes();
  for (const WriteToken& wrong : {WriteToken(), WriteToken::Draw(), WriteToken(secret.substr(0, 15)), WriteToken(secret + "x")}) {
    const absl::Status status = Ask(1, 1, wrong);
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kAborted, HasSubstr("was given to another writer")));
    EXPECT_EQ(status.message().find(secret), absl::string_view::npos);
    EXPECT_NE(Send(1, 1, wrong), absl::UnknownError("never done"));  // Who does not wait for the answer gains nothing.
  }
  const auto other = Land(2);
  ExpectDelivered(2, 1, *other, other->token());  // On the same link: what was sent before has been read.
  EXPECT_EQ(receiver_->num_denied(), 8);
  EXPECT_EQ(receiver_->num_manifests(), 1);
  EXPECT_EQ(zone->last_write(), absl::ZeroDuration());
  ExpectDelivered(1, 1, *zone, zone->token());  // Whoever was named has lost nothing by it.
}

TEST_P(TokenTransportTest, EveryAttemptHasItsOwn) {
  Connect(/*require=*/true);
  const auto first = Land(1);
  const WriteToken old = first->token();
  receiver_->CloseZone(first);
  const auto second = Land(1, 2);
  EXPECT_FALSE(old.Matches(second->token()));
  EXPECT_THAT(Ask(1, 1, old), StatusIs(absl::StatusCode::kAborted, HasSubstr("attempt 1 of transfer 00000001-1 is not landing here")));
  EXPECT_THAT(Ask(1, 2, old), StatusIs(absl::StatusCode::kAborted, HasSubstr("was given to another writer")));
  ExpectDelivered(1, 2, *second, second->token());
}

TEST_P(TokenTransportTest, WithoutAuthenticationOlderWritersAreTaken) {
  Connect(/*require=*/false);
  const auto zone = Land(1);
  EXPECT_THAT(Ask(1, 1, WriteToken::Draw()), StatusIs(absl::StatusCode::kAborted, HasSubstr("was given to another writer")));
  EXPECT_EQ(receiver_->num_denied(), 1);
  ExpectDelivered(1, 1, *zone, {});
  const auto other = Land(2);
  ExpectDelivered(2, 1, *other, other->token());
}

// A link that calls itself like the writer that was named, while that one writes or before it does.
TEST_P(TokenTransportTest, TheNameOfAnotherIsWorthNothing) {
  Connect(/*require=*/true);
  const auto zone = Land(1), own = Land(2);
  KvLink::Events events;
  events.on_grant = [](const TransferId&, int, const LinkGrant&) {};
  events.on_deny = [](const TransferId&, int, const absl::Status&) {};
  events.on_abort = [](const TransferId&, int) {};
  const auto link = LinkFactoryFor(receiver_->offer(), absl::Seconds(10))(std::move(events));
  const LinkHello hello{{"p-1", 11, GetParam()}, {"model-a", SmallLayout().fingerprint(), "n2"}};
  ASSERT_THAT(link->Open(hello, absl::Seconds(10)), IsOk());
  const auto go_on = [] { return absl::OkStatus(); };
  const std::vector<uint8_t> bytes(16 * SmallLayout().token_layer_bytes(), 7);
  const std::span<const uint8_t> piece(bytes);
  OutgoingFrame frame{.transfer = {1, 1}, .attempt = 1};
  frame.header = {0, 0, 16, FrameChecksum(piece)};
  frame.payload = std::span(&piece, 1);
  ASSERT_THAT(link->SendFrame(frame, go_on), IsOk());
  ASSERT_THAT(link->SendManifest({1, 1}, 1, {}, go_on), IsOk());
  link->SendAborted({1, 1}, 1);
  // What it may do comes behind all that.
  ASSERT_THAT(link->SendOpen({1, 2}, 1, own->token()), IsOk());
  ASSERT_THAT(link->Flush(go_on), IsOk());
  ASSERT_TRUE(receiver_->WaitOpen({1, 2}, 1));
  EXPECT_EQ(receiver_->num_manifests(), 0);
  EXPECT_EQ(zone->last_write(), absl::ZeroDuration());
  link->Close(absl::Seconds(10));
  ExpectDelivered(1, 1, *zone, zone->token());
}

INSTANTIATE_TEST_SUITE_P(Kinds, TokenTransportTest,
                         ::testing::Values(TransportKind::kInproc, TransportKind::kShm, TransportKind::kTcp, TransportKind::kGrpc),
                         [](const auto& info) { return std::string(TransportName(info.param)); });

}  // namespace
}  // namespace baton::testing
