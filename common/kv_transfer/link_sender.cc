// SPDX-License-Identifier: Apache-2.0
#include "common/kv_transfer/link_sender.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/kv_transfer/layout_conversion.h"
#include "common/kv_transfer/link_sender_transfer.h"

namespace baton {
namespace {

// After a one-sided link broke: how soon the first Hello is tried again, how long at most between two, and how often.
constexpr absl::Duration kFirstHello = absl::Milliseconds(100);
constexpr absl::Duration kMaxHello = absl::Seconds(10);
constexpr int kMaxHellos = 12;

absl::Status StoppedError() { return absl::UnavailableError("KV sender is shutting down"); }

}  // namespace

LinkSender::LinkSender(const LinkSenderOptions& options, const KvPool* pool, KvLinkFactory make_link)
    : options_(options),
      pool_(pool),
      make_link_(std::move(make_link)),
      commands_(1 << 20),
      thread_(options.own_thread ? Thread("kv-send", [this] { Run(); }) : Thread()) {}

LinkSender::~LinkSender() { Stop(); }

void LinkSender::Stop() {
  commands_.Close();
  thread_.Join();
  EndOpen(StoppedError(), /*of_this_link_only=*/false);
  while (const std::optional<Command> command = commands_.TryPop()) {
    if (command->transfer != nullptr) End(*command->transfer, StoppedError());
  }
  // The process may live on, as another program: then nothing else tells the peer that we write no more.
  if (hello_due_) {
    const absl::Status said = EnsureLink();
    if (!said.ok()) BATON_LOG(DEBUG) << "at the end: " << said.message();
  }
  CloseLink(options_.transfer_timeout);
}

// ---- Any thread.

std::shared_ptr<KvSender::Transfer> LinkSender::Begin(SendJob job) {
  const auto key = std::make_pair(job.transfer, job.attempt);
  auto transfer = std::make_shared<Transfer>(std::move(job));
  Command command{Command::Kind::kBegin, transfer};
  {
    MutexLock lock(&mutex_);
    // Answers are told apart by these names.
    if (!open_.emplace(key, transfer).second) {
      command.status = absl::AbortedError(absl::StrCat("attempt ", key.second, " of transfer ", key.first.ToString(),
                                                       " is being sent already"));
    }
  }
  if (!commands_.ForcePush(std::move(command))) End(*transfer, StoppedError());
  return transfer;
}

size_t LinkSender::num_open() const {
  MutexLock lock(&mutex_);
  return open_.size();
}

void LinkSender::SetBlocks(const std::shared_ptr<Transfer>& transfer, std::vector<BlockId> blocks) {
  commands_.ForcePush({.kind = Command::Kind::kBlocks, .transfer = transfer, .blocks = std::move(blocks)});
}

void LinkSender::Push(const std::shared_ptr<Transfer>& transfer, int layer_begin, int layer_end, int token_begin,
                      int token_end) {
  commands_.ForcePush({Command::Kind::kPush, transfer, {layer_begin, layer_end, token_begin, token_end}});
}

void LinkSender::Finish(const std::shared_ptr<Transfer>& transfer, Manifest manifest) {
  commands_.ForcePush({.kind = Command::Kind::kFinish,
                       .transfer = transfer,
                       .manifest = std::move(manifest),
                       .enqueued = options_.clock->Now()});
}

void LinkSender::Cancel(const std::shared_ptr<Transfer>& transfer) {
  transfer->cancelled.store(true);
  commands_.ForcePush({Command::Kind::kCancel, transfer});
}

void LinkSender::OnAnswer(const TransferId& id, int attempt, Command command) {
  {
    MutexLock lock(&mutex_);
    const auto it = open_.find({id, attempt});
    if (it != open_.end()) command.transfer = it->second;
  }
  if (command.transfer == nullptr) return;
  if (command.kind == Command::Kind::kCancel) command.transfer->fenced.store(true);
  commands_.ForcePush(std::move(command));
}

// ---- Sender thread.

void LinkSender::Run() {
  while (!commands_.closed()) {
    const MonotonicTime now = options_.clock->Now();
    MonotonicTime deadline = now + absl::Seconds(10);
    for (const auto& transfer : waiting_) deadline = std::min(deadline, transfer->grant_deadline);
    if (hello_due_) deadline = std::min(deadline, next_hello_);
    Work(commands_.Pop(deadline - now));
  }
}

bool LinkSender::Step() {
  std::optional<Command> command = commands_.TryPop();
  const bool any = command.has_value();
  Work(std::move(command));
  return any;
}

void LinkSender::Work(std::optional<Command> command) {
  if (command.has_value()) Handle(*std::move(command));
  if (!waiting_.empty()) EndLateWaiters();
  if (hello_due_ && !commands_.closed()) SayHelloAgain();
  if (link_ == nullptr || commands_.size() > 0) return;
  const absl::Status flushed = link_->Flush([this] {
    return commands_.size() > 0 || commands_.closed() ? absl::CancelledError("there is more to do") : absl::OkStatus();
  });
  if (!flushed.ok() && !absl::IsCancelled(flushed)) BreakLink(flushed);
}

void LinkSender::Handle(Command command) {
  if (command.kind == Command::Kind::kLinkClosed) {
    if (link_ == nullptr || command.link_number != link_number_) return;
    return BreakLink(absl::UnavailableError(absl::StrCat("KV link to ", options_.address, " was closed by the peer")));
  }
  const std::shared_ptr<Transfer> transfer = command.transfer;
  if (transfer->ended) return;
  // Cancels and answers are not queued behind what waits for an answer.
  const bool waits = transfer->grant_deadline < absl::InfiniteDuration();
  const bool in_order = command.kind == Command::Kind::kBlocks || command.kind == Command::Kind::kPush ||
                        command.kind == Command::Kind::kFinish;
  if (waits && in_order) {
    transfer->deferred.push_back(std::move(command));
    return;
  }
  HandleOf(transfer, command);
  while (!transfer->ended && transfer->grant_deadline == absl::InfiniteDuration() && !transfer->deferred.empty()) {
    Command next = std::move(transfer->deferred.front());
    transfer->deferred.pop_front();
    HandleOf(transfer, next);
  }
}

void LinkSender::HandleOf(const std::shared_ptr<Transfer>& transfer, Command& command) {
  absl::Status status = Interrupted(*transfer);
  if (status.ok() && command.kind == Command::Kind::kBegin) status = command.status;
  if (status.ok()) {
    status = command.kind == Command::Kind::kBegin ? BeginTransfer(transfer) : Do(*transfer, command);
  }
  if (status.ok() && link_ != nullptr && transfer->link == link_ && LinkSums(*transfer)) transfer->reads_device.store(true);
  if (status.ok()) return;
  const auto link = transfer->link;  // End takes it.
  End(*transfer, status);
  // A link that takes nothing, or is broken, is of no use to the next job either.
  if (link_ != nullptr && link_ == link && (absl::IsDeadlineExceeded(status) || !link_->alive())) {
    BreakLink(absl::UnavailableError(absl::StrCat("KV link to ", options_.address, ": ", status.message())));
  }
}

absl::Status LinkSender::Do(Transfer& transfer, Command& command) {
  if (link_ == nullptr || link_ != transfer.link) {
    return absl::UnavailableError(absl::StrCat("the KV link to ", options_.address, " broke and was opened again"));
  }
  switch (command.kind) {
    case Command::Kind::kBlocks:
      transfer.blocks = std::move(command.blocks);
      return absl::OkStatus();
    case Command::Kind::kPush:
      return SendPiece(transfer, command.piece);
    case Command::Kind::kFinish:
      return FinishTransfer(transfer, command);
    case Command::Kind::kGranted:
      transfer.grant = std::move(command.grant);
      transfer.grant_deadline = absl::InfiniteDuration();
      return absl::OkStatus();
    case Command::Kind::kDenied:
      return absl::AbortedError(absl::StrCat("decode denied the attempt: ", command.status.message()));
    default:
      return absl::OkStatus();
  }
}

absl::Status LinkSender::Interrupted(const Transfer& transfer) const {
  if (transfer.cancelled.load()) return absl::CancelledError("transfer was cancelled");
  if (transfer.fenced.load()) return absl::AbortedError("decode fenced this attempt");
  if (commands_.closed()) return StoppedError();
  return absl::OkStatus();
}

void LinkSender::EndLateWaiters() {
  const MonotonicTime now = options_.clock->Now();
  for (const auto& transfer : std::vector(waiting_)) {
    if (transfer->ended || transfer->grant_deadline > now) continue;
    End(*transfer, absl::DeadlineExceededError(absl::StrCat("decode at ", options_.address, " gave no grant for ",
                                                            absl::FormatDuration(options_.transfer_timeout))));
  }
  std::erase_if(waiting_, [](const auto& transfer) {
    return transfer->ended || transfer->grant_deadline == absl::InfiniteDuration();
  });
}

void LinkSender::EndOpen(const absl::Status& status, bool of_this_link_only) {
  std::vector<std::shared_ptr<Transfer>> open;
  {
    MutexLock lock(&mutex_);
    for (const auto& [key, transfer] : open_) open.push_back(transfer);
  }
  for (const auto& transfer : open) {
    if (!of_this_link_only || (transfer->link != nullptr && transfer->link == link_)) End(*transfer, status);
  }
}

void LinkSender::End(Transfer& transfer, absl::Status status) {
  if (transfer.ended.exchange(true)) return;
  if (transfer.link != nullptr && transfer.link == link_ && !status.ok()) {
    // Everything of this attempt was written by this thread, so that the copying has ended here.
    link_->Settle();
    link_->SendAborted(transfer.job.transfer, transfer.job.attempt);
  }
  transfer.link = nullptr;
  transfer.deferred.clear();
  {
    MutexLock lock(&mutex_);
    const auto it = open_.find({transfer.job.transfer, transfer.job.attempt});
    // Not that of another job of the same name.
    if (it != open_.end() && it->second.get() == &transfer) open_.erase(it);
  }
  auto on_done = std::move(transfer.job.on_done);
  if (on_done) on_done(status, transfer.stats);
}

// ---- The link.

absl::Status LinkSender::BeginTransfer(const std::shared_ptr<Transfer>& transfer) {
  BATON_RETURN_IF_ERROR(EnsureLink());
  if (peer_.self.incarnation != transfer->job.peer_incarnation) {
    // Other jobs may be using the link; when it is the old process's it closes by itself.
    return absl::UnavailableError(absl::StrCat("the decode worker at ", options_.address, " is not the one that reserved"));
  }
  if (transfer->job.first_token % target_.block_size != 0) {
    return absl::InvalidArgumentError(absl::StrCat("first token ", transfer->job.first_token, " is no multiple of the peer's block size ",
                                                   target_.block_size));
  }
  transfer->link = link_;
  transfer->pushed_end.assign(static_cast<size_t>(target_.num_layers), transfer->job.first_token);
  transfer->sent_end = transfer->pushed_end;
  // Over several connections a frame could come before the Open that shows its token.
  if (TransportOf(kind()).one_sided || (kind() == TransportKind::kTcp && !transfer->job.token.empty())) {
    transfer->grant_deadline = options_.clock->Now() + options_.transfer_timeout;
    waiting_.push_back(transfer);
  }
  asked_ = true;
  return link_->SendOpen(transfer->job.transfer, transfer->job.attempt, transfer->job.token);
}

absl::Status LinkSender::EnsureLink() {
  if (link_ != nullptr && link_->alive()) return absl::OkStatus();
  if (link_ != nullptr) BreakLink(absl::UnavailableError(absl::StrCat("KV link to ", options_.address, " broke")));
  const absl::Status status = OpenLink();
  if (!status.ok()) CloseLink(absl::ZeroDuration());
  return status;
}

void LinkSender::BreakLink(const absl::Status& status) {
  EndOpen(status, /*of_this_link_only=*/true);
  if (TransportOf(kind()).one_sided && asked_) {
    hello_due_ = true;
    num_hellos_failed_ = 0;
    next_hello_ = options_.clock->Now() + kFirstHello;
  }
  CloseLink(absl::ZeroDuration());
}

void LinkSender::SayHelloAgain() {
  if (options_.clock->Now() < next_hello_) return;
  const absl::Status status = EnsureLink();
  if (!hello_due_) return;
  if (++num_hellos_failed_ < kMaxHellos) {
    next_hello_ = options_.clock->Now() + std::min(kMaxHello, kFirstHello * (1 << num_hellos_failed_));
    return;
  }
  hello_due_ = false;  // Most likely it has ended. The next job says Hello all the same.
  BATON_LOG(WARNING) << "after a broken link no new one could be opened: " << status.message();
}

absl::Status LinkSender::OpenLink() {
  const uint64_t number = ++link_number_;
  KvLink::Events events;
  events.on_grant = [this](const TransferId& id, int attempt, const LinkGrant& grant) {
    OnAnswer(id, attempt, {.kind = Command::Kind::kGranted, .grant = grant});
  };
  events.on_deny = [this](const TransferId& id, int attempt, const absl::Status& why) {
    OnAnswer(id, attempt, {.kind = Command::Kind::kDenied, .status = why});
  };
  events.on_abort = [this](const TransferId& id, int attempt) { OnAnswer(id, attempt, {.kind = Command::Kind::kCancel}); };
  events.on_closed = [this, number] { commands_.ForcePush({.kind = Command::Kind::kLinkClosed, .link_number = number}); };
  link_ = make_link_(std::move(events));
  auto hello = link_->Open({options_.self, options_.compatibility}, options_.connect_timeout);
  if (!hello.ok()) return Annotate(hello.status(), absl::StrCat("KV link to ", options_.address));
  peer_ = *std::move(hello);
  asked_ = hello_due_ = false;
  if (peer_.compatibility.model_fingerprint != options_.compatibility.model_fingerprint) {
    return absl::FailedPreconditionError(absl::StrCat("model mismatch: peer ", peer_.compatibility.model_fingerprint,
                                                      ", local ", options_.compatibility.model_fingerprint));
  }
  BATON_ASSIGN_OR_RETURN(target_, ParseKvLayout(peer_.compatibility.kv_layout));
  direct_ = target_ == pool_->layout();
  return CheckConvertible(target_, pool_->layout());
}

void LinkSender::CloseLink(absl::Duration flush_timeout) {
  if (link_ == nullptr) return;
  link_->Settle();
  link_->Close(flush_timeout);
  link_ = nullptr;
}

}  // namespace baton
