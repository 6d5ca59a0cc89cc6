// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_GPU_SIM_CUDA_SIM_SIM_DEVICE_H_
#define BATON_TESTS_GPU_SIM_CUDA_SIM_SIM_DEVICE_H_

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "tests/gpu_sim/cuda_sim/sim_ipc.h"
#include "tests/gpu_sim/cuda_sim/sim_stream.h"
#include "tests/gpu_sim/ptx/launch.h"

namespace baton::cuda_sim {

// Behind CUmodule, CUfunction and CUevent.
struct SimModule;
struct SimFunction {
  SimModule* module = nullptr;
  const ptx::Kernel* kernel = nullptr;
  std::atomic<uint32_t> max_dynamic_shared{48 * 1024};  // Until cuFuncSetAttribute raises it.
};
struct SimModule {
  std::unique_ptr<ptx::Module> module;
  std::map<std::string, std::unique_ptr<SimFunction>> functions;
};
struct SimGraph {
  std::vector<std::function<void()>> nodes;
};
struct SimEvent {
  Mutex mutex;
  std::shared_ptr<Completion> completion ABSL_GUARDED_BY(mutex);  // Of the last record; null: never recorded.
  SimStream* stream ABSL_GUARDED_BY(mutex) = nullptr;
};

// The one simulated GPU of the process. Its memory is host memory at the same addresses, poisoned when allocated.
class SimDevice {
 public:
  static SimDevice& Get();

  CUresult Allocate(size_t bytes, CUdeviceptr* out);
  CUresult Free(CUdeviceptr pointer);
  // For other processes, and of another process.
  CUresult Export(CUdeviceptr pointer, CUipcMemHandle* handle);
  CUresult Open(const CUipcMemHandle& handle, unsigned flags, CUdeviceptr* out);
  CUresult Close(CUdeviceptr pointer);
  SimIpc& ipc() { return ipc_; }
  CUresult AllocateHost(size_t bytes, void** out);
  CUresult FreeHost(void* pointer);
  // Whether device memory [pointer, pointer + bytes) can be copied to or from.
  bool IsDevice(CUdeviceptr pointer, size_t bytes) const { return memory_.Contains(reinterpret_cast<const void*>(pointer), bytes); }
  void MemoryInfo(size_t* free, size_t* total) const;

  CUresult LoadModule(const char* image, CUmodule* out);
  // Streams: null is the default one.
  SimStream* Stream(CUstream stream);
  CUstream CreateStream();
  CUresult DestroyStream(CUstream stream);
  CUresult SynchronizeAll();

  // Enqueues a launch; its parameters are copied now.
  CUresult Launch(SimFunction* function, const ptx::LaunchShape& shape, void** parameters, CUstream stream);

  // The first error of work that ran; it never goes away (but for a reset).
  CUresult sticky() const { return static_cast<CUresult>(sticky_.load()); }
  void Fail(CUresult error, const std::string& why);

  void CountGraphLaunch();
  // A copy between the host and the device is ordered. Whether it is one that stalls: it then calls WaitStalled on its stream.
  bool CountHostCopy(size_t bytes);
  void WaitStalled();
  bool loses_stream_waits() const;
  void Reset();
  int Set(const std::string& name, int64_t value);
  int64_t Count(const std::string& name) const;
  std::string Findings() const;

 private:
  SimDevice() = default;
  void TakePlan();
  void Find(const std::string& finding);
  void RunLaunch(SimFunction* function, const ptx::LaunchShape& shape, const std::vector<uint8_t>& parameters);

  ptx::GlobalMemory memory_;
  SimIpc ipc_{[this](const std::string& finding) { Find(finding); }};
  std::atomic<int> sticky_{CUDA_SUCCESS};
  std::atomic<bool> lazy_{false};  // Changed only while streams are idle.
  mutable Mutex mutex_;
  std::map<void*, size_t> allocations_ ABSL_GUARDED_BY(mutex_);
  std::set<void*> pinned_ ABSL_GUARDED_BY(mutex_);
  size_t allocated_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t limit_ ABSL_GUARDED_BY(mutex_) = kDefaultMemory;
  std::map<SimStream*, std::unique_ptr<SimStream>> streams_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<SimStream> default_stream_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<SimModule>> modules_ ABSL_GUARDED_BY(mutex_);
  int64_t launches_until_failure_ ABSL_GUARDED_BY(mutex_) = 0;
  bool reverse_warps_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t host_copies_until_stall_ ABSL_GUARDED_BY(mutex_) = 0, host_copy_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stalled_ ABSL_GUARDED_BY(mutex_) = false, loses_stream_waits_ ABSL_GUARDED_BY(mutex_) = false;
  CondVar unstalled_;
  int64_t launches_ ABSL_GUARDED_BY(mutex_) = 0, graph_launches_ ABSL_GUARDED_BY(mutex_) = 0;
  ptx::Counters counters_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> findings_ ABSL_GUARDED_BY(mutex_);

  static constexpr size_t kDefaultMemory = size_t{8} << 30;
};

}  // namespace baton::cuda_sim

#endif  // BATON_TESTS_GPU_SIM_CUDA_SIM_SIM_DEVICE_H_
