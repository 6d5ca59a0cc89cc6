// SPDX-License-Identifier: Apache-2.0
#include "common/kv_transfer/decode_handoff.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace baton {

using Kind = DecodeHandoff::Action::Kind;

DecodeHandoff::Actions DecodeHandoff::Start(bool complete, bool local) {
  if (complete) {
    state_ = State::kReady;
    return {{Kind::kSendLanded, 0}, {Kind::kRun}};
  }
  attempt_ = 1;
  if (local) {
    state_ = State::kLocal;
    return {{Kind::kPrefillLocally, 1}};
  }
  return {{Kind::kOpenZone, 1}, {Kind::kSendLanding, 1}};
}

DecodeHandoff::Actions DecodeHandoff::OnAttempt(int m, bool pinned) { return NewAttempt(m, pinned, /*local=*/false); }

DecodeHandoff::Actions DecodeHandoff::OnPrefillLocally(int m, bool pinned) { return NewAttempt(m, pinned, /*local=*/true); }

DecodeHandoff::Actions DecodeHandoff::NewAttempt(int m, bool pinned, bool local) {
  // Already landed: success, whatever attempt made it ("restart-after-landed", "no-already-landed").
  if (state_ == State::kReady) return {{Kind::kSendLanded, landed_attempt_}};
  if (state_ == State::kEnded || m <= attempt_) return {};
  if (state_ == State::kLocal) {
    // The engine is computing in these blocks; its result answers the newest attempt.
    attempt_ = m;
    return {};
  }
  Actions actions;
  if (writer_.has_value() || pinned) {
    // Somebody may still write to the old blocks ("reuse-without-ack", "unpinned-apply").
    if (writer_.has_value()) actions.push_back({Kind::kAbort, attempt_, *writer_});
    actions.push_back({Kind::kReplaceBlocks, attempt_, writer_.value_or(PeerId{})});
    quarantine_.push_back({attempt_, writer_, pinned});
  }
  writer_.reset();
  two_sided_.reset();
  attempt_ = m;
  if (local) {
    state_ = State::kLocal;
    actions.push_back({Kind::kPrefillLocally, m});
  } else {
    state_ = State::kLanding;
    actions.push_back({Kind::kOpenZone, m});
    actions.push_back({Kind::kSendLanding, m});
  }
  return actions;
}

DecodeHandoff::Actions DecodeHandoff::OnOpen(int n, const PeerId& writer, bool may_write_itself) {
  if (state_ != State::kLanding || n != attempt_) {
    return {{.kind = Kind::kDeny,
             .attempt = n,
             .writer = writer,
             .status = absl::AbortedError(absl::StrCat("attempt ", n, " is not current, ", attempt_, " is"))}};
  }
  if (writer_.has_value() && !(*writer_ == writer)) {
    return {{.kind = Kind::kDeny,
             .attempt = n,
             .writer = writer,
             .status = absl::AbortedError(absl::StrCat("attempt ", n, " is being written by ", writer_->worker))}};
  }
  if (may_write_itself) {
    writer_ = writer;
  } else if (!writer_.has_value()) {
    two_sided_ = writer;
  }
  return {{.kind = Kind::kGrant, .attempt = n, .writer = writer, .one_sided = writer_.has_value()}};
}

DecodeHandoff::Actions DecodeHandoff::OnManifest(int n, const PeerId& writer, const absl::Status& verified) {
  // A manifest comes after the writer's last write, so it ends the writer of that attempt wherever its blocks are.
  if (state_ != State::kLanding || n != attempt_) return OnWriterGone(writer, n);
  if (writer_.has_value() && !(*writer_ == writer)) {
    // It was denied. The blocks are the other one's, who may write on: nothing runs in them.
    return {{.kind = Kind::kSendFailed,
             .attempt = n,
             .status = absl::AbortedError(absl::StrCat("attempt ", n, " is being written by ", writer_->worker, ", and ",
                                                       writer.worker, " sent its manifest"))}};
  }
  Actions actions;
  writer_.reset();
  two_sided_.reset();
  if (!verified.ok()) {
    actions.push_back({.kind = Kind::kSendFailed, .attempt = n, .status = verified});
    return actions;
  }
  state_ = State::kReady;
  landed_attempt_ = n;
  actions.push_back({Kind::kSendLanded, n});
  actions.push_back({Kind::kRun});
  return actions;
}

DecodeHandoff::Actions DecodeHandoff::OnWriterGone(const PeerId& writer, std::optional<int> attempt) {
  Actions actions;
  // The landing keeps its blocks ("double-free"): only the writer is removed.
  if (writer_ == writer && attempt.value_or(attempt_) == attempt_) writer_.reset();
  for (Quarantined& entry : quarantine_) {
    if (entry.writer == writer && attempt.value_or(entry.attempt) == entry.attempt) entry.writer.reset();
  }
  ReleaseSettled(&actions);
  return actions;
}

DecodeHandoff::Actions DecodeHandoff::OnUnpinned(int attempt) {
  Actions actions;
  for (Quarantined& entry : quarantine_) {
    if (entry.attempt == attempt) entry.pinned = false;
  }
  ReleaseSettled(&actions);
  return actions;
}

DecodeHandoff::Actions DecodeHandoff::OnLinkClosed(const PeerId& writer) {
  if (state_ != State::kLanding || !(two_sided_ == writer)) return {};
  two_sided_.reset();
  return {{.kind = Kind::kSendFailed,
           .attempt = attempt_,
           .status = absl::UnavailableError(absl::StrCat("KV link from ", writer.worker, " closed before the manifest"))}};
}

DecodeHandoff::Actions DecodeHandoff::OnComputedLocally(const absl::Status& status) {
  if (state_ != State::kLocal) return {};
  if (!status.ok()) {
    return {{.kind = Kind::kSendFailed, .attempt = attempt_, .status = status}};
  }
  state_ = State::kReady;
  landed_attempt_ = attempt_;
  return {{Kind::kSendLanded, attempt_}};
}

DecodeHandoff::Actions DecodeHandoff::OnStop(bool pinned) {
  if (state_ == State::kEnded) return {};
  return Leave(pinned, Action{Kind::kSendStopped});
}

DecodeHandoff::Actions DecodeHandoff::OnRouterGone(bool pinned) {
  if (state_ == State::kEnded) return {};
  return Leave(pinned, std::nullopt);
}

DecodeHandoff::Actions DecodeHandoff::OnTimeout(bool pinned) {
  if (state_ != State::kLanding) return {};
  return Leave(pinned, Action{.kind = Kind::kSendRefused,
                              .attempt = attempt_,
                              .status = absl::DeadlineExceededError(absl::StrCat(
                                  "no KV arrived for attempt ", attempt_, " within the transfer timeout"))});
}

DecodeHandoff::Actions DecodeHandoff::OnFinished() {
  state_ = State::kEnded;
  return {};
}

DecodeHandoff::Actions DecodeHandoff::OnNoBlocks(const absl::Status& status) {
  // The old blocks are quarantined already; the sequence holds nothing else that anybody writes to.
  state_ = State::kEnded;
  return {{Kind::kCancel}, {.kind = Kind::kSendRefused, .attempt = attempt_, .status = status}};
}

DecodeHandoff::Actions DecodeHandoff::Leave(bool pinned, std::optional<Action> answer) {
  Actions actions;
  const bool written = state_ == State::kLanding && (writer_.has_value() || pinned);
  if (written) {
    // "free-on-cancel": what may still be written to is never freed.
    if (writer_.has_value()) actions.push_back({Kind::kAbort, attempt_, *writer_});
    actions.push_back({Kind::kCancelQuarantined, attempt_, writer_.value_or(PeerId{})});
    quarantine_.push_back({attempt_, writer_, pinned});
  } else {
    actions.push_back({Kind::kCancel});
  }
  writer_.reset();
  two_sided_.reset();
  state_ = State::kEnded;
  if (answer.has_value()) actions.push_back(*std::move(answer));
  return actions;
}

void DecodeHandoff::ReleaseSettled(Actions* actions) {
  for (const Quarantined& entry : quarantine_) {
    if (!entry.writer.has_value() && !entry.pinned) actions->push_back({Kind::kReleaseQuarantine, entry.attempt});
  }
  std::erase_if(quarantine_, [](const Quarantined& entry) { return !entry.writer.has_value() && !entry.pinned; });
}

}  // namespace baton
