// SPDX-License-Identifier: Apache-2.0
// Random schedules of everything a worker can be asked for. Whoever is left alone gets the ids of a worker of its own;
// afterwards every gauge is back.
#include <random>
#include <set>

#include "common/engine/engine_core.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/engine/test_worker.h"

namespace baton {
namespace {

using ::baton::testing::Heard;
using ::baton::testing::kBlockSize;
using ::baton::testing::MakeSpec;
using ::baton::testing::RandomCpuModel;
using ::baton::testing::RandomTokens;
using ::baton::testing::RunAlone;
using ::baton::testing::TestWorker;

struct Known {
  SequenceSpec spec;
  std::map<int, std::vector<int32_t>> ids;
};

// A few requests, some of which share prefixes, and their ids.
const std::vector<Known>& KnownRequests() {
  static const std::vector<Known>* const known = [] {
    auto* all = new std::vector<Known>();
    for (int i = 0; i < 12; ++i) {
      auto prompt = RandomTokens(i % 3 * 20, 1);
      const auto tail = RandomTokens(1 + (i * 13) % 40, 50 + i);
      prompt.insert(prompt.end(), tail.begin(), tail.end());
      SamplingParams sampling = {.temperature = i % 2 * 0.9, .seed = static_cast<uint64_t>(i)};
      if (i % 4 == 3) sampling.repetition_penalty = 1.2;
      SequenceSpec spec = MakeSpec(prompt, 4 + (i * 5) % 60, sampling);
      if (i % 5 == 4) spec.num_choices = 3;
      spec.priority = i % 3 == 0;
      all->push_back({spec, RunAlone(spec, RandomCpuModel())});
    }
    return all;
  }();
  return *known;
}

class Schedule {
 public:
  explicit Schedule(uint64_t seed) : rng_(seed), worker_(Blocks(), Options(), RandomCpuModel()) {}

  void Run() {
    const auto pause = [this] {
      if (Chance(5)) Act();
    };
    for (int i = 0; i < 300 && !::testing::Test::HasFailure(); ++i) {
      if (Chance(3)) Act();
      worker_.core().Step(pause);
      worker_.core().CheckInvariants();
      worker_.clock().Advance(absl::Milliseconds(rng_() % 2000));
    }
    // Everything that still waits for somebody gets it.
    for (auto& call : calls_) {
      if (call->landing.has_value()) worker_.core().Cancel(call->id);
    }
    finishing_ = true;
    ReleaseSome();
    worker_.RunUntilIdle();
    for (auto& call : calls_) {
      if (call->cancelled || call->landing.has_value()) continue;
      if (call->prefill_role) {
        EXPECT_EQ(call->heard.num_prefilled, 1);
      } else {
        EXPECT_EQ(call->heard.tokens, call->known->ids) << "call " << call->id;
      }
    }
    worker_.core().CheckInvariants();
    EXPECT_TRUE(worker_.AtBaseline());
    worker_.core().ClearPrefixCache();
    EXPECT_EQ(worker_.core().stats().blocks.free, worker_.core().stats().blocks.total);
  }

 private:
  struct Call {
    SequenceId id;
    const Known* known;
    Heard heard;
    bool cancelled = false, prefill_role = false;
    std::optional<Landing> landing;
  };

  bool Chance(int one_in) { return rng_() % one_in == 0; }
  int Blocks() { return 14 + static_cast<int>(rng_() % 20); }
  EngineOptions Options() {
    return {.max_step_rows = 1 + static_cast<int>(rng_() % 70),
            .max_running = 1 + static_cast<int>(rng_() % 8),
            .panel_rows = 1 + static_cast<int>(rng_() % 20),
            .enable_prefix_cache = !Chance(4),
            .decode_first = Chance(2),
            .sharing = {.prefill_share = Chance(2) ? 0.5 : 0.0,
                        .itl_target = Chance(3) ? absl::Milliseconds(2) : absl::ZeroDuration()},
            .shortest_remaining_first = Chance(2)};
  }

  void Act() {
    switch (rng_() % 6) {
      case 0:
      case 1:
        return Submit();
      case 2:
        return Settle();
      case 3:
        return CancelOne();
      case 4:
        return AddPrefill();
      case 5:
        if (Chance(10)) worker_.core().ClearPrefixCache();
        return ReleaseSome();
    }
  }

  std::unique_ptr<Call> NewCall() {
    auto call = std::make_unique<Call>();
    call->id = next_id_++;
    call->known = &KnownRequests()[rng_() % KnownRequests().size()];
    return call;
  }

  void Submit() {
    auto call = NewCall();
    auto landing = worker_.core().ReserveLanding(call->id, call->known->spec, call->heard.Sink());
    if (!landing.ok()) {
      EXPECT_TRUE(absl::IsResourceExhausted(landing.status())) << landing.status();
      return;
    }
    call->landing = *landing;
    calls_.push_back(std::move(call));
  }

  // A landing gets its KV, or computes it here, with or without new blocks.
  void Settle() {
    for (auto& call : calls_) {
      if (!call->landing.has_value() || call->cancelled || Chance(2)) continue;
      std::vector<BlockId> replaced;
      if (Chance(3)) {
        auto landing = worker_.core().ReplaceLandingBlocks(call->id, &replaced);
        if (landing.ok()) call->landing = *landing;
        quarantined_.insert(quarantined_.end(), replaced.begin(), replaced.end());
      }
      if (Chance(2)) {
        CopyKv(*call);
        worker_.core().Landed(call->id);
      } else {
        EXPECT_TRUE(worker_.core().PrefillLocally(call->id).ok());
      }
      call->landing.reset();
      return;
    }
  }

  // What a transfer would bring.
  void CopyKv(const Call& call) {
    TestWorker source(16, {.max_running = 0}, RandomCpuModel());
    Heard heard;
    EXPECT_TRUE(source.core().AddPrefill(1, call.known->spec, 0, heard.Sink()).ok());
    source.RunUntilIdle();
    const auto from = source.core().BlocksOf(1);
    std::vector<uint8_t> cell(worker_.pool().layout().token_layer_bytes());
    for (int layer = 0; layer < worker_.pool().layout().num_layers; ++layer) {
      for (int t = call.landing->num_cached_tokens; t < call.landing->num_tokens; ++t) {
        source.pool().ReadTokens(layer, from[t / kBlockSize], t % kBlockSize, 1, cell);
        worker_.pool().WriteTokens(layer, call.landing->blocks[t / kBlockSize], t % kBlockSize, 1, cell);
      }
    }
  }

  void CancelOne() {
    if (calls_.empty()) return;
    Call& call = *calls_[rng_() % calls_.size()];
    if (call.heard.Ended(call.known->spec.num_choices)) return worker_.core().Cancel(call.id);
    if (call.prefill_role && call.heard.num_prefilled > 0) return worker_.core().Finish(call.id);
    call.cancelled = true;
    call.landing.reset();
    if (Chance(2)) {
      const auto blocks = worker_.core().CancelQuarantined(call.id);
      quarantined_.insert(quarantined_.end(), blocks.begin(), blocks.end());
    } else {
      worker_.core().Cancel(call.id);
    }
  }

  void AddPrefill() {
    auto call = NewCall();
    call->prefill_role = true;
    const int n = static_cast<int>(call->known->spec.tokens.size()) - 1;
    const int first_token = static_cast<int>(rng_() % (n + 1));
    SequenceSink sink = call->heard.Sink();
    Heard* heard = &call->heard;
    const SequenceId id = call->id;
    // Owners are done with the blocks soon after, or the pool fills up.
    sink.on_prefilled = [this, heard, id](absl::Status) {
      ++heard->num_prefilled;
      if (finishing_ || Chance(2)) worker_.core().Finish(id);
    };
    if (worker_.core().AddPrefill(id, call->known->spec, first_token, std::move(sink)).ok()) {
      calls_.push_back(std::move(call));
    }
  }

  void ReleaseSome() {
    worker_.core().ReleaseQuarantined(quarantined_);
    quarantined_.clear();
    for (auto& call : calls_) {
      if (call->prefill_role && call->heard.num_prefilled > 0) worker_.core().Finish(call->id);
    }
  }

  std::mt19937_64 rng_;
  TestWorker worker_;
  SequenceId next_id_ = 1;
  bool finishing_ = false;  // Nobody holds anything any longer than needed.
  std::vector<std::unique_ptr<Call>> calls_;
  std::vector<BlockId> quarantined_;
};

TEST(EngineRandom, SchedulesLeaveNothingBehindAndChangeNoId) {
  for (uint64_t seed = 1; seed <= 100 && !HasFailure(); ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Schedule(seed).Run();
  }
}

}  // namespace
}  // namespace baton
