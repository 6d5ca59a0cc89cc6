// SPDX-License-Identifier: Apache-2.0
#include "common/base/ids.h"

#include <set>

#include "common/base/build_info.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

TEST(Ids, AreDistinctAndWellFormed) {
  std::set<std::string> ids;
  for (int i = 0; i < 1000; ++i) {
    const std::string id = NewRequestId();
    EXPECT_THAT(id, ::testing::MatchesRegex("r-[0-9a-f]+"));
    EXPECT_EQ(id.size(), 18u);
    ids.insert(id);
  }
  EXPECT_EQ(ids.size(), 1000u);
}

TEST(Ids, IncarnationStaysAndIsNotZero) {
  EXPECT_NE(ProcessIncarnation(), 0u);
  EXPECT_EQ(ProcessIncarnation(), ProcessIncarnation());
}

TEST(BuildInfo, NamesTheRelease) {
  EXPECT_THAT(Version(), ::testing::MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+"));
  EXPECT_THAT(BuildDescription(), ::testing::StartsWith("baton " + Version() + " ("));
}

}  // namespace
}  // namespace baton
