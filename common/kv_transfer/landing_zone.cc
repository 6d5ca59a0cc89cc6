// SPDX-License-Identifier: Apache-2.0
#include "common/kv_transfer/landing_zone.h"

#include <xxhash.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"

namespace baton {

uint64_t FrameChecksum(std::span<const uint8_t> payload) { return XXH3_64bits(payload.data(), payload.size()); }

uint64_t ManifestChecksum(std::vector<FrameRecord> records) {
  std::sort(records.begin(), records.end(), [](const FrameRecord& a, const FrameRecord& b) {
    return std::tie(a.layer, a.token_begin) < std::tie(b.layer, b.token_begin);
  });
  std::vector<uint64_t> words;
  words.reserve(records.size() * 4);
  for (const FrameRecord& record : records) {
    words.push_back(static_cast<uint64_t>(record.layer));
    words.push_back(static_cast<uint64_t>(record.token_begin));
    words.push_back(static_cast<uint64_t>(record.token_end));
    words.push_back(record.checksum);
  }
  return XXH3_64bits(words.data(), words.size() * sizeof(uint64_t));
}

LandingZone::LandingZone(const LandingZoneOptions& options, KvPool* pool, const Clock* clock,
                         std::function<void()> on_unpinned)
    : options_(options), pool_(pool), clock_(clock), on_unpinned_(std::move(on_unpinned)) {
  BATON_CHECK(options.num_tokens <= static_cast<int>(options.blocks.size()) * pool->layout().block_size);
}

absl::Status LandingZone::Write(const FrameHeader& header, std::span<const uint8_t> payload) {
  absl::Status status = CheckFrame(header, payload.size());
  if (status.ok() && FrameChecksum(payload) != header.checksum) {
    status = absl::DataLossError(absl::StrFormat("KV frame of layer %d, tokens %d to %d: checksum %016x, announced %016x",
                                                 header.layer, header.token_begin, header.token_end,
                                                 FrameChecksum(payload), header.checksum));
  }
  {
    MutexLock lock(&mutex_);
    if (!open_) return absl::CancelledError("attempt is not current");
    if (!status.ok()) {
      error_.Update(status);
      return status;
    }
    if (records_.empty()) first_frame_ = clock_->Now();
    ++pins_;
  }
  Copy(header, payload);
  std::function<void()> unpinned;
  {
    MutexLock lock(&mutex_);
    --pins_;
    records_.push_back({header.layer, header.token_begin, header.token_end, header.checksum});
    payload_bytes_ += static_cast<int64_t>(payload.size());
    last_write_ = clock_->Now();
    if (!open_ && pins_ == 0) unpinned = std::move(on_unpinned_);
  }
  if (unpinned) unpinned();
  return absl::OkStatus();
}

absl::Status LandingZone::CheckFrame(const FrameHeader& header, size_t payload_bytes) const {
  const KvLayout& layout = pool_->layout();
  if (header.layer < 0 || header.layer >= layout.num_layers) {
    return absl::InvalidArgumentError(
        absl::StrCat("KV frame names layer ", header.layer, " of ", layout.num_layers));
  }
  if (header.token_begin < options_.first_token || header.token_end <= header.token_begin ||
      header.token_end > options_.num_tokens) {
    return absl::InvalidArgumentError(absl::StrCat("KV frame of tokens ", header.token_begin, " to ", header.token_end,
                                                   " is outside the transfer's ", options_.first_token, " to ",
                                                   options_.num_tokens));
  }
  if (header.token_begin % layout.block_size != 0 ||
      (header.token_end % layout.block_size != 0 && header.token_end != options_.num_tokens)) {
    return absl::InvalidArgumentError(absl::StrCat("KV frame of tokens ", header.token_begin, " to ", header.token_end,
                                                   " does not start and end at blocks of ", layout.block_size));
  }
  const size_t expected = static_cast<size_t>(header.token_end - header.token_begin) * layout.token_layer_bytes();
  if (payload_bytes != expected) {
    return absl::InvalidArgumentError(absl::StrCat("KV frame of ", header.token_end - header.token_begin, " tokens has ",
                                                   payload_bytes, " bytes, not ", expected));
  }
  return absl::OkStatus();
}

void LandingZone::Copy(const FrameHeader& header, std::span<const uint8_t> payload) const {
  const int block_size = pool_->layout().block_size;
  for (int token = header.token_begin; token < header.token_end;) {
    const int count = std::min(block_size, header.token_end - token);
    const size_t bytes = static_cast<size_t>(count) * pool_->layout().token_layer_bytes();
    pool_->WriteTokens(header.layer, options_.blocks[token / block_size], token % block_size, count, payload.first(bytes));
    payload = payload.subspan(bytes);
    token += count;
  }
}

absl::Status LandingZone::Verify(const Manifest& manifest, LandingStats* stats) {
  std::vector<FrameRecord> records;
  {
    MutexLock lock(&mutex_);
    if (!open_) return absl::CancelledError("attempt is not current");
    BATON_RETURN_IF_ERROR(error_);
    records = records_;
    stats->payload_bytes = payload_bytes_;
    stats->num_frames = static_cast<int64_t>(records_.size());
    stats->receive_ms = records_.empty() ? 0 : ToMs(clock_->Now() - first_frame_);
    stats->numerics = manifest.numerics;
  }
  const KvCompatibility& local = options_.compatibility;
  if (manifest.model_fingerprint != local.model_fingerprint) {
    return absl::FailedPreconditionError(absl::StrCat("model mismatch: peer ", manifest.model_fingerprint, ", local ",
                                                      local.model_fingerprint));
  }
  if (manifest.kv_layout != local.kv_layout) {
    return absl::FailedPreconditionError(
        absl::StrCat("kv layout mismatch: peer ", manifest.kv_layout, ", local ", local.kv_layout));
  }
  if (manifest.first_token != options_.first_token || manifest.num_tokens != options_.num_tokens) {
    return absl::FailedPreconditionError(absl::StrCat("token range mismatch: peer sent ", manifest.first_token, " to ",
                                                      manifest.num_tokens, ", expected ", options_.first_token, " to ",
                                                      options_.num_tokens));
  }
  if (manifest.token_hash != options_.token_hash) {
    return absl::FailedPreconditionError(absl::StrFormat("token hash mismatch: peer %016x, local %016x",
                                                         manifest.token_hash, options_.token_hash));
  }
  BATON_RETURN_IF_ERROR(CheckCoverage(records));
  if (const uint64_t checksum = ManifestChecksum(std::move(records)); checksum != manifest.checksum) {
    return absl::DataLossError(
        absl::StrFormat("manifest checksum %016x, of what arrived %016x", manifest.checksum, checksum));
  }
  return absl::OkStatus();
}

absl::Status LandingZone::CheckCoverage(const std::vector<FrameRecord>& records) const {
  std::vector<FrameRecord> sorted = records;
  std::sort(sorted.begin(), sorted.end(), [](const FrameRecord& a, const FrameRecord& b) {
    return std::tie(a.layer, a.token_begin) < std::tie(b.layer, b.token_begin);
  });
  size_t next = 0;
  for (int layer = 0; layer < pool_->layout().num_layers; ++layer) {
    int token = options_.first_token;
    for (; next < sorted.size() && sorted[next].layer == layer; ++next) {
      if (sorted[next].token_begin != token) {
        return absl::DataLossError(absl::StrCat("layer ", layer, ": frame starts at token ", sorted[next].token_begin,
                                                ", expected ", token));
      }
      token = sorted[next].token_end;
    }
    if (token != options_.num_tokens) {
      return absl::DataLossError(
          absl::StrCat("layer ", layer, ": KV arrived up to token ", token, " of ", options_.num_tokens));
    }
  }
  return absl::OkStatus();
}

MonotonicTime LandingZone::last_write() const {
  MutexLock lock(&mutex_);
  return last_write_;
}

bool LandingZone::Close() {
  MutexLock lock(&mutex_);
  if (!open_) return false;
  open_ = false;
  if (pins_ == 0) on_unpinned_ = nullptr;
  return pins_ > 0;
}

void LandingDirectory::Put(std::shared_ptr<LandingZone> zone) {
  const TransferId transfer = zone->transfer();
  MutexLock lock(&mutex_);
  zones_[transfer] = std::move(zone);
}

void LandingDirectory::Remove(const TransferId& transfer) {
  MutexLock lock(&mutex_);
  zones_.erase(transfer);
}

std::shared_ptr<LandingZone> LandingDirectory::Find(const TransferId& transfer, int attempt) const {
  MutexLock lock(&mutex_);
  const auto it = zones_.find(transfer);
  if (it == zones_.end() || it->second->attempt() != attempt) return nullptr;
  return it->second;
}

size_t LandingDirectory::size() const {
  MutexLock lock(&mutex_);
  return zones_.size();
}

}  // namespace baton
