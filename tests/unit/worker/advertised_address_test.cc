// SPDX-License-Identifier: Apache-2.0
#include "common/worker/advertised_address.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace baton {
namespace {

void ExpectAdvertised(const std::string& address, const std::vector<std::string>& routers, const std::string& expected) {
  ASSERT_OK_AND_ASSIGN(const std::string advertised, AdvertisedAddress(address, routers));
  EXPECT_EQ(advertised, expected);
}

TEST(AdvertisedAddressTest, AnAddressIsItself) {
  ExpectAdvertised("10.1.2.3:9001", {}, "10.1.2.3:9001");
  ExpectAdvertised("[::1]:9001", {"127.0.0.1:9000"}, "[::1]:9001");
}

TEST(AdvertisedAddressTest, AWildcardBecomesTheAddressOnTheWayToTheRouter) {
  ExpectAdvertised("0.0.0.0:9001", {"127.0.0.1:9000"}, "127.0.0.1:9001");
  ExpectAdvertised("0.0.0.0:9001", {"localhost:9000"}, "127.0.0.1:9001");
  // What cannot be looked up is passed over.
  ExpectAdvertised("0.0.0.0:9001", {"no port", "127.0.0.1:9000"}, "127.0.0.1:9001");
  if (const auto address = AdvertisedAddress("[::]:9001", {"[::1]:9000"}); address.ok()) {
    EXPECT_EQ(*address, "[::1]:9001");
  }
}

TEST(AdvertisedAddressTest, NobodyIsToldAWildcard) {
  const auto address = AdvertisedAddress("0.0.0.0:9001", {});
  if (address.ok()) {
    EXPECT_THAT(*address, ::testing::AllOf(::testing::Not(::testing::StartsWith("0.0.0.0")), ::testing::EndsWith(":9001")));
  } else {
    EXPECT_EQ(address.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(address.status().message()), ::testing::HasSubstr("--advertise"));
  }
  EXPECT_EQ(AdvertisedAddress("nonsense", {}).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace baton
