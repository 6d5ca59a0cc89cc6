// SPDX-License-Identifier: Apache-2.0
#include "common/kv_transfer/stream/peer_pool.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

// Reads on through the pieces of a frame.
class Pieces {
 public:
  explicit Pieces(std::span<const std::span<const uint8_t>> pieces) : pieces_(pieces) {}
  // The next `bytes` of them, or what is left; in one span where they lie in one piece, else copied.
  std::span<const uint8_t> Next(size_t bytes) {
    copied_ = false;
    while (!pieces_.empty() && offset_ == pieces_.front().size()) Advance();
    if (pieces_.empty()) return {};
    const std::span<const uint8_t> rest = pieces_.front().subspan(offset_);
    if (rest.size() >= bytes) {
      offset_ += bytes;
      return rest.first(bytes);
    }
    copied_ = true;
    copy_.clear();
    while (!pieces_.empty() && copy_.size() < bytes) {
      const std::span<const uint8_t> from = pieces_.front().subspan(offset_);
      const size_t part = std::min(from.size(), bytes - copy_.size());
      copy_.insert(copy_.end(), from.begin(), from.begin() + static_cast<ptrdiff_t>(part));
      offset_ += part;
      if (offset_ == pieces_.front().size()) Advance();
    }
    return copy_;
  }
  bool copied() const { return copied_; }

 private:
  void Advance() {
    pieces_ = pieces_.subspan(1);
    offset_ = 0;
  }
  std::span<const std::span<const uint8_t>> pieces_;
  size_t offset_ = 0;
  std::vector<uint8_t> copy_;
  bool copied_ = false;
};

}  // namespace

absl::Status ForEachCell(const OutgoingFrame& frame, const KvLayout& layout, int num_blocks,
                         const std::function<absl::Status(BlockId block, std::span<const uint8_t> bytes, bool copied)>& place) {
  const FrameHeader& header = frame.header;
  Pieces pieces(frame.payload);
  for (int token = header.token_begin; token < header.token_end; token += layout.block_size) {
    const size_t index = static_cast<size_t>(token / layout.block_size);
    const BlockId block = index < frame.grant->blocks.size() ? frame.grant->blocks[index] : -1;
    if (block < 0 || block >= num_blocks || header.layer < 0 || header.layer >= layout.num_layers) {
      return absl::InternalError(absl::StrCat("the grant has no block for token ", token, " of layer ", header.layer));
    }
    const int count = std::min(layout.block_size, header.token_end - token);
    const std::span<const uint8_t> bytes = pieces.Next(static_cast<size_t>(count) * layout.token_layer_bytes());
    // Less than a whole part happens only where a test cuts frames short; the receiver finds out.
    const size_t whole = bytes.size() / layout.token_layer_bytes() * layout.token_layer_bytes();
    if (whole > 0) BATON_RETURN_IF_ERROR(place(block, bytes.first(whole), pieces.copied()));
  }
  return absl::OkStatus();
}

}  // namespace baton
