// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/sim_decode.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace baton::testing {
namespace {

constexpr absl::Duration kTransferTimeout = absl::Seconds(10);
constexpr absl::Duration kLandingBackstop = absl::Seconds(60);

// Planted mistakes are such that tokens would hide some of them.
KvReceiverOptions ReceiverOptions(const SimWorld& world, uint64_t incarnation, KvPool* pool) {
  return {"d-1", incarnation, {"model", pool->layout().fingerprint(), ""}, pool, /*require_tokens=*/world.fault == Fault::kNone};
}

}  // namespace

using Message = SimConnection::Message;

SimDecode::SimDecode(SimWorld* world, uint64_t incarnation, std::shared_ptr<KvPool> pool)
    : world_(world),
      incarnation_(incarnation),
      pool_(std::move(pool)),
      allocator_(pool_->num_blocks(), pool_->layout().block_size, /*enable_prefix_cache=*/true),
      core_shm_(TransportKind::kShm, ReceiverOptions(*world, incarnation, pool_.get()), &directory_, Events(TransportKind::kShm)),
      core_tcp_(TransportKind::kTcp, ReceiverOptions(*world, incarnation, pool_.get()), &directory_, Events(TransportKind::kTcp)) {}

// ---- What other threads post.

KvReceiverEvents SimDecode::Events(TransportKind) {
  KvReceiverEvents events;
  events.on_open = [this](const TransferId& transfer, int attempt, const PeerId& peer) {
    Post([=, this] { OnOpen(transfer, attempt, peer); });
  };
  events.on_manifest = [this](const TransferId& transfer, int attempt, const PeerId& peer, const absl::Status& verified,
                              const LandingStats&) {
    Post([=, this] { OnManifest(transfer, attempt, peer, verified); });
  };
  events.on_aborted = [this](const TransferId& transfer, int attempt, const PeerId& peer) {
    Post([=, this] { OnAborted(transfer, attempt, peer); });
  };
  events.on_writer_gone = [this](const PeerId& peer) {
    Post([=, this] {
      for (auto& [id, call] : calls_) Execute(*call, call->handoff.OnWriterGone(peer, std::nullopt));
    });
  };
  events.on_link_closed = [this](const PeerId& peer) {
    Post([=, this] {
      for (auto& [id, call] : calls_) {
        Execute(*call, call->handoff.OnLinkClosed(peer));
        if (world_->fault == Fault::kClosedLinkIsGone) Execute(*call, call->handoff.OnWriterGone(peer, std::nullopt));
      }
    });
  };
  return events;
}

void SimDecode::Attempt(const TransferId& transfer, int attempt) {
  Post([=, this] { NewAttempt(transfer, attempt, /*local=*/false); });
}

void SimDecode::PrefillLocally(const TransferId& transfer, int attempt) {
  Post([=, this] { NewAttempt(transfer, attempt, /*local=*/true); });
}

void SimDecode::Stop(const TransferId& transfer) {
  world_->Note(absl::StrCat("router stops ", transfer.stream));
  Post([=, this] {
    if (Call* call = Find(transfer); call != nullptr && !call->over) Execute(*call, call->handoff.OnStop(CloseZone(*call)));
  });
}

bool SimDecode::TakeFromInbox() {
  if (inbox_.empty()) return false;
  const auto event = std::move(inbox_.front());
  inbox_.pop_front();
  event();
  ForgetSettled();
  allocator_.CheckInvariants();
  return true;
}

// ---- Connections.

absl::StatusOr<LinkHello> SimDecode::OnHello(const std::shared_ptr<SimConnection>& connection) {
  const PeerId peer = connection->peer;
  world_->Note(absl::StrCat("Hello of ", peer.worker, "/", peer.incarnation));
  first_of_worker_.emplace(peer.worker, peer);
  connections_.push_back(connection);
  const ReceiverCore& core = CoreOf(peer.transport);
  if (const auto older = std::exchange(links_[peer], connection)) {
    // As StreamReceiver: nothing of the older link is read once the newer one counts.
    older->cut = older->ended = true;
    older->to_decode.clear();
    if (const auto it = arrivals_.find(older.get()); it != arrivals_.end()) {
      it->second.arrival->Unpin(0);
      arrivals_.erase(it);
    }
    core.events().on_link_closed(peer);
  }
  if (TransportOf(peer.transport).one_sided) core.events().on_writer_gone(peer);
  return core.hello();
}

bool SimDecode::Deliver() {
  std::vector<std::shared_ptr<SimConnection>> ready;
  for (const auto& connection : connections_) {
    if (!connection->ended && (arrivals_.contains(connection.get()) || !connection->to_decode.empty() || connection->broken || connection->cut)) {
      ready.push_back(connection);
    }
  }
  if (ready.empty()) return false;
  SimConnection& connection = *ready[static_cast<size_t>(world_->Pick(static_cast<int>(ready.size())))];
  if (const auto it = arrivals_.find(&connection); it != arrivals_.end()) {
    Continue(it->second);
    arrivals_.erase(it);
    return true;
  }
  std::deque<Message>& queue = connection.to_decode;
  if (queue.empty()) {
    connection.ended = true;
    world_->Note(absl::StrCat("decode sees the end of ", connection.peer.worker, "/", connection.peer.incarnation));
    const auto it = links_.find(connection.peer);
    if (it != links_.end() && it->second.get() == &connection) {
      links_.erase(it);
      CoreOf(connection.peer.transport).events().on_link_closed(connection.peer);
    }
    return true;
  }
  size_t index = 0;
  if (!connection.in_order) {
    // Frames overtake each other and the rest; the rest keeps its order.
    index = static_cast<size_t>(world_->Pick(std::min<int>(6, static_cast<int>(queue.size()))));
    if (queue[index].kind != Message::Kind::kFrame) {
      index = static_cast<size_t>(std::find_if(queue.begin(), queue.end(), [](const Message& message) {
                                    return message.kind != Message::Kind::kFrame;
                                  }) - queue.begin());
    }
  }
  Message message = queue[index];
  if (message.kind != Message::Kind::kFrame || !world_->Trouble(60)) queue.erase(queue.begin() + static_cast<ptrdiff_t>(index));
  OnMessage(connection, std::move(message));
  return true;
}

void SimDecode::OnMessage(SimConnection& connection, Message message) {
  const ReceiverCore& core = CoreOf(connection.peer.transport);
  static const char* const kNames[] = {"Open", "Frame", "Placed", "Manifest", "Aborted"};
  world_->Note(absl::StrCat("decode reads ", kNames[static_cast<int>(message.kind)], " of ", message.transfer.stream, " attempt ",
                            message.attempt, " from ", connection.peer.worker, "/", connection.peer.incarnation));
  switch (message.kind) {
    case Message::Kind::kOpen:
      return OnOpenMessage(connection, core, message);
    case Message::Kind::kAborted:
      return core.OnAborted(connection.admissions, connection.peer, message.transfer, message.attempt);
    case Message::Kind::kManifest:
      return core.OnManifest(connection.admissions, connection.peer, message.transfer, message.attempt, message.manifest, connection.in_order);
    case Message::Kind::kPlaced:
      if (const auto zone = core.Find(connection.admissions, message.transfer, message.attempt); zone != nullptr) {
        core.OnFrameResult(connection.peer, message.transfer, zone->Accept(message.header));
      }
      return;
    case Message::Kind::kFrame:
      return OnFrame(connection, std::move(message));
  }
}

void SimDecode::OnOpenMessage(SimConnection& connection, const ReceiverCore& core, const Message& message) {
  const absl::Status status = core.OnOpen(connection.admissions, connection.peer, message.transfer, message.attempt, message.token);
  if (status.ok()) return;
  Answer(connection.peer, [transfer = message.transfer, attempt = message.attempt, status](const KvLink::Events& events) {
    events.on_deny(transfer, attempt, status);
  });
}

void SimDecode::OnFrame(SimConnection& connection, Message message) {
  const ReceiverCore& core = CoreOf(connection.peer.transport);
  auto zone = core.Find(connection.admissions, message.transfer, message.attempt);
  if (world_->fault == Fault::kNoFencing) {
    if (const Call* call = Find(message.transfer)) zone = call->zone;
  }
  if (zone == nullptr) return;
  auto arrival = zone->Receive(message.header, message.bytes.size());
  if (!arrival.ok()) return core.OnFrameResult(connection.peer, message.transfer, arrival.status());
  const std::span<const iovec> into = (*arrival)->Pin();
  if (into.empty()) return;
  Arrival parts{std::move(message), zone, *std::move(arrival), into, connection.peer};
  if (world_->Pick(2) == 0) return Continue(parts);
  arrivals_.emplace(&connection, std::move(parts));  // The rest of it comes later; meanwhile the zone is pinned.
}

void SimDecode::Continue(Arrival& parts) {
  const FrameHeader& header = parts.message.header;
  const int block_size = pool_->layout().block_size;
  for (int token = header.token_begin; token + block_size <= header.token_end; token += block_size) {
    CheckWrite(parts.zone->blocks()[static_cast<size_t>(token / block_size)], parts.message.transfer, parts.message.attempt);
  }
  size_t copied = 0;
  for (const iovec& vector : parts.into) {
    std::memcpy(vector.iov_base, parts.message.bytes.data() + copied, vector.iov_len);
    copied += vector.iov_len;
  }
  parts.arrival->Unpin(copied);
  CoreOf(parts.peer.transport).OnFrameResult(parts.peer, parts.message.transfer, parts.arrival->Commit());
}

void SimDecode::Answer(const PeerId& peer, SimConnection::Answer answer) {
  const auto it = links_.find(peer);
  if (it != links_.end() && !it->second->broken && !it->second->cut) it->second->to_writer.push_back(std::move(answer));
}

void SimDecode::CheckWrite(BlockId block, const TransferId& transfer, int attempt) {
  const auto it = lent_.find(block);
  if (it == lent_.end() || it->second != std::make_pair(transfer, attempt)) {
    world_->Violate(absl::StrCat("attempt ", attempt, " of ", transfer.ToString(), " writes to block ", block, ", which ",
                                 it == lent_.end() ? "is lent to nobody" : "is lent to another"));
  }
  for (const auto& [id, call] : calls_) {
    if (call->running && std::find(call->blocks.begin(), call->blocks.end(), block) != call->blocks.end()) {
      world_->Violate(absl::StrCat("block ", block, " is written while a sequence runs in it"));
    }
  }
}

std::optional<LinkGrant> SimDecode::LandingOf(const TransferId& transfer, int attempt) const {
  const auto it = landings_.find({transfer, attempt});
  if (it == landings_.end()) return std::nullopt;
  return LinkGrant{.one_sided = true, .blocks = it->second};
}

// ---- The engine's own.

void SimDecode::CheckTimeouts() {
  for (auto& [id, call] : calls_) {
    if (call->over || call->handoff.state() != DecodeHandoff::State::kLanding) continue;
    const MonotonicTime now = world_->clock.Now();
    const MonotonicTime last = call->zone == nullptr ? absl::ZeroDuration() : call->zone->last_write();
    const bool waits = last == absl::ZeroDuration() ? now - call->opened_at < kLandingBackstop : now - last < kTransferTimeout;
    if (!waits) Execute(*call, call->handoff.OnTimeout(CloseZone(*call)));
  }
  ForgetSettled();
}

bool SimDecode::Compute() {
  std::vector<Call*> ready;
  for (auto& [id, call] : calls_) {
    if (call->running || call->computing) ready.push_back(call.get());
  }
  if (ready.empty()) return false;
  Call& call = *ready[static_cast<size_t>(world_->Pick(static_cast<int>(ready.size())))];
  if (call.computing) {
    call.computing = false;
    for (int layer = 0; layer < pool_->layout().num_layers; ++layer) {
      FillTokens(pool_.get(), call.blocks, call.chain, layer, call.num_cached, call.num_tokens);
    }
    Execute(call, call.handoff.OnComputedLocally(absl::OkStatus()));
    Run(call);
  } else {
    CheckBytes(call);
    if (--call.steps_left <= 0) Finish(call);
  }
  ForgetSettled();
  return true;
}

std::string SimDecode::Gauges() const {
  std::string held;
  const BlockCounts counts = allocator_.counts();
  if (counts.used > 0) absl::StrAppend(&held, " decode has ", counts.used, " blocks in use;");
  if (counts.quarantined > 0) absl::StrAppend(&held, " decode has ", counts.quarantined, " blocks in quarantine;");
  if (!calls_.empty()) absl::StrAppend(&held, " decode has ", calls_.size(), " calls;");
  if (directory_.size() > 0) absl::StrAppend(&held, " decode has ", directory_.size(), " zones;");
  if (!lent_.empty()) absl::StrAppend(&held, " decode has lent ", lent_.size(), " blocks;");
  return held;
}

}  // namespace baton::testing
