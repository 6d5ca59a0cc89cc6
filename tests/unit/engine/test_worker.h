// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_UNIT_ENGINE_TEST_WORKER_H_
#define BATON_TESTS_UNIT_ENGINE_TEST_WORKER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/base/clock.h"
#include "common/engine/engine_core.h"
#include "common/kv/kv_pool.h"
#include "common/model/model.h"

namespace baton::testing {

// A seeded random model whose text depends on all of its context, packed once for all tests of a program.
const Model& RandomModel();     // On the reference backend.
const Model& RandomCpuModel();  // Quantised, on the backend that serves, with two threads.

inline constexpr int kBlockSize = 16;

// What the owner of a sequence heard.
struct Heard {
  std::map<int, std::vector<int32_t>> tokens;  // By choice.
  std::map<int, FinishReason> finish;
  std::vector<TokenEvent> events;
  std::vector<PrefillProgress> progress;
  int num_prefilled = 0;
  std::optional<absl::Status> failed;

  SequenceSink Sink();
  bool Ended(int num_choices) const;
};

// One core over a pool of its own.
class TestWorker {
 public:
  TestWorker(int num_blocks, const EngineOptions& options, const Model& model = RandomModel(), KvDtype kv_dtype = KvDtype::kF32);

  EngineCore& core() { return *core_; }
  KvPool& pool() { return *pool_; }
  ManualClock& clock() { return clock_; }

  // Submits with local prefill.
  absl::Status Generate(SequenceId id, SequenceSpec spec, Heard* heard);
  // Steps until idle, checking the invariants after each. Aborts the test when that does not end.
  void RunUntilIdle(const std::function<void()>& between_units = [] {});
  // free + cached == total: nobody holds anything.
  bool AtBaseline() const;

 private:
  ManualClock clock_;
  std::unique_ptr<KvPool> pool_;
  std::unique_ptr<EngineCore> core_;
};

SequenceSpec MakeSpec(std::vector<int32_t> prompt, int max_tokens, SamplingParams sampling = {.temperature = 0});
// `n` ids that depend on the seed, none of them special.
std::vector<int32_t> RandomTokens(int n, uint64_t seed);

// The ids of each choice when the request has a worker for itself.
std::map<int, std::vector<int32_t>> RunAlone(const SequenceSpec& spec, const Model& model = RandomModel());

// Runs the prompt on the prefill worker, copies what the landing lacks, and lands it: a transfer without a wire.
// Both workers go on with whatever else they have meanwhile.
absl::Status Disaggregate(TestWorker& prefill, TestWorker& decode, SequenceId id, const SequenceSpec& spec, Heard* heard);

}  // namespace baton::testing

#endif  // BATON_TESTS_UNIT_ENGINE_TEST_WORKER_H_
