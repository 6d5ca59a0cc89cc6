// SPDX-License-Identifier: Apache-2.0
// The driver's entry points over SimDevice. Declared by NVIDIA's header: a signature that differs does not compile.
#include <cuda.h>

#include <cstring>

#include "tests/gpu_sim/cuda_sim/cuda_sim.h"
#include "tests/gpu_sim/cuda_sim/sim_device.h"

namespace {

using baton::cuda_sim::SimDevice;
using baton::cuda_sim::SimEvent;
using baton::cuda_sim::SimFunction;
using baton::cuda_sim::SimGraph;
using baton::cuda_sim::SimModule;
using baton::cuda_sim::SimStream;

SimDevice& Device() { return SimDevice::Get(); }

// Enqueues a copy or fill; after a sticky error it is not done.
template <typename Work>
CUresult OnStream(CUstream stream, Work work) {
  if (Device().sticky() != CUDA_SUCCESS) return Device().sticky();
  SimStream* const target = Device().Stream(stream);
  if (target == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  target->Enqueue([work] {
    if (Device().sticky() == CUDA_SUCCESS) work();
  });
  return CUDA_SUCCESS;
}

CUresult Copy(void* to, const void* from, size_t bytes, CUstream stream) {
  // Whoever closes shared memory before its copies have ended is told of it.
  return OnStream(stream, [=, target = Device().ipc().Hold(to), source = Device().ipc().Hold(from)] { Device().ipc().Copy(to, from, bytes); });
}

CUresult CopyWithHost(void* to, const void* from, size_t bytes, CUstream stream) {
  if (Device().CountHostCopy(bytes)) OnStream(stream, [] { Device().WaitStalled(); });
  return Copy(to, from, bytes, stream);
}

struct ErrorText { CUresult error; const char* name; const char* text; };
constexpr ErrorText kErrors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_PTX, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {CUDA_ERROR_MISALIGNED_ADDRESS, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {CUDA_ERROR_LAUNCH_TIMEOUT, "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_MAP_FAILED, "CUDA_ERROR_MAP_FAILED", "mapping of buffer object failed"},
    {CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "peer access is not supported between these two devices"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
};

const ErrorText* FindError(CUresult error) {
  for (const ErrorText& known : kErrors) {
    if (known.error == error) return &known;
  }
  return nullptr;
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuInit(unsigned int flags) { return flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; }
CUresult CUDAAPI cuDriverGetVersion(int* version) {
  *version = CUDA_VERSION;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuGetErrorName(CUresult error, const char** text) {
  const ErrorText* const found = FindError(error);
  *text = found == nullptr ? nullptr : found->name;
  return found == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
CUresult CUDAAPI cuGetErrorString(CUresult error, const char** text) {
  const ErrorText* const found = FindError(error);
  *text = found == nullptr ? nullptr : found->text;
  return found == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGet(CUdevice* device, int ordinal) {
  *device = 0;
  return ordinal == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
CUresult CUDAAPI cuDeviceGetCount(int* count) {
  *count = 1;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuDeviceGetName(char* name, int bytes, CUdevice) {
  std::strncpy(name, "PTX interpreter", static_cast<size_t>(bytes));
  name[bytes - 1] = '\0';
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuDeviceTotalMem(size_t* bytes, CUdevice) {
  size_t free = 0;
  Device().MemoryInfo(&free, bytes);
  return CUDA_SUCCESS;
}
// As an H100 or H200; what it does not know is not supported.
CUresult CUDAAPI cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = 8; return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = 0; return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 4; return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = 163 * 1024; return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: *value = 32; return CUDA_SUCCESS;
    default: return CUDA_ERROR_NOT_SUPPORTED;
  }
}
CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) {
  *context = reinterpret_cast<CUcontext>(&Device());
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice) { return CUDA_SUCCESS; }
CUresult CUDAAPI cuCtxSetCurrent(CUcontext) { return CUDA_SUCCESS; }
CUresult CUDAAPI cuCtxSynchronize() { return Device().SynchronizeAll(); }

CUresult CUDAAPI cuMemGetInfo(size_t* free, size_t* total) {
  Device().MemoryInfo(free, total);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuMemAlloc(CUdeviceptr* out, size_t bytes) {
  return Device().sticky() != CUDA_SUCCESS ? Device().sticky() : Device().Allocate(bytes, out);
}
CUresult CUDAAPI cuMemFree(CUdeviceptr pointer) { return Device().Free(pointer); }
CUresult CUDAAPI cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr pointer) {
  return Device().sticky() != CUDA_SUCCESS ? Device().sticky() : Device().Export(pointer, handle);
}
CUresult CUDAAPI cuIpcOpenMemHandle(CUdeviceptr* out, CUipcMemHandle handle, unsigned int flags) {
  return Device().sticky() != CUDA_SUCCESS ? Device().sticky() : Device().Open(handle, flags, out);
}
CUresult CUDAAPI cuIpcCloseMemHandle(CUdeviceptr pointer) { return Device().Close(pointer); }
CUresult CUDAAPI cuMemHostAlloc(void** out, size_t bytes, unsigned int) { return Device().AllocateHost(bytes, out); }
CUresult CUDAAPI cuMemFreeHost(void* pointer) { return Device().FreeHost(pointer); }
CUresult CUDAAPI cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  if (!Device().IsDevice(to, bytes)) return CUDA_ERROR_INVALID_VALUE;
  return CopyWithHost(reinterpret_cast<void*>(to), from, bytes, stream);
}
CUresult CUDAAPI cuMemcpyDtoHAsync(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  if (!Device().IsDevice(from, bytes)) return CUDA_ERROR_INVALID_VALUE;
  return CopyWithHost(to, reinterpret_cast<const void*>(from), bytes, stream);
}
CUresult CUDAAPI cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  if (!Device().IsDevice(to, bytes) || !Device().IsDevice(from, bytes)) return CUDA_ERROR_INVALID_VALUE;
  return Copy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes, stream);
}
CUresult CUDAAPI cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
  if (!Device().IsDevice(to, count)) return CUDA_ERROR_INVALID_VALUE;
  return OnStream(stream, [=] { std::memset(reinterpret_cast<void*>(to), value, count); });
}
CUresult CUDAAPI cuMemsetD32Async(CUdeviceptr to, unsigned int value, size_t count, CUstream stream) {
  if (!Device().IsDevice(to, 4 * count) || to % 4 != 0) return CUDA_ERROR_INVALID_VALUE;
  return OnStream(stream, [=] { for (size_t i = 0; i < count; ++i) reinterpret_cast<unsigned int*>(to)[i] = value; });
}

// Images are PTX text with a final zero.
CUresult CUDAAPI cuModuleLoadData(CUmodule* module, const void* image) {
  return Device().LoadModule(static_cast<const char*>(image), module);
}
CUresult CUDAAPI cuModuleUnload(CUmodule) { return CUDA_SUCCESS; }
CUresult CUDAAPI cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  auto& functions = reinterpret_cast<SimModule*>(module)->functions;
  const auto found = functions.find(name);
  if (found == functions.end()) return CUDA_ERROR_NOT_FOUND;
  *function = reinterpret_cast<CUfunction>(found->second.get());
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction function) {
  const auto* const found = reinterpret_cast<SimFunction*>(function);
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = found->kernel->max_threads; return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: *value = static_cast<int>(found->kernel->shared_bytes); return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: *value = static_cast<int>(found->kernel->local_bytes); return CUDA_SUCCESS;
    default: return CUDA_ERROR_NOT_SUPPORTED;
  }
}
CUresult CUDAAPI cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  auto* const found = reinterpret_cast<SimFunction*>(function);
  if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) return CUDA_ERROR_NOT_SUPPORTED;
  if (value < 0 || static_cast<uint32_t>(value) + found->kernel->shared_bytes > 163 * 1024) return CUDA_ERROR_INVALID_VALUE;
  found->max_dynamic_shared = static_cast<uint32_t>(value);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuLaunchKernel(CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by,
                                unsigned int bz, unsigned int shared, CUstream stream, void** parameters, void** extra) {
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (extra != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  return Device().Launch(reinterpret_cast<SimFunction*>(function), {{gx, gy, gz}, {bx, by, bz}, shared}, parameters, stream);
}
CUresult CUDAAPI cuLaunchHostFunc(CUstream stream, CUhostFn function, void* argument) {
  return OnStream(stream, [=] { function(argument); });
}

CUresult CUDAAPI cuStreamCreate(CUstream* stream, unsigned int) {
  *stream = Device().CreateStream();
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuStreamDestroy(CUstream stream) { return Device().DestroyStream(stream); }
CUresult CUDAAPI cuStreamQuery(CUstream stream) {
  SimStream* const target = Device().Stream(stream);
  if (target == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  target->Nudge();
  return target->idle() ? Device().sticky() : CUDA_ERROR_NOT_READY;
}
CUresult CUDAAPI cuStreamSynchronize(CUstream stream) {
  SimStream* const target = Device().Stream(stream);
  if (target == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (target->capturing()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  const auto marker = target->Marker();
  target->Nudge();
  return marker->Wait() ? Device().sticky() : CUDA_ERROR_LAUNCH_TIMEOUT;
}

// A graph is what a stream would have done, in order.
CUresult CUDAAPI cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode) {
  SimStream* const target = Device().Stream(stream);
  if (target == nullptr || stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (target->capturing()) return CUDA_ERROR_ILLEGAL_STATE;
  target->BeginCapture();
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  SimStream* const target = Device().Stream(stream);
  if (target == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (!target->capturing()) return CUDA_ERROR_ILLEGAL_STATE;
  *graph = reinterpret_cast<CUgraph>(new SimGraph{target->EndCapture()});
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuGraphInstantiate(CUgraphExec* made, CUgraph graph, unsigned long long) {
  *made = reinterpret_cast<CUgraphExec>(new SimGraph(*reinterpret_cast<SimGraph*>(graph)));
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuGraphDestroy(CUgraph graph) {
  delete reinterpret_cast<SimGraph*>(graph);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec graph) {
  Device().SynchronizeAll();  // One that runs is kept until it has.
  delete reinterpret_cast<SimGraph*>(graph);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuGraphLaunch(CUgraphExec graph, CUstream stream) {
  if (Device().sticky() != CUDA_SUCCESS) return Device().sticky();
  SimStream* const target = Device().Stream(stream);
  if (target == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Device().CountGraphLaunch();
  target->Enqueue([nodes = reinterpret_cast<SimGraph*>(graph)->nodes] {
    for (const auto& node : nodes) node();
  });
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuEventCreate(CUevent* event, unsigned int) {
  *event = reinterpret_cast<CUevent>(new SimEvent);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuEventDestroy(CUevent event) {
  delete reinterpret_cast<SimEvent*>(event);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuEventRecord(CUevent event, CUstream stream) {
  SimStream* const target = Device().Stream(stream);
  if (target == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  auto* const recorded = reinterpret_cast<SimEvent*>(event);
  baton::MutexLock lock(&recorded->mutex);
  recorded->completion = target->Marker();
  recorded->stream = target;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int) {
  SimStream* const target = Device().Stream(stream);
  if (target == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  auto* const recorded = reinterpret_cast<SimEvent*>(event);
  baton::MutexLock lock(&recorded->mutex);
  if (recorded->completion == nullptr || Device().loses_stream_waits()) return CUDA_SUCCESS;
  target->Enqueue([completion = recorded->completion, source = recorded->stream] {
    if (!completion->finished()) source->Nudge();
    if (!completion->Wait()) Device().Fail(CUDA_ERROR_LAUNCH_TIMEOUT, "a stream waits for an event that never comes");
  });
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuEventQuery(CUevent event) {
  auto* const recorded = reinterpret_cast<SimEvent*>(event);
  baton::MutexLock lock(&recorded->mutex);
  if (recorded->completion == nullptr || recorded->completion->finished()) return Device().sticky();
  recorded->stream->Nudge();
  return CUDA_ERROR_NOT_READY;
}
CUresult CUDAAPI cuEventSynchronize(CUevent event) {
  auto* const recorded = reinterpret_cast<SimEvent*>(event);
  std::shared_ptr<baton::cuda_sim::Completion> completion;
  {
    baton::MutexLock lock(&recorded->mutex);
    completion = recorded->completion;
    if (completion != nullptr && !completion->finished()) recorded->stream->Nudge();
  }
  if (completion != nullptr && !completion->Wait()) return CUDA_ERROR_LAUNCH_TIMEOUT;
  return Device().sticky();
}
// There is no time that means anything.
CUresult CUDAAPI cuEventElapsedTime(float* ms, CUevent, CUevent) {
  *ms = 0;
  return CUDA_SUCCESS;
}

__attribute__((visibility("default"))) int baton_cuda_sim_is_capturing(void* stream) {
  SimStream* const target = Device().Stream(static_cast<CUstream>(stream));
  return target != nullptr && target->capturing() ? 1 : 0;
}
__attribute__((visibility("default"))) int baton_cuda_sim_is_device(const void* pointer, int64_t bytes) {
  return bytes >= 0 && Device().IsDevice(reinterpret_cast<CUdeviceptr>(pointer), static_cast<size_t>(bytes)) ? 1 : 0;
}
__attribute__((visibility("default"))) void baton_cuda_sim_fail(const char* why) { Device().Fail(CUDA_ERROR_ILLEGAL_ADDRESS, why); }
__attribute__((visibility("default"))) void baton_cuda_sim_reset() { Device().Reset(); }
__attribute__((visibility("default"))) int baton_cuda_sim_set(const char* name, int64_t value) { return Device().Set(name, value); }
__attribute__((visibility("default"))) int64_t baton_cuda_sim_count(const char* name) { return Device().Count(name); }
__attribute__((visibility("default"))) void baton_cuda_sim_findings(char* text, int64_t bytes) {
  if (bytes <= 0) return;
  std::strncpy(text, Device().Findings().c_str(), static_cast<size_t>(bytes));
  text[bytes - 1] = '\0';
}

}  // extern "C"
