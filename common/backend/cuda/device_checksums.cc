// SPDX-License-Identifier: Apache-2.0
#include "common/backend/cuda/device_checksums.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "absl/strings/string_view.h"
#include "common/backend/cuda/kernel_module.h"
#include "common/backend/cuda/kernels/kernel_types.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"

namespace baton::cuda {
namespace {

constexpr absl::string_view kFile = "frame_checksums";  // And its one kernel.
constexpr unsigned kThreads = 288;
// Where the hash has its secret's words for the last stripe and for the end: XXH3's own constants.
constexpr size_t kLastStripe = XXH_SECRET_DEFAULT_SIZE - 64 - 7, kMerge = 11;

std::array<uint64_t, kNumChecksumKeys> Keys() {
  std::array<uint64_t, kNumChecksumKeys> keys;
  std::memcpy(keys.data(), XXH3_kSecret, XXH_SECRET_DEFAULT_SIZE);
  std::memcpy(&keys[kChecksumLastKey], XXH3_kSecret + kLastStripe, 64);
  std::memcpy(&keys[kChecksumMergeKey], XXH3_kSecret + kMerge, 64);
  return keys;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ChecksumKernel>> ChecksumKernel::Load(const CudaApi& api, int compute_capability) {
  std::unique_ptr<ChecksumKernel> kernel(new ChecksumKernel(api));
  const auto images = KernelImages();
  const auto image = std::find_if(images.begin(), images.end(), [](const KernelImage& each) { return each.name == kFile; });
  BATON_CHECK(image != images.end());
  BATON_ASSIGN_OR_RETURN(kernel->module_, LoadKernelModule(api, *image, compute_capability));
  BATON_RETURN_IF_ERROR(api.ToStatus(api.cuModuleGetFunction(&kernel->function_, kernel->module_, image->name), "kernel frame_checksums"));
  const std::array<uint64_t, kNumChecksumKeys> keys = Keys();
  CUstream stream = nullptr;
  BATON_RETURN_IF_ERROR(api.ToStatus(api.cuMemAlloc(&kernel->keys_, sizeof(keys)), "keys of checksums"));
  BATON_RETURN_IF_ERROR(api.ToStatus(api.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate"));
  CUresult stored = api.cuMemcpyHtoDAsync(kernel->keys_, keys.data(), sizeof(keys), stream);
  if (stored == CUDA_SUCCESS) stored = api.cuStreamSynchronize(stream);
  api.cuStreamDestroy(stream);
  BATON_RETURN_IF_ERROR(api.ToStatus(stored, "keys of checksums"));
  return kernel;
}

ChecksumKernel::~ChecksumKernel() {
  if (keys_ != 0) api_.cuMemFree(keys_);
  if (module_ != nullptr) api_.cuModuleUnload(module_);
}

absl::StatusOr<std::unique_ptr<DeviceChecksums>> DeviceChecksums::Create(const ChecksumKernel* kernel) {
  static_assert(sizeof(ChecksumFrame) == sizeof(Memory::frames[0]));
  std::unique_ptr<DeviceChecksums> checksums(new DeviceChecksums(kernel));
  const CudaApi& api = kernel->api_;
  void* host = nullptr;
  BATON_RETURN_IF_ERROR(api.ToStatus(api.cuMemHostAlloc(&host, sizeof(Memory), 0), "page-locked memory for checksums"));
  checksums->host_ = static_cast<Memory*>(host);
  BATON_RETURN_IF_ERROR(api.ToStatus(api.cuMemAlloc(&checksums->device_, sizeof(Memory)), "memory for checksums"));
  return checksums;
}

DeviceChecksums::~DeviceChecksums() {
  if (host_ != nullptr) kernel_->api_.cuMemFreeHost(host_);
  if (device_ != 0) kernel_->api_.cuMemFree(device_);
}

bool DeviceChecksums::Add(std::span<const CUdeviceptr> cells, size_t cell_bytes, size_t bytes) {
  if (bytes < kLeastBytes || bytes > std::numeric_limits<int32_t>::max() || cell_bytes == 0 || cell_bytes % 64 != 0) return false;
  if (num_frames_ == kMaxFrames || cells.size() > kMaxCells - num_cells_ || bytes > cells.size() * cell_bytes) return false;
  if (std::any_of(cells.begin(), cells.end(), [](CUdeviceptr cell) { return cell % 16 != 0; })) return false;
  const ChecksumFrame frame = {static_cast<unsigned>(num_cells_), static_cast<unsigned>(cell_bytes), static_cast<unsigned>(bytes)};
  std::memcpy(host_->frames[num_frames_++], &frame, sizeof(frame));
  for (const CUdeviceptr cell : cells) host_->cells[num_cells_++] = cell;
  return true;
}

absl::Status DeviceChecksums::Launch(CUstream stream) {
  if (num_frames_ == 0) return absl::OkStatus();
  const CudaApi& api = kernel_->api_;
  CUdeviceptr results = device_ + offsetof(Memory, results), frames = device_ + offsetof(Memory, frames), cells = device_ + offsetof(Memory, cells);
  // The cells lie behind the frames: one copy of both.
  const size_t bytes = offsetof(Memory, cells) - offsetof(Memory, frames) + num_cells_ * sizeof(uint64_t);
  BATON_RETURN_IF_ERROR(api.ToStatus(api.cuMemcpyHtoDAsync(frames, host_->frames, bytes, stream), "cuMemcpyHtoDAsync of frames"));
  CUdeviceptr keys = kernel_->keys_;
  void* arguments[] = {&cells, &frames, &keys, &results, nullptr};
  const unsigned grid = static_cast<unsigned>(num_frames_);
  BATON_RETURN_IF_ERROR(
      api.ToStatus(api.cuLaunchKernel(kernel_->function_, grid, 1, 1, kThreads, 1, 1, 0, stream, arguments, nullptr), "frame_checksums"));
  return api.ToStatus(api.cuMemcpyDtoHAsync(host_->results, results, num_frames_ * sizeof(uint64_t), stream), "cuMemcpyDtoHAsync of checksums");
}

}  // namespace baton::cuda
