// SPDX-License-Identifier: Apache-2.0
#include "common/engine/batch.h"

#include <algorithm>
#include <utility>

#include "common/base/logging.h"

namespace baton {

Batch::Batch(const Model* model, const KvPool* pool, BlockAllocator* blocks, std::unique_ptr<ForwardBuffers> buffers,
             int panel_rows)
    : model_(model), pool_(pool), blocks_(blocks), buffers_(std::move(buffers)), panel_rows_(panel_rows) {}

void Batch::AddDecode(Sequence* sequence) {
  const int position = sequence->num_to_prefill();
  BATON_CHECK_EQ(sequence->num_computed, position);
  input_.AddSequence(std::span(sequence->tokens).last(1), position, sequence->table.blocks(), blocks_->block_size(), 1);
  entries_.push_back({sequence->request->shared_from_this(), sequence, position, position + 1, true, 1});
  sequence->batch = this;
  ++num_live_;
}

void Batch::AddPrefill(Sequence* sequence, int num_tokens, bool with_logits) {
  const int begin = sequence->num_computed;
  input_.AddSequence(std::span(sequence->tokens).subspan(begin, num_tokens), begin, sequence->table.blocks(),
                     blocks_->block_size(), with_logits ? num_tokens : 0);
  entries_.push_back({sequence->request->shared_from_this(), sequence, begin, begin + num_tokens, false, with_logits ? num_tokens : 0});
  sequence->batch = this;
  ++num_live_;
}

void Batch::Start() {
  MakeChoices();
  pass_.emplace(model_, pool_, &input_, buffers_.get(), panel_rows_);
}

void Batch::MakeChoices() {
  const int vocab_size = model_->config().vocab_size;
  if (input_.logit_rows.empty() || !model_->backend()->chooses_tokens(vocab_size)) return;
  for (Entry& entry : entries_) {
    if (entry.decode) {
      input_.choices.push_back(entry.sequence->sampling.NextChoice(vocab_size));
      entry.chosen = !input_.choices.back().by_host;
    } else {
      input_.choices.insert(input_.choices.end(), static_cast<size_t>(entry.num_logits), TokenChoice{.by_host = true});
    }
  }
  if (std::ranges::all_of(input_.choices, &TokenChoice::by_host)) input_.choices.clear();
}

bool Batch::Advance() {
  const int layer = pass_->layers_complete();
  const bool more = pass_->Advance();
  rows_of_layer_ = pass_->layers_complete() == layer ? std::min(rows_of_layer_ + panel_rows_, num_rows()) : 0;
  return more;
}

int Batch::last_layer_rows() const {
  const int left = model_->config().num_layers - layers_complete();
  return left == 0 ? num_rows() : left == 1 ? rows_of_layer_ : 0;
}

void Batch::Drop(Sequence* sequence) {
  for (Entry& entry : entries_) {
    if (entry.sequence != sequence) continue;
    entry.sequence = nullptr;
    sequence->batch = nullptr;
    const std::vector<BlockId> blocks = sequence->table.Take();
    held_.insert(held_.end(), blocks.begin(), blocks.end());
    if (--num_live_ == 0) Reset();
    return;
  }
}

std::vector<Batch::Entry> Batch::Take() {
  std::vector<Entry> entries = std::move(entries_);
  for (Entry& entry : entries) {
    if (entry.sequence != nullptr) entry.sequence->batch = nullptr;
  }
  Reset();
  return entries;
}

void Batch::Reset() {
  pass_.reset();
  input_.Clear();
  entries_.clear();
  num_live_ = 0;
  layers_reported = last_layer_rows_reported = rows_of_layer_ = 0;
  busy_time = absl::ZeroDuration();
  blocks_->UnrefAll(held_);
  held_.clear();
}

const float* Batch::logits(int row) const {
  return buffers_->logits() + static_cast<int64_t>(row) * model_->config().vocab_size;
}

}  // namespace baton
