// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_TRANSFER_STREAM_PEER_POOL_H_
#define BATON_COMMON_KV_TRANSFER_STREAM_PEER_POOL_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/kv/kv_layout.h"
#include "common/kv_transfer/kv_link.h"

namespace baton {

// A receiver's pool as a one-sided writer reaches it. One thread. Calls that wait end as PayloadWriter's do.
class PeerPool {
 public:
  using Interrupted = std::function<absl::Status()>;

  virtual ~PeerPool() = default;
  // Begins to write a frame into the blocks that its grant names. Lasting payload, and cells of the writer's own pool, may be read until
  // Settle or until the frame has arrived; all else is not read after the call.
  //   INTERNAL  the grant has no such blocks. Others  the pool cannot be written to any more.
  virtual absl::Status Place(const OutgoingFrame& frame, const Interrupted& interrupted) = 0;
  // Whether Place makes the checksum of a frame that comes without: of whole cells of the writer's pool. It is there when Arrived says so.
  virtual bool sums_cells() const { return false; }
  // How many more frames lie there, in the order placed, than the calls before have told. Does not wait.
  virtual absl::StatusOr<size_t> Arrived() = 0;
  // Until all do.
  virtual absl::Status Finish(const Interrupted& interrupted) = 0;
  // Until nothing is being written or read any more, but not longer than the link's stall timeout. False: that is not so.
  virtual bool Settle() = 0;
};

// For each cell that a frame fills: `place(block, bytes, copied)` with the wire form of the cell's first tokens, which is the whole cell
// when it has block_layer_bytes(). `copied`: the bytes are valid during the call only; else they are the payload's own. Ends at the first
// error.
//   INTERNAL  the grant has no block of a pool of `num_blocks` for it.
absl::Status ForEachCell(const OutgoingFrame& frame, const KvLayout& layout, int num_blocks,
                         const std::function<absl::Status(BlockId block, std::span<const uint8_t> bytes, bool copied)>& place);

}  // namespace baton

#endif  // BATON_COMMON_KV_TRANSFER_STREAM_PEER_POOL_H_
