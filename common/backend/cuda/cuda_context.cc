// SPDX-License-Identifier: Apache-2.0
#include "common/backend/cuda/cuda_context.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/backend/cuda/kernel_module.h"
#include "common/backend/cuda/kernels/kernel_images.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"

namespace baton::cuda {
namespace {

CUdeviceptr Address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

}  // namespace

absl::StatusOr<std::shared_ptr<CudaContext>> CudaContext::Open(const std::string& driver, int ordinal) {
  std::shared_ptr<CudaContext> context(new CudaContext);
  BATON_RETURN_IF_ERROR(context->Start(driver, ordinal));
  return context;
}

absl::Status CudaContext::Start(const std::string& driver, int ordinal) {
  BATON_ASSIGN_OR_RETURN(device_, FindCudaDevice(driver, ordinal));
  BATON_ASSIGN_OR_RETURN(api_, CudaApi::Load(driver));
  BATON_RETURN_IF_ERROR(api_.ToStatus(api_.cuDeviceGet(&handle_, ordinal), "cuDeviceGet"));
  BATON_RETURN_IF_ERROR(api_.ToStatus(api_.cuDevicePrimaryCtxRetain(&context_, handle_), "cuDevicePrimaryCtxRetain"));
  BATON_RETURN_IF_ERROR(Bind());
  BATON_RETURN_IF_ERROR(api_.ToStatus(api_.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate"));
  recording_[0] = stream_;
  BATON_RETURN_IF_ERROR(api_.ToStatus(api_.cuStreamCreate(&recording_[1], CU_STREAM_NON_BLOCKING), "cuStreamCreate"));
  {
    MutexLock lock(&store_mutex_);
    BATON_RETURN_IF_ERROR(api_.ToStatus(api_.cuStreamCreate(&store_stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate"));
  }
  return LoadKernels();
}

CudaContext::~CudaContext() {
  if (context_ == nullptr) return;
  if (Bind().ok()) {
    if (stream_ != nullptr) api_.cuStreamDestroy(stream_);
    if (recording_[1] != nullptr) api_.cuStreamDestroy(recording_[1]);
    MutexLock lock(&store_mutex_);
    if (store_stream_ != nullptr) api_.cuStreamDestroy(store_stream_);
    for (CUmodule module : modules_) api_.cuModuleUnload(module);
  }
  api_.cuDevicePrimaryCtxRelease(handle_);
}

absl::Status CudaContext::Bind() const { return api_.ToStatus(api_.cuCtxSetCurrent(context_), "cuCtxSetCurrent"); }

absl::Status CudaContext::LoadKernels() {
  for (const KernelImage& image : KernelImages()) {
    BATON_RETURN_IF_ERROR(LoadImage(image));
  }
  return absl::OkStatus();
}

absl::Status CudaContext::LoadImage(const KernelImage& image) {
  BATON_ASSIGN_OR_RETURN(CUmodule module, LoadKernelModule(api_, image, device_.compute_capability));
  modules_.push_back(module);
  for (const std::string& entry : EntriesOf(image.ptx)) {
    CUfunction function = nullptr;
    BATON_RETURN_IF_ERROR(api_.ToStatus(api_.cuModuleGetFunction(&function, module, entry.c_str()), absl::StrCat("kernel ", entry)));
    kernels_[entry] = function;
  }
  return absl::OkStatus();
}

// The names after ".entry" in PTX text. The driver lists a module's functions since CUDA 12.4 only.
std::vector<std::string> CudaContext::EntriesOf(const char* ptx) {
  std::vector<std::string> entries;
  constexpr absl::string_view kEntry = ".entry ";
  for (absl::string_view rest = ptx; true;) {
    const size_t at = rest.find(kEntry);
    if (at == absl::string_view::npos) return entries;
    rest.remove_prefix(at + kEntry.size());
    entries.emplace_back(rest.substr(0, rest.find_first_of("( \t\r\n")));
  }
}

absl::StatusOr<std::shared_ptr<uint8_t[]>> CudaContext::Allocate(size_t bytes) {
  BATON_RETURN_IF_ERROR(Bind());
  if (bytes == 0) bytes = 1;  // The driver refuses it; a pointer is wanted all the same.
  CUdeviceptr pointer = 0;
  const std::string doing = absl::StrFormat("cuMemAlloc of %d bytes", static_cast<int64_t>(bytes));
  BATON_RETURN_IF_ERROR(api_.ToStatus(api_.cuMemAlloc(&pointer, bytes), doing));
  std::shared_ptr<uint8_t[]> memory(reinterpret_cast<uint8_t*>(pointer), [self = shared_from_this()](uint8_t* p) {
    if (self->Bind().ok()) self->api_.cuMemFree(Address(p));
  });
  MutexLock lock(&store_mutex_);
  BATON_RETURN_IF_ERROR(api_.ToStatus(api_.cuMemsetD8Async(pointer, 0, bytes, store_stream_), "cuMemsetD8Async"));
  BATON_RETURN_IF_ERROR(api_.ToStatus(api_.cuStreamSynchronize(store_stream_), "cuStreamSynchronize"));
  return memory;
}

absl::StatusOr<std::shared_ptr<uint8_t[]>> CudaContext::AllocateHost(size_t bytes) {
  BATON_RETURN_IF_ERROR(Bind());
  void* pointer = nullptr;
  const std::string doing = absl::StrFormat("cuMemHostAlloc of %d bytes", static_cast<int64_t>(bytes));
  BATON_RETURN_IF_ERROR(api_.ToStatus(api_.cuMemHostAlloc(&pointer, bytes == 0 ? 1 : bytes, 0), doing));
  std::memset(pointer, 0, bytes);
  return std::shared_ptr<uint8_t[]>(static_cast<uint8_t*>(pointer), [self = shared_from_this()](uint8_t* p) {
    if (self->Bind().ok()) self->api_.cuMemFreeHost(p);
  });
}

int64_t CudaContext::free_bytes() const {
  size_t free = 0, total = 0;
  if (!Bind().ok() || api_.cuMemGetInfo(&free, &total) != CUDA_SUCCESS) return 0;
  return static_cast<int64_t>(free);
}

absl::Status CudaContext::Store(void* device, const void* host, size_t bytes) {
  BATON_RETURN_IF_ERROR(Bind());
  MutexLock lock(&store_mutex_);
  BATON_RETURN_IF_ERROR(api_.ToStatus(api_.cuMemcpyHtoDAsync(Address(device), host, bytes, store_stream_), "cuMemcpyHtoDAsync"));
  return api_.ToStatus(api_.cuStreamSynchronize(store_stream_), "cuStreamSynchronize");
}

void CudaContext::Upload(void* device, const void* host, size_t bytes) {
  if (bytes == 0 || !status().ok()) return;
  for (CUstream stream : streams()) Check(api_.cuMemcpyHtoDAsync(Address(device), host, bytes, stream), "cuMemcpyHtoDAsync");
}

void CudaContext::Download(void* host, const void* device, size_t bytes) {
  if (bytes == 0 || !status().ok()) return;
  for (CUstream stream : streams()) Check(api_.cuMemcpyDtoHAsync(host, Address(device), bytes, stream), "cuMemcpyDtoHAsync");
}

void CudaContext::Move(void* to, const void* from, size_t bytes) {
  if (bytes == 0 || !status().ok()) return;
  for (CUstream stream : streams()) Check(api_.cuMemcpyDtoDAsync(Address(to), Address(from), bytes, stream), "cuMemcpyDtoDAsync");
}

void CudaContext::Synchronize() {
  if (status().ok()) Check(api_.cuStreamSynchronize(stream_), "cuStreamSynchronize");
}

void CudaContext::LaunchKernel(const char* name, Dim3 grid, unsigned threads, void** arguments) {
  if (!status().ok()) return;
  if (const absl::Status bound = Bind(); !bound.ok()) return Fail(bound);
  const auto found = kernels_.find(absl::string_view(name));
  BATON_CHECK(found != kernels_.end()) << "no kernel " << name;
  for (CUstream stream : streams()) {
    Check(api_.cuLaunchKernel(found->second, grid.x, grid.y, grid.z, threads, 1, 1, 0, stream, arguments, nullptr), name);
  }
}

std::span<const CUstream> CudaContext::streams() const {
  switch (mode_) {
    case Mode::kRecord: return recording_;
    case Mode::kReplay: return {};
    case Mode::kDirect: break;
  }
  return std::span(recording_).first(1);
}

void CudaContext::BeginRecord() {
  // Relaxed: work elsewhere, copies of landed blocks for one, goes on meanwhile.
  if (Check(api_.cuStreamBeginCapture(recording_[1], CU_STREAM_CAPTURE_MODE_RELAXED), "cuStreamBeginCapture")) mode_ = Mode::kRecord;
}

absl::StatusOr<CUgraphExec> CudaContext::EndRecord() {
  if (mode_ != Mode::kRecord) return absl::InternalError("nothing is recorded");
  mode_ = Mode::kDirect;
  CUgraph graph = nullptr;
  BATON_RETURN_IF_ERROR(api_.ToStatus(api_.cuStreamEndCapture(recording_[1], &graph), "cuStreamEndCapture"));
  CUgraphExec made = nullptr;
  const CUresult result = api_.cuGraphInstantiate(&made, graph, 0);
  api_.cuGraphDestroy(graph);
  BATON_RETURN_IF_ERROR(api_.ToStatus(result, "cuGraphInstantiate"));
  return made;
}

void CudaContext::LaunchGraph(CUgraphExec graph) {
  if (!status().ok()) return;
  if (const absl::Status bound = Bind(); !bound.ok()) return Fail(bound);
  Check(api_.cuGraphLaunch(graph, stream_), "cuGraphLaunch");
}

bool CudaContext::Check(CUresult result, absl::string_view doing) {
  if (result == CUDA_SUCCESS) return true;
  Fail(api_.ToStatus(result, doing));
  return false;
}

void CudaContext::Fail(const absl::Status& status) {
  MutexLock lock(&status_mutex_);
  if (!status_.ok()) return;
  status_ = Annotate(status, device_.description());
  BATON_LOG(ERROR) << status_.message();
}

absl::Status CudaContext::status() const {
  MutexLock lock(&status_mutex_);
  return status_;
}

}  // namespace baton::cuda
