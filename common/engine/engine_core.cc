// SPDX-License-Identifier: Apache-2.0
#include "common/engine/engine_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/engine/engine_core_impl.h"

namespace baton {
namespace {

absl::Status CheckRange(const char* option, double value, double low, double high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("%s is %g; it must be from %g to %g", option, value, low, high));
}

absl::Status ValidateOptions(const EngineOptions& options, const Model& model, const KvPool& pool) {
  BATON_RETURN_IF_ERROR(CheckRange("max_step_rows", options.max_step_rows, 1, 1 << 20));
  BATON_RETURN_IF_ERROR(CheckRange("max_running", options.max_running, 0, 1 << 16));
  BATON_RETURN_IF_ERROR(CheckRange("max_waiting", options.max_waiting, 1, 1 << 20));
  BATON_RETURN_IF_ERROR(CheckRange("panel_rows", options.panel_rows, 1, 1 << 20));
  BATON_RETURN_IF_ERROR(CheckRange("context_length", options.context_length, 0, model.config().context_length));
  BATON_RETURN_IF_ERROR(CheckRange("prefill_share", options.sharing.prefill_share, 0, kMaxPrefillShare));
  BATON_RETURN_IF_ERROR(CheckRange("itl_target", absl::ToDoubleSeconds(options.sharing.itl_target), 0, 3600));
  BATON_RETURN_IF_ERROR(CheckRange("ttft_target", absl::ToDoubleSeconds(options.sharing.ttft_target), 0, 3600));
  const KvLayout& layout = pool.layout();
  const std::string wanted = model.kv_layout(layout.dtype, layout.block_size).fingerprint();
  if (layout.fingerprint() != wanted) {
    return absl::InvalidArgumentError(
        absl::StrFormat("kv layout mismatch: the pool's is %s, the model's %s", layout.fingerprint(), wanted));
  }
  return CheckRange("num_blocks", pool.num_blocks(), 1, 1 << 30);
}

int ContextLength(const EngineOptions& options, const Model& model, const KvPool& pool) {
  const int64_t wanted = options.context_length > 0 ? options.context_length : model.config().context_length;
  return static_cast<int>(std::min<int64_t>(wanted, int64_t{pool.num_blocks()} * pool.layout().block_size));
}

}  // namespace

EngineCore::Impl::Impl(const Model* model, KvPool* pool, const EngineOptions& options, const Clock* clock,
                       std::unique_ptr<ForwardBuffers> prefill_buffers, std::unique_ptr<ForwardBuffers> decode_buffers)
    : model_(model),
      pool_(pool),
      options_(options),
      clock_(clock),
      context_length_(ContextLength(options, *model, *pool)),
      work_(WorkOf(*model, pool->layout())),
      blocks_(pool->num_blocks(), pool->layout().block_size, options.enable_prefix_cache),
      sampler_(model->config().vocab_size),
      prefill_batch_(model, pool, &blocks_, std::move(prefill_buffers), options.panel_rows),
      decode_batch_(model, pool, &blocks_, std::move(decode_buffers), options.panel_rows) {
  scheduler_options_.max_step_rows = options.max_step_rows;
  scheduler_options_.max_running = options.max_running;
  scheduler_options_.mixed_steps = !options.decode_first;
  scheduler_options_.shortest_remaining_first = options.shortest_remaining_first;
  scheduler_options_.ageing_bound = options.ageing_bound;
}

EngineStats EngineCore::Impl::stats() const {
  EngineStats stats = stats_;
  stats.blocks = blocks_.counts();
  stats.running = static_cast<int>(running_.size());
  for (const Sequence* sequence : waiting_) ++(sequence->started ? stats.running : stats.waiting);
  stats.landing = num_landing_;
  return stats;
}

std::vector<uint64_t> EngineCore::Impl::CachedPrefixes(int max_blocks) const {
  const PrefixCache& cache = blocks_.prefix_cache();
  std::vector<uint64_t> prefixes;
  for (BlockId block = 0; block < std::min(max_blocks, pool_->num_blocks()); ++block) {
    if (cache.Contains(block)) prefixes.push_back(cache.HashOf(block).low);
  }
  return prefixes;
}

void EngineCore::Impl::CheckInvariants() const {
  blocks_.CheckInvariants();
  int landing = 0, recompute = 0;
  size_t waiting = 0, running = 0;
  for (const auto& [id, request] : requests_) {
    BATON_CHECK_EQ(id, request->id);
    for (const auto& sequence : request->sequences) {
      landing += sequence->state == State::kLanding;
      waiting += sequence->state == State::kWaiting;
      running += sequence->state == State::kRunning;
      recompute += sequence->state == State::kWaiting && sequence->recompute;
      if (sequence->state == State::kEnded) {
        BATON_CHECK(sequence->table.empty() && sequence->batch == nullptr);
        continue;
      }
      BATON_CHECK_LE(sequence->num_computed, static_cast<int>(sequence->tokens.size()));
      BATON_CHECK_LE(sequence->num_computed, sequence->table.capacity());
      for (BlockId block : sequence->table.blocks()) {
        BATON_CHECK(blocks_.ref_count(block) > 0 && !blocks_.quarantined(block)) << "block " << block;
      }
    }
  }
  BATON_CHECK_EQ(landing, num_landing_);
  BATON_CHECK_EQ(recompute, num_recompute_waiting_);
  BATON_CHECK_EQ(waiting, waiting_.size());
  BATON_CHECK_EQ(running, running_.size());
}

absl::StatusOr<std::unique_ptr<EngineCore>> EngineCore::Create(const Model* model, KvPool* pool,
                                                               const EngineOptions& options, const Clock* clock) {
  BATON_RETURN_IF_ERROR(ValidateOptions(options, *model, *pool));
  // Of two batches the first has prefill passes, with decode rows too unless those go first in batches of their own.
  const bool mixed = !options.decode_first;
  const int prefill_rows = std::max(options.max_step_rows, mixed ? options.max_running : 0);
  BATON_ASSIGN_OR_RETURN(auto prefill_buffers,
                         ForwardBuffers::Create(*model, prefill_rows, (mixed ? options.max_running : 0) +
                                                                          (options.max_running > 0 ? Impl::kPromptLogitRows : 0)));
  std::unique_ptr<ForwardBuffers> decode_buffers;
  if (!mixed && options.max_running > 0) {
    BATON_ASSIGN_OR_RETURN(decode_buffers, ForwardBuffers::Create(*model, options.max_running, options.max_running));
  }
  auto impl = std::make_unique<Impl>(model, pool, options, clock, std::move(prefill_buffers), std::move(decode_buffers));
  return std::unique_ptr<EngineCore>(new EngineCore(std::move(impl)));
}

EngineCore::EngineCore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
EngineCore::~EngineCore() = default;

absl::StatusOr<Landing> EngineCore::ReserveLanding(SequenceId id, SequenceSpec spec, SequenceSink sink) {
  return impl_->ReserveLanding(id, std::move(spec), std::move(sink));
}
void EngineCore::Landed(SequenceId id) { impl_->Landed(id); }
absl::Status EngineCore::PrefillLocally(SequenceId id) { return impl_->PrefillLocally(id); }
absl::StatusOr<Landing> EngineCore::ReplaceLandingBlocks(SequenceId id, std::vector<BlockId>* quarantined) {
  return impl_->ReplaceLandingBlocks(id, quarantined);
}
absl::Status EngineCore::AddPrefill(SequenceId id, SequenceSpec spec, int first_token, SequenceSink sink) {
  return impl_->AddPrefill(id, std::move(spec), first_token, std::move(sink));
}

std::span<const BlockId> EngineCore::BlocksOf(SequenceId id) const {
  const Request* request = impl_->Find(id);
  return request == nullptr ? std::span<const BlockId>() : request->sequences[0]->table.blocks();
}
int EngineCore::NumCachedTokensOf(SequenceId id) const {
  const Request* request = impl_->Find(id);
  return request == nullptr ? 0 : request->num_cached;
}

int EngineCore::NumCached(const CacheKey& key, std::span<const int32_t> tokens) {
  BlockAllocator& blocks = impl_->blocks();
  const std::vector<BlockId> cached = blocks.MatchPrefix(key, tokens, static_cast<int>(tokens.size()));
  blocks.UnrefAll(cached);
  return static_cast<int>(cached.size()) * blocks.block_size();
}

absl::StatusOr<Landing> EngineCore::ReservePrefix(const CacheKey& key, std::span<const int32_t> tokens) {
  BlockAllocator& blocks = impl_->blocks();
  const int num_blocks = static_cast<int>(tokens.size()) / blocks.block_size();
  Landing landing{.num_tokens = num_blocks * blocks.block_size()};
  landing.blocks = blocks.MatchPrefix(key, tokens, landing.num_tokens);
  landing.num_cached_tokens = static_cast<int>(landing.blocks.size()) * blocks.block_size();
  const auto fresh = blocks.Allocate(num_blocks - static_cast<int>(landing.blocks.size()));
  if (!fresh.ok()) {
    blocks.UnrefAll(landing.blocks);
    return fresh.status();
  }
  landing.blocks.insert(landing.blocks.end(), fresh->begin(), fresh->end());
  return landing;
}

void EngineCore::CachePrefix(const CacheKey& key, std::span<const int32_t> tokens, const Landing& landing) {
  const std::span<const BlockId> blocks = landing.blocks;
  impl_->pool()->ToDevice(blocks.subspan(static_cast<size_t>(landing.num_cached_tokens / impl_->blocks().block_size())));
  impl_->blocks().InsertPrefix(key, tokens, blocks);
}

void EngineCore::Finish(SequenceId id) { impl_->Cancel(id); }
void EngineCore::Cancel(SequenceId id) { impl_->Cancel(id); }
std::vector<BlockId> EngineCore::CancelQuarantined(SequenceId id) { return impl_->CancelQuarantined(id); }
void EngineCore::ReleaseQuarantined(std::span<const BlockId> blocks) {
  for (BlockId block : blocks) impl_->blocks().ReleaseQuarantined(block);
}
void EngineCore::RetainBlocks(std::span<const BlockId> blocks) {
  for (BlockId block : blocks) impl_->blocks().Ref(block);
}
void EngineCore::ReleaseBlocks(std::span<const BlockId> blocks) { impl_->blocks().UnrefAll(blocks); }

bool EngineCore::Step(const std::function<void()>& between_units) { return impl_->Step(between_units); }

EngineStats EngineCore::stats() const { return impl_->stats(); }
const Model& EngineCore::model() const { return impl_->model(); }
KvPool* EngineCore::pool() const { return impl_->pool(); }
int EngineCore::context_length() const { return impl_->context_length(); }
std::vector<uint64_t> EngineCore::CachedPrefixes(int max_blocks) const { return impl_->CachedPrefixes(max_blocks); }
void EngineCore::ClearPrefixCache() { impl_->blocks().ClearPrefixCache(); }
void EngineCore::CheckInvariants() const { impl_->CheckInvariants(); }

}  // namespace baton
