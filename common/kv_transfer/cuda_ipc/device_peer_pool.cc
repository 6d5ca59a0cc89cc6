// SPDX-License-Identifier: Apache-2.0
#include "common/kv_transfer/cuda_ipc/device_peer_pool.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/kv_transfer/cuda_ipc/copy_stream.h"

namespace baton {
namespace {

constexpr size_t kBatches = 4;  // On their way at once.
constexpr size_t kStagingBytes = 1 << 20;  // Of a batch, at least.

// What must be kept while the GPU may use it.
struct Resources {
  ~Resources() {
    stream.reset();
    for (auto& sums : checksums) runtime->GiveBack(std::move(sums));
    runtime->Close(memory);
  }
  std::shared_ptr<CudaIpcRuntime> runtime;
  PeerMemory memory;
  std::unique_ptr<CopyStream> stream;
  std::unique_ptr<cuda::DeviceChecksums> checksums[kBatches];  // Null before they are needed.
};

// Copies go in batches, each with a mark at its end, page-locked memory and checksums of its own.
class DevicePeerPool final : public PeerPool {
 public:
  DevicePeerPool(std::unique_ptr<Resources> resources, const KvLayout& layout, int num_blocks, const KvPool* source, absl::Duration stall_timeout,
                 std::unique_ptr<KvPool> cell)
      : layout_(layout), num_blocks_(num_blocks), stall_timeout_(stall_timeout), cell_(std::move(cell)), resources_(std::move(resources)) {
    if (source == nullptr || DeviceAddressOf(*source) == 0) return;
    source_ = source->Cell(0, 0).data();
    source_bytes_ = source->bytes();
    source_device_ = DeviceAddressOf(*source);
  }
  ~DevicePeerPool() override;

  absl::Status Place(const OutgoingFrame& frame, const Interrupted& interrupted) override;
  bool sums_cells() const override { return source_ != nullptr && cuda::DeviceChecksums::TakesCells(layout_.block_layer_bytes()); }
  absl::StatusOr<size_t> Arrived() override;
  absl::Status Finish(const Interrupted& interrupted) override;
  bool Settle() override;

 private:
  struct Batch {
    uint64_t mark = 0;  // Reached with its end.
    size_t frames = 0;  // That ended in it.
    std::vector<std::shared_ptr<uint64_t>> checksums;  // Where its checksums go.
  };
  struct Run {  // Of cells that lie one behind the other at both ends.
    CUdeviceptr to = 0, from_device = 0;  // 0: from_host.
    const uint8_t* from_host = nullptr;
    size_t bytes = 0;
  };
  CopyStream& stream() { return *resources_->stream; }
  absl::Status PlaceCell(CUdeviceptr to, std::span<const uint8_t> bytes, bool lasting, const Interrupted& interrupted);
  // Page-locked memory of the batch for one cell; perhaps of the next batch.
  absl::StatusOr<uint8_t*> Stage(const Interrupted& interrupted);
  // Orders the checksum of a frame whose cells are sources_. INTERNAL  it has others, or too many.
  absl::Status Sum(const OutgoingFrame& frame, const Interrupted& interrupted);
  // With the next batch's checksums there, if they are not yet.
  absl::StatusOr<cuda::DeviceChecksums*> BatchChecksums();
  absl::Status Add(const Run& cell);
  absl::Status IssueRun();
  absl::Status BeginBatch(const Interrupted& interrupted);
  absl::Status EndBatch();
  // Takes note of the batches that have ended.
  absl::Status Collect();

  const KvLayout layout_;
  const int num_blocks_;
  const absl::Duration stall_timeout_;
  const std::unique_ptr<KvPool> cell_;  // One block of one layer, to put tokens into a cell's form.
  const uint8_t* source_ = nullptr;  // Cells on the host, and the same ones on the device. Null: there are none.
  size_t source_bytes_ = 0;
  CUdeviceptr source_device_ = 0;
  std::unique_ptr<Resources> resources_;
  uint8_t* staging_[kBatches] = {};  // Null before it is needed.
  bool begun_ = false;               // A batch.
  size_t staged_bytes_ = 0, num_frames_ = 0;  // Of it.
  Run run_;  // Not yet issued.
  std::vector<CUdeviceptr> sources_;  // Of the frame: its cells on this device.
  std::vector<std::shared_ptr<uint64_t>> wanted_;  // Of the batch: where its checksums go.
  std::deque<Batch> batches_;
  size_t num_arrived_ = 0;  // Of batches that have ended; nobody has asked for them.
  bool given_up_ = false;  // Settle has waited in vain.
};

// ---- Placing.

absl::Status DevicePeerPool::Place(const OutgoingFrame& frame, const Interrupted& interrupted) {
  BATON_RETURN_IF_ERROR(BeginBatch(interrupted));
  const CUdeviceptr base = resources_->memory.address;
  const size_t layer = static_cast<size_t>(frame.header.layer);
  sources_.clear();
  BATON_RETURN_IF_ERROR(ForEachCell(frame, layout_, num_blocks_, [&](BlockId block, std::span<const uint8_t> bytes, bool copied) {
    const size_t index = layer * static_cast<size_t>(num_blocks_) + static_cast<size_t>(block);
    return PlaceCell(base + index * layout_.block_layer_bytes(), bytes, frame.lasting && !copied, interrupted);
  }));
  BATON_RETURN_IF_ERROR(IssueRun());
  if (frame.checksum != nullptr) BATON_RETURN_IF_ERROR(Sum(frame, interrupted));
  ++num_frames_;
  return absl::OkStatus();
}

absl::StatusOr<cuda::DeviceChecksums*> DevicePeerPool::BatchChecksums() {
  auto& checksums = resources_->checksums[stream().marks() % kBatches];
  if (checksums == nullptr) {
    BATON_ASSIGN_OR_RETURN(checksums, resources_->runtime->TakeChecksums());
  }
  if (wanted_.empty()) checksums->Clear();
  return checksums.get();
}

absl::Status DevicePeerPool::Sum(const OutgoingFrame& frame, const Interrupted& interrupted) {
  size_t bytes = 0;
  for (const auto& piece : frame.payload) bytes += piece.size();
  const size_t cell_bytes = layout_.block_layer_bytes();
  BATON_ASSIGN_OR_RETURN(cuda::DeviceChecksums* checksums, BatchChecksums());
  bool added = sources_.size() * cell_bytes == bytes && checksums->Add(sources_, cell_bytes, bytes);
  if (!added && !wanted_.empty() && sources_.size() * cell_bytes == bytes) {
    BATON_RETURN_IF_ERROR(EndBatch());
    BATON_RETURN_IF_ERROR(BeginBatch(interrupted));
    BATON_ASSIGN_OR_RETURN(checksums, BatchChecksums());
    added = checksums->Add(sources_, cell_bytes, bytes);
  }
  // The form on the host need not have them.
  if (!added) return absl::InternalError(absl::StrCat("no checksum can be made on the device of a frame of ", bytes, " bytes"));
  wanted_.push_back(frame.checksum);
  return absl::OkStatus();
}

absl::Status DevicePeerPool::PlaceCell(CUdeviceptr to, std::span<const uint8_t> bytes, bool lasting, const Interrupted& interrupted) {
  const size_t cell_bytes = layout_.block_layer_bytes();
  if (bytes.size() == cell_bytes) {
    const size_t offset = reinterpret_cast<uintptr_t>(bytes.data()) - reinterpret_cast<uintptr_t>(source_);
    if (source_ != nullptr && offset <= source_bytes_ - cell_bytes) {
      sources_.push_back(source_device_ + offset);
      return Add({.to = to, .from_device = source_device_ + offset, .bytes = cell_bytes});
    }
    if (lasting) return Add({.to = to, .from_host = bytes.data(), .bytes = cell_bytes});
  }
  BATON_ASSIGN_OR_RETURN(uint8_t* const staging, Stage(interrupted));
  if (bytes.size() == cell_bytes) {
    std::memcpy(staging, bytes.data(), cell_bytes);
  } else {
    const std::span<uint8_t> cell = cell_->Cell(0, 0);
    std::memset(cell.data(), 0, cell.size());
    cell_->WriteTokens(0, 0, 0, static_cast<int>(bytes.size() / layout_.token_layer_bytes()), bytes);
    std::memcpy(staging, cell.data(), cell_bytes);
  }
  return Add({.to = to, .from_host = staging, .bytes = cell_bytes});
}

absl::StatusOr<uint8_t*> DevicePeerPool::Stage(const Interrupted& interrupted) {
  const size_t cell_bytes = layout_.block_layer_bytes();
  const size_t size = std::max(kStagingBytes, cell_bytes);
  if (staged_bytes_ + cell_bytes > size) {
    BATON_RETURN_IF_ERROR(EndBatch());
    BATON_RETURN_IF_ERROR(BeginBatch(interrupted));
  }
  uint8_t*& staging = staging_[stream().marks() % kBatches];
  if (staging == nullptr) {
    BATON_ASSIGN_OR_RETURN(staging, stream().AllocateHost(size));
  }
  return staging + std::exchange(staged_bytes_, staged_bytes_ + cell_bytes);
}

absl::Status DevicePeerPool::Add(const Run& cell) {
  const bool goes_on = run_.bytes > 0 && cell.to == run_.to + run_.bytes &&
                       (cell.from_device != 0 ? run_.from_device != 0 && cell.from_device == run_.from_device + run_.bytes
                                              : run_.from_device == 0 && cell.from_host == run_.from_host + run_.bytes);
  if (goes_on) {
    run_.bytes += cell.bytes;
    return absl::OkStatus();
  }
  BATON_RETURN_IF_ERROR(IssueRun());
  run_ = cell;
  return absl::OkStatus();
}

absl::Status DevicePeerPool::IssueRun() {
  const Run run = std::exchange(run_, {});
  if (run.bytes == 0) return absl::OkStatus();
  if (run.from_device != 0) return stream().Within(run.to, run.from_device, run.bytes);
  return stream().ToDevice(run.to, run.from_host, run.bytes);
}

// ---- Batches.

absl::Status DevicePeerPool::BeginBatch(const Interrupted& interrupted) {
  if (begun_) return absl::OkStatus();
  // The one that had this one's memory before has ended.
  const uint64_t number = stream().marks();
  if (number >= kBatches) BATON_RETURN_IF_ERROR(stream().WaitFor(number - kBatches + 1, stall_timeout_, interrupted));
  BATON_RETURN_IF_ERROR(Collect());
  begun_ = true;
  return absl::OkStatus();
}

absl::Status DevicePeerPool::EndBatch() {
  if (!begun_) return absl::OkStatus();
  BATON_RETURN_IF_ERROR(IssueRun());
  if (!wanted_.empty()) BATON_RETURN_IF_ERROR(stream().Sum(*resources_->checksums[stream().marks() % kBatches]));
  BATON_RETURN_IF_ERROR(stream().Mark());
  batches_.push_back({stream().marks(), std::exchange(num_frames_, 0), std::exchange(wanted_, {})});
  begun_ = false;
  staged_bytes_ = 0;
  return absl::OkStatus();
}

absl::StatusOr<size_t> DevicePeerPool::Arrived() {
  BATON_RETURN_IF_ERROR(EndBatch());
  BATON_RETURN_IF_ERROR(Collect());
  return std::exchange(num_arrived_, 0);
}

absl::Status DevicePeerPool::Collect() {
  BATON_ASSIGN_OR_RETURN(const uint64_t reached, stream().Reached());
  for (; !batches_.empty() && batches_.front().mark <= reached; batches_.pop_front()) {
    const Batch& batch = batches_.front();
    num_arrived_ += batch.frames;
    for (size_t i = 0; i < batch.checksums.size(); ++i) *batch.checksums[i] = resources_->checksums[(batch.mark - 1) % kBatches]->results()[i];
  }
  return absl::OkStatus();
}

absl::Status DevicePeerPool::Finish(const Interrupted& interrupted) {
  BATON_RETURN_IF_ERROR(EndBatch());
  return stream().WaitFor(stream().marks(), stall_timeout_, interrupted);
}

// ---- The end.

// After an error of the driver nobody knows what is still being copied.
bool DevicePeerPool::Settle() {
  absl::Status ended = EndBatch();
  if (ended.ok()) ended = stream().WaitFor(stream().marks(), given_up_ ? absl::ZeroDuration() : stall_timeout_, [] { return absl::OkStatus(); });
  if (!ended.ok() && !std::exchange(given_up_, true)) BATON_LOG(ERROR) << "copies into a receiver's pool do not end: " << ended.message();
  return ended.ok();
}

DevicePeerPool::~DevicePeerPool() {
  const bool marked = EndBatch().ok();
  const auto ended = [](Resources& resources) {
    const absl::StatusOr<uint64_t> reached = resources.stream->Reached();
    return reached.ok() && *reached == resources.stream->marks();
  };
  if (marked && ended(*resources_)) return;
  // What could not be marked never ends, as far as anybody knows.
  CudaIpcRuntime& runtime = *resources_->runtime;
  runtime.LeaveBehind([left = std::shared_ptr<Resources>(std::move(resources_)), marked, ended] { return marked && ended(*left); });
}

}  // namespace

absl::StatusOr<std::unique_ptr<PeerPool>> OpenDevicePeerPool(std::shared_ptr<CudaIpcRuntime> runtime, absl::Duration stall_timeout,
                                                             const KvPool* source, const StreamHello& welcome) {
  BATON_ASSIGN_OR_RETURN(const KvLayout layout, ParseKvLayout(welcome.hello.compatibility.kv_layout));
  BATON_RETURN_IF_ERROR(layout.Validate());
  const int num_blocks = static_cast<int>(welcome.num_blocks);
  if (num_blocks < 1) return absl::InvalidArgumentError(absl::StrCat("a receiver's pool of ", welcome.num_blocks, " blocks"));
  KvLayout one_layer = layout;
  one_layer.num_layers = 1;
  BATON_ASSIGN_OR_RETURN(auto cell, KvPool::CreateShared(one_layer, 1));
  auto resources = std::make_unique<Resources>();
  resources->runtime = runtime;
  BATON_ASSIGN_OR_RETURN(resources->memory, runtime->Import(welcome.memory, layout.block_bytes() * static_cast<size_t>(num_blocks)));
  BATON_ASSIGN_OR_RETURN(resources->stream, CopyStream::Create(runtime, kBatches + 1));
  return std::make_unique<DevicePeerPool>(std::move(resources), layout, num_blocks, source, stall_timeout, std::move(cell));
}

}  // namespace baton
