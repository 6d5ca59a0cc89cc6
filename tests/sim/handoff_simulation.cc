// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/handoff_simulation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace baton::testing {
namespace {

constexpr int kDecodeBlocks = 16;
constexpr int kMaxRequests = 8;
constexpr int kMaxAttempts = 3;  // Then locally.
constexpr int kTroubledSteps = 160;
constexpr int kSettleSteps = 20000;
constexpr absl::Duration kRouterTimeout = absl::Seconds(30);

}  // namespace

HandoffSimulation::HandoffSimulation(uint64_t seed, Fault fault)
    : world_(seed, fault),
      decode_(std::make_unique<SimDecode>(&world_, next_incarnation_++, MakeSimPool(kDecodeBlocks))),
      to_prefill_(2) {
  for (int worker = 0; worker < 2; ++worker) prefills_.push_back(NewPrefill(worker));
}

HandoffSimulation::~HandoffSimulation() = default;

std::unique_ptr<SimPrefill> HandoffSimulation::NewPrefill(int worker) {
  const TransportKind kind = world_.Pick(4) == 0 || worker == 1 ? TransportKind::kTcp : TransportKind::kShm;
  return std::make_unique<SimPrefill>(&world_, this, absl::StrCat("p-", worker + 1), next_incarnation_++, kind,
                                      [this](const TransferId& transfer, int attempt, const absl::Status& status) {
                                        from_prefill_.push_back({transfer, attempt, status});
                                      });
}

// ---- The router.

void HandoffSimulation::Submit() {
  if (requests_.size() >= kMaxRequests) return;
  Request request{.id = {1, next_stream_++}, .decode_incarnation = decode_->incarnation(), .last_news = world_.clock.Now()};
  const int length = 1 + world_.Pick(64), shared = world_.Pick(4) * 16 + world_.Pick(3) - 1;
  for (int i = 0; i < length; ++i) {
    request.tokens.push_back(i < shared ? i : static_cast<int32_t>(1000 * request.id.stream) + i);
  }
  decode_->Start(request.id, request.tokens);
  requests_.emplace(request.id, std::move(request));
}

HandoffSimulation::Request* HandoffSimulation::Some(bool landing_only) {
  std::vector<Request*> some;
  for (auto& [id, request] : requests_) {
    if (!request.over && !request.stopping && !(landing_only && request.landed)) some.push_back(&request);
  }
  return some.empty() ? nullptr : some[static_cast<size_t>(world_.Pick(static_cast<int>(some.size())))];
}

bool HandoffSimulation::TakeFromDecode() {
  if (decode_->to_router.empty()) return false;
  const SimDecode::Event event = decode_->to_router.front();
  decode_->to_router.pop_front();
  const auto it = requests_.find(event.transfer);
  if (it == requests_.end() || it->second.over) {
    world_.Violate(absl::StrCat("a message for ", event.transfer.ToString(), " after its last"));
  } else {
    it->second.last_news = world_.clock.Now();
    OnEvent(it->second, event);
  }
  return true;
}

void HandoffSimulation::OnEvent(Request& request, const SimDecode::Event& event) {
  using Kind = SimDecode::Event::Kind;
  switch (event.kind) {
    case Kind::kLanding:
      if (event.attempt == request.attempt && !request.landed && !request.stopping) SendPrefill(request, event);
      return;
    case Kind::kLanded:
      // That of an older attempt counts ("no-already-landed").
      if (world_.fault == Fault::kNoAlreadyLanded && event.attempt != request.attempt) return;
      request.landed = true;
      return CancelCalls(request);
    case Kind::kFailed:
      if (event.attempt == request.attempt && !request.landed && !request.stopping) NextAttempt(request);
      return;
    case Kind::kFinished:
      if (!request.landed) world_.Violate("a token came before Landed");
      ++num_finished_;
      return End(request);
    case Kind::kStopped:
      if (!request.stopping) world_.Violate("Stopped, which nobody asked for");
      return End(request);
    case Kind::kRefused:
      return End(request);
  }
}

void HandoffSimulation::SendPrefill(Request& request, const SimDecode::Event& landing) {
  const int worker = world_.Pick(2);
  SimPrefill::Prefill prefill{request.id, request.attempt, request.tokens, landing.first_missing, request.decode_incarnation, landing.token};
  request.calls.push_back({worker, request.attempt, prefill});
  DeliverLater(request.calls.back());
}

void HandoffSimulation::DeliverLater(const Call& call) {
  to_prefill_[static_cast<size_t>(call.worker)].push_back([this, prefill = call.prefill](SimPrefill& p) {
    for (Call& delivered : requests_.at(prefill.transfer).calls) {
      if (delivered.attempt == prefill.attempt) delivered.delivered = true;
    }
    p.Start(prefill);
  });
}

void HandoffSimulation::NextAttempt(Request& request) {
  CancelCalls(request);
  ++request.attempt;
  request.last_news = world_.clock.Now();
  if (request.attempt > kMaxAttempts) {
    decode_->PrefillLocally(request.id, request.attempt);
  } else {
    decode_->Attempt(request.id, request.attempt);
  }
}

void HandoffSimulation::CancelCalls(Request& request) {
  for (const Call& call : request.calls) {
    if (!call.open) continue;
    to_prefill_[static_cast<size_t>(call.worker)].push_back(
        [id = request.id, attempt = call.attempt](SimPrefill& p) { p.Cancel(id, attempt); });
  }
}

void HandoffSimulation::End(Request& request) {
  request.over = true;
  CancelCalls(request);
}

bool HandoffSimulation::TakeFromPrefill() {
  if (from_prefill_.empty()) return false;
  const Answer answer = from_prefill_.front();
  from_prefill_.pop_front();
  Request& request = requests_.at(answer.transfer);
  for (Call& call : request.calls) {
    if (call.attempt == answer.attempt) call.open = false;
  }
  if (answer.status.ok() || request.over || request.stopping || request.landed || answer.attempt != request.attempt) return true;
  NextAttempt(request);
  return true;
}

bool HandoffSimulation::DeliverToPrefill() {
  const int first = world_.Pick(2);
  for (const int worker : {first, 1 - first}) {
    auto& queue = to_prefill_[static_cast<size_t>(worker)];
    if (queue.empty()) continue;
    const auto message = std::move(queue.front());
    queue.pop_front();
    message(*prefills_[static_cast<size_t>(worker)]);
    return true;
  }
  return false;
}

// ---- Trouble.

void HandoffSimulation::CrashPrefill() {
  const int worker = world_.Pick(2);
  auto& slot = prefills_[static_cast<size_t>(worker)];
  world_.Note(absl::StrCat(slot->peer().worker, "/", slot->peer().incarnation, " crashes"));
  ended_processes_.push_back(slot->peer());
  slot = nullptr;
  slot = NewPrefill(worker);
  for (auto& [id, request] : requests_) {
    for (Call& call : request.calls) {
      if (!call.open || call.worker != worker || !std::exchange(call.delivered, false)) continue;
      if (world_.Pick(2) == 0) {
        DeliverLater(call);  // gRPC takes it for unprocessed and sends it to the process that is there now.
      } else {
        from_prefill_.push_back({id, call.attempt, absl::UnavailableError("the prefill worker went away")});
      }
    }
  }
}

void HandoffSimulation::CrashDecode() {
  world_.Note("decode crashes");
  // Its links' ends find out sooner or later; what is mapped stays mapped.
  for (const auto& connection : decode_->connections()) connection->cut = true;
  auto pool = decode_->pool();
  if (world_.fault != Fault::kPoolSurvivesRestart) pool = MakeSimPool(kDecodeBlocks);
  auto next = std::make_unique<SimDecode>(&world_, next_incarnation_++, std::move(pool));
  dead_decodes_.push_back(std::exchange(decode_, std::move(next)));
  ended_processes_.clear();
  for (auto& [id, request] : requests_) {
    if (!request.over) End(request);
  }
}

bool HandoffSimulation::EndProcess() {
  if (ended_processes_.empty()) return false;
  const PeerId peer = ended_processes_.front();
  // As StreamReceiver: the connection's thread reads it to its end, and then waits for the process.
  for (const auto& connection : decode_->connections()) {
    if (connection->peer == peer && !connection->ended) return false;
  }
  ended_processes_.pop_front();
  world_.Note(absl::StrCat("decode learns that ", peer.worker, "/", peer.incarnation, " has ended"));
  if (TransportOf(peer.transport).one_sided) decode_->OnProcessEnded(peer);
  return true;
}

void HandoffSimulation::MakeTrouble() {
  switch (world_.Pick(18)) {
    case 0:
    case 1:
    case 2:
    case 3:
    case 4:
    case 5:
      return Submit();
    case 6:
    case 7:
    case 8:
      if (Request* request = Some(/*landing_only=*/false)) {
        request->stopping = true;
        CancelCalls(*request);
        decode_->Stop(request->id);
      }
      return;
    case 9:
    case 10:
    case 11:
      if (Request* request = Some(/*landing_only=*/world_.Pick(3) > 0)) NextAttempt(*request);
      return;
    case 12:
      return CrashPrefill();
    case 13:
      if (world_.Pick(3) == 0) CrashDecode();
      return;
    case 14:
    case 15:
      return prefills_[static_cast<size_t>(world_.Pick(2))]->CutLink();
    default:
      world_.clock.Advance(absl::Seconds(1 + world_.Pick(8)));
      decode_->CheckTimeouts();
  }
}

// ---- Time passes.

void HandoffSimulation::Interleave() {
  for (int i = world_.Pick(4); i >= 0; --i) {
    if (world_.Pick(2) == 0) {
      decode_->Deliver();
    } else {
      decode_->TakeFromInbox();
    }
  }
}

// One of everything that can happen by itself, in a random order: whether any of it did.
bool HandoffSimulation::Step() {
  const int first = world_.Pick(10);
  for (int i = 0; i < 10; ++i) {
    SimPrefill& prefill = *prefills_[static_cast<size_t>(world_.Pick(2))];
    bool moved = false;
    switch ((first + i) % 10) {
      case 0: moved = TakeFromDecode(); break;
      case 1: moved = TakeFromPrefill(); break;
      case 2: moved = DeliverToPrefill(); break;
      case 3: moved = EndProcess(); break;
      case 4: moved = decode_->Deliver(); break;
      case 5: moved = decode_->TakeFromInbox(); break;
      case 6: moved = world_.Pick(2) == 0 && decode_->Compute(); break;
      case 7: moved = prefill.StepSender(); break;
      case 8: moved = prefill.TakeAnswer(); break;
      case 9: moved = prefill.Compute(); break;
    }
    if (moved) return true;
  }
  return false;
}

std::string HandoffSimulation::Gauges() const {
  std::string held = decode_->Gauges();
  for (const auto& prefill : prefills_) held += prefill->Gauges();
  for (const auto& [id, request] : requests_) {
    if (!request.over) absl::StrAppend(&held, " request ", id.ToString(), " never ended;");
  }
  return held;
}

std::string HandoffSimulation::Settle() {
  world_.trouble = false;
  int idle = 0;
  for (int step = 0; step < kSettleSteps && world_.violation().empty(); ++step) {
    if (Step()) {
      idle = 0;
      continue;
    }
    if (++idle < 20) continue;  // Chance may have left something out.
    idle = 0;
    if (Gauges().empty()) return "";
    world_.clock.Advance(absl::Seconds(2));
    decode_->CheckTimeouts();
    for (auto& [id, request] : requests_) {
      if (!request.over && !request.landed && !request.stopping && world_.clock.Now() - request.last_news > kRouterTimeout) {
        NextAttempt(request);
      }
    }
  }
  return absl::StrCat("not at baseline:", Gauges());
}

std::string HandoffSimulation::Run() {
  Submit();
  for (int step = 0; step < kTroubledSteps && world_.violation().empty(); ++step) {
    if (world_.Pick(7) == 0) {
      MakeTrouble();
    } else {
      Step();
    }
  }
  const std::string left = Settle();
  return world_.violation().empty() ? left : world_.violation();
}

}  // namespace baton::testing
