// SPDX-License-Identifier: Apache-2.0
#include "common/kv_transfer/transports/kv_links.h"

#include <atomic>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace baton {
namespace {

using ::baton::testing::StatusIs;
using ::testing::HasSubstr;

// A sender that only says what it is, and whether it was stopped.
class NamedSender final : public KvSender {
 public:
  NamedSender(const TransportOffer& offer, std::atomic<int>* stopped) : offer_(offer), stopped_(stopped) {}
  TransportKind kind() const override { return offer_.kind; }
  std::shared_ptr<Transfer> Begin(SendJob) override { return nullptr; }
  void SetBlocks(const std::shared_ptr<Transfer>&, std::vector<BlockId>) override {}
  void Push(const std::shared_ptr<Transfer>&, int, int, int, int) override {}
  void Finish(const std::shared_ptr<Transfer>&, Manifest) override {}
  void Cancel(const std::shared_ptr<Transfer>&) override {}
  void Stop() override { ++*stopped_; }
  const TransportOffer& offer() const { return offer_; }

 private:
  const TransportOffer offer_;
  std::atomic<int>* const stopped_;
};

class KvLinksTest : public ::testing::Test {
 protected:
  KvLinksTest() { Make({TransportKind::kShm, TransportKind::kTcp, TransportKind::kGrpc}); }
  void Make(std::vector<TransportKind> kinds) {
    KvLinksOptions options;
    options.kinds = std::move(kinds);
    options.broken_for = absl::Seconds(30);
    options.max_links = 4;
    options.make_sender = [this](const TransportOffer& offer) { return std::make_shared<NamedSender>(offer, &stopped_); };
    options.on_fallback = [this](TransportKind kind) { fallbacks_.push_back(kind); };
    links_ = std::make_unique<KvLinks>(std::move(options), &clock_);
  }
  static KvPeer Peer(const std::string& worker = "d-1", uint64_t incarnation = 5) {
    return {worker, incarnation, {{TransportKind::kShm, TransportHost(TransportKind::kShm), worker + "-shm"},
                                  {TransportKind::kTcp, "", worker + ":2"},
                                  {TransportKind::kGrpc, "", worker + ":1"}}};
  }
  TransportKind Chosen(const KvPeer& peer) { return (*links_->Choose(peer))->kind(); }

  ManualClock clock_;
  std::atomic<int> stopped_ = 0;  // By threads of the links.
  std::vector<TransportKind> fallbacks_;
  std::unique_ptr<KvLinks> links_;
};

TEST_F(KvLinksTest, TheBestThatBothHaveIsUsedAndKept) {
  const auto first = *links_->Choose(Peer());
  EXPECT_EQ(first->kind(), TransportKind::kShm);
  EXPECT_EQ(*links_->Choose(Peer()), first);
  Make({TransportKind::kGrpc});
  EXPECT_EQ(Chosen(Peer()), TransportKind::kGrpc);
}

TEST_F(KvLinksTest, WhatWorksOnAnotherMachineOnlyIsNotUsed) {
  KvPeer peer = Peer();
  peer.offers[0].host = "another machine";
  EXPECT_EQ(Chosen(peer), TransportKind::kTcp);
  EXPECT_EQ(links_->used().at("d-1").fallback, "");  // The best that the two have.
}

TEST_F(KvLinksTest, NoneInCommonNamesBothSides) {
  Make({TransportKind::kShm});
  KvPeer peer = Peer();
  peer.offers.erase(peer.offers.begin());
  EXPECT_THAT(links_->Choose(peer), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("local shm; d-1 offers tcp,grpc")));
}

TEST_F(KvLinksTest, ABrokenTransportIsLeftOutForAWhile) {
  EXPECT_EQ(Chosen(Peer()), TransportKind::kShm);
  links_->Report(Peer(), TransportKind::kShm, absl::UnavailableError("no socket"));
  EXPECT_EQ(Chosen(Peer()), TransportKind::kTcp);
  EXPECT_THAT(links_->used().at("d-1").fallback, HasSubstr("shm: no socket"));
  links_->Report(Peer(), TransportKind::kTcp, absl::DeadlineExceededError("stalled"));
  EXPECT_EQ(Chosen(Peer()), TransportKind::kGrpc);
  EXPECT_THAT(fallbacks_, ::testing::ElementsAre(TransportKind::kShm, TransportKind::kTcp));
  EXPECT_EQ(Chosen(Peer("d-2")), TransportKind::kShm);  // Another peer is another matter.
  clock_.Advance(absl::Seconds(31));
  EXPECT_EQ(Chosen(Peer()), TransportKind::kShm);
  EXPECT_EQ(links_->used().at("d-1").fallback, "");
}

TEST_F(KvLinksTest, AllBrokenTakesTheOneThatHasBeenForLongest) {
  for (const TransportKind kind : {TransportKind::kTcp, TransportKind::kShm, TransportKind::kGrpc}) {
    links_->Report(Peer(), kind, absl::UnavailableError("down"));
    clock_.Advance(absl::Seconds(1));
  }
  EXPECT_EQ(Chosen(Peer()), TransportKind::kTcp);
}

TEST_F(KvLinksTest, AnotherProcessThereStartsAfresh) {
  links_->Report(Peer(), TransportKind::kShm, absl::UnavailableError("gone"));
  EXPECT_EQ(Chosen(Peer("d-1", 6)), TransportKind::kShm);
}

TEST_F(KvLinksTest, OnlyTheTransportsOwnFailuresCount) {
  for (const absl::Status& status :
       {absl::OkStatus(), absl::CancelledError("router"), absl::AbortedError("fenced"), absl::FailedPreconditionError("model"),
        absl::InternalError("bug"), absl::InvalidArgumentError("job")}) {
    links_->Report(Peer(), TransportKind::kShm, status);
    EXPECT_EQ(Chosen(Peer()), TransportKind::kShm) << status;
  }
  EXPECT_TRUE(fallbacks_.empty());
}

TEST_F(KvLinksTest, ASuccessEndsTheWait) {
  links_->Report(Peer(), TransportKind::kShm, absl::UnavailableError("down"));
  links_->Report(Peer(), TransportKind::kShm, absl::OkStatus());
  EXPECT_EQ(Chosen(Peer()), TransportKind::kShm);
}

TEST_F(KvLinksTest, UnusedLinksPastTheBoundAreClosed) {
  const auto held = *links_->Choose(Peer("d-0"));
  for (int i = 1; i < 10; ++i) ASSERT_TRUE(links_->Choose(Peer(absl::StrCat("d-", i))).ok());
  EXPECT_EQ(*links_->Choose(Peer("d-0")), held);
  EXPECT_LE(links_->used().size(), 4u);
  links_->Stop();
  EXPECT_EQ(stopped_, 10);
}

}  // namespace
}  // namespace baton
