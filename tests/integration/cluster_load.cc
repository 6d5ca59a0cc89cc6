// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/cluster_load.h"

#include "absl/strings/str_cat.h"

namespace baton::testing {
namespace {

constexpr size_t kPrompts = 6;

}  // namespace

ClusterLoad::ClusterLoad(const LocalCluster* cluster, int num_clients, int num_tokens) : cluster_(cluster), num_tokens_(num_tokens) {
  for (size_t i = 0; i < kPrompts; ++i) {
    const auto answer = cluster_->Generate(Request(i));
    if (!answer.ok()) wrong_.push_back(absl::StrCat("at first: ", answer.status().ToString()));
    expected_.push_back(answer.ok() ? answer->choices[0].token_ids : std::vector<int32_t>());
  }
  for (int i = 0; i < num_clients; ++i) {
    clients_.emplace_back("client", [this, i] { Run(static_cast<size_t>(i) % kPrompts); });
  }
}

v1::GenerateRequest ClusterLoad::Request(size_t prompt) const {
  const int number = static_cast<int>(prompt);
  std::vector<int> tokens;
  for (int i = 0; i < 40 + number; ++i) tokens.push_back(3 + (i * 31 + number * 7) % 250);
  return GreedyRequest(tokens, num_tokens_);
}

void ClusterLoad::Run(size_t first) {
  for (size_t i = first; !stop_; i = (i + 1) % kPrompts) {
    const auto answer = cluster_->Generate(Request(i));
    ++num_answers_;
    if (answer.ok() && answer->choices[0].token_ids == expected_[i]) continue;
    MutexLock lock(&mutex_);
    wrong_.push_back(absl::StrCat("prompt ", i, ": ", answer.ok() ? "other tokens than at first" : answer.status().ToString()));
    if (wrong_.size() >= 10) return;
  }
}

bool ClusterLoad::WaitForMore(int count) {
  const int enough = num_answers_ + count;
  return Eventually([&] { return num_answers_ >= enough; });
}

void ClusterLoad::Stop() {
  stop_ = true;
  for (Thread& client : clients_) client.Join();
  clients_.clear();
}

std::vector<std::string> ClusterLoad::wrong() const {
  MutexLock lock(&mutex_);
  return wrong_;
}

}  // namespace baton::testing
