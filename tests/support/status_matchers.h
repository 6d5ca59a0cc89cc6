// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_SUPPORT_STATUS_MATCHERS_H_
#define BATON_TESTS_SUPPORT_STATUS_MATCHERS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton::testing {

inline const absl::Status& GetStatus(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& GetStatus(const absl::StatusOr<T>& status_or) {
  return status_or.status();
}

// EXPECT_THAT(F(), IsOk())
MATCHER(IsOk, "is OK") {
  *result_listener << GetStatus(arg).ToString();
  return GetStatus(arg).ok();
}

// EXPECT_THAT(F(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("top_p 1.5")))
MATCHER_P2(StatusIs, code, message, "") {
  *result_listener << GetStatus(arg).ToString();
  return GetStatus(arg).code() == code &&
         ::testing::ExplainMatchResult(message, std::string(GetStatus(arg).message()), result_listener);
}

}  // namespace baton::testing

#define ASSERT_OK_AND_ASSIGN(lhs, expr) \
  ASSERT_OK_AND_ASSIGN_INNER(BATON_TEST_CONCAT(baton_test_status_or_, __LINE__), lhs, expr)
#define BATON_TEST_CONCAT_INNER(a, b) a##b
#define BATON_TEST_CONCAT(a, b) BATON_TEST_CONCAT_INNER(a, b)
#define ASSERT_OK_AND_ASSIGN_INNER(tmp, lhs, expr)           \
  auto tmp = (expr);                                         \
  ASSERT_TRUE(tmp.ok()) << tmp.status().ToString();          \
  lhs = *std::move(tmp)

#endif  // BATON_TESTS_SUPPORT_STATUS_MATCHERS_H_
