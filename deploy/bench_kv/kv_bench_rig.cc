// SPDX-License-Identifier: Apache-2.0
#include "deploy/bench_kv/kv_bench_rig.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "common/backend/create_backend.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/kv_transfer/frame_bytes.h"
#include "common/kv_transfer/transports/make_link.h"
#include "deploy/bench_kv/raw_grpc_service.h"
#include "deploy/bench_kv/raw_stream.h"

namespace baton::bench {
namespace {

constexpr uint64_t kIncarnation = 1;
constexpr absl::Duration kPatience = absl::Seconds(60);
const char kModel[] = "bench";

KvLayout BenchLayout() { return {.num_layers = 1, .num_kv_heads = 8, .head_dim = 128, .block_size = 16, .dtype = KvDtype::kF16}; }

std::unique_ptr<LinkSender> MakeSender(const TransportOffer& offer, const KvPool* pool, bool checksums) {
  LinkSenderOptions options;
  // Two writers, as far as the receiver knows.
  options.self = {checksums ? "checked" : "unchecked", kIncarnation, offer.kind};
  options.compatibility = {kModel, pool->layout().fingerprint(), ""};
  options.address = offer.address;
  options.checksum_frames = checksums;
  options.max_frame_bytes = FrameBytesFor(offer.kind);
  return std::make_unique<LinkSender>(options, pool, LinkFactoryFor(offer, options.transfer_timeout, nullptr, pool));
}

// So much of each of two pools is used before a block is used again.
int64_t FreshBytes() {
  constexpr int64_t kLeast = 64 << 20, kMost = 256 << 20;
  return std::clamp<int64_t>(2 * sysconf(_SC_LEVEL3_CACHE_SIZE), kLeast, kMost);
}

// From pool to pool on the device, whatever the source.
class DeviceCopy final : public RawWay {
 public:
  DeviceCopy(Backend* backend, const KvPool* from, const KvPool* to) : backend_(backend), from_(from), to_(to) {}
  absl::StatusOr<absl::Duration> Send(std::span<const uint8_t> source, std::span<uint8_t>) override {
    const ::baton::MemoryCopy copy{to_->Layer(0).k, from_->Layer(0).k, source.size()};
    const MonotonicTime begin = Clock::Real()->Now();
    backend_->CopyWithin(std::span(&copy, 1));
    backend_->CopyToHost({});  // Waits for what came before.
    const absl::Duration took = Clock::Real()->Now() - begin;
    BATON_RETURN_IF_ERROR(backend_->status());
    return took;
  }

 private:
  Backend* const backend_;
  const KvPool* const from_;
  const KvPool* const to_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<KvBenchRig>> KvBenchRig::Create(TransportKind kind, int64_t max_bytes, const std::string& cuda_driver) {
  auto rig = std::unique_ptr<KvBenchRig>(new KvBenchRig(kind));
  BATON_RETURN_IF_ERROR(rig->Init(max_bytes, cuda_driver));
  return rig;
}

void KvBenchRig::Touch() {
  std::vector<int32_t> blocks(static_cast<size_t>(source_->num_blocks()));
  std::iota(blocks.begin(), blocks.end(), 0);
  for (KvPool* pool : {source_.get(), target_.get(), mapping_.get()}) {
    if (pool == nullptr) continue;
    for (const int32_t block : blocks) std::memset(pool->Cell(0, block).data(), block * 31 + 7, static_cast<size_t>(kKvBenchCellBytes));
    pool->ToDevice(blocks);
  }
}

absl::Status KvBenchRig::Init(int64_t max_bytes, const std::string& cuda_driver) {
  layout_ = BenchLayout();
  const bool lands = kind_ == TransportKind::kShm || kind_ == TransportKind::kInproc || kind_ == TransportKind::kTcp;
  const int num_blocks = static_cast<int>((lands ? std::max(max_bytes, FreshBytes()) : max_bytes) / kKvBenchCellBytes);
  const bool on_device = TransportOf(kind_).needs_device;
  BATON_ASSIGN_OR_RETURN(backend_, on_device ? CreateBackend("cuda", {.cuda_driver = cuda_driver}) : CreateBackend("reference"));
  BATON_ASSIGN_OR_RETURN(source_, KvPool::Create(layout_, num_blocks, backend_.get()));
  if (kind_ == TransportKind::kShm) {
    BATON_ASSIGN_OR_RETURN(target_, KvPool::CreateShared(layout_, num_blocks));
    BATON_ASSIGN_OR_RETURN(mapping_, KvPool::MapShared(layout_, num_blocks, target_->shared_fd()));
  } else {
    BATON_ASSIGN_OR_RETURN(target_, KvPool::Create(layout_, num_blocks, backend_.get()));
  }
  Touch();
  KvReceiverSetOptions options;
  options.receiver = {"bench", kIncarnation, {kModel, layout_.fingerprint(), ""}, target_.get()};
  options.kinds = {kind_};
  receivers_ = std::make_unique<KvReceiverSet>(options, &directory_, Events());
  std::vector<grpc::Service*> services;
  if (receivers_->grpc_service() != nullptr) services.push_back(receivers_->grpc_service());
  BATON_ASSIGN_OR_RETURN(server_, RpcServer::Start({}, services));
  BATON_RETURN_IF_ERROR(receivers_->Start(server_->address()));
  const TransportOffer offer = receivers_->offers().front();
  checked_ = MakeSender(offer, source_.get(), true);
  unchecked_ = MakeSender(offer, source_.get(), false);
  switch (kind_) {
    case TransportKind::kTcp: {
      BATON_ASSIGN_OR_RETURN(raw_, RawTcp::Create());
      return absl::OkStatus();
    }
    case TransportKind::kGrpc: {
      BATON_ASSIGN_OR_RETURN(raw_, MakeRawGrpc());
      return absl::OkStatus();
    }
    case TransportKind::kCudaIpc:
      raw_ = std::make_unique<DeviceCopy>(backend_.get(), source_.get(), target_.get());
      return backend_->status();
    default:
      return TouchMappings();
  }
}

// Each writer's mapping of the pool: a worker that serves pays for its fresh pages once.
absl::Status KvBenchRig::TouchMappings() {
  const int64_t bytes = int64_t{source_->num_blocks()} * kKvBenchCellBytes;
  for (const bool checksums : {false, true}) BATON_RETURN_IF_ERROR(Transfer(bytes, checksums).status());
  return absl::OkStatus();
}

KvBenchRig::~KvBenchRig() {
  checked_.reset();
  unchecked_.reset();
  raw_.reset();
  server_.reset();
  if (receivers_ != nullptr) receivers_->Stop();
}

KvReceiverEvents KvBenchRig::Events() {
  KvReceiverEvents events;
  events.on_open = [this](const TransferId& transfer, int attempt, const PeerId& peer) { OnOpen(transfer, attempt, peer); };
  events.on_manifest = [this](const TransferId&, int, const PeerId&, const absl::Status& verified, const LandingStats&) {
    MutexLock lock(&mutex_);
    verified_ = verified;
    verified_at_ = Clock::Real()->Now();
    changed_.NotifyAll();
  };
  events.on_aborted = [](const TransferId&, int, const PeerId&) {};
  events.on_writer_gone = [](const PeerId&) {};
  events.on_link_closed = [](const PeerId&) {};
  return events;
}

void KvBenchRig::OnOpen(const TransferId& transfer, int attempt, const PeerId& peer) {
  KvReceiver* const receiver = receivers_->Of(kind_);
  const auto zone = directory_.Find(transfer, attempt);
  if (zone == nullptr) return receiver->Deny(peer, transfer, attempt, absl::AbortedError("not current"));
  LinkGrant grant{.one_sided = TransportOf(kind_).one_sided};
  if (grant.one_sided) grant.blocks.assign(zone->blocks().begin(), zone->blocks().end());
  receiver->Grant(peer, transfer, attempt, grant);
}

absl::StatusOr<MonotonicTime> KvBenchRig::WaitVerified() {
  const MonotonicTime deadline = Clock::Real()->Now() + kPatience;
  MutexLock lock(&mutex_);
  while (!verified_.has_value()) {
    if (Clock::Real()->Now() >= deadline) return absl::DeadlineExceededError("a transfer did not end");
    changed_.WaitFor(&mutex_, deadline - Clock::Real()->Now());
  }
  BATON_RETURN_IF_ERROR(*std::exchange(verified_, std::nullopt));
  return verified_at_;
}

absl::StatusOr<absl::Duration> KvBenchRig::Transfer(int64_t bytes, bool checksums) {
  const int num_blocks = static_cast<int>(bytes / kKvBenchCellBytes);
  const int num_tokens = num_blocks * layout_.block_size;
  std::vector<BlockId> blocks(static_cast<size_t>(num_blocks));
  std::iota(blocks.begin(), blocks.end(), FirstBlock(num_blocks));
  LandingZoneOptions landing;
  landing.transfer = {1, next_stream_++};
  landing.attempt = 1;
  landing.blocks = blocks;
  landing.num_tokens = num_tokens;
  landing.compatibility = {kModel, layout_.fingerprint(), ""};
  landing.verify_frames = checksums;
  directory_.Put(std::make_shared<LandingZone>(landing, target_.get(), Clock::Real(), nullptr));
  struct Done {
    Mutex mutex;
    CondVar changed;
    std::optional<absl::Status> status;
  };
  auto done = std::make_shared<Done>();
  SendJob job;
  job.transfer = landing.transfer;
  job.attempt = 1;
  job.peer_incarnation = kIncarnation;
  job.num_tokens = num_tokens;
  job.on_done = [this, done](const absl::Status& status, const SendStats&) {
    if (!status.ok()) {  // Then no manifest comes.
      MutexLock lock(&mutex_);
      verified_ = status;
      changed_.NotifyAll();
    }
    MutexLock lock(&done->mutex);
    done->status = status;
    done->changed.NotifyAll();
  };
  Manifest manifest;
  manifest.model_fingerprint = kModel;
  manifest.num_tokens = num_tokens;
  LinkSender& sender = checksums ? *checked_ : *unchecked_;
  const MonotonicTime begin = Clock::Real()->Now();
  const auto transfer = sender.Begin(std::move(job));
  sender.SetBlocks(transfer, std::move(blocks));
  sender.Push(transfer, 0, 1, 0, num_tokens);
  sender.Finish(transfer, std::move(manifest));
  const absl::StatusOr<MonotonicTime> verified = WaitVerified();
  // The next one begins when nothing of this one is left.
  MutexLock lock(&done->mutex);
  while (!done->status.has_value() && Clock::Real()->Now() - begin < kPatience) done->changed.WaitFor(&done->mutex, kPatience);
  directory_.Remove(landing.transfer);
  BATON_RETURN_IF_ERROR(verified.status());
  return *verified - begin;
}

absl::StatusOr<absl::Duration> KvBenchRig::Ceiling(int64_t bytes) {
  const BlockId first = FirstBlock(static_cast<int>(bytes / kKvBenchCellBytes));
  const std::span<const uint8_t> source(source_->Cell(0, first).data(), static_cast<size_t>(bytes));
  const std::span<uint8_t> to((mapping_ != nullptr ? mapping_ : target_)->Cell(0, first).data(), source.size());
  if (raw_ != nullptr) return raw_->Send(source, to);
  const MonotonicTime begin = Clock::Real()->Now();
  std::memcpy(to.data(), source.data(), source.size());
  return Clock::Real()->Now() - begin;
}

BlockId KvBenchRig::FirstBlock(int num_blocks) {
  if (blocks_ == KvBenchBlocks::kSame) return 0;
  if (next_block_ + num_blocks > source_->num_blocks()) next_block_ = 0;
  return std::exchange(next_block_, next_block_ + num_blocks);
}

}  // namespace baton::bench
