// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_SIM_HANDOFF_SIMULATION_H_
#define BATON_TESTS_SIM_HANDOFF_SIMULATION_H_

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/sim/sim_decode.h"
#include "tests/sim/sim_prefill.h"
#include "tests/sim/sim_world.h"

namespace baton::testing {

// One schedule: a router, two prefill workers (one writes one-sided, one by frames that overtake each other) and a decode
// worker on a virtual clock; requests come and are cancelled, either side crashes and comes back, links break, timers fire,
// frames come late, twice and in another order. Afterwards nothing goes wrong any more, and everything must come to an end.
class HandoffSimulation final : public SimDirectory {
 public:
  HandoffSimulation(uint64_t seed, Fault fault);
  ~HandoffSimulation() override;

  // What went wrong; empty when nothing did.
  std::string Run();

  int num_finished() const { return num_finished_; }
  // Before Run: keep what happens.
  void StartTrace() { world_.tracing = true; }
  const std::string& trace() const { return world_.trace; }

  SimDecode* decode() override { return decode_.get(); }
  void Interleave() override;

 private:
  struct Call {
    int worker;
    int attempt;
    SimPrefill::Prefill prefill;
    bool open = true;
    bool delivered = false;  // To the process that is there now.
  };
  struct Request {
    TransferId id;
    std::vector<int32_t> tokens;
    uint64_t decode_incarnation;
    int attempt = 1;
    bool landed = false, stopping = false, over = false;
    MonotonicTime last_news;
    std::vector<Call> calls;
  };

  void Submit();
  bool TakeFromDecode();
  bool TakeFromPrefill();
  bool DeliverToPrefill();
  bool EndProcess();
  void OnEvent(Request& request, const SimDecode::Event& event);
  void SendPrefill(Request& request, const SimDecode::Event& landing);
  void DeliverLater(const Call& call);
  void NextAttempt(Request& request);
  void CancelCalls(Request& request);
  void End(Request& request);
  Request* Some(bool landing_only);
  void CrashPrefill();
  void CrashDecode();
  std::unique_ptr<SimPrefill> NewPrefill(int worker);

  bool Step();
  void MakeTrouble();
  std::string Settle();
  std::string Gauges() const;

  SimWorld world_;
  std::unique_ptr<SimDecode> decode_;
  std::vector<std::unique_ptr<SimPrefill>> prefills_;
  std::vector<std::deque<std::function<void(SimPrefill&)>>> to_prefill_;
  struct Answer {
    TransferId transfer;
    int attempt;
    absl::Status status;
  };
  std::deque<Answer> from_prefill_;
  std::deque<PeerId> ended_processes_;  // Which decode has not noticed yet.
  std::map<TransferId, Request> requests_;
  std::vector<std::unique_ptr<SimDecode>> dead_decodes_;
  uint64_t next_incarnation_ = 100, next_stream_ = 1;
  int num_finished_ = 0;
};

}  // namespace baton::testing

#endif  // BATON_TESTS_SIM_HANDOFF_SIMULATION_H_
