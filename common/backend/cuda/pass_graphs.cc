// SPDX-License-Identifier: Apache-2.0
#include "common/backend/cuda/pass_graphs.h"

#include "common/base/logging.h"

namespace baton::cuda {

void PassGraphs::Begin(const PassShape& shape, int context_tokens, Choosing choosing) {
  BATON_CHECK(!open_) << "a pass within a pass";
  open_ = true;
  key_ = {shape.num_rows, context_tokens, shape.buffers, shape.pool, choosing};
  const auto found = graphs_.find(key_);
  if (found == graphs_.end()) {
    if (graphs_.size() >= kMaxGraphs) Forget();
    graphs_[key_] = {};  // Directly, this time.
  } else if (found->second.graph != nullptr) {
    context_->BeginReplay();
  } else if (!found->second.recorded) {
    found->second.recorded = true;
    recording_ = true;
    context_->BeginRecord();
  }
}

void PassGraphs::End(bool complete) {
  open_ = false;
  if (recording_) {
    recording_ = false;
    const absl::StatusOr<CUgraphExec> graph = context_->EndRecord();
    if (!graph.ok()) {
      BATON_LOG(WARNING) << "a decode step stays many launches: " << graph.status().message();
    } else if (const auto found = graphs_.find(key_); complete && found != graphs_.end() && found->second.recorded) {
      found->second.graph = *graph;
    } else {
      context_->api().cuGraphExecDestroy(*graph);
      if (found != graphs_.end()) found->second.recorded = false;  // Another time.
    }
  } else if (context_->replaying()) {
    context_->EndReplay();
    const auto found = graphs_.find(key_);
    if (!complete) return;
    BATON_CHECK(found != graphs_.end()) << "a recorded pass was dropped while it was asked for again";
    context_->LaunchGraph(found->second.graph);
    context_->Synchronize();
  } else if (complete) {
    graphs_.try_emplace(key_);  // Seen, though what it needed to allocate made all others be dropped.
  }
}

void PassGraphs::Forget() {
  for (const auto& [key, graph] : graphs_) {
    if (graph.graph != nullptr) context_->api().cuGraphExecDestroy(graph.graph);
  }
  graphs_.clear();
}

}  // namespace baton::cuda
