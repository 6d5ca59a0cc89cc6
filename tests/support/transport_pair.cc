// SPDX-License-Identifier: Apache-2.0
#include "tests/support/transport_pair.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "common/backend/create_backend.h"
#include "common/base/clock.h"
#include "common/backend/reference_ops.h"
#include "common/base/logging.h"
#include "common/kv_transfer/layout_conversion.h"
#include "common/kv_transfer/transports/make_link.h"
#include "tests/support/device_pool.h"
#include "tests/support/paths.h"

namespace baton::testing {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(20);
constexpr uint64_t kTokenHash = 77;

Backend* HostBackend() {
  static Backend* const backend = CreateBackend("reference")->release();
  return backend;
}

// A simulated one. Its memory can be opened by other processes.
Backend* DeviceBackend() {
  static Backend* const backend = [] {
    auto made = CreateBackend("cuda", {.cuda_driver = BuildPath("tests/libcuda_sim.so"), .cublas_library = BuildPath("tests/libcublas_sim.so")});
    BATON_CHECK(made.ok()) << made.status();
    return made->release();
  }();
  return backend;
}

// gRPC 1.51 takes its polling threads down with the last server or channel of a process and, where the next one comes at the
// same moment, frees their queue twice. A worker always has a server; so has a test process from here on.
void KeepGrpcUp() {
  static RpcServer* const server = RpcServer::Start({}, {})->release();
  BATON_CHECK(server != nullptr);
}

}  // namespace

KvLayout SmallLayout(int block_size, KvDtype dtype) {
  return {.num_layers = 3, .num_kv_heads = 2, .head_dim = 8, .block_size = block_size, .dtype = dtype};
}

std::unique_ptr<KvPool> OnDevice(const KvPool& pool) {
  auto made = KvPool::Create(pool.layout(), pool.num_blocks(), DeviceBackend());
  BATON_CHECK(made.ok()) << made.status();
  std::vector<int32_t> blocks;
  for (int block = 0; block < pool.num_blocks(); ++block) {
    blocks.push_back(block);
    for (int layer = 0; layer < pool.layout().num_layers; ++layer) {
      std::ranges::copy(pool.Cell(layer, block), (*made)->Cell(layer, block).begin());
    }
  }
  (*made)->ToDevice(blocks);
  return *std::move(made);
}

std::unique_ptr<KvPool> FilledPool(const KvLayout& layout, int num_blocks, uint32_t seed) {
  auto pool = KvPool::Create(layout, num_blocks, HostBackend());
  BATON_CHECK(pool.ok()) << pool.status();
  std::mt19937 rng(seed);
  std::vector<float> k(static_cast<size_t>(layout.num_kv_heads * layout.head_dim)), v(k.size());
  for (int layer = 0; layer < layout.num_layers; ++layer) {
    for (int block = 0; block < num_blocks; ++block) {
      for (int offset = 0; offset < layout.block_size; ++offset) {
        for (float& x : k) x = static_cast<float>(static_cast<int>(rng() % 257) - 128);
        for (float& x : v) x = static_cast<float>(static_cast<int>(rng() % 257) - 128);
        ReferenceWriteKv((*pool)->Layer(layer), block * layout.block_size + offset, k.data(), v.data());
      }
    }
  }
  return *std::move(pool);
}

// ---- The receiver.

KvCompatibility TestReceiver::Compatibility() const {
  KvCompatibility compatibility{options_.model, options_.layout.fingerprint(), "n1"};
  if (!options_.int8_wire) return compatibility;
  KvLayout wire = options_.layout;
  wire.dtype = KvDtype::kInt8;
  compatibility.kv_wire_layout = wire.fingerprint();
  return compatibility;
}

KvLayout TestReceiver::wire_layout() const {
  KvLayout wire = options_.layout;
  const TransportInfo& transport = TransportOf(options_.kind);
  if (options_.int8_wire && !transport.one_sided && !transport.needs_device) wire.dtype = KvDtype::kInt8;
  return wire;
}

TestReceiver::TestReceiver(const Options& options) : options_(options) {
  const bool shared = options.kind == TransportKind::kShm && options.share_pool;
  const bool on_device = TransportOf(options.kind).needs_device && options.on_device && options.share_pool;
  Backend* const backend = on_device ? DeviceBackend() : HostBackend();
  auto pool = shared ? KvPool::CreateShared(options.layout, options.num_blocks) : KvPool::Create(options.layout, options.num_blocks, backend);
  BATON_CHECK(pool.ok()) << pool.status();
  pool_ = *std::move(pool);
  KvReceiverSetOptions set;
  set.receiver = {"d-1", options.incarnation, Compatibility(), pool_.get(), options.require_tokens};
  set.kinds = {options.kind};
  set.share_pool = options.share_pool;
  receivers_ = std::make_unique<KvReceiverSet>(set, &directory_, Events());
  std::string address = "127.0.0.1:0";
  if (receivers_->grpc_service() != nullptr) {
    KeepGrpcUp();
    auto server = RpcServer::Start({}, {receivers_->grpc_service()});
    BATON_CHECK(server.ok()) << server.status();
    server_ = *std::move(server);
    address = server_->address();
  }
  const absl::Status started = receivers_->Start(address);
  BATON_CHECK(started.ok()) << started;
}

TestReceiver::~TestReceiver() { Stop(); }

const KvPool& TestReceiver::PoolWith(std::span<const BlockId> blocks) {
  pool_->ToDevice(blocks);
  pool_->ToHost(0, options_.layout.num_layers, blocks);
  return *pool_;
}

void TestReceiver::Stop() {
  server_.reset();
  if (receivers_ != nullptr) receivers_->Stop();
}

KvReceiverEvents TestReceiver::Events() {
  KvReceiverEvents events;
  events.on_open = [this](const TransferId& transfer, int attempt, const PeerId& peer) { OnOpen(transfer, attempt, peer); };
  events.on_manifest = [this](const TransferId& transfer, int attempt, const PeerId& peer, const absl::Status& verified,
                              const LandingStats& stats) {
    MutexLock lock(&mutex_);
    manifests_.push_back({transfer, attempt, peer, verified, stats});
    changed_.NotifyAll();
  };
  events.on_aborted = [this](const TransferId& transfer, int attempt, const PeerId&) {
    MutexLock lock(&mutex_);
    aborted_.push_back({transfer, attempt});
    changed_.NotifyAll();
  };
  events.on_writer_gone = [this](const PeerId& peer) {
    MutexLock lock(&mutex_);
    gone_.push_back(peer);
    changed_.NotifyAll();
  };
  events.on_link_closed = [this](const PeerId& peer) {
    MutexLock lock(&mutex_);
    closed_.push_back(peer);
    changed_.NotifyAll();
  };
  events.on_denied = [this](const PeerId&) {
    MutexLock lock(&mutex_);
    ++num_denied_;
  };
  return events;
}

void TestReceiver::OnOpen(const TransferId& transfer, int attempt, const PeerId& peer) {
  const auto zone = directory_.Find(transfer, attempt);
  if (zone == nullptr) {
    receiver().Deny(peer, transfer, attempt, absl::AbortedError("not current"));
  } else {
    LinkGrant grant{.one_sided = TransportOf(options_.kind).one_sided && options_.grant_one_sided && options_.share_pool};
    if (grant.one_sided) grant.blocks.assign(zone->blocks().begin(), zone->blocks().end());
    receiver().Grant(peer, transfer, attempt, grant);
  }
  MutexLock lock(&mutex_);
  opened_.push_back({transfer, attempt});
  changed_.NotifyAll();
}

std::shared_ptr<LandingZone> TestReceiver::OpenZone(const TransferId& transfer, int attempt, std::vector<BlockId> blocks,
                                                    int first_token, int num_tokens, std::function<void()> on_unpinned) {
  LandingZoneOptions options;
  options.transfer = transfer;
  options.attempt = attempt;
  options.token = WriteToken::Draw();
  options.blocks = std::move(blocks);
  options.first_token = first_token;
  options.num_tokens = num_tokens;
  options.token_hash = kTokenHash;
  options.compatibility = Compatibility();
  options.verify_frames = options_.verify_frames;
  auto zone = std::make_shared<LandingZone>(options, pool_.get(), Clock::Real(), std::move(on_unpinned));
  directory_.Put(zone);
  return zone;
}

void TestReceiver::CloseZone(const std::shared_ptr<LandingZone>& zone) {
  directory_.Remove(zone->transfer());
  zone->Close();
}

bool TestReceiver::Wait(const std::function<bool()>& done) {
  const MonotonicTime deadline = Clock::Real()->Now() + kPatience;
  MutexLock lock(&mutex_);
  while (!done()) {
    const absl::Duration left = deadline - Clock::Real()->Now();
    if (left <= absl::ZeroDuration()) return false;
    changed_.WaitFor(&mutex_, left);
  }
  return true;
}

std::optional<TestReceiver::ManifestEvent> TestReceiver::WaitManifest(const TransferId& transfer, int attempt)
    ABSL_NO_THREAD_SAFETY_ANALYSIS {
  std::optional<ManifestEvent> found;
  Wait([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    for (const ManifestEvent& event : manifests_) {
      if (event.transfer == transfer && event.attempt == attempt) found = event;
    }
    return found.has_value();
  });
  return found;
}

bool TestReceiver::WaitAborted(const TransferId& transfer, int attempt) {
  return Wait([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return std::find(aborted_.begin(), aborted_.end(), Named{transfer, attempt}) != aborted_.end();
  });
}

bool TestReceiver::WaitOpen(const TransferId& transfer, int attempt) {
  return Wait([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return std::find(opened_.begin(), opened_.end(), Named{transfer, attempt}) != opened_.end();
  });
}

bool TestReceiver::WaitLinkClosed(const PeerId& peer) {
  return Wait([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return std::find(closed_.begin(), closed_.end(), peer) != closed_.end(); });
}

bool TestReceiver::WaitWriterGone(const PeerId& peer, int times) {
  return Wait([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return std::count(gone_.begin(), gone_.end(), peer) >= times; });
}

int TestReceiver::num_denied() const {
  MutexLock lock(&mutex_);
  return num_denied_;
}

int TestReceiver::num_manifests() const {
  MutexLock lock(&mutex_);
  return static_cast<int>(manifests_.size());
}

// ---- The sender.

std::unique_ptr<LinkSender> MakeSender(const TransportOffer& offer, const SenderOptions& options) {
  LinkSenderOptions sender;
  sender.self = options.self;
  sender.self.transport = offer.kind;
  sender.compatibility = {options.model, options.pool->layout().fingerprint(), "n2"};
  sender.address = offer.address;
  sender.transfer_timeout = options.transfer_timeout;
  sender.max_frame_bytes = options.max_frame_bytes;
  sender.checksum_frames = options.checksum_frames;
  const KvLinkFactory factory = LinkFactoryFor(offer, options.transfer_timeout, nullptr, options.pool);
  return std::make_unique<LinkSender>(sender, options.pool, [factory, decorate = options.decorate](KvLink::Events events) {
    auto link = factory(std::move(events));
    return decorate ? decorate(std::move(link)) : std::move(link);
  });
}

RunningJob::RunningJob(KvSender* sender, const TestJob& job) : sender_(sender), job_(job), done_(std::make_shared<Done>()) {
  SendJob send;
  send.transfer = job.transfer;
  send.attempt = job.attempt;
  send.peer_incarnation = job.peer_incarnation;
  send.first_token = job.first_token;
  send.num_tokens = job.num_tokens;
  send.token = job.token;
  send.on_done = [done = done_](const absl::Status& status, const SendStats& stats) {
    MutexLock lock(&done->mutex);
    ++done->count;
    done->status = status;
    done->stats = stats;
    done->changed.NotifyAll();
  };
  transfer_ = sender->Begin(std::move(send));
  sender->SetBlocks(transfer_, job.blocks);
}

void RunningJob::PushLayers(int layer_begin, int layer_end) {
  for (int token = job_.first_token; token < job_.num_tokens; token += job_.chunk_tokens) {
    const int end = std::min(job_.num_tokens, token + job_.chunk_tokens);
    for (int layer = layer_begin; layer < layer_end; ++layer) sender_->Push(transfer_, layer, layer + 1, token, end);
  }
}

void RunningJob::FinishManifest() {
  Manifest manifest;
  manifest.model_fingerprint = "model-a";
  manifest.numerics = "n2";
  manifest.first_token = job_.first_token;
  manifest.num_tokens = job_.num_tokens;
  manifest.token_hash = kTokenHash;
  sender_->Finish(transfer_, manifest);
}

void RunningJob::PushAll(int num_layers) {
  PushLayers(0, num_layers);
  FinishManifest();
}

std::optional<absl::Status> RunningJob::Wait() {
  const MonotonicTime deadline = Clock::Real()->Now() + kPatience;
  MutexLock lock(&done_->mutex);
  while (done_->count == 0) {
    const absl::Duration left = deadline - Clock::Real()->Now();
    if (left <= absl::ZeroDuration()) return std::nullopt;
    done_->changed.WaitFor(&done_->mutex, left);
  }
  BATON_CHECK_EQ(done_->count, 1);
  return done_->status;
}

SendStats RunningJob::stats() const {
  MutexLock lock(&done_->mutex);
  return done_->stats;
}

std::unique_ptr<KvPool> AsOnTheWire(const KvPool& source, std::span<const BlockId> source_blocks, const KvLayout& wire, int end_token) {
  auto pool = FilledPool(wire, (end_token + wire.block_size - 1) / wire.block_size, 0);
  for (int layer = 0; layer < wire.num_layers; ++layer) {
    for (int token = 0; token < end_token; token += wire.block_size) {
      const int count = std::min(wire.block_size, end_token - token);
      std::vector<uint8_t> bytes(static_cast<size_t>(count) * wire.token_layer_bytes());
      ReadTokensAs(source, wire, layer, source_blocks, token, token + count, bytes);
      pool->WriteTokens(layer, token / wire.block_size, 0, count, bytes);
    }
  }
  return pool;
}

bool SameTokens(const KvPool& source, std::span<const BlockId> source_blocks, const KvPool& target,
                std::span<const BlockId> target_blocks, int first_token, int end_token) {
  const KvLayout& layout = target.layout();
  std::vector<uint8_t> want(static_cast<size_t>(end_token - first_token) * layout.token_layer_bytes()), got(want.size());
  for (int layer = 0; layer < layout.num_layers; ++layer) {
    ReadTokensAs(source, layout, layer, source_blocks, first_token, end_token, want);
    size_t filled = 0;
    for (int token = first_token; token < end_token; token += layout.block_size) {
      const int count = std::min(layout.block_size, end_token - token);
      const size_t bytes = static_cast<size_t>(count) * layout.token_layer_bytes();
      target.ReadTokens(layer, target_blocks[static_cast<size_t>(token / layout.block_size)], 0, count,
                        std::span<uint8_t>(got).subspan(filled, bytes));
      filled += bytes;
    }
    if (got != want) return false;
  }
  return true;
}

}  // namespace baton::testing
