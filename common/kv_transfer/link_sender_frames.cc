// SPDX-License-Identifier: Apache-2.0
// The part of LinkSender that cuts what was pushed into frames.
#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/kv_transfer/layout_conversion.h"
#include "common/kv_transfer/link_sender.h"
#include "common/kv_transfer/link_sender_transfer.h"

namespace baton {

bool LinkSender::LinkSums(const Transfer& transfer) const {
  return direct_ && link_->sums_cells(transfer.grant.has_value() ? &*transfer.grant : nullptr);
}

bool LinkSender::ReadsDevice(const std::shared_ptr<Transfer>& transfer) const { return transfer->reads_device.load(); }

absl::Status LinkSender::SendPiece(Transfer& transfer, const Piece& piece) {
  const int num_tokens = transfer.job.num_tokens;
  const int blocks_per_frame = std::max<int>(1, static_cast<int>(options_.max_frame_bytes / target_.block_layer_bytes()));
  for (int layer = piece.layer_begin; layer < piece.layer_end; ++layer) {
    int& pushed = transfer.pushed_end[static_cast<size_t>(layer)];
    int& sent = transfer.sent_end[static_cast<size_t>(layer)];
    if (piece.token_begin > pushed || piece.token_end > num_tokens) {
      return absl::InternalError(absl::StrCat("layer ", layer, ": tokens ", piece.token_begin, " to ", piece.token_end,
                                              " were pushed where ", pushed, " of ", num_tokens, " is next"));
    }
    pushed = std::max(pushed, piece.token_end);
    const int end = pushed == num_tokens ? num_tokens : pushed - pushed % target_.block_size;
    while (sent < end) {
      int frame_end = std::min(end, sent + blocks_per_frame * target_.block_size);
      // What does not fill its cell is a frame of its own, so that the rest is the link's to sum up.
      if (const int whole = frame_end - frame_end % target_.block_size; whole > sent && LinkSums(transfer)) frame_end = whole;
      BATON_RETURN_IF_ERROR(SendFrame(transfer, layer, sent, frame_end));
      sent = frame_end;
    }
  }
  return absl::OkStatus();
}

absl::Status LinkSender::SendFrame(Transfer& transfer, int layer, int token_begin, int token_end) {
  std::vector<std::span<const uint8_t>> pieces;
  int token = token_begin;
  for (; direct_ && token + target_.block_size <= token_end; token += target_.block_size) {
    const std::span<const uint8_t> cell = pool_->Cell(layer, transfer.blocks[static_cast<size_t>(token / target_.block_size)]);
    if (!pieces.empty() && pieces.back().data() + pieces.back().size() == cell.data()) {
      pieces.back() = {pieces.back().data(), pieces.back().size() + cell.size()};  // Blocks that are neighbours are one piece.
    } else {
      pieces.push_back(cell);
    }
  }
  const bool lasting = token == token_end;
  if (!lasting) {
    const size_t bytes = static_cast<size_t>(token_end - token) * target_.token_layer_bytes();
    if (scratch_.size() < bytes) scratch_.resize(bytes);
    const std::span<uint8_t> out(scratch_.data(), bytes);
    ReadTokensAs(*pool_, target_, layer, transfer.blocks, token, token_end, out);
    pieces.push_back(out);
  }
  OutgoingFrame frame{.transfer = transfer.job.transfer, .attempt = transfer.job.attempt};
  frame.header = {layer, token_begin, token_end, 0};
  frame.payload = pieces;
  frame.lasting = lasting;
  frame.grant = transfer.grant.has_value() ? &*transfer.grant : nullptr;
  if (options_.checksum_frames && lasting && LinkSums(transfer)) {
    frame.checksum = std::make_shared<uint64_t>(0);
    transfer.checksums.emplace_back(transfer.records.size(), frame.checksum);
  } else if (options_.checksum_frames) {
    frame.header.checksum = FrameChecksum(pieces);
  }
  transfer.records.push_back({layer, token_begin, token_end, frame.header.checksum});
  transfer.stats.payload_bytes += static_cast<int64_t>(token_end - token_begin) * static_cast<int64_t>(target_.token_layer_bytes());
  return link_->SendFrame(frame, [this, &transfer] { return Interrupted(transfer); });
}

absl::Status LinkSender::FinishTransfer(Transfer& transfer, Command& command) {
  for (size_t layer = 0; layer < transfer.sent_end.size(); ++layer) {
    if (transfer.sent_end[layer] == transfer.job.num_tokens) continue;
    return absl::InternalError(absl::StrCat("layer ", layer, ": only ", transfer.sent_end[layer], " of ",
                                            transfer.job.num_tokens, " tokens were pushed"));
  }
  if (!transfer.checksums.empty()) BATON_RETURN_IF_ERROR(link_->Flush([this, &transfer] { return Interrupted(transfer); }));
  for (const auto& [index, checksum] : transfer.checksums) transfer.records[index].checksum = *checksum;
  Manifest& manifest = command.manifest;
  manifest.kv_layout = target_.fingerprint();  // What was sent is in the peer's layout.
  manifest.num_frames = static_cast<int64_t>(transfer.records.size());
  manifest.payload_bytes = transfer.stats.payload_bytes;
  manifest.checksum = ManifestChecksum(transfer.records, manifest);
  BATON_RETURN_IF_ERROR(link_->SendManifest(transfer.job.transfer, transfer.job.attempt, manifest,
                                            [this, &transfer] { return Interrupted(transfer); }));
  transfer.stats.tail_ms = ToMs(options_.clock->Now() - command.enqueued);
  End(transfer, absl::OkStatus());
  return absl::OkStatus();
}

}  // namespace baton
