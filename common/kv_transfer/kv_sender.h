// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_TRANSFER_KV_SENDER_H_
#define BATON_COMMON_KV_TRANSFER_KV_SENDER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "common/kv/block_allocator.h"
#include "common/kv_transfer/landing_zone.h"
#include "common/kv_transfer/transfer.h"
#include "common/kv_transfer/write_token.h"

namespace baton {

struct SendStats {
  int64_t payload_bytes = 0;
  double tail_ms = 0;  // Finish called to manifest sent: what was left to send after the last layer.
};

// One attempt at one transfer, from this process's pool to a peer's.
struct SendJob {
  TransferId transfer;
  int attempt = 0;
  uint64_t peer_incarnation = 0;  // The decode process that reserved; another one at its address is UNAVAILABLE.
  int first_token = 0;            // The peer has what is before: a multiple of its block size.
  int num_tokens = 0;             // KV of tokens [first_token, num_tokens) is sent.
  WriteToken token;               // That the peer drew for this attempt; none of a peer that does not ask for one.
  // Exactly once, on a transport thread: the manifest was sent, or why not (CANCELLED after Cancel, ABORTED when the peer
  // fenced the attempt, FAILED_PRECONDITION when it cannot work with us, UNAVAILABLE when the link broke, DEADLINE_EXCEEDED
  // when it stalled). No byte of the blocks is read afterwards, and none of the peer's is written.
  std::function<void(const absl::Status&, const SendStats&)> on_done;
};

// Moves blocks to one peer over one kind of transport. All methods may be called on any thread and do not block; a thread of
// the sender's reads the blocks. Pieces of one job are sent in the order pushed.
class KvSender {
 public:
  class Transfer;  // Handle of a job; what it points to lives until on_done and the last handle are gone.

  virtual ~KvSender() = default;
  virtual TransportKind kind() const = 0;

  // Starts a job: asks the peer, if the transport must. Errors come by on_done.
  virtual std::shared_ptr<Transfer> Begin(SendJob job) = 0;
  // Where the tokens lie: blocks of this pool in position order from token 0, referenced by the caller until on_done. Before
  // the first Push; once.
  virtual void SetBlocks(const std::shared_ptr<Transfer>& transfer, std::vector<BlockId> blocks) = 0;
  // Layers [layer_begin, layer_end) of tokens [token_begin, token_end) are in the pool. The pieces of a layer come in order,
  // from first_token on and without gaps; what fills no whole block of the peer's is sent with the piece that does.
  virtual void Push(const std::shared_ptr<Transfer>& transfer, int layer_begin, int layer_end, int token_begin,
                    int token_end) = 0;
  // Whether whole cells that are pushed from now on are read where they lie on the device of the writer's pool, and not in its form on the
  // host. Once true, it stays so. Any thread.
  virtual bool ReadsDevice(const std::shared_ptr<Transfer>& /*transfer*/) const { return false; }
  // Everything was pushed. The sender fills in layout, checksum and sizes.
  virtual void Finish(const std::shared_ptr<Transfer>& transfer, Manifest manifest) = 0;
  // Stops copying; on_done says CANCELLED unless it was done already.
  virtual void Cancel(const std::shared_ptr<Transfer>& transfer) = 0;

  // Ends open jobs (UNAVAILABLE), hands the peer what was sent already, and joins the sender's thread: no byte of the pool is
  // read afterwards. Idempotent; blocks for at most the transfer timeout. Not on a transport thread.
  virtual void Stop() = 0;
};

}  // namespace baton

#endif  // BATON_COMMON_KV_TRANSFER_KV_SENDER_H_
