// SPDX-License-Identifier: Apache-2.0
// Many requests at once that share prefixes, in pools that hold one and a half of them: refusals, preemptions, evictions and prefix
// hits change no token.
#include <algorithm>
#include <atomic>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "common/base/mutex.h"
#include "gtest/gtest.h"
#include "tests/integration/worker_pair.h"
#include "tests/support/tiny_model.h"

namespace baton {
namespace {

using namespace ::baton::testing;

constexpr int kRequests = 64;
constexpr int kMaxTokens = 12;
constexpr int kLength = 100;                       // 7 blocks with what is generated.
constexpr int kPoolBlocks = 11;                    // One and a half of that.
constexpr int kMaxTries = 20000;                   // Refused when the other one is there: tried again.

class SharedPrefixTest : public ::testing::TestWithParam<TransportKind> {
 protected:
  void SetUp() override {
    TinyModelOptions model;
    model.num_layers = 2;
    path_ = WriteTempFile("shared_prefix_test.gguf", TinyModel(model).Build());
  }
  WorkerOptions Options(internal::WorkerRole role, int64_t kv_bytes) const {
    WorkerOptions options;
    options.role = role;
    options.model_path = path_;
    options.backend.num_threads = 1;
    options.kv_memory_bytes = kv_bytes;
    options.engine.max_step_rows = 32;
    options.engine.panel_rows = 16;
    options.transports = {GetParam()};
    options.pull_history = PullHistory::kAlways;
    return options;
  }

  // Four families; a prompt shares 0 to 96 tokens with its own.
  static std::vector<int32_t> Prompt(int i) {
    static constexpr int kShared[] = {0, 16, 31, 48, 65, 80, 96, 99};
    std::mt19937 family(static_cast<uint32_t>(i % 4)), own(static_cast<uint32_t>(1000 + i));
    std::vector<int32_t> tokens(kLength);
    for (int at = 0; at < kLength; ++at) {
      const uint32_t shared = family(), fresh = own();
      tokens[static_cast<size_t>(at)] = static_cast<int32_t>(3 + (at < kShared[i / 4 % 8] ? shared : fresh) % 256);
    }
    return tokens;
  }

  // What a router does, until it works.
  std::optional<std::vector<int32_t>> Serve(TestPrefillWorker& p, TestDecodeWorker& d, const std::vector<int32_t>& prompt) {
    for (int tries = 0; tries < kMaxTries; ++tries) {
      auto decode = OpenDecode(d.server->address());
      const auto start = MakeStart(*d.runtime, next_stream_.fetch_add(1), prompt, kMaxTokens, /*local=*/false);
      decode->Send(start);
      const auto first = decode->Next();
      if (!first.has_value()) return std::nullopt;
      if (first->has_refused()) {
        if (first->refused().code() != static_cast<int>(absl::StatusCode::kResourceExhausted)) return std::nullopt;
        num_refused_.fetch_add(1);
        MutexLock lock(&mutex_);
        ended_.WaitFor(&mutex_, absl::Milliseconds(20));  // Until there may be room, or not so long.
        continue;
      }
      std::unique_ptr<PrefillStream> prefill;
      if (first->has_landing()) {
        prefill = OpenPrefill(p.server->address());
        prefill->Send(MakePrefill(start, first->landing(), /*with_history=*/true));
        const auto done = PrefillResult(prefill.get(), decode.get(), first->landing().attempt());
        if (!done.has_value() || !done->has_done()) return std::nullopt;
      }
      const auto tokens = ReadTokens(decode.get());
      ended_.NotifyAll();
      return tokens;
    }
    return std::nullopt;
  }

  std::string path_;
  std::atomic<uint64_t> next_stream_{1};
  std::atomic<int> num_refused_{0};
  Mutex mutex_;
  CondVar ended_;
};

TEST_P(SharedPrefixTest, SixtyFourAtOnceInPoolsOfOneAndAHalf) {
  std::vector<std::optional<std::vector<int32_t>>> want(kRequests), got(kRequests);
  int64_t block_bytes;
  {
    TestDecodeWorker alone(Options(internal::DECODE, 8 << 20));
    block_bytes = static_cast<int64_t>(alone.runtime->pool()->layout().block_bytes());
    for (int i = 0; i < kRequests; ++i) {
      auto decode = OpenDecode(alone.server->address());
      decode->Send(MakeStart(*alone.runtime, static_cast<uint64_t>(i + 1), Prompt(i), kMaxTokens, /*local=*/true));
      want[static_cast<size_t>(i)] = ReadTokens(decode.get());
      ASSERT_TRUE(want[static_cast<size_t>(i)].has_value()) << i;
    }
  }
  TestPrefillWorker p(Options(internal::PREFILL, kPoolBlocks * block_bytes));
  TestDecodeWorker d(Options(internal::DECODE, kPoolBlocks * block_bytes));
  ASSERT_EQ(d.runtime->pool()->num_blocks(), kPoolBlocks);
  std::vector<std::thread> clients;
  for (int i = 0; i < kRequests; ++i) {
    clients.emplace_back([&, i] { got[static_cast<size_t>(i)] = Serve(p, d, Prompt(i)); });
  }
  for (std::thread& client : clients) client.join();
  for (int i = 0; i < kRequests; ++i) EXPECT_EQ(got[static_cast<size_t>(i)], want[static_cast<size_t>(i)]) << i;
  EXPECT_GT(num_refused_.load(), 0);
  EXPECT_GT(d.runtime->engine()->stats().prompt_tokens_cached, 0u);
  for (WorkerRuntime* runtime : {p.runtime.get(), d.runtime.get()}) {
    EXPECT_TRUE(Eventually([&] {
      const EngineStats stats = runtime->engine()->stats();
      return stats.blocks.free + stats.blocks.cached == stats.blocks.total && stats.running + stats.waiting + stats.landing == 0;
    }));
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, SharedPrefixTest,
                         ::testing::Values(TransportKind::kInproc, TransportKind::kShm, TransportKind::kTcp, TransportKind::kGrpc),
                         [](const auto& info) { return std::string(TransportName(info.param)); });

}  // namespace
}  // namespace baton
