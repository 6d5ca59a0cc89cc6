// SPDX-License-Identifier: Apache-2.0
// The supervisor over small shell commands. No test waits for a time to pass: each turns the supervisor until what it
// expects has happened, within a bound that only a failure reaches.
#include "deploy/cli/supervisor.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace baton::cli {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SupervisorTest : public ::testing::Test {
 protected:
  SupervisorOptions Options() {
    return {.first_backoff = absl::Milliseconds(1),
            .max_backoff = absl::Milliseconds(4),
            .without_environment = {"BATON_SECRET"},
            .sink = [this](absl::string_view line) { lines_.emplace_back(line); }};
  }

  static ChildSpec Shell(const std::string& name, const std::string& script, int stage = 0) {
    return {.name = name, .argv = {"/bin/sh", "-c", script}, .stage = stage};
  }
  // Says that it is up, and ends cleanly when asked to.
  static ChildSpec Polite(const std::string& name, int stage = 0) {
    return Shell(name, "trap 'echo ending; exit 0' TERM; echo up; while :; do sleep 0.01; done", stage);
  }

  bool TurnUntil(Supervisor* supervisor, const std::function<bool()>& done) {
    const MonotonicTime deadline = Clock::Real()->Now() + absl::Seconds(30);
    while (!done()) {
      if (Clock::Real()->Now() > deadline) return false;
      supervisor->Turn(absl::Milliseconds(20));
    }
    return true;
  }
  int Count(absl::string_view text) const {
    return std::count_if(lines_.begin(), lines_.end(),
                         [text](const std::string& line) { return absl::StrContains(line, text); });
  }
  size_t IndexOf(const std::string& line) const {
    return std::find(lines_.begin(), lines_.end(), line) - lines_.begin();
  }

  std::vector<std::string> lines_;
};

TEST_F(SupervisorTest, NamesLinesThatDoNotNameThemselves) {
  Supervisor supervisor(Options());
  ASSERT_THAT(supervisor.Start({Shell("router", "echo plain; echo '00:00:00.000 info    router: named' >&2;"
                                                "echo '{\"process\":\"router\",\"message\":\"x\"}'; printf unfinished")}),
              IsOk());
  ASSERT_TRUE(TurnUntil(&supervisor, [&] { return supervisor.ended(); }));
  EXPECT_THAT(lines_, ::testing::ElementsAre("[router] plain", "00:00:00.000 info    router: named",
                                             "{\"process\":\"router\",\"message\":\"x\"}", "[router] unfinished"));
}

TEST_F(SupervisorTest, AnEndBeforeReadyIsAFailureWithTheLastLines) {
  Supervisor supervisor(Options());
  ASSERT_THAT(supervisor.Start({Polite("router"), Shell("decode d-1", "echo first; echo bad model file >&2; exit 3", 1)}), IsOk());
  ASSERT_TRUE(TurnUntil(&supervisor, [&] { return supervisor.failure().has_value(); }));
  EXPECT_THAT(*supervisor.failure(), HasSubstr("decode d-1 ended with exit code 3"));
  EXPECT_THAT(*supervisor.failure(), HasSubstr("bad model file"));
  EXPECT_EQ(supervisor.pid("decode d-1"), -1);
}

TEST_F(SupervisorTest, StartsAgainWhatDies) {
  Supervisor supervisor(Options());
  ASSERT_THAT(supervisor.Start({Polite("router"), Polite("decode d-1", 1)}), IsOk());
  supervisor.KeepAlive();
  for (int round = 1; round <= 3; ++round) {
    ASSERT_TRUE(TurnUntil(&supervisor, [&] { return Count("[decode d-1] up") == round; }));
    const pid_t killed = supervisor.pid("decode d-1");
    ASSERT_EQ(kill(killed, SIGKILL), 0);
    ASSERT_TRUE(TurnUntil(&supervisor, [&] {
      return supervisor.num_restarts("decode d-1") == round && supervisor.pid("decode d-1") > 0;
    }));
    EXPECT_NE(supervisor.pid("decode d-1"), killed);
  }
  EXPECT_EQ(supervisor.num_restarts("router"), 0);
  EXPECT_FALSE(supervisor.failure().has_value());
}

TEST_F(SupervisorTest, DrainsStageByStage) {
  Supervisor supervisor(Options());
  ASSERT_THAT(supervisor.Start({Polite("prefill p-1", 1), Polite("router", 0), Polite("decode d-1", 1)}), IsOk());
  supervisor.KeepAlive();
  ASSERT_TRUE(TurnUntil(&supervisor, [&] { return Count("] up") == 3; }));
  supervisor.BeginDrain(absl::Seconds(20));
  EXPECT_TRUE(supervisor.draining());
  EXPECT_GT(supervisor.pid("prefill p-1"), 0);
  ASSERT_TRUE(TurnUntil(&supervisor, [&] { return supervisor.ended(); }));
  EXPECT_TRUE(supervisor.clean());
  EXPECT_LT(IndexOf("[router] ending"), IndexOf("[prefill p-1] ending"));
  EXPECT_LT(IndexOf("[router] ending"), IndexOf("[decode d-1] ending"));
  EXPECT_EQ(supervisor.num_restarts("router"), 0);
}

TEST_F(SupervisorTest, AStageThatDoesNotEndIsKilledAndTheNextFollows) {
  Supervisor supervisor(Options());
  ASSERT_THAT(supervisor.Start({Shell("router", "trap '' TERM; echo up; while :; do sleep 0.01; done"), Polite("decode d-1", 1)}),
              IsOk());
  supervisor.KeepAlive();
  ASSERT_TRUE(TurnUntil(&supervisor, [&] { return Count("] up") == 2; }));
  supervisor.BeginDrain(absl::Milliseconds(50));
  ASSERT_TRUE(TurnUntil(&supervisor, [&] { return supervisor.ended(); }));
  EXPECT_FALSE(supervisor.clean());
  EXPECT_THAT(lines_, Contains("[decode d-1] ending"));
}

TEST_F(SupervisorTest, AnExitCodeInADrainIsNotClean) {
  Supervisor supervisor(Options());
  ASSERT_THAT(supervisor.Start({Shell("router", "trap 'exit 1' TERM; echo up; while :; do sleep 0.01; done")}), IsOk());
  supervisor.KeepAlive();
  ASSERT_TRUE(TurnUntil(&supervisor, [&] { return Count("] up") == 1; }));
  supervisor.BeginDrain(absl::Seconds(20));
  ASSERT_TRUE(TurnUntil(&supervisor, [&] { return supervisor.ended(); }));
  EXPECT_FALSE(supervisor.clean());
}

TEST_F(SupervisorTest, KillAllEndsAtOnceWithGrandchildren) {
  Supervisor supervisor(Options());
  const std::string stubborn = "trap '' TERM; sh -c 'echo child $$; while :; do sleep 0.01; done' & echo up; wait";
  ASSERT_THAT(supervisor.Start({Shell("router", stubborn)}), IsOk());
  supervisor.KeepAlive();
  ASSERT_TRUE(TurnUntil(&supervisor, [&] { return Count("up") == 1 && Count("child") == 1; }));
  const auto line = std::find_if(lines_.begin(), lines_.end(), [](const auto& text) { return absl::StrContains(text, "child"); });
  const pid_t grandchild = std::stoi(line->substr(line->rfind(' ')));
  supervisor.BeginDrain(absl::Hours(1));
  supervisor.KillAll();
  ASSERT_TRUE(TurnUntil(&supervisor, [&] { return supervisor.ended(); }));
  EXPECT_FALSE(supervisor.clean());
  // Gone, or a zombie that nobody has collected yet.
  const auto gone = [grandchild] {
    if (kill(grandchild, 0) != 0) return true;
    std::ifstream stat(absl::StrCat("/proc/", grandchild, "/stat"));
    std::string text;
    std::getline(stat, text);
    return !stat || absl::StrContains(text, ") Z");
  };
  EXPECT_TRUE(TurnUntil(&supervisor, gone));
}

TEST_F(SupervisorTest, ChildrenGetAGroupAMaskAndAnEnvironmentOfTheirOwn) {
  setenv("BATON_SECRET", "x", 1);
  setenv("BATON_KEPT", "y", 1);
  sigset_t set, before;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigprocmask(SIG_BLOCK, &set, &before);
  {
    Supervisor supervisor(Options());
    ASSERT_THAT(supervisor.Start({Polite("router"), Shell("env", "trap 'exit 0' TERM; echo secret=$BATON_SECRET kept=$BATON_KEPT; "
                                                        "read line || echo eof; while :; do sleep 0.01; done")}),
                IsOk());
    ASSERT_TRUE(TurnUntil(&supervisor, [&] { return Count("up") == 1 && Count("eof") == 1; }));
    EXPECT_THAT(lines_, Contains("[env] secret= kept=y"));
    EXPECT_EQ(getpgid(supervisor.pid("router")), supervisor.pid("router"));
    supervisor.BeginDrain(absl::Seconds(20));  // SIGTERM reaches it though it is blocked here.
    ASSERT_TRUE(TurnUntil(&supervisor, [&] { return supervisor.ended(); }));
    EXPECT_TRUE(supervisor.clean());
  }
  sigprocmask(SIG_SETMASK, &before, nullptr);
}

TEST_F(SupervisorTest, ASignalWakesATurnAndStaysPending) {
  sigset_t set, before;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigprocmask(SIG_BLOCK, &set, &before);
  Supervisor supervisor(Options());
  ASSERT_EQ(kill(getpid(), SIGTERM), 0);
  supervisor.Turn(absl::Hours(1));
  const timespec none = {};
  EXPECT_EQ(sigtimedwait(&set, nullptr, &none), SIGTERM);
  sigprocmask(SIG_SETMASK, &before, nullptr);
}

TEST_F(SupervisorTest, AddsAndRetiresWhileTheOthersGoOn) {
  Supervisor supervisor(Options());
  ASSERT_THAT(supervisor.Start({Polite("router"), Polite("decode d-1", 1)}), IsOk());
  supervisor.KeepAlive();
  ASSERT_THAT(supervisor.Add(Polite("decode d-2", 1)), IsOk());
  EXPECT_THAT(supervisor.names(), ElementsAre("router", "decode d-1", "decode d-2"));
  ASSERT_TRUE(TurnUntil(&supervisor, [&] { return Count("] up") == 3; }));
  const pid_t kept = supervisor.pid("decode d-1");
  supervisor.Retire("decode d-2", absl::Seconds(20));
  supervisor.Retire("decode d-7", absl::Seconds(20));
  ASSERT_TRUE(TurnUntil(&supervisor, [&] { return supervisor.names().size() == 2; }));
  EXPECT_THAT(lines_, Contains("[decode d-2] ending"));
  EXPECT_EQ(supervisor.pid("decode d-1"), kept);
  EXPECT_TRUE(supervisor.clean());
  EXPECT_FALSE(supervisor.ended());
}

TEST_F(SupervisorTest, WhoIsAddedAgainWhileRetiringIsStartedAnew) {
  Supervisor supervisor(Options());
  // Ends only when it is told a second time, or killed.
  ASSERT_THAT(supervisor.Start({Shell("decode d-1", "trap 'echo told' TERM; echo up; while :; do sleep 0.01; done")}), IsOk());
  supervisor.KeepAlive();
  ASSERT_TRUE(TurnUntil(&supervisor, [&] { return Count("up") == 1; }));
  supervisor.Retire("decode d-1", absl::Hours(1));
  ASSERT_THAT(supervisor.Add(Polite("decode d-1")), IsOk());
  supervisor.Retire("decode d-1", absl::Hours(1));  // Has been told.
  ASSERT_THAT(supervisor.Add(Polite("decode d-1")), IsOk());
  ASSERT_TRUE(TurnUntil(&supervisor, [&] { return Count("told") >= 1; }));
  ASSERT_EQ(kill(supervisor.pid("decode d-1"), SIGKILL), 0);
  ASSERT_TRUE(TurnUntil(&supervisor, [&] { return Count("up") == 2; }));
  EXPECT_EQ(Count("told"), 1);
  EXPECT_EQ(supervisor.num_restarts("decode d-1"), 1);
  supervisor.BeginDrain(absl::Seconds(20));  // It is the new one by now.
  ASSERT_TRUE(TurnUntil(&supervisor, [&] { return supervisor.ended(); }));
  EXPECT_EQ(Count("ending"), 1);
}

TEST_F(SupervisorTest, WhoDoesNotRetireInTimeIsKilledAndOneThatIsDownIsForgotten) {
  Supervisor supervisor(Options());
  ASSERT_THAT(supervisor.Start({Polite("router"), Shell("decode d-1", "trap '' TERM; echo up; while :; do sleep 0.01; done")}), IsOk());
  supervisor.KeepAlive();
  ASSERT_TRUE(TurnUntil(&supervisor, [&] { return Count("] up") == 2; }));
  supervisor.Retire("decode d-1", absl::Milliseconds(1));
  ASSERT_TRUE(TurnUntil(&supervisor, [&] { return supervisor.names().size() == 1; }));
  EXPECT_FALSE(supervisor.clean());
  ASSERT_THAT(supervisor.Add(Shell("decode d-2", "exit 1")), IsOk());
  ASSERT_TRUE(TurnUntil(&supervisor, [&] { return supervisor.pid("decode d-2") < 0; }));
  supervisor.Retire("decode d-2", absl::Hours(1));
  EXPECT_THAT(supervisor.names(), ElementsAre("router"));
}

TEST_F(SupervisorTest, AnAdditionThatDoesNotStartLeavesTheOthersAlone) {
  Supervisor supervisor(Options());
  ASSERT_THAT(supervisor.Start({Polite("router")}), IsOk());
  supervisor.KeepAlive();
  EXPECT_THAT(supervisor.Add({.name = "decode d-1", .argv = {"/nowhere/baton_decode_worker"}}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("decode d-1: /nowhere/baton_decode_worker")));
  EXPECT_THAT(supervisor.names(), ElementsAre("router"));
  EXPECT_GT(supervisor.pid("router"), 0);
}

TEST_F(SupervisorTest, AnotherFileWakesATurn) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  Supervisor supervisor(Options());
  supervisor.WakeBy(ends[0]);
  ASSERT_EQ(write(ends[1], "x", 1), 1);
  supervisor.Turn(absl::Hours(1));
  supervisor.WakeBy(-1);
  close(ends[0]);
  close(ends[1]);
}

TEST_F(SupervisorTest, AProgramThatIsNotThereIsNamed) {
  Supervisor supervisor(Options());
  EXPECT_THAT(supervisor.Start({Polite("router"), {.name = "decode d-1", .argv = {"/nowhere/baton_decode_worker"}}}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("decode d-1: /nowhere/baton_decode_worker")));
  EXPECT_TRUE(supervisor.ended());
}

}  // namespace
}  // namespace baton::cli
