// SPDX-License-Identifier: Apache-2.0
#include "common/worker/router_directory.h"

#include <map>
#include <string>
#include <vector>

#include "common/base/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A resolver that says what the test wants.
class FakeNames {
 public:
  void Set(const std::string& entry, absl::StatusOr<std::vector<std::string>> answer) {
    MutexLock lock(&mutex_);
    answers_.insert_or_assign(entry, std::move(answer));
  }
  RouterDirectory::Lookup lookup() {
    return [this](const std::string& entry) -> absl::StatusOr<std::vector<std::string>> {
      MutexLock lock(&mutex_);
      const auto it = answers_.find(entry);
      if (it == answers_.end()) return absl::UnavailableError("unknown");
      return it->second;
    };
  }

 private:
  Mutex mutex_;
  std::map<std::string, absl::StatusOr<std::vector<std::string>>> answers_;
};

// To where nobody listens: a registration that tries for as long as it is kept.
std::unique_ptr<RouterRegistration> OpenNowhere(const std::string& address) {
  return std::make_unique<RouterRegistration>(address, internal::WorkerIdentity(), [] { return internal::WorkerLoad(); },
                                              RouterRegistration::Options());
}

TEST(RouterDirectoryTest, AddressesAreNotLookedUp) {
  FakeNames names;
  RouterDirectory directory({"127.0.0.1:1", "[::1]:2"}, OpenNowhere, names.lookup());
  EXPECT_THAT(directory.addresses(), ElementsAre("127.0.0.1:1", "[::1]:2"));
  EXPECT_EQ(directory.num_registered(), 1) << "credits are never divided by 0";
  directory.ReportNow();
}

TEST(RouterDirectoryTest, FollowsItsNames) {
  FakeNames names;
  names.Set("routers:9", std::vector<std::string>{"127.0.0.1:1"});
  RouterDirectory directory({"routers:9", "127.0.0.1:7"}, OpenNowhere, names.lookup());
  EXPECT_THAT(directory.addresses(), ElementsAre("127.0.0.1:1", "127.0.0.1:7"));
  names.Set("routers:9", std::vector<std::string>{"127.0.0.1:2", "127.0.0.1:3"});
  directory.Refresh();
  EXPECT_THAT(directory.addresses(), ElementsAre("127.0.0.1:2", "127.0.0.1:3", "127.0.0.1:7"));
  names.Set("routers:9", absl::UnavailableError("the resolver is away"));
  directory.Refresh();
  EXPECT_THAT(directory.addresses(), ElementsAre("127.0.0.1:2", "127.0.0.1:3", "127.0.0.1:7")) << "a resolver's outage is no router's";
  names.Set("routers:9", std::vector<std::string>{"127.0.0.1:3"});
  directory.Refresh();
  EXPECT_THAT(directory.addresses(), ElementsAre("127.0.0.1:3", "127.0.0.1:7"));
}

TEST(RouterDirectoryTest, ANameMayComeLater) {
  FakeNames names;
  RouterDirectory directory({"routers:9"}, OpenNowhere, names.lookup());
  EXPECT_THAT(directory.addresses(), IsEmpty());
  names.Set("routers:9", std::vector<std::string>{"127.0.0.1:1"});
  directory.Refresh();
  EXPECT_THAT(directory.addresses(), ElementsAre("127.0.0.1:1"));
}

TEST(RouterDirectoryTest, TheSystemsResolver) {
  ASSERT_OK_AND_ASSIGN(const auto addresses, RouterDirectory::LookUpRouters("localhost:9000"));
  ASSERT_FALSE(addresses.empty());
  for (const std::string& address : addresses) EXPECT_THAT(address, ::testing::AnyOf("127.0.0.1:9000", "[::1]:9000"));
  EXPECT_THAT(RouterDirectory::LookUpRouters("localhost").status(), ::testing::Property(&absl::Status::code, absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace baton
