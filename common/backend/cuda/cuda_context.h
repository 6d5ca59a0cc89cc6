// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BACKEND_CUDA_CUDA_CONTEXT_H_
#define BATON_COMMON_BACKEND_CUDA_CUDA_CONTEXT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/backend/cuda/cuda_api.h"
#include "common/backend/cuda/cuda_device.h"
#include "common/base/mutex.h"

namespace baton::cuda {

struct KernelImage;

struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
};

// One GPU of this process: its primary context, a stream for computing and one for copies while weights are loaded, the shipped
// kernels, memory. The first error of a launch or a wait stays: after it nothing that the device holds can be trusted.
//
// Launch, the copies and Synchronize: one thread at a time (the engine's). Allocate, AllocateHost, Store, status: any thread. Memory
// keeps the context alive.
class CudaContext : public std::enable_shared_from_this<CudaContext> {
 public:
  // Retains the primary context of device `ordinal` and loads the kernels: the code for its architecture, or, where there is none,
  // the PTX, which the driver compiles.
  //   FAILED_PRECONDITION  FindCudaDevice's, or kernels that the driver does not take; INTERNAL  what the driver says.
  static absl::StatusOr<std::shared_ptr<CudaContext>> Open(const std::string& driver, int ordinal);
  ~CudaContext();
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  const CudaApi& api() const { return api_; }
  const CudaDevice& device() const { return device_; }
  CUstream stream() const { return stream_; }
  // Makes the context the calling thread's.
  absl::Status Bind() const;

  // Zeroed memory of the device, 256-byte aligned; page-locked memory of the host. RESOURCE_EXHAUSTED names the size.
  absl::StatusOr<std::shared_ptr<uint8_t[]>> Allocate(size_t bytes);
  absl::StatusOr<std::shared_ptr<uint8_t[]>> AllocateHost(size_t bytes);
  // Of the device.
  int64_t free_bytes() const;
  // Copies to the device; complete on return, and not ordered with the compute stream.
  absl::Status Store(void* device, const void* host, size_t bytes);

  // Between BeginRecord and EndRecord what is ordered on the compute stream is done and also put down; between BeginReplay and
  // EndReplay it is left out, and LaunchGraph does all of it as it was put down: the same kernels, parameters and addresses. Memory
  // that it names is the caller's to keep.
  void BeginRecord();
  // INTERNAL  it could not be put down: nothing is lost but that.
  absl::StatusOr<CUgraphExec> EndRecord();
  void BeginReplay() { mode_ = Mode::kReplay; }
  void EndReplay() { mode_ = Mode::kDirect; }
  void LaunchGraph(CUgraphExec graph);
  bool replaying() const { return mode_ == Mode::kReplay; }
  // Where a library's work is to be ordered: once on each.
  std::span<const CUstream> streams() const;

  // Ordered on the compute stream. `host` of Upload must stay as it is until the stream has come past, if it is page-locked.
  void Upload(void* device, const void* host, size_t bytes);
  void Download(void* host, const void* device, size_t bytes);
  void Move(void* to, const void* from, size_t bytes);
  void Synchronize();

  bool HasKernel(const std::string& name) const { return kernels_.count(name) > 0; }
  // CHECKs that there is such a kernel: names are the backend's own. Parameters have exactly the kernel's types.
  template <typename... P>
  void Launch(const char* name, Dim3 grid, unsigned threads, P... parameters) {
    static_assert((std::is_trivially_copyable_v<P> && ...));
    void* arguments[] = {&parameters..., nullptr};
    LaunchKernel(name, grid, threads, arguments);
  }

  // Latches the first error. True when `result` is success.
  bool Check(CUresult result, absl::string_view doing);
  void Fail(const absl::Status& status);
  absl::Status status() const;

 private:
  CudaContext() = default;
  absl::Status Start(const std::string& driver, int ordinal);
  absl::Status LoadKernels();
  absl::Status LoadImage(const KernelImage& image);
  void LaunchKernel(const char* name, Dim3 grid, unsigned threads, void** arguments);
  static std::vector<std::string> EntriesOf(const char* ptx);

  CudaApi api_;
  CudaDevice device_;
  CUdevice handle_ = 0;
  CUcontext context_ = nullptr;
  enum class Mode { kDirect, kRecord, kReplay };
  Mode mode_ = Mode::kDirect;
  CUstream stream_ = nullptr;
  std::array<CUstream, 2> recording_ = {};  // stream_, and the one that is captured.
  std::vector<CUmodule> modules_;
  std::map<std::string, CUfunction, std::less<>> kernels_;
  Mutex store_mutex_;
  CUstream store_stream_ ABSL_GUARDED_BY(store_mutex_) = nullptr;
  mutable Mutex status_mutex_;
  absl::Status status_ ABSL_GUARDED_BY(status_mutex_);
};

}  // namespace baton::cuda

#endif  // BATON_COMMON_BACKEND_CUDA_CUDA_CONTEXT_H_
