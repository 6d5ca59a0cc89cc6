// SPDX-License-Identifier: Apache-2.0
#include "common/base/quantity.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace baton {
namespace {

using ::baton::testing::StatusIs;
using ::testing::HasSubstr;

TEST(Quantity, ParsesBytes) {
  const struct {
    const char* text;
    int64_t bytes;
  } cases[] = {{"0", 0},           {"4096", 4096},        {"1b", 1},         {"1k", 1024},          {"1KiB", 1024},
               {"1kb", 1000},      {"512MiB", 512 << 20}, {"2G", 2ll << 30}, {"2 GiB", 2ll << 30},  {" 2gb ", 2000000000},
               {"1.5M", 3 << 19},  {"1T", 1ll << 40},     {"1TB", 1000000000000}};
  for (const auto& c : cases) {
    ASSERT_OK_AND_ASSIGN(const int64_t bytes, ParseBytes(c.text));
    EXPECT_EQ(bytes, c.bytes) << c.text;
  }
}

TEST(Quantity, RefusesOtherText) {
  for (const char* text : {"", " ", "G", "-1", "+1", "1.2.3", ".", "0x10", "nan", "inf"}) {
    EXPECT_THAT(ParseBytes(text), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(""))) << text;
  }
  EXPECT_THAT(ParseBytes("12Q"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("unknown unit 'q'")));
  EXPECT_THAT(ParseBytes("99999999T"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("over 4 EiB")));
}

TEST(Quantity, FormatsTheShortestExactForm) {
  for (const auto& [bytes, text] : std::vector<std::pair<int64_t, std::string>>{
           {0, "0B"}, {1000, "1000B"}, {1024, "1KiB"}, {512 << 20, "512MiB"}, {3ll << 30, "3GiB"}, {1ll << 40, "1TiB"}}) {
    EXPECT_EQ(FormatBytes(bytes), text);
    ASSERT_OK_AND_ASSIGN(const int64_t back, ParseBytes(text));
    EXPECT_EQ(back, bytes);
  }
}

}  // namespace
}  // namespace baton
