// SPDX-License-Identifier: Apache-2.0
#include "common/model/logits_probe.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"

namespace baton {

absl::StatusOr<std::unique_ptr<LogitsProbe>> LogitsProbe::Open(absl::string_view path,
                                                               const LogitsProbeOptions& options) {
  BATON_ASSIGN_OR_RETURN(std::shared_ptr<const Checkpoint> checkpoint, Checkpoint::Open(path));
  return Open(std::move(checkpoint), options);
}

absl::StatusOr<std::unique_ptr<LogitsProbe>> LogitsProbe::Open(std::shared_ptr<const Checkpoint> checkpoint,
                                                               const LogitsProbeOptions& options) {
  std::unique_ptr<LogitsProbe> probe(new LogitsProbe());
  probe->options_ = options;
  probe->options_.chunk_tokens = std::max(options.chunk_tokens, 1);
  BATON_ASSIGN_OR_RETURN(probe->backend_, CreateBackend(options.backend, options.backend_options));
  BATON_ASSIGN_OR_RETURN(probe->model_, Model::Load(std::move(checkpoint), probe->backend_.get()));
  BATON_RETURN_IF_ERROR(probe->backend_->CheckShape(probe->model_->shape(), options.kv_dtype));
  return probe;
}

absl::Status LogitsProbe::Validate(std::span<const int32_t> tokens, int first_logits) const {
  const ModelConfig& config = model_->config();
  const int num_tokens = static_cast<int>(tokens.size());
  if (num_tokens == 0) return absl::InvalidArgumentError("no tokens");
  if (num_tokens > config.context_length) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%d tokens are more than the model's context of %d", num_tokens, config.context_length));
  }
  for (int i = 0; i < num_tokens; ++i) {
    const int32_t token = tokens[static_cast<size_t>(i)];
    if (token < 0 || token >= config.vocab_size) {
      return absl::InvalidArgumentError(
          absl::StrFormat("token id %d at position %d is outside [0, %d)", token, i, config.vocab_size));
    }
  }
  if (first_logits < 0 || first_logits >= num_tokens) {
    return absl::InvalidArgumentError(absl::StrFormat("first_logits %d is outside [0, %d)", first_logits, num_tokens));
  }
  return absl::OkStatus();
}

absl::Status LogitsProbe::ReservePool(int num_tokens) {
  const int num_blocks = (num_tokens + options_.block_size - 1) / options_.block_size;
  if (pool_ != nullptr && pool_->num_blocks() >= num_blocks) return absl::OkStatus();
  pool_.reset();  // Before the bigger one is there.
  BATON_ASSIGN_OR_RETURN(pool_, KvPool::Create(model_->kv_layout(options_.kv_dtype, options_.block_size), num_blocks,
                                               backend_.get()));
  return absl::OkStatus();
}

absl::Status LogitsProbe::Run(std::span<const int32_t> tokens, int first_logits, const Sink& sink) {
  BATON_RETURN_IF_ERROR(Validate(tokens, first_logits));
  const int num_tokens = static_cast<int>(tokens.size());
  BATON_RETURN_IF_ERROR(ReservePool(num_tokens));
  const int max_rows = std::min(options_.chunk_tokens, num_tokens);
  const int max_logits = std::min(max_rows, num_tokens - first_logits);
  if (buffers_ == nullptr || buffers_->max_rows() < max_rows || buffers_->max_logit_rows() < max_logits) {
    BATON_ASSIGN_OR_RETURN(buffers_, ForwardBuffers::Create(*model_, max_rows, max_logits));
  }
  std::vector<int32_t> blocks(static_cast<size_t>(pool_->num_blocks()));
  std::iota(blocks.begin(), blocks.end(), 0);
  const size_t vocab = static_cast<size_t>(model_->config().vocab_size);
  ModelInput input;
  for (int begin = 0; begin < num_tokens; begin += options_.chunk_tokens) {
    const int end = std::min(begin + options_.chunk_tokens, num_tokens);
    const int num_logits = std::clamp(end - first_logits, 0, end - begin);
    input.Clear();
    input.AddSequence(tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)), begin, blocks,
                      options_.block_size, num_logits);
    ForwardPass pass(model_.get(), pool_.get(), &input, buffers_.get(), options_.panel_rows);
    pass.Finish();
    BATON_RETURN_IF_ERROR(backend_->status());
    for (int i = 0; i < num_logits; ++i) {
      sink(end - num_logits + i, {buffers_->logits() + static_cast<size_t>(i) * vocab, vocab});
    }
  }
  return absl::OkStatus();
}

}  // namespace baton
