// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_TRANSFER_LINK_SENDER_TRANSFER_H_
#define BATON_COMMON_KV_TRANSFER_LINK_SENDER_TRANSFER_H_

#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "common/kv_transfer/link_sender.h"

namespace baton {

// One job of a LinkSender.
class KvSender::Transfer {
 public:
  explicit Transfer(SendJob j) : job(std::move(j)) {}

  // Sender thread only, after Begin.
  SendJob job;
  std::vector<BlockId> blocks;
  // The link that the job began on: the rest of it over another one would leave a hole.
  std::shared_ptr<KvLink> link;
  std::optional<LinkGrant> grant;
  MonotonicTime grant_deadline = absl::InfiniteDuration();
  std::deque<LinkSender::Command> deferred;  // Until the grant is here.
  std::vector<int> pushed_end, sent_end;     // Per layer, in tokens.
  std::vector<FrameRecord> records;
  std::vector<std::pair<size_t, std::shared_ptr<const uint64_t>>> checksums;  // Of records by index: theirs to come.
  SendStats stats;

  std::atomic<bool> reads_device{false};  // What the link sums up it does not read on the host.
  std::atomic<bool> ended{false};
  std::atomic<bool> cancelled{false};  // By this process.
  std::atomic<bool> fenced{false};     // By the peer's Abort.
};

}  // namespace baton

#endif  // BATON_COMMON_KV_TRANSFER_LINK_SENDER_TRANSFER_H_
