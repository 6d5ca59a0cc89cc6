// SPDX-License-Identifier: Apache-2.0
#include "common/kv_transfer/shm/mapped_pool.h"

#include <utility>

#include "common/base/status_macros.h"
#include "common/kv/kv_pool.h"
#include "common/kv_transfer/copy_past_caches.h"

namespace baton {
namespace {

class MappedPool final : public PeerPool {
 public:
  explicit MappedPool(std::unique_ptr<KvPool> pool) : pool_(std::move(pool)) {}

  absl::Status Place(const OutgoingFrame& frame, const Interrupted&) override {
    const KvLayout& layout = pool_->layout();
    const int layer = frame.header.layer;
    BATON_RETURN_IF_ERROR(ForEachCell(frame, layout, pool_->num_blocks(), [&](BlockId block, std::span<const uint8_t> bytes, bool) {
      if (bytes.size() == layout.block_layer_bytes()) {
        CopyPastCaches(pool_->Cell(layer, block).data(), bytes.data(), bytes.size());
      } else {
        pool_->WriteTokens(layer, block, 0, static_cast<int>(bytes.size() / layout.token_layer_bytes()), bytes);
      }
      return absl::OkStatus();
    }));
    ++num_placed_;
    return absl::OkStatus();
  }
  absl::StatusOr<size_t> Arrived() override { return std::exchange(num_placed_, 0); }
  absl::Status Finish(const Interrupted&) override { return absl::OkStatus(); }
  bool Settle() override { return true; }

 private:
  const std::unique_ptr<KvPool> pool_;
  size_t num_placed_ = 0;  // Not told of.
};

}  // namespace

absl::StatusOr<std::unique_ptr<PeerPool>> MapPeerPool(const StreamHello& welcome, const Fd& memory) {
  if (!memory) return absl::FailedPreconditionError("KV link: the receiver sent no memory");
  BATON_ASSIGN_OR_RETURN(const KvLayout layout, ParseKvLayout(welcome.hello.compatibility.kv_layout));
  BATON_ASSIGN_OR_RETURN(auto pool, KvPool::MapShared(layout, static_cast<int>(welcome.num_blocks), memory.get()));
  return std::make_unique<MappedPool>(std::move(pool));
}

}  // namespace baton
