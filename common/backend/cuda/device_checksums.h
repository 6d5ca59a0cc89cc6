// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BACKEND_CUDA_DEVICE_CHECKSUMS_H_
#define BATON_COMMON_BACKEND_CUDA_DEVICE_CHECKSUMS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/backend/cuda/cuda_api.h"

namespace baton::cuda {

// The kernel of DeviceChecksums in one context. Any thread; the calls need that context to be the thread's.
class ChecksumKernel {
 public:
  //   FAILED_PRECONDITION, INTERNAL, RESOURCE_EXHAUSTED  what the driver says.
  static absl::StatusOr<std::unique_ptr<ChecksumKernel>> Load(const CudaApi& api, int compute_capability);
  ~ChecksumKernel();
  ChecksumKernel(const ChecksumKernel&) = delete;
  ChecksumKernel& operator=(const ChecksumKernel&) = delete;

 private:
  friend class DeviceChecksums;
  explicit ChecksumKernel(const CudaApi& api) : api_(api) {}

  const CudaApi api_;
  CUmodule module_ = nullptr;
  CUfunction function_ = nullptr;
  CUdeviceptr keys_ = 0;
};

// XXH3-64 of frames that lie on the device, a batch of them in one launch: as the host's FrameChecksum, bit for bit. One thread at a time;
// the kernel's context is that thread's.
class DeviceChecksums {
 public:
  // What is shorter has another form of the hash, which is the host's to make.
  static constexpr size_t kLeastBytes = 241;
  // Whether a frame of whole cells of so many bytes, aligned as a pool has them, is always one that Add takes into an empty batch, if
  // it has no more than kMaxCells.
  static constexpr bool TakesCells(size_t cell_bytes) { return cell_bytes >= kLeastBytes && cell_bytes % 64 == 0; }
  static constexpr size_t kMaxFrames = 256, kMaxCells = 16384;  // Of a batch.

  // Takes what it will ever need: some 150 KB of the device and of page-locked memory. `kernel` outlives it.
  static absl::StatusOr<std::unique_ptr<DeviceChecksums>> Create(const ChecksumKernel* kernel);
  // Nothing of it is under way.
  ~DeviceChecksums();
  DeviceChecksums(const DeviceChecksums&) = delete;
  DeviceChecksums& operator=(const DeviceChecksums&) = delete;

  // Adds a frame: its first `bytes` bytes, in cells of `cell_bytes` at these addresses. False, and nothing is added: it is shorter than
  // kLeastBytes, or too large, not aligned as the kernel needs it (16 bytes; cells of whole stripes of 64), or the batch has no room.
  bool Add(std::span<const CUdeviceptr> cells, size_t cell_bytes, size_t bytes);
  size_t size() const { return num_frames_; }
  // Orders the batch on `stream`, if it is not empty. No further Add until Clear.
  absl::Status Launch(CUstream stream);
  // One per frame, in the order added, once `stream` has come past Launch.
  std::span<const uint64_t> results() const { return {host_->results, num_frames_}; }
  // Begins a new batch; nothing of the last one is under way.
  void Clear() { num_frames_ = num_cells_ = 0; }

 private:
  // The batch as the kernel reads it, on the host and on the device alike.
  struct Memory {
    uint64_t results[kMaxFrames];
    uint32_t frames[kMaxFrames][3];  // ChecksumFrame.
    uint64_t cells[kMaxCells];
  };
  explicit DeviceChecksums(const ChecksumKernel* kernel) : kernel_(kernel) {}

  const ChecksumKernel* const kernel_;
  Memory* host_ = nullptr;
  CUdeviceptr device_ = 0;
  size_t num_frames_ = 0, num_cells_ = 0;
};

}  // namespace baton::cuda

#endif  // BATON_COMMON_BACKEND_CUDA_DEVICE_CHECKSUMS_H_
