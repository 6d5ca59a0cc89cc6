// SPDX-License-Identifier: Apache-2.0
#include "common/worker/role_change.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(RoleChange, TheArgumentsStayAndTheIdIsAddedOnce) {
  const std::vector<std::string> with_id = WorkerArguments("/b/decode", {"/b/prefill", "--model=m", "--port", "1"}, "p-1");
  EXPECT_THAT(with_id, ElementsAre("/b/decode", "--model=m", "--port", "1", "--id=p-1"));
  EXPECT_THAT(WorkerArguments("/b/prefill", with_id, "p-1"), ElementsAre("/b/prefill", "--model=m", "--port", "1", "--id=p-1"));
  EXPECT_THAT(WorkerArguments("/b/decode", {"x", "--id", "p-1", "--model=m"}, "p-1"), ElementsAre("/b/decode", "--id", "p-1", "--model=m"));
  // A name that the environment has given, or none: what this run is called.
  EXPECT_THAT(WorkerArguments("/b/decode", {"x", "--id", "other"}, "p-1"), ElementsAre("/b/decode", "--id", "other", "--id=p-1"));
}

TEST(RoleChange, AProgramThatIsNotThereIsNamed) {
  // Tests lie in a folder of their own, where no worker is.
  EXPECT_THAT(WorkerProgram(internal::DECODE), testing::StatusIs(absl::StatusCode::kNotFound, HasSubstr("/baton_decode_worker: No such file")));
  EXPECT_THAT(BecomeWorker(internal::PREFILL, "p-1"), testing::StatusIs(absl::StatusCode::kNotFound, HasSubstr("/baton_prefill_worker")));
}

}  // namespace
}  // namespace baton
