// SPDX-License-Identifier: Apache-2.0
#include "common/kv_transfer/landing_zone.h"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/kv_transfer/layout_conversion.h"

namespace baton {

uint64_t ManifestChecksum(std::vector<FrameRecord> records, const Manifest& manifest) {
  std::sort(records.begin(), records.end(), [](const FrameRecord& a, const FrameRecord& b) {
    return std::tie(a.layer, a.token_begin) < std::tie(b.layer, b.token_begin);
  });
  std::vector<uint64_t> words;
  words.reserve(records.size() * 4 + 8);
  for (const FrameRecord& record : records) {
    words.push_back(static_cast<uint64_t>(record.layer));
    words.push_back(static_cast<uint64_t>(record.token_begin));
    words.push_back(static_cast<uint64_t>(record.token_end));
    words.push_back(record.checksum);
  }
  words.insert(words.end(), {static_cast<uint64_t>(manifest.first_token), static_cast<uint64_t>(manifest.num_tokens),
                             manifest.token_hash, static_cast<uint64_t>(manifest.num_frames),
                             static_cast<uint64_t>(manifest.payload_bytes)});
  for (const std::string& text : {manifest.model_fingerprint, manifest.kv_layout, manifest.numerics}) {
    words.push_back(FrameChecksum({reinterpret_cast<const uint8_t*>(text.data()), text.size()}));
  }
  return FrameChecksum({reinterpret_cast<const uint8_t*>(words.data()), words.size() * sizeof(uint64_t)});
}

LandingZone::LandingZone(const LandingZoneOptions& options, KvPool* pool, const Clock* clock,
                         std::function<void()> on_unpinned)
    : options_(options), pool_(pool), clock_(clock), on_unpinned_(std::move(on_unpinned)) {
  BATON_CHECK(options.num_tokens <= static_cast<int>(options.blocks.size()) * pool->layout().block_size);
  if (const std::string& wire = options.compatibility.kv_wire_layout; !wire.empty() && wire != pool->layout().fingerprint()) {
    const absl::StatusOr<KvLayout> layout = ParseKvLayout(wire);
    BATON_CHECK(layout.ok()) << layout.status();
    wire_ = *layout;
  }
}

absl::Status LandingZone::Write(const FrameHeader& header, std::span<const uint8_t> payload) {
  return Write(header, std::span<const std::span<const uint8_t>>(&payload, 1));
}

absl::Status LandingZone::Write(const FrameHeader& header, std::span<const std::span<const uint8_t>> payload) {
  size_t payload_bytes = 0;
  for (const auto& piece : payload) payload_bytes += piece.size();
  absl::Status status = CheckFrame(header, payload_bytes);
  if (status.ok()) status = CheckSum(header, payload);
  BATON_RETURN_IF_ERROR(Pin(status));
  FrameArrival arrival(this, header, payload_bytes);
  size_t vector = 0, filled = 0;
  for (std::span<const uint8_t> piece : payload) {
    while (!piece.empty()) {
      const iovec& to = arrival.vectors_[vector];
      const size_t bytes = std::min(piece.size(), to.iov_len - filled);
      std::memcpy(static_cast<uint8_t*>(to.iov_base) + filled, piece.data(), bytes);
      piece = piece.subspan(bytes);
      filled += bytes;
      if (filled == to.iov_len) ++vector, filled = 0;
    }
  }
  arrival.WriteBuffered();
  FinishFrame(header, payload_bytes, absl::OkStatus());
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<FrameArrival>> LandingZone::Receive(const FrameHeader& header, size_t payload_bytes) {
  const absl::Status status = CheckFrame(header, payload_bytes);
  BATON_RETURN_IF_ERROR(Pin(status));
  Unpin();
  return std::unique_ptr<FrameArrival>(new FrameArrival(this, header, payload_bytes));
}

absl::Status LandingZone::Accept(const FrameHeader& header) {
  const size_t payload_bytes =
      static_cast<size_t>(std::max(0, header.token_end - header.token_begin)) * pool_->layout().token_layer_bytes();
  absl::Status status = CheckFrame(header, payload_bytes);
  BATON_RETURN_IF_ERROR(Pin(status));
  const Place place = PlaceOf(header);
  std::vector<std::span<const uint8_t>> pieces(place.whole.begin(), place.whole.end());
  std::vector<uint8_t> partial;
  if (place.partial_tokens > 0) {
    partial.resize(static_cast<size_t>(place.partial_tokens) * pool_->layout().token_layer_bytes());
    pool_->ReadTokens(header.layer, place.partial_block, 0, place.partial_tokens, partial);
    pieces.push_back(partial);
  }
  status = CheckSum(header, pieces);
  FinishFrame(header, payload_bytes, status);
  return status;
}

absl::Status LandingZone::AcceptOnDevice(const FrameHeader& header, uint64_t checksum) {
  const size_t payload_bytes =
      static_cast<size_t>(std::max(0, header.token_end - header.token_begin)) * pool_->layout().token_layer_bytes();
  BATON_RETURN_IF_ERROR(Pin(CheckFrame(header, payload_bytes)));
  const absl::Status status = options_.verify_frames ? CompareSum(header, checksum) : absl::OkStatus();
  FinishFrame(header, payload_bytes, status, /*on_device=*/true);
  return status;
}

absl::Status LandingZone::BeginMove(const FrameHeader& header, size_t payload_bytes, std::optional<uint64_t> checksum) {
  absl::Status status = CheckFrame(header, payload_bytes);
  if (status.ok() && header.token_end % pool_->layout().block_size != 0) {
    status = absl::InvalidArgumentError(absl::StrCat("KV frame up to token ", header.token_end, " ends within a cell"));
  }
  if (status.ok() && options_.verify_frames) status = CompareSum(header, checksum.value_or(~header.checksum));
  return Pin(status);
}

void LandingZone::EndMove(const FrameHeader& header, const absl::Status& moved) {
  const size_t payload_bytes = static_cast<size_t>(header.token_end - header.token_begin) * pool_->layout().token_layer_bytes();
  FinishFrame(header, payload_bytes, moved, /*on_device=*/true);
}

absl::Status LandingZone::Pin(const absl::Status& status) {
  std::optional<Waiting> waiting;
  {
    MutexLock lock(&mutex_);
    if (!open_ || sealed_) return absl::CancelledError("attempt is not current");
    if (status.ok()) {
      if (first_write_ == absl::ZeroDuration()) first_write_ = clock_->Now();
      ++pins_;
      return absl::OkStatus();
    }
    error_.Update(status);
    waiting = std::exchange(waiting_, std::nullopt);
  }
  if (waiting.has_value()) waiting->done(status, {});
  return status;
}

std::function<void()> LandingZone::UnpinLocked() {
  --pins_;
  last_write_ = clock_->Now();
  return !open_ && pins_ == 0 ? std::exchange(on_unpinned_, nullptr) : nullptr;
}

void LandingZone::Unpin() {
  std::function<void()> unpinned;
  {
    MutexLock lock(&mutex_);
    unpinned = UnpinLocked();
  }
  if (unpinned) unpinned();
}

// In one step: whoever finds the last frame's record finds it unpinned as well.
void LandingZone::FinishFrame(const FrameHeader& header, size_t payload_bytes, const absl::Status& status, bool on_device) {
  const size_t first = static_cast<size_t>(header.token_begin / pool_->layout().block_size);
  const size_t end = static_cast<size_t>((header.token_end - 1) / pool_->layout().block_size) + 1;
  pool_->SetOnDevice(header.layer, blocks().subspan(first, end - first), on_device && status.ok());
  std::optional<Waiting> waiting;
  std::function<void()> unpinned;
  {
    MutexLock lock(&mutex_);
    if (status.ok()) {
      records_.push_back({header.layer, header.token_begin, header.token_end, header.checksum});
      payload_bytes_ += static_cast<int64_t>(payload_bytes);
    } else {
      error_.Update(status);
    }
    const bool complete =
        waiting_.has_value() && (!error_.ok() || static_cast<int64_t>(records_.size()) >= waiting_->manifest.num_frames);
    if (complete) waiting = std::exchange(waiting_, std::nullopt);
    unpinned = UnpinLocked();
  }
  if (unpinned) unpinned();
  if (!waiting.has_value()) return;
  LandingStats stats;
  const absl::Status verified = Verify(waiting->manifest, &stats);
  if (!absl::IsCancelled(verified)) waiting->done(verified, stats);
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
  if (payload_bytes != expected && WireLayout(header, payload_bytes) == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("KV frame of ", header.token_end - header.token_begin, " tokens has ",
                                                   payload_bytes, " bytes, not ", expected));
  }
  return absl::OkStatus();
}

const KvLayout* LandingZone::WireLayout(const FrameHeader& header, size_t payload_bytes) const {
  const size_t num_tokens = static_cast<size_t>(header.token_end - header.token_begin);
  return wire_ && payload_bytes == num_tokens * wire_->token_layer_bytes() ? &*wire_ : nullptr;
}

absl::Status LandingZone::CheckSum(const FrameHeader& header, std::span<const std::span<const uint8_t>> payload) const {
  if (!options_.verify_frames) return absl::OkStatus();
  return CompareSum(header, FrameChecksum(payload));
}

absl::Status LandingZone::CompareSum(const FrameHeader& header, uint64_t checksum) const {
  if (checksum == header.checksum) return absl::OkStatus();
  return absl::DataLossError(absl::StrFormat("KV frame of layer %d, tokens %d to %d: checksum %016x, announced %016x",
                                             header.layer, header.token_begin, header.token_end, checksum, header.checksum));
}

LandingZone::Place LandingZone::PlaceOf(const FrameHeader& header) const {
  const int block_size = pool_->layout().block_size;
  Place place;
  int token = header.token_begin;
  for (; token + block_size <= header.token_end; token += block_size) {
    place.whole.push_back(pool_->Cell(header.layer, options_.blocks[static_cast<size_t>(token / block_size)]));
  }
  if (token < header.token_end) {
    place.partial_block = options_.blocks[static_cast<size_t>(token / block_size)];
    place.partial_tokens = header.token_end - token;
  }
  return place;
}

absl::Status LandingZone::Verify(const Manifest& manifest, LandingStats* stats) {
  std::vector<FrameRecord> records;
  {
    MutexLock lock(&mutex_);
    if (!open_ || sealed_) return absl::CancelledError("attempt is not current");
    BATON_RETURN_IF_ERROR(error_);
    // What is proven stays as it is: nothing may be written from here on, and nothing may be under way.
    sealed_ = true;
    if (pins_ > 0) return absl::DataLossError("a KV frame is still being written behind the manifest");
    records = records_;
    stats->payload_bytes = payload_bytes_;
    stats->num_frames = static_cast<int64_t>(records_.size());
    stats->receive_ms = records_.empty() ? 0 : ToMs(clock_->Now() - first_write_);
    stats->numerics = manifest.numerics;
  }
  const KvCompatibility& local = options_.compatibility;
  if (manifest.model_fingerprint != local.model_fingerprint) {
    return absl::FailedPreconditionError(absl::StrCat("model mismatch: peer ", manifest.model_fingerprint, ", local ",
                                                      local.model_fingerprint));
  }
  const bool in_wire_layout = wire_ && manifest.kv_layout == local.kv_wire_layout;
  if (manifest.kv_layout != local.kv_layout && !in_wire_layout) {
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
  const KvLayout& layout = in_wire_layout ? *wire_ : pool_->layout();
  const int64_t expected_bytes = int64_t{options_.num_tokens - options_.first_token} * static_cast<int64_t>(layout.token_bytes());
  if (stats->payload_bytes != expected_bytes) {
    return absl::DataLossError(absl::StrCat("KV of ", stats->payload_bytes, " bytes arrived, of layout ", manifest.kv_layout, " it has ",
                                            expected_bytes));
  }
  if (const uint64_t checksum = ManifestChecksum(std::move(records), manifest); checksum != manifest.checksum) {
    return absl::DataLossError(
        absl::StrFormat("manifest checksum %016x, of what arrived %016x", manifest.checksum, checksum));
  }
  return absl::OkStatus();
}

void LandingZone::VerifyWhenComplete(const Manifest& manifest,
                                     std::function<void(const absl::Status&, const LandingStats&)> done) {
  {
    MutexLock lock(&mutex_);
    if (!open_ || sealed_ || waiting_.has_value()) return;
    if (error_.ok() && static_cast<int64_t>(records_.size()) < manifest.num_frames) {
      waiting_ = Waiting{manifest, std::move(done)};
      return;
    }
  }
  LandingStats stats;
  const absl::Status verified = Verify(manifest, &stats);
  if (!absl::IsCancelled(verified)) done(verified, stats);
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
  waiting_.reset();
  if (pins_ == 0) on_unpinned_ = nullptr;
  return pins_ > 0;
}

FrameArrival::FrameArrival(LandingZone* zone, const FrameHeader& header, size_t payload_bytes)
    : zone_(zone), header_(header), payload_bytes_(payload_bytes), wire_(zone->WireLayout(header, payload_bytes)), missing_(payload_bytes) {
  if (wire_ == nullptr) place_ = zone->PlaceOf(header);
  for (const std::span<uint8_t> cell : place_.whole) vectors_.push_back({.iov_base = cell.data(), .iov_len = cell.size()});
  buffer_.resize(wire_ != nullptr ? payload_bytes : static_cast<size_t>(place_.partial_tokens) * zone->pool_->layout().token_layer_bytes());
  if (!buffer_.empty()) vectors_.push_back({.iov_base = buffer_.data(), .iov_len = buffer_.size()});
}

std::span<const iovec> FrameArrival::Pin() {
  if (!zone_->Pin(absl::OkStatus()).ok()) return {};
  return std::span<const iovec>(vectors_).subspan(next_vector_);
}

void FrameArrival::Unpin(size_t bytes) {
  missing_ -= bytes;
  while (bytes > 0) {
    iovec& vector = vectors_[next_vector_];
    const size_t part = std::min(bytes, vector.iov_len);
    vector.iov_base = static_cast<uint8_t*>(vector.iov_base) + part;
    vector.iov_len -= part;
    bytes -= part;
    if (vector.iov_len == 0) ++next_vector_;
  }
  zone_->Unpin();
}

absl::Status FrameArrival::Commit() {
  BATON_CHECK_EQ(missing_, size_t{0});
  BATON_RETURN_IF_ERROR(zone_->Pin(absl::OkStatus()));
  std::vector<std::span<const uint8_t>> pieces(place_.whole.begin(), place_.whole.end());
  if (!buffer_.empty()) pieces.push_back(buffer_);
  const absl::Status status = zone_->CheckSum(header_, pieces);
  if (status.ok()) WriteBuffered();
  zone_->FinishFrame(header_, payload_bytes_, status);
  return status;
}

void FrameArrival::WriteBuffered() {
  if (buffer_.empty()) return;
  if (wire_ != nullptr) {
    return WriteTokensFrom(*zone_->pool_, *wire_, header_.layer, zone_->blocks(), header_.token_begin, header_.token_end, buffer_);
  }
  zone_->pool_->WriteTokens(header_.layer, place_.partial_block, 0, place_.partial_tokens, buffer_);
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
