// SPDX-License-Identifier: Apache-2.0
#include "prefill_worker/history_pull.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/token_hash.h"
#include "common/kv_transfer/kv_precision.h"

namespace baton {

using Kind = PullHandoff::Action::Kind;

HistoryPull::HistoryPull(WorkerRuntime* runtime, LandingDirectory* directory, const KvReceiverSet* receivers, Options options)
    : runtime_(runtime),
      directory_(directory),
      receivers_(receivers),
      options_(std::move(options)),
      handoff_(options_.decode_incarnation) {}

void HistoryPull::Begin(OnEnd on_end) {
  on_end_ = std::move(on_end);
  begun_ = Clock::Real()->Now();
  auto self = shared_from_this();
  LandingZoneOptions zone;
  zone.transfer = options_.transfer;
  zone.attempt = options_.attempt;
  zone.blocks = options_.landing.blocks;
  zone.first_token = first_token();
  zone.num_tokens = num_tokens();
  zone.token_hash = HashTokens(options_.tokens).low;
  zone.compatibility = runtime_->compatibility();
  zone.compatibility.kv_wire_layout.clear();
  zone.token = WriteToken::Draw();
  zone_ = std::make_shared<LandingZone>(zone, runtime_->pool(), Clock::Real(), [self] {
    self->runtime_->engine()->Post([self](EngineCore& core) { self->Execute(core, self->handoff_.OnUnpinned()); });
  });
  directory_->Put(zone_);
  timeout_ = std::make_unique<OneShotTimer>(options_.patience, [self] {
    self->runtime_->engine()->Post([self](EngineCore& core) {
      self->Stop(core, absl::DeadlineExceededError(
                           absl::StrCat("the history did not arrive within ", absl::FormatDuration(self->options_.patience))));
    });
  });
}

void HistoryPull::OnManifest(EngineCore& core, const PeerId& peer, const absl::Status& verified, const LandingStats& stats) {
  if (handoff_.state() == PullHandoff::State::kOpen) result_.stats = stats;
  Execute(core, handoff_.OnManifest(peer, verified.ok() ? CheckPrecision(stats) : verified));
}

absl::Status HistoryPull::CheckPrecision(const LandingStats& stats) const {
  const KvDtype dtype = runtime_->pool()->layout().dtype;
  const KvPrecision held_in = KvPrecision::FromNumerics(stats.numerics).value_or(KvPrecision::Unknown());
  if (held_in.SufficesFor(dtype)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("kv precision mismatch: it has been held in ", held_in.ToString(), ", this pool is of ", KvDtypeName(dtype)));
}

void HistoryPull::Execute(EngineCore& core, const PullHandoff::Actions& actions) {
  const auto self = shared_from_this();  // The owner may let go of it at the end.
  for (const PullHandoff::Action& action : actions) Do(core, action);
}

void HistoryPull::Do(EngineCore& core, const PullHandoff::Action& action) {
  KvReceiver* const receiver = action.writer.worker.empty() ? nullptr : receivers_->Of(action.writer.transport);
  switch (action.kind) {
    case Kind::kGrant:
      result_.transport = TransportName(action.writer.transport);
      return receiver->Grant(action.writer, options_.transfer, options_.attempt, {.one_sided = false});
    case Kind::kDeny:
      return receiver->Deny(action.writer, options_.transfer, options_.attempt, action.status);
    case Kind::kAbort:
      return receiver->Abort(action.writer, options_.transfer, options_.attempt);
    case Kind::kCloseZone:
      return Execute(core, handoff_.OnClosed(CloseZone()));
    case Kind::kEnd:
      return End(core, action.status);
  }
}

bool HistoryPull::CloseZone() {
  // A newer attempt of the transfer may have come here as well.
  if (directory_->Find(options_.transfer, options_.attempt) == zone_) directory_->Remove(options_.transfer);
  return zone_->Close();
}

void HistoryPull::Abandon() {
  timeout_.reset();
  on_end_ = nullptr;
  CloseZone();
}

// Found by whoever looks for it from now on, first of all the prompt itself; whoever needs the blocks more may have them.
void HistoryPull::End(EngineCore& core, const absl::Status& status) {
  timeout_.reset();
  if (status.ok()) core.CachePrefix(options_.key, options_.tokens, options_.landing);
  core.ReleaseBlocks(options_.landing.blocks);
  result_.status = status;
  result_.took = Clock::Real()->Now() - begun_;
  if (auto on_end = std::exchange(on_end_, nullptr)) on_end(core, result_);
}

}  // namespace baton
