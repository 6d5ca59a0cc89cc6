// SPDX-License-Identifier: Apache-2.0
#include "common/model/forward.h"

#include <algorithm>

#include "common/base/logging.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

// Floats of an array, rounded up so that the next array starts on a cache line.
size_t Padded(int64_t floats) { return (static_cast<size_t>(floats) + 15) / 16 * 16; }

}  // namespace

void ModelInput::Clear() {
  token_ids.clear();
  positions.clear();
  slots.clear();
  query_starts.clear();
  block_tables.clear();
  logit_rows.clear();
  choices.clear();
}

void ModelInput::AddSequence(std::span<const int32_t> tokens, int first_position, std::span<const int32_t> block_table,
                             int block_size, int num_logits) {
  const int num_tokens = static_cast<int>(tokens.size());
  BATON_CHECK_LE((first_position + num_tokens - 1) / block_size + 1, static_cast<int>(block_table.size()));
  if (query_starts.empty()) query_starts.push_back(0);
  for (int i = 0; i < num_tokens; ++i) {
    const int position = first_position + i;
    if (i >= num_tokens - num_logits) logit_rows.push_back(num_rows());
    token_ids.push_back(tokens[static_cast<size_t>(i)]);
    positions.push_back(position);
    slots.push_back(block_table[static_cast<size_t>(position / block_size)] * block_size + position % block_size);
  }
  query_starts.push_back(num_rows());
  block_tables.emplace_back(block_table.begin(), block_table.end());
}

absl::StatusOr<std::unique_ptr<ForwardBuffers>> ForwardBuffers::Create(const Model& model, int max_rows,
                                                                       int max_logit_rows) {
  const LayerShape& shape = model.shape();
  const size_t x = Padded(static_cast<int64_t>(max_rows) * shape.hidden_size);
  const size_t q = Padded(static_cast<int64_t>(max_rows) * shape.num_heads * shape.head_dim);
  const size_t logits = Padded(static_cast<int64_t>(max_logit_rows) * model.config().vocab_size);
  std::unique_ptr<ForwardBuffers> buffers(new ForwardBuffers());
  BATON_RETURN_IF_ERROR(model.backend()->Reserve(shape, std::max(max_rows, 1)));
  BATON_ASSIGN_OR_RETURN(buffers->memory_, model.backend()->Allocate((x + 2 * q) * sizeof(float)));
  BATON_ASSIGN_OR_RETURN(buffers->logits_memory_, model.backend()->AllocateHost(logits * sizeof(float)));
  BATON_ASSIGN_OR_RETURN(buffers->tokens_memory_, model.backend()->AllocateHost(static_cast<size_t>(max_logit_rows) * sizeof(int32_t)));
  buffers->max_rows_ = max_rows;
  buffers->max_logit_rows_ = max_logit_rows;
  buffers->x_ = reinterpret_cast<float*>(buffers->memory_.get());
  buffers->q_ = buffers->x_ + x;
  buffers->attention_ = buffers->q_ + q;
  buffers->logits_ = reinterpret_cast<float*>(buffers->logits_memory_.get());
  buffers->tokens_ = reinterpret_cast<int32_t*>(buffers->tokens_memory_.get());
  return buffers;
}

ForwardPass::ForwardPass(const Model* model, const KvPool* pool, const ModelInput* input, ForwardBuffers* buffers,
                         int panel_rows)
    : model_(model), pool_(pool), input_(input), buffers_(buffers), panel_rows_(panel_rows) {
  BATON_CHECK_GE(input->num_rows(), 1);
  BATON_CHECK_LE(input->num_rows(), buffers->max_rows());
  BATON_CHECK_LE(static_cast<int>(input->logit_rows.size()), buffers->max_logit_rows());
  BATON_CHECK_GE(panel_rows, 1);
  BATON_CHECK(input->choices.empty() || input->choices.size() == input->logit_rows.size());
}

ForwardPass::~ForwardPass() {
  if (told_) model_->backend()->EndPass(/*complete=*/false);
}

void ForwardPass::TellBackend() {
  const int num_rows = input_->num_rows();
  if (num_rows > panel_rows_ || input_->num_sequences() != num_rows || static_cast<int>(input_->logit_rows.size()) != num_rows) return;
  const int longest = *std::max_element(input_->positions.begin(), input_->positions.end()) + 1;
  model_->backend()->BeginPass({num_rows, longest, buffers_, pool_, input_->choices});
  told_ = true;
}

bool ForwardPass::Advance() {
  if (done_) return false;
  const int num_rows = input_->num_rows();
  if (layer_ == 0 && row_ == 0) TellBackend();
  const int end = std::min(row_ + panel_rows_, num_rows);
  if (layer_ == 0) {
    const StepRows panel = Slice(row_, end);
    model_->backend()->Embed(model_->embedding(), panel,
                             buffers_->x_ + static_cast<int64_t>(row_) * model_->shape().hidden_size);
  }
  RunPanel(layer_, row_, end);
  row_ = end;
  if (row_ < num_rows) return true;
  row_ = 0;
  if (++layer_ < model_->config().num_layers) return true;
  RunHead();
  if (told_) model_->backend()->EndPass(/*complete=*/true);
  told_ = false;
  done_ = true;
  return false;
}

StepRows ForwardPass::Slice(int row_begin, int row_end) {
  slice_query_starts_.clear();
  slice_block_tables_.clear();
  const std::vector<int32_t>& starts = input_->query_starts;
  // The sequence that row_begin lies in: the last one that starts at or before it.
  size_t s = static_cast<size_t>(std::upper_bound(starts.begin(), starts.end(), row_begin) - starts.begin()) - 1;
  for (; s + 1 < starts.size() && starts[s] < row_end; ++s) {
    slice_query_starts_.push_back(std::max(starts[s], row_begin) - row_begin);
    slice_block_tables_.push_back(input_->block_tables[s].data());
  }
  slice_query_starts_.push_back(row_end - row_begin);

  StepRows rows;
  rows.num_rows = row_end - row_begin;
  rows.token_ids = input_->token_ids.data() + row_begin;
  rows.positions = input_->positions.data() + row_begin;
  rows.slots = input_->slots.data() + row_begin;
  rows.num_sequences = static_cast<int>(slice_block_tables_.size());
  rows.query_starts = slice_query_starts_.data();
  rows.block_tables = slice_block_tables_.data();
  return rows;
}

void ForwardPass::RunPanel(int layer, int row_begin, int row_end) {
  Backend& backend = *model_->backend();
  const LayerShape& shape = model_->shape();
  const LayerWeights& weights = model_->layers()[static_cast<size_t>(layer)];
  const KvLayerView kv = pool_->Layer(layer);
  float* x = buffers_->x_ + static_cast<int64_t>(row_begin) * shape.hidden_size;

  backend.QkvRope(shape, weights, Slice(row_begin, row_end), model_->inv_freq().data(), x, buffers_->q_, kv);

  // Behind the last layer only the rows with logits matter: those from the panel's first to its last.
  int begin = row_begin, end = row_end;
  if (layer + 1 == model_->config().num_layers) {
    const std::vector<int32_t>& wanted = input_->logit_rows;
    const auto first = std::lower_bound(wanted.begin(), wanted.end(), row_begin);
    const auto last = std::lower_bound(wanted.begin(), wanted.end(), row_end);
    if (first == last) return;
    begin = *first;
    end = *(last - 1) + 1;
  }
  const int64_t skipped = begin - row_begin;
  const float* q = buffers_->q_ + skipped * shape.num_heads * shape.head_dim;
  x += skipped * shape.hidden_size;
  backend.Attention(shape, Slice(begin, end), q, kv, buffers_->attention_);
  backend.AttentionOut(shape, weights, end - begin, buffers_->attention_, x);
  backend.Mlp(shape, weights, end - begin, x);
}

void ForwardPass::RunHead() {
  if (input_->logit_rows.empty()) return;
  Backend& backend = *model_->backend();
  if (input_->choices.empty()) {
    backend.Head(model_->shape(), model_->final_norm(), model_->head(), input_->logit_rows, buffers_->x_, buffers_->logits_);
  } else {
    backend.HeadAndChoose(model_->shape(), model_->final_norm(), model_->head(), input_->logit_rows, buffers_->x_, input_->choices,
                          buffers_->logits_, buffers_->tokens_);
  }
}

}  // namespace baton
