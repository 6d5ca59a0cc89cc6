// SPDX-License-Identifier: Apache-2.0
// What decode_worker/decode_call_service does: carries out what the handoff decides.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/sim_decode.h"

namespace baton::testing {

using Kind = DecodeHandoff::Action::Kind;

namespace {

const char* ActionName(Kind kind) {
  switch (kind) {
    case Kind::kSendLanding: return "send Landing";
    case Kind::kSendLanded: return "send Landed";
    case Kind::kSendFailed: return "send Failed";
    case Kind::kSendStopped: return "send Stopped";
    case Kind::kSendRefused: return "send Refused";
    case Kind::kGrant: return "grant";
    case Kind::kDeny: return "deny";
    case Kind::kAbort: return "abort";
    case Kind::kOpenZone: return "open zone";
    case Kind::kReplaceBlocks: return "replace blocks";
    case Kind::kPrefillLocally: return "prefill locally";
    case Kind::kRun: return "run";
    case Kind::kCancel: return "cancel";
    case Kind::kCancelQuarantined: return "cancel, quarantined";
    case Kind::kReleaseQuarantine: return "release quarantine";
  }
  return "?";
}

}  // namespace

SimDecode::Call* SimDecode::Find(const TransferId& transfer) {
  const auto it = calls_.find(transfer);
  return it == calls_.end() ? nullptr : it->second.get();
}

void SimDecode::Start(const TransferId& transfer, const std::vector<int32_t>& tokens) {
  Post([=, this] {
    auto call = std::make_unique<Call>();
    call->transfer = transfer;
    call->tokens = tokens;
    call->num_tokens = static_cast<int>(tokens.size()) - 1;
    call->chain = TokenChain(tokens);
    call->hashes = std::make_unique<PrefixChain>(CacheKey{}, allocator_.block_size());
    call->steps_left = 1 + world_->Pick(4);
    call->blocks = allocator_.MatchPrefix(call->hashes.get(), tokens, call->num_tokens);
    call->num_cached = static_cast<int>(call->blocks.size()) * allocator_.block_size();
    const int wanted = (static_cast<int>(tokens.size()) + allocator_.block_size() - 1) / allocator_.block_size();
    const auto fresh = allocator_.Allocate(wanted - static_cast<int>(call->blocks.size()));
    if (!fresh.ok()) {
      allocator_.UnrefAll(call->blocks);
      to_router.push_back({Event::Kind::kRefused, transfer});
      return;
    }
    call->blocks.insert(call->blocks.end(), fresh->begin(), fresh->end());
    Call& started = *call;
    calls_[transfer] = std::move(call);
    Execute(started, started.handoff.Start(started.num_cached == started.num_tokens, world_->Pick(20) == 0));
  });
}

void SimDecode::NewAttempt(const TransferId& transfer, int attempt, bool local) {
  Call* call = Find(transfer);
  if (call == nullptr || call->over) return;
  if (call->handoff.state() == DecodeHandoff::State::kReady) {
    if (world_->fault == Fault::kNoAlreadyLanded) return;
    if (world_->fault == Fault::kRestartAfterLanded && !local) {
      OpenZone(*call, attempt);
      Say(Event::Kind::kLanding, *call, attempt);
      return;
    }
  }
  const bool newer = call->handoff.state() == DecodeHandoff::State::kLanding && attempt > call->handoff.attempt();
  const bool pinned = newer && CloseZone(*call);
  Execute(*call, local ? call->handoff.OnPrefillLocally(attempt, pinned) : call->handoff.OnAttempt(attempt, pinned));
}

// ---- The link.

void SimDecode::OnOpen(const TransferId& transfer, int attempt, const PeerId& peer) {
  Call* call = Find(transfer);
  if (call == nullptr) {
    return Answer(peer, [=](const KvLink::Events& events) {
      events.on_deny(transfer, attempt, absl::AbortedError("the transfer has ended"));
    });
  }
  const int cap = std::max(1, pool_->num_blocks() / 8);
  const bool may = TransportOf(peer.transport).one_sided && QuarantinedFor(peer) < cap;
  PeerId writer = peer;
  if (world_->fault == Fault::kWriterByAddress) writer.incarnation = first_of_worker_.at(peer.worker).incarnation;
  DecodeHandoff::Actions actions = call->handoff.OnOpen(attempt, writer, may);
  for (auto& action : actions) action.writer = peer;  // Who asked is answered.
  Execute(*call, actions);
}

void SimDecode::OnManifest(const TransferId& transfer, int attempt, const PeerId& peer, absl::Status verified) {
  Call* call = Find(transfer);
  if (call == nullptr) return;
  if (world_->fault == Fault::kNoVerify && absl::IsDataLoss(verified)) verified = absl::OkStatus();
  if (call->handoff.state() == DecodeHandoff::State::kLanding && attempt == call->handoff.attempt()) CloseZone(*call);
  Execute(*call, call->handoff.OnManifest(attempt, peer, verified));
}

void SimDecode::OnAborted(const TransferId& transfer, int attempt, const PeerId& peer) {
  Call* call = Find(transfer);
  if (call == nullptr || world_->fault == Fault::kAckIgnored) return;
  if (world_->fault == Fault::kDoubleFree && call->handoff.state() == DecodeHandoff::State::kLanding) {
    for (const BlockId block : OwnBlocks(*call)) Unref(block);
  }
  Execute(*call, call->handoff.OnWriterGone(peer, attempt));
}

// ---- Actions.

bool SimDecode::CloseZone(Call& call) {
  if (call.zone != nullptr) {
    directory_.Remove(call.transfer);
    call.pinned = std::exchange(call.zone, nullptr)->Close();
  }
  return call.pinned && world_->fault != Fault::kUnpinnedApply;
}

void SimDecode::Execute(Call& call, const DecodeHandoff::Actions& actions) {
  const bool ended = call.handoff.state() == DecodeHandoff::State::kEnded;
  for (const DecodeHandoff::Action& action : actions) {
    // As in DecodeCall: an action may have ended the call, and the rest is void then.
    if (!ended && call.handoff.state() == DecodeHandoff::State::kEnded) break;
    Do(call, action);
  }
}

void SimDecode::Do(Call& call, const DecodeHandoff::Action& action) {
  const TransferId transfer = call.transfer;
  world_->Note(absl::StrCat("  decode ", transfer.stream, ": ", ActionName(action.kind), " ", action.attempt, " ",
                            action.writer.worker, action.one_sided ? " one-sided" : "", " ", action.status.message()));
  switch (action.kind) {
    case Kind::kSendLanding:
      return Say(Event::Kind::kLanding, call, action.attempt);
    case Kind::kSendLanded:
      return Say(Event::Kind::kLanded, call, action.attempt);
    case Kind::kSendFailed:
      return Say(Event::Kind::kFailed, call, action.attempt);
    case Kind::kSendStopped:
      if (world_->fault != Fault::kStopUnanswered) SayLast(Event::Kind::kStopped, call);
      return;
    case Kind::kSendRefused:
      return SayLast(Event::Kind::kRefused, call);
    case Kind::kGrant:
      return Grant(call, action);
    case Kind::kDeny:
      return Answer(action.writer, [transfer, action](const KvLink::Events& events) {
        events.on_deny(transfer, action.attempt, action.status);
      });
    case Kind::kAbort:
      return Answer(action.writer, [transfer, action](const KvLink::Events& events) { events.on_abort(transfer, action.attempt); });
    case Kind::kOpenZone:
      return OpenZone(call, action.attempt);
    case Kind::kReplaceBlocks:
      if (world_->fault != Fault::kReuseWithoutAck) ReplaceBlocks(call, action.attempt, action.writer);
      return;
    case Kind::kPrefillLocally:
      Unlend(OwnBlocks(call));
      call.computing = true;
      return;
    case Kind::kRun:
      return Run(call);
    case Kind::kCancel:
      return Free(call);
    case Kind::kCancelQuarantined:
      if (world_->fault == Fault::kFreeOnCancel) return Free(call);
      Quarantine(call, action.attempt, action.writer);
      return Free(call);
    case Kind::kReleaseQuarantine:
      return ReleaseQuarantine(call, action.attempt);
  }
}

void SimDecode::OpenZone(Call& call, int attempt) {
  LandingZoneOptions options;
  options.transfer = call.transfer;
  options.attempt = attempt;
  options.blocks = call.blocks;
  options.first_token = call.num_cached;
  options.num_tokens = call.num_tokens;
  options.token_hash = call.chain[static_cast<size_t>(call.num_tokens)];
  options.compatibility = core_shm_.options().compatibility;
  options.token = WriteToken::Draw();
  const TransferId transfer = call.transfer;
  call.zone = std::make_shared<LandingZone>(options, pool_.get(), &world_->clock, [this, transfer, attempt] {
    Post([=, this] {
      Call* pinned = Find(transfer);
      if (pinned == nullptr) return;
      if (attempt == pinned->handoff.attempt()) pinned->pinned = false;
      Execute(*pinned, pinned->handoff.OnUnpinned(attempt));
    });
  });
  directory_.Put(call.zone);
  call.pinned = false;
  call.opened_at = world_->clock.Now();
  for (const BlockId block : OwnBlocks(call)) lent_[block] = {call.transfer, attempt};
  landings_[{call.transfer, attempt}] = call.blocks;
}

void SimDecode::Grant(Call& call, const DecodeHandoff::Action& action) {
  LinkGrant grant{.one_sided = action.one_sided};
  if (action.one_sided) {
    grant.blocks = call.blocks;
    std::fill_n(grant.blocks.begin(), call.num_cached / allocator_.block_size(), -1);
  }
  const TransferId transfer = call.transfer;
  const int attempt = action.attempt;
  Answer(action.writer, [=](const KvLink::Events& events) { events.on_grant(transfer, attempt, grant); });
}

std::vector<BlockId> SimDecode::OwnBlocks(const Call& call) const {
  const ptrdiff_t cached = call.num_cached / allocator_.block_size();
  if (static_cast<ptrdiff_t>(call.blocks.size()) <= cached) return {};
  return {call.blocks.begin() + cached, call.blocks.end()};
}

int SimDecode::QuarantinedFor(const PeerId& peer) const {
  int count = 0;
  for (const auto& [id, call] : calls_) {
    for (const auto& [attempt, writer] : call->quarantined_for) {
      if (writer == peer) count += static_cast<int>(call->quarantined.at(attempt).size());
    }
  }
  return count;
}

void SimDecode::Quarantine(Call& call, int attempt, const PeerId& writer) {
  const std::vector<BlockId> own = OwnBlocks(call);
  if (world_->fault == Fault::kCapByFreeing && !writer.worker.empty() && QuarantinedFor(writer) > 0) return;
  for (const BlockId block : own) allocator_.Quarantine(block);
  call.quarantined[attempt] = own;
  call.quarantined_for[attempt] = writer;
  call.blocks.resize(static_cast<size_t>(call.num_cached / allocator_.block_size()));
}

void SimDecode::ReplaceBlocks(Call& call, int attempt, const PeerId& writer) {
  const size_t wanted = OwnBlocks(call).size();
  const auto fresh = allocator_.Allocate(static_cast<int>(wanted));
  if (!fresh.ok() && world_->fault == Fault::kCreditIsPromise) return SayLast(Event::Kind::kLanding, call);
  Quarantine(call, attempt, writer);
  if (call.blocks.size() * static_cast<size_t>(allocator_.block_size()) > static_cast<size_t>(call.num_cached)) {
    for (const BlockId block : OwnBlocks(call)) Unref(block);  // Freed instead of quarantined.
    Unlend(OwnBlocks(call));
    call.blocks.resize(static_cast<size_t>(call.num_cached / allocator_.block_size()));
  }
  if (!fresh.ok()) return Execute(call, call.handoff.OnNoBlocks(fresh.status()));
  call.blocks.insert(call.blocks.end(), fresh->begin(), fresh->end());
}

void SimDecode::ReleaseQuarantine(Call& call, int attempt) {
  const auto it = call.quarantined.find(attempt);
  if (it == call.quarantined.end() || world_->fault == Fault::kLostRelease) return;
  Unlend(it->second);
  for (const BlockId block : it->second) {
    Scribble(pool_.get(), block);
    allocator_.ReleaseQuarantined(block);
  }
  call.quarantined.erase(it);
  call.quarantined_for.erase(attempt);
}

void SimDecode::CheckBytes(const Call& call) {
  std::string where;
  if (!HoldsTokens(*pool_, call.blocks, call.chain, call.num_tokens, &where)) {
    world_->Violate(absl::StrCat("transfer ", call.transfer.ToString(), " runs on wrong bytes at ", where));
  }
}

void SimDecode::Run(Call& call) {
  if (call.over) return;
  Unlend(OwnBlocks(call));
  call.running = true;
  CheckBytes(call);
  InsertPrefix(call);
}

void SimDecode::InsertPrefix(Call& call) {
  for (const BlockId block : call.blocks) {
    if (allocator_.ref_count(block) < 1) return world_->Violate(absl::StrCat("block ", block, " is cached though it is free"));
  }
  allocator_.InsertPrefix(call.hashes.get(), std::span(call.tokens).first(static_cast<size_t>(call.num_tokens)), call.blocks);
}

void SimDecode::Finish(Call& call) {
  call.handoff.OnFinished();
  Free(call);
  SayLast(Event::Kind::kFinished, call);
}

void SimDecode::Free(Call& call) {
  if (world_->fault == Fault::kCacheUnverified && !call.running && !OwnBlocks(call).empty() &&
      !allocator_.quarantined(call.blocks.back())) {
    InsertPrefix(call);
  }
  Unlend(OwnBlocks(call));
  call.running = call.computing = false;
  while (!call.blocks.empty()) {
    const BlockId block = call.blocks.back();
    call.blocks.pop_back();
    Unref(block);
  }
}

void SimDecode::Unref(BlockId block) {
  if (allocator_.ref_count(block) < 1) return world_->Violate(absl::StrCat("block ", block, " is freed twice"));
  const bool cached = allocator_.prefix_cache().Contains(block);
  if (allocator_.ref_count(block) == 1 && !cached) Scribble(pool_.get(), block);
  allocator_.Unref(block);
}

void SimDecode::Unlend(std::span<const BlockId> blocks) {
  for (const BlockId block : blocks) lent_.erase(block);
}

void SimDecode::Say(Event::Kind kind, const Call& call, int attempt) {
  if (call.over) return;
  to_router.push_back({kind, call.transfer, attempt, call.num_cached});
  if (kind == Event::Kind::kLanding && call.zone != nullptr) to_router.back().token = call.zone->token();
}

void SimDecode::SayLast(Event::Kind kind, Call& call) {
  Say(kind, call, call.handoff.attempt());
  call.over = true;
}

void SimDecode::ForgetSettled() {
  std::erase_if(calls_, [](const auto& entry) { return entry.second->over && !entry.second->handoff.has_quarantine(); });
}

}  // namespace baton::testing
