// SPDX-License-Identifier: Apache-2.0
#include "common/kv_transfer/landing_zone.h"

#include <atomic>
#include <memory>
#include <random>
#include <thread>

#include "common/backend/create_backend.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace baton {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::testing::HasSubstr;

class LandingZoneTest : public ::testing::Test {
 protected:
  static constexpr int kNumTokens = 37;  // Two whole blocks and a partial one.

  void SetUp() override {
    backend_ = *CreateBackend("reference");
    layout_ = {.num_layers = 3, .num_kv_heads = 2, .head_dim = 8, .block_size = 16, .dtype = KvDtype::kF16};
    source_ = *KvPool::Create(layout_, 4, backend_.get());
    target_ = *KvPool::Create(layout_, 6, backend_.get());
    std::mt19937 rng(1);
    for (int layer = 0; layer < 3; ++layer) {
      for (int block = 0; block < 4; ++block) {
        for (uint8_t& byte : source_->Cell(layer, block)) byte = static_cast<uint8_t>(rng());
      }
    }
    compatibility_ = {"model-a", layout_.fingerprint(), "n1"};
  }

  LandingZoneOptions Options(int first_token) const {
    return {.transfer = {1, 2}, .attempt = 1, .blocks = {5, 0, 3}, .first_token = first_token, .num_tokens = kNumTokens,
            .token_hash = 77, .compatibility = compatibility_};
  }

  std::vector<uint8_t> Payload(int layer, int begin, int end) const {
    std::vector<uint8_t> bytes;
    for (int token = begin; token < end; token += 16) {
      const int count = std::min(16, end - token);
      std::vector<uint8_t> cell(count * layout_.token_layer_bytes());
      source_->ReadTokens(layer, token / 16, 0, count, cell);
      bytes.insert(bytes.end(), cell.begin(), cell.end());
    }
    return bytes;
  }

  absl::Status Write(LandingZone& zone, int layer, int begin, int end) {
    const std::vector<uint8_t> payload = Payload(layer, begin, end);
    const FrameHeader header{layer, begin, end, FrameChecksum(payload)};
    records_.push_back({layer, begin, end, header.checksum});
    return zone.Write(header, payload);
  }

  Manifest MakeManifest(int first_token) const {
    Manifest manifest{.model_fingerprint = "model-a", .kv_layout = layout_.fingerprint(), .numerics = "n2",
                      .first_token = first_token, .num_tokens = kNumTokens, .token_hash = 77,
                      .num_frames = static_cast<int64_t>(records_.size())};
    manifest.checksum = ManifestChecksum(records_, manifest);
    return manifest;
  }

  std::unique_ptr<Backend> backend_;
  KvLayout layout_;
  std::unique_ptr<KvPool> source_, target_;
  KvCompatibility compatibility_;
  std::vector<FrameRecord> records_;
  ManualClock clock_;
  LandingStats stats_;
};

// Over two connections the manifest may come while the last frame's copy ends: neither before nor after that is it an error.
TEST_F(LandingZoneTest, AManifestBesideTheLastFrameVerifies) {
  for (int round = 0; round < 500; ++round) {
    records_.clear();
    LandingZone zone(Options(0), target_.get(), &clock_, nullptr);
    ASSERT_THAT(Write(zone, 0, 0, kNumTokens), IsOk());
    ASSERT_THAT(Write(zone, 1, 0, kNumTokens), IsOk());
    const std::vector<uint8_t> payload = Payload(2, 0, kNumTokens);
    const FrameHeader last{2, 0, kNumTokens, FrameChecksum(payload)};
    records_.push_back({2, 0, kNumTokens, last.checksum});
    const Manifest manifest = MakeManifest(0);
    std::atomic<int> begun = 0;
    const auto together = [&] {
      ++begun;
      while (begun < 2) {
      }
    };
    std::thread writer([&] {
      together();
      EXPECT_THAT(zone.Write(last, payload), IsOk());
    });
    together();
    absl::Status verified = absl::UnknownError("never");
    zone.VerifyWhenComplete(manifest, [&](const absl::Status& status, const LandingStats&) { verified = status; });
    writer.join();
    ASSERT_THAT(verified, IsOk()) << "round " << round;
  }
}

TEST_F(LandingZoneTest, WhatArrivesIsInItsBlocks) {
  LandingZone zone(Options(0), target_.get(), &clock_, nullptr);
  for (int layer = 0; layer < 3; ++layer) {
    ASSERT_THAT(Write(zone, layer, 16, kNumTokens), IsOk());
    ASSERT_THAT(Write(zone, layer, 0, 16), IsOk());
  }
  ASSERT_THAT(zone.Verify(MakeManifest(0), &stats_), IsOk());
  EXPECT_EQ(stats_.payload_bytes, static_cast<int64_t>(kNumTokens * layout_.token_bytes()));
  EXPECT_EQ(stats_.numerics, "n2");
  const std::vector<BlockId> blocks = {5, 0, 3};
  for (int layer = 0; layer < 3; ++layer) {
    for (int i = 0; i < 3; ++i) {
      const int count = std::min(16, kNumTokens - 16 * i);
      std::vector<uint8_t> want(count * layout_.token_layer_bytes()), got(want.size());
      source_->ReadTokens(layer, i, 0, count, want);
      target_->ReadTokens(layer, blocks[i], 0, count, got);
      EXPECT_EQ(got, want) << "layer " << layer << " block " << i;
    }
  }
}

TEST_F(LandingZoneTest, AFrameOnADeviceIsHeldAgainstItsChecksum) {
  LandingZone zone(Options(0), target_.get(), &clock_, nullptr);
  for (int layer = 0; layer < 3; ++layer) {
    const FrameHeader header{layer, 0, kNumTokens, FrameChecksum(Payload(layer, 0, kNumTokens))};
    records_.push_back({layer, 0, kNumTokens, header.checksum});
    ASSERT_THAT(zone.AcceptOnDevice(header, header.checksum), IsOk());
  }
  ASSERT_THAT(zone.Verify(MakeManifest(0), &stats_), IsOk());
  EXPECT_EQ(stats_.payload_bytes, static_cast<int64_t>(kNumTokens * layout_.token_bytes()));
  LandingZone other(Options(0), target_.get(), &clock_, nullptr);
  EXPECT_THAT(other.AcceptOnDevice({1, 0, 16, 5}, 6), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("layer 1, tokens 0 to 16")));
  EXPECT_THAT(other.AcceptOnDevice({3, 0, 16, 5}, 5), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("layer 3 of 3")));
  other.Close();
  EXPECT_EQ(other.AcceptOnDevice({1, 0, 16, 5}, 5).code(), absl::StatusCode::kCancelled);
}

TEST_F(LandingZoneTest, EveryFlippedBitIsCaught) {
  const std::vector<uint8_t> good = Payload(0, 0, 16);
  const uint64_t checksum = FrameChecksum(good);
  std::mt19937 rng(7);
  for (int i = 0; i < 10000; ++i) {
    std::vector<uint8_t> bad = good;
    bad[rng() % bad.size()] ^= static_cast<uint8_t>(1u << (rng() % 8));
    LandingZone zone(Options(0), target_.get(), &clock_, nullptr);
    ASSERT_THAT(zone.Write({0, 0, 16, checksum}, bad), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("checksum")));
    ASSERT_THAT(zone.Verify(MakeManifest(0), &stats_), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("checksum")));
  }
}

TEST_F(LandingZoneTest, MissingAndDoubledFramesDoNotVerify) {
  {
    LandingZone zone(Options(0), target_.get(), &clock_, nullptr);
    for (int layer = 0; layer < 3; ++layer) ASSERT_THAT(Write(zone, layer, 0, layer == 1 ? 32 : kNumTokens), IsOk());
    EXPECT_THAT(zone.Verify(MakeManifest(0), &stats_), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("layer 1")));
  }
  records_.clear();
  LandingZone zone(Options(0), target_.get(), &clock_, nullptr);
  for (int layer = 0; layer < 3; ++layer) ASSERT_THAT(Write(zone, layer, 0, kNumTokens), IsOk());
  ASSERT_THAT(Write(zone, 2, 0, 16), IsOk());
  EXPECT_THAT(zone.Verify(MakeManifest(0), &stats_), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("layer 2")));
}

TEST_F(LandingZoneTest, FramesOutsideTheTransferAreRefused) {
  const auto refused = [&](int layer, int begin, int end, const char* what) {
    LandingZone zone(Options(16), target_.get(), &clock_, nullptr);
    const std::vector<uint8_t> payload(std::max(0, end - begin) * layout_.token_layer_bytes());
    EXPECT_THAT(zone.Write({layer, begin, end, FrameChecksum(payload)}, payload),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(what)));
  };
  refused(3, 16, 32, "layer 3");
  refused(-1, 16, 32, "layer -1");
  refused(0, 0, 16, "outside the transfer");
  refused(0, 32, 48, "outside the transfer");
  refused(0, 32, 32, "outside the transfer");
  refused(0, 17, 32, "blocks of 16");
  refused(0, 16, 30, "blocks of 16");
  LandingZone zone(Options(16), target_.get(), &clock_, nullptr);
  EXPECT_THAT(zone.Write({0, 16, 32, 0}, std::vector<uint8_t>(3)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("3 bytes")));
}

TEST_F(LandingZoneTest, ManifestOfOtherThingsNamesBoth) {
  const auto verify = [&](auto change) {
    records_.clear();
    LandingZone zone(Options(0), target_.get(), &clock_, nullptr);
    for (int layer = 0; layer < 3; ++layer) EXPECT_THAT(Write(zone, layer, 0, kNumTokens), IsOk());
    Manifest manifest = MakeManifest(0);
    change(manifest);
    return zone.Verify(manifest, &stats_);
  };
  EXPECT_THAT(verify([](Manifest& m) { m.model_fingerprint = "model-b"; }),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("peer model-b, local model-a")));
  EXPECT_THAT(verify([](Manifest& m) { m.kv_layout = "kv-other"; }),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("kv-other")));
  EXPECT_THAT(verify([](Manifest& m) { m.num_tokens = 36; }),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("0 to 36")));
  EXPECT_THAT(verify([](Manifest& m) { m.token_hash = 78; }),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("token hash")));
  EXPECT_THAT(verify([](Manifest& m) { m.checksum ^= 1; }), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("manifest")));
  EXPECT_THAT(verify([](Manifest&) {}), IsOk());
}

TEST_F(LandingZoneTest, AClosedZoneTakesNothing) {
  LandingZone zone(Options(0), target_.get(), &clock_, [] { ADD_FAILURE() << "nothing was pinned"; });
  EXPECT_FALSE(zone.Close());
  EXPECT_THAT(Write(zone, 0, 0, 16), StatusIs(absl::StatusCode::kCancelled, HasSubstr("not current")));
  EXPECT_THAT(zone.Verify(MakeManifest(0), &stats_), StatusIs(absl::StatusCode::kCancelled, HasSubstr("not current")));
}

TEST_F(LandingZoneTest, TheDirectoryFindsOnlyTheCurrentAttempt) {
  LandingDirectory directory;
  directory.Put(std::make_shared<LandingZone>(Options(0), target_.get(), &clock_, nullptr));
  EXPECT_NE(directory.Find({1, 2}, 1), nullptr);
  EXPECT_EQ(directory.Find({1, 2}, 2), nullptr);
  EXPECT_EQ(directory.Find({1, 3}, 1), nullptr);
  directory.Remove({1, 2});
  EXPECT_EQ(directory.size(), 0u);
}

// Whole cells that lie elsewhere on the pool's device: nothing is copied that does not match, and the blocks are held until the copy's end.
TEST_F(LandingZoneTest, WhatIsMovedOnTheDeviceIsCheckedBeforeAndHeldMeanwhile) {
  const FrameHeader header{1, 0, 16, 5};
  const size_t bytes = 16 * layout_.token_layer_bytes();
  int unpinned = 0;
  LandingZone zone(Options(0), target_.get(), &clock_, [&] { ++unpinned; });
  EXPECT_THAT(zone.BeginMove(header, bytes, 5), IsOk());
  EXPECT_TRUE(zone.Close());
  EXPECT_EQ(unpinned, 0);
  zone.EndMove(header, absl::OkStatus());
  EXPECT_EQ(unpinned, 1);
  EXPECT_EQ(zone.BeginMove(header, bytes, 5).code(), absl::StatusCode::kCancelled);

  const auto fresh = [&] { return std::make_unique<LandingZone>(Options(0), target_.get(), &clock_, nullptr); };
  EXPECT_THAT(fresh()->BeginMove(header, bytes, 6), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("layer 1, tokens 0 to 16")));
  EXPECT_EQ(fresh()->BeginMove(header, bytes, std::nullopt).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(fresh()->BeginMove(header, bytes - 1, 5).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(fresh()->BeginMove({1, 32, 37, 5}, 5 * layout_.token_layer_bytes(), 5),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("ends within a cell")));
  // A copy that failed is no frame.
  const auto failed = fresh();
  EXPECT_THAT(failed->BeginMove(header, bytes, 5), IsOk());
  failed->EndMove(header, absl::InternalError("the device"));
  LandingStats stats;
  EXPECT_EQ(failed->Verify(MakeManifest(0), &stats).code(), absl::StatusCode::kInternal);
  LandingZoneOptions trusting = Options(0);
  trusting.verify_frames = false;
  LandingZone unverified(trusting, target_.get(), &clock_, nullptr);
  EXPECT_THAT(unverified.BeginMove(header, bytes, std::nullopt), IsOk());
  unverified.EndMove(header, absl::OkStatus());
}

}  // namespace
}  // namespace baton
