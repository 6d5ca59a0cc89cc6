// SPDX-License-Identifier: Apache-2.0
// The sender over a link that does what the test says, on a virtual clock: how jobs end, and what follows a broken link.
#include "common/kv_transfer/link_sender.h"

#include <memory>
#include <vector>

#include "common/backend/create_backend.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace baton {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::testing::HasSubstr;

// What the links of a test share.
struct Script {
  bool refuse = false;  // Nobody answers Hello.
  int num_hellos = 0, num_opens = 0, num_aborted = 0;
  KvLink::Events events;  // The newest link's.
  bool broken = false;    // So is it.
};

class ScriptedLink final : public KvLink {
 public:
  ScriptedLink(Script* script, TransportKind kind, const KvLayout& layout, Events events)
      : script_(script), kind_(kind), layout_(layout) {
    script->events = std::move(events);
    script->broken = false;
  }
  TransportKind kind() const override { return kind_; }
  absl::StatusOr<LinkHello> Open(const LinkHello&, absl::Duration) override {
    ++script_->num_hellos;
    if (script_->refuse) return absl::UnavailableError("nobody there");
    return LinkHello{{"d-1", 7, kind_}, {"model", layout_.fingerprint(), ""}};
  }
  bool alive() const override { return !script_->broken; }
  absl::Status SendOpen(const TransferId&, int, const WriteToken&) override { return ++script_->num_opens, absl::OkStatus(); }
  absl::Status SendFrame(const OutgoingFrame&, const Interrupted&) override { return State(); }
  absl::Status Flush(const Interrupted&) override { return State(); }
  absl::Status SendManifest(const TransferId&, int, const Manifest&, const Interrupted&) override { return State(); }
  void SendAborted(const TransferId&, int) override { ++script_->num_aborted; }
  void Settle() override {}
  void Close(absl::Duration) override {}

 private:
  absl::Status State() const { return script_->broken ? absl::UnavailableError("cut") : absl::OkStatus(); }
  Script* const script_;
  const TransportKind kind_;
  const KvLayout layout_;
};

class LinkSenderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    backend_ = *CreateBackend("reference");
    layout_ = {.num_layers = 1, .num_kv_heads = 1, .head_dim = 8, .block_size = 16, .dtype = KvDtype::kF16};
    pool_ = *KvPool::Create(layout_, 4, backend_.get());
    Connect(TransportKind::kShm);
  }
  void Connect(TransportKind kind) {
    LinkSenderOptions options;
    options.self = {"p-1", 11, kind};
    options.compatibility = {"model", layout_.fingerprint(), ""};
    options.address = "d-1";
    options.clock = &clock_;
    options.own_thread = false;
    sender_ = std::make_unique<LinkSender>(options, pool_.get(), [this, kind](KvLink::Events events) {
      return std::make_unique<ScriptedLink>(&script_, kind, layout_, std::move(events));
    });
  }
  std::shared_ptr<KvSender::Transfer> Begin(int attempt = 1) {
    SendJob job{.transfer = {1, 1}, .attempt = attempt, .peer_incarnation = 7, .num_tokens = 16};
    job.on_done = [this](const absl::Status& status, const SendStats&) { done_.push_back(status); };
    auto transfer = sender_->Begin(std::move(job));
    sender_->SetBlocks(transfer, {0});
    return transfer;
  }
  void Work() {
    while (sender_->Step()) {
    }
  }
  void Grant() { script_.events.on_grant({1, 1}, 1, {.one_sided = true, .blocks = {0}}); }

  std::unique_ptr<Backend> backend_;
  KvLayout layout_;
  std::unique_ptr<KvPool> pool_;
  ManualClock clock_;
  Script script_;
  std::vector<absl::Status> done_;
  std::unique_ptr<LinkSender> sender_;
};

// The peer keeps the blocks of a one-sided writer in quarantine until it hears Hello again: that must not wait for a job.
TEST_F(LinkSenderTest, AfterAOneSidedLinkBrokeHelloIsSaidWithoutAJob) {
  const auto transfer = Begin();
  Work();
  Grant();
  Work();
  script_.broken = true;
  script_.events.on_closed();
  Work();
  ASSERT_EQ(done_.size(), 1u);
  EXPECT_THAT(done_[0], StatusIs(absl::StatusCode::kUnavailable, HasSubstr("closed by the peer")));
  EXPECT_EQ(script_.num_hellos, 1);
  clock_.Advance(absl::Milliseconds(101));
  Work();
  EXPECT_EQ(script_.num_hellos, 2);
  EXPECT_EQ(script_.num_opens, 1);
  clock_.Advance(absl::Hours(1));
  Work();
  EXPECT_EQ(script_.num_hellos, 2);  // Once is enough.
}

TEST_F(LinkSenderTest, HelloIsTriedAgainLaterAndLaterAndInTheEndGivenUp) {
  Begin();
  Work();
  script_.broken = script_.refuse = true;
  script_.events.on_closed();
  Work();
  std::vector<int> hellos;
  for (int second = 0; second < 100; ++second) {
    clock_.Advance(absl::Seconds(1));
    Work();
    hellos.push_back(script_.num_hellos);
  }
  EXPECT_EQ(hellos[0], 2);
  EXPECT_EQ(hellos[99], 13);
  EXPECT_EQ(hellos[98], 13);
}

// Also that a job ends though nobody keeps its handle.
TEST_F(LinkSenderTest, ATwoSidedLinkThatBrokeNeedsNoHello) {
  Connect(TransportKind::kTcp);
  Begin();
  Work();
  script_.broken = true;
  script_.events.on_closed();
  Work();
  clock_.Advance(absl::Seconds(1));
  Work();
  EXPECT_EQ(script_.num_hellos, 1);
  EXPECT_EQ(done_.size(), 1u);
}

TEST_F(LinkSenderTest, AJobWithoutAGrantEndsAtItsDeadlineAndSaysAborted) {
  const auto transfer = Begin();
  sender_->Push(transfer, 0, 1, 0, 16);
  Work();
  clock_.Advance(absl::Seconds(11));
  Work();
  ASSERT_EQ(done_.size(), 1u);
  EXPECT_THAT(done_[0], StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("no grant")));
  EXPECT_EQ(script_.num_aborted, 1);
  EXPECT_EQ(sender_->num_open(), 0u);
  Grant();  // Late: it is nobody's.
  Work();
  EXPECT_EQ(done_.size(), 1u);
}

TEST_F(LinkSenderTest, TheSameAttemptTwiceIsRefusedAndTheFirstGoesOn) {
  const auto first = Begin();
  const auto second = Begin();
  Work();
  ASSERT_EQ(done_.size(), 1u);
  EXPECT_THAT(done_[0], StatusIs(absl::StatusCode::kAborted, HasSubstr("is being sent already")));
  EXPECT_EQ(sender_->num_open(), 1u);
  Grant();
  sender_->Push(first, 0, 1, 0, 16);
  sender_->Finish(first, {.num_tokens = 16});
  Work();
  ASSERT_EQ(done_.size(), 2u);
  EXPECT_THAT(done_[1], IsOk());
}

TEST_F(LinkSenderTest, EveryJobEndsOnceWhenTheSenderStops) {
  const auto first = Begin();
  const auto second = Begin();  // Both still queued.
  sender_->Stop();
  EXPECT_EQ(done_.size(), 2u);
  for (const absl::Status& status : done_) EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("shutting down")));
  Begin(2);
  ASSERT_EQ(done_.size(), 3u);
  EXPECT_THAT(done_[2], StatusIs(absl::StatusCode::kUnavailable, HasSubstr("shutting down")));
  EXPECT_EQ(sender_->num_open(), 0u);
}

}  // namespace
}  // namespace baton
