// SPDX-License-Identifier: Apache-2.0
#include "common/kv_transfer/pull_handoff.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace baton {

using Kind = PullHandoff::Action::Kind;

PullHandoff::Actions PullHandoff::OnOpen(const PeerId& writer) {
  if (state_ != State::kOpen) return {{Kind::kDeny, writer, absl::AbortedError("the pull is over")}};
  if (writer.incarnation != writer_incarnation_) {
    return {{Kind::kDeny, writer, absl::AbortedError(absl::StrCat("the pull is not from ", writer.worker, " but from another process"))}};
  }
  if (writer_.has_value() && !(*writer_ == writer)) {
    return {{Kind::kDeny, writer, absl::AbortedError(absl::StrCat("the pull comes by ", TransportName(writer_->transport), " already"))}};
  }
  writer_ = writer;
  return {{Kind::kGrant, writer}};
}

PullHandoff::Actions PullHandoff::OnManifest(const PeerId& writer, const absl::Status& verified) {
  if (state_ != State::kOpen) return {};
  // The zone was held against it and takes no other: whoever it was, the pull is over.
  if (!(writer_ == writer)) {
    return Close(absl::AbortedError(absl::StrCat("the manifest came from ", writer.worker, ", which had not been granted the pull")));
  }
  writer_.reset();  // It has ended by itself.
  return Close(verified);
}

PullHandoff::Actions PullHandoff::OnAborted(const PeerId& writer) {
  if (state_ != State::kOpen || !(writer_ == writer)) return {};
  writer_.reset();
  return Close(absl::AbortedError(absl::StrCat(writer.worker, " gave up sending")));
}

PullHandoff::Actions PullHandoff::OnLinkClosed(const PeerId& writer) {
  if (state_ != State::kOpen || !(writer_ == writer)) return {};
  writer_.reset();
  return Close(absl::UnavailableError(absl::StrCat("KV link from ", writer.worker, " closed before the manifest")));
}

PullHandoff::Actions PullHandoff::Stop(const absl::Status& why) {
  if (state_ != State::kOpen) return {};
  return Close(why);
}

PullHandoff::Actions PullHandoff::Close(const absl::Status& result) {
  Actions actions;
  if (writer_.has_value()) actions.push_back({Kind::kAbort, *writer_});
  state_ = State::kClosing;
  result_ = result;
  actions.push_back({Kind::kCloseZone});
  return actions;
}

PullHandoff::Actions PullHandoff::OnClosed(bool pinned) {
  if (state_ != State::kClosing) return {};
  if (!pinned) return End();
  state_ = State::kDraining;
  return {};
}

PullHandoff::Actions PullHandoff::OnUnpinned() { return state_ == State::kDraining ? End() : Actions(); }

PullHandoff::Actions PullHandoff::End() {
  state_ = State::kEnded;
  return {{.kind = Kind::kEnd, .status = result_}};
}

}  // namespace baton
