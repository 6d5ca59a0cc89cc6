// SPDX-License-Identifier: Apache-2.0
#include "common/base/service_notifier.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

Environment Fake(std::map<std::string, std::string> values) {
  return [values](const std::string& name) -> std::optional<std::string> {
    const auto it = values.find(name);
    if (it == values.end()) return std::nullopt;
    return it->second;
  };
}

// A supervisor's end, at an abstract address that the kernel chooses.
class Supervisor {
 public:
  Supervisor() : fd_(socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0)) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(sa_family_t)), 0);
    socklen_t length = sizeof address;
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length), 0);
    name_ = absl::StrCat("@", std::string(address.sun_path + 1, length - sizeof(sa_family_t) - 1));
  }
  ~Supervisor() { close(fd_); }
  const std::string& name() const { return name_; }
  // The next datagram; empty when there is none.
  std::string Next() {
    char buffer[512];
    const ssize_t size = recv(fd_, buffer, sizeof buffer, 0);
    return size > 0 ? std::string(buffer, size) : "";
  }

 private:
  const int fd_;
  std::string name_;
};

TEST(ServiceNotifierTest, SpeaksTheProtocol) {
  Supervisor supervisor;
  ServiceNotifier notifier(Fake({{"NOTIFY_SOCKET", supervisor.name()}}));
  notifier.Started("serves on 127.0.0.1:1");
  EXPECT_EQ(supervisor.Next(), "READY=1\nSTATUS=serves on 127.0.0.1:1");
  notifier.Alive("two\nlines");
  EXPECT_EQ(supervisor.Next(), "WATCHDOG=1\nSTATUS=two lines");
  notifier.Stuck("engine");
  EXPECT_EQ(supervisor.Next(), "STATUS=engine");
  notifier.Stopping("draining");
  EXPECT_EQ(supervisor.Next(), "STOPPING=1\nSTATUS=draining");
}

TEST(ServiceNotifierTest, AWatchdogLeavesTimeForARestart) {
  Supervisor supervisor;
  ServiceNotifier notifier(Fake({{"NOTIFY_SOCKET", supervisor.name()}, {"WATCHDOG_USEC", "30000000"}}));
  notifier.Restarting("becoming a decode worker");
  EXPECT_EQ(supervisor.Next(), "WATCHDOG=1\nWATCHDOG_USEC=600000000\nSTATUS=becoming a decode worker");
  notifier.Started("serves");
  EXPECT_EQ(supervisor.Next(), "READY=1\nWATCHDOG_USEC=30000000\nSTATUS=serves");
  ServiceNotifier unwatched(Fake({{"NOTIFY_SOCKET", supervisor.name()}}));
  unwatched.Restarting("becoming a decode worker");
  EXPECT_EQ(supervisor.Next(), "STATUS=becoming a decode worker");
}

TEST(ServiceNotifierTest, IntervalIsHalfOfTheWatchdog) {
  Supervisor supervisor;
  const std::string me = absl::StrCat(getpid());
  EXPECT_EQ(ServiceNotifier(Fake({{"NOTIFY_SOCKET", supervisor.name()}, {"WATCHDOG_USEC", "6000000"}})).interval(), absl::Seconds(3));
  EXPECT_EQ(ServiceNotifier(Fake({{"NOTIFY_SOCKET", supervisor.name()}, {"WATCHDOG_USEC", "6000000"}, {"WATCHDOG_PID", me}})).interval(),
            absl::Seconds(3));
  // Without a watchdog, one for another process, or a very slow one: often enough for a status line.
  EXPECT_EQ(ServiceNotifier(Fake({{"NOTIFY_SOCKET", supervisor.name()}})).interval(), absl::Seconds(10));
  EXPECT_EQ(ServiceNotifier(Fake({{"NOTIFY_SOCKET", supervisor.name()}, {"WATCHDOG_USEC", "6000000"}, {"WATCHDOG_PID", "1"}})).interval(),
            absl::Seconds(10));
  EXPECT_EQ(ServiceNotifier(Fake({{"NOTIFY_SOCKET", supervisor.name()}, {"WATCHDOG_USEC", "600000000"}})).interval(), absl::Seconds(10));
}

TEST(ServiceNotifierTest, NobodyListens) {
  for (const std::string path : {"", "x", "relative/path", "/nowhere/at/all"}) {
    ServiceNotifier notifier(Fake({{"NOTIFY_SOCKET", path}, {"WATCHDOG_USEC", "6000000"}}));
    notifier.Started("x");
    notifier.Alive("x");
    if (path != "/nowhere/at/all") EXPECT_EQ(notifier.interval(), absl::Hours(1)) << path;
  }
  ServiceNotifier unsupervised{Fake({{"WATCHDOG_USEC", "6000000"}})};
  EXPECT_EQ(unsupervised.interval(), absl::Hours(1));
  ServiceNotifier too_long(Fake({{"NOTIFY_SOCKET", "/" + std::string(200, 'x')}}));
  too_long.Started("x");
  EXPECT_EQ(too_long.interval(), absl::Hours(1));
}

}  // namespace
}  // namespace baton
