// SPDX-License-Identifier: Apache-2.0
#include "common/model/logits_probe.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tiny_model.h"

namespace baton {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::testing::HasSubstr;

class LogitsProbeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::WriteTempFile("probe.gguf", testing::TinyModel({.context_length = 64}).Build());
    auto probe = LogitsProbe::Open(path_, {.chunk_tokens = 8});
    ASSERT_THAT(probe, IsOk());
    probe_ = *std::move(probe);
  }
  std::string path_;
  std::unique_ptr<LogitsProbe> probe_;
};

TEST_F(LogitsProbeTest, ReportsThePositionsAskedForInOrder) {
  std::vector<int32_t> tokens(30, 5);
  for (const int first : {0, 7, 8, 29}) {
    std::vector<int> positions;
    ASSERT_THAT(probe_->Run(tokens, first,
                            [&](int position, std::span<const float> logits) {
                              positions.push_back(position);
                              EXPECT_EQ(logits.size(), 320u);
                            }),
                IsOk());
    ASSERT_EQ(static_cast<int>(positions.size()), 30 - first);
    for (size_t i = 0; i < positions.size(); ++i) EXPECT_EQ(positions[i], first + static_cast<int>(i));
  }
}

TEST_F(LogitsProbeTest, RunsDoNotSeeEachOther) {
  const std::vector<int32_t> tokens = {1, 2, 3, 4, 5}, other(40, 9);
  std::vector<float> before, after;
  const auto keep = [](std::vector<float>* to) {
    return [to](int, std::span<const float> row) { to->assign(row.begin(), row.end()); };
  };
  ASSERT_THAT(probe_->Run(tokens, 4, keep(&before)), IsOk());
  std::vector<float> ignored;
  ASSERT_THAT(probe_->Run(other, 0, keep(&ignored)), IsOk());
  ASSERT_THAT(probe_->Run(tokens, 4, keep(&after)), IsOk());
  EXPECT_EQ(before, after);
}

TEST_F(LogitsProbeTest, RefusesWhatItNames) {
  const auto refused = [&](const std::vector<int32_t>& tokens, int first, const char* message) {
    EXPECT_THAT(probe_->Run(tokens, first, [](int, std::span<const float>) {}),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
  };
  refused({}, 0, "no tokens");
  refused(std::vector<int32_t>(65, 1), 0, "65 tokens are more than the model's context of 64");
  refused({1, 320}, 0, "token id 320 at position 1 is outside [0, 320)");
  refused({-1}, 0, "token id -1 at position 0");
  refused({1, 2}, 2, "first_logits 2 is outside [0, 2)");
  EXPECT_THAT(LogitsProbe::Open(path_, {.backend = "cuda"}).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("no CUDA")));
  EXPECT_THAT(LogitsProbe::Open(path_ + ".gone", {}).status(), StatusIs(absl::StatusCode::kNotFound, HasSubstr(".gone")));
}

}  // namespace
}  // namespace baton
