// SPDX-License-Identifier: Apache-2.0
#include "common/engine/engine.h"

#include <condition_variable>
#include <future>
#include <mutex>
#include <thread>

#include "common/base/clock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/engine/test_worker.h"

namespace baton {
namespace {

using ::baton::testing::Heard;
using ::baton::testing::kBlockSize;
using ::baton::testing::MakeSpec;
using ::baton::testing::RandomModel;
using ::baton::testing::RandomTokens;
using ::baton::testing::RunAlone;

class EngineTest : public ::testing::Test {
 protected:
  std::unique_ptr<Engine> MakeEngine(size_t inbox_capacity = 4096) {
    pool_ = *KvPool::Create(RandomModel().kv_layout(KvDtype::kF32, kBlockSize), 32, RandomModel().backend());
    return std::make_unique<Engine>(*EngineCore::Create(&RandomModel(), pool_.get(), {}, Clock::Real()), "engine",
                                    inbox_capacity);
  }
  // Runs `task` on the engine thread and waits for it.
  static void OnEngine(Engine& engine, Engine::Task task) {
    std::promise<void> done;
    ASSERT_TRUE(engine.Post([&](EngineCore& core) {
      task(core);
      done.set_value();
    }));
    done.get_future().wait();
  }
  std::unique_ptr<KvPool> pool_;
};

TEST_F(EngineTest, GeneratesFromOtherThreads) {
  auto engine = MakeEngine();
  constexpr int kRequests = 8;
  std::vector<Heard> heard(kRequests);
  std::vector<std::promise<void>> ended(kRequests);
  std::vector<std::thread> clients;
  for (int i = 0; i < kRequests; ++i) {
    clients.emplace_back([&, i] {
      SequenceSink sink = heard[i].Sink();
      sink.on_token = [&, i, inner = sink.on_token](const TokenEvent& event) {
        inner(event);
        if (event.finish != FinishReason::kNone) ended[i].set_value();
      };
      ASSERT_TRUE(engine->TryPost([&, i, sink](EngineCore& core) {
        ASSERT_TRUE(core.ReserveLanding(i, MakeSpec(RandomTokens(30, i), 12), sink).ok());
        ASSERT_TRUE(core.PrefillLocally(i).ok());
      }));
    });
  }
  for (auto& client : clients) client.join();
  for (int i = 0; i < kRequests; ++i) {
    ended[i].get_future().wait();
    EXPECT_EQ(heard[i].tokens, RunAlone(MakeSpec(RandomTokens(30, i), 12)));
  }
  OnEngine(*engine, [](EngineCore& core) {
    core.CheckInvariants();
    EXPECT_EQ(core.stats().running, 0);
    EXPECT_EQ(core.stats().blocks.used, 0);
  });
}

TEST_F(EngineTest, TasksRunInOrderAndStatsFollow) {
  auto engine = MakeEngine();
  std::vector<int> order;
  for (int i = 0; i < 100; ++i) engine->Post([&order, i](EngineCore&) { order.push_back(i); });
  Heard heard;
  OnEngine(*engine, [&](EngineCore& core) {
    ASSERT_TRUE(core.ReserveLanding(1, MakeSpec(RandomTokens(30, 1), 5), heard.Sink()).ok());
  });
  for (int i = 0; i < 100; ++i) ASSERT_EQ(order[i], i);
  // Published after the turn in which it happened: a second turn has seen the end of the first.
  OnEngine(*engine, [](EngineCore&) {});
  EXPECT_EQ(engine->stats().landing, 1);
  OnEngine(*engine, [](EngineCore& core) { core.Cancel(1); });
  OnEngine(*engine, [](EngineCore&) {});
  EXPECT_EQ(engine->stats().landing, 0);
}

TEST_F(EngineTest, AFullInboxRefusesNewWorkButNotEnds) {
  auto engine = MakeEngine(2);
  std::promise<void> entered, leave;
  engine->Post([&](EngineCore&) {
    entered.set_value();
    leave.get_future().wait();
  });
  entered.get_future().wait();
  int ran = 0;
  EXPECT_TRUE(engine->TryPost([&](EngineCore&) { ++ran; }));
  EXPECT_TRUE(engine->TryPost([&](EngineCore&) { ++ran; }));
  EXPECT_FALSE(engine->TryPost([&](EngineCore&) { ran = -100; }));
  EXPECT_TRUE(engine->Post([&](EngineCore&) { ++ran; }));
  leave.set_value();
  OnEngine(*engine, [](EngineCore&) {});
  EXPECT_EQ(ran, 3);
}

TEST_F(EngineTest, TheHeartbeatGoesOnWhileIdle) {
  auto engine = MakeEngine();
  const uint64_t before = engine->heartbeat();
  while (engine->heartbeat() < before + 2) std::this_thread::yield();
}

TEST_F(EngineTest, StoppingDestroysWhatWasNotRun) {
  auto engine = MakeEngine();
  auto owned = std::make_shared<int>(1);
  std::promise<void> entered, leave;
  engine->Post([&](EngineCore&) {
    entered.set_value();
    leave.get_future().wait();
  });
  entered.get_future().wait();
  bool ran = false;
  engine->Post([owned, &ran](EngineCore&) { ran = true; });
  std::thread stopper([&] { engine.reset(); });
  // Closed before it waits for the thread: from then on nothing is accepted.
  leave.set_value();
  stopper.join();
  EXPECT_EQ(owned.use_count(), 1);
}

TEST_F(EngineTest, StopsInTheMiddleOfWork) {
  for (int i = 0; i < 5; ++i) {
    auto engine = MakeEngine();
    Heard heard;
    OnEngine(*engine, [&](EngineCore& core) {
      ASSERT_TRUE(core.ReserveLanding(1, MakeSpec(RandomTokens(300, 1), 100), heard.Sink()).ok());
      ASSERT_TRUE(core.PrefillLocally(1).ok());
    });
    engine.reset();
  }
}

}  // namespace
}  // namespace baton
