// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu_sim/cuda_sim/sim_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace baton::cuda_sim {
namespace {

constexpr size_t kPage = 4096;

// Whole pages of its own, so that they can be shared with another process.
size_t Pages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

constexpr size_t kMaxFindings = 100;

}  // namespace

// Never destroyed: streams may be at work when the process ends.
SimDevice& SimDevice::Get() {
  static SimDevice* const device = [] {
    auto* const made = new SimDevice;
    made->TakePlan();
    return made;
  }();
  return *device;
}

// Of another process: the first one that comes takes the file away, so that whoever replaces it works.
void SimDevice::TakePlan() {
  if (const char* const ipc = std::getenv("BATON_CUDA_SIM_IPC_PLAN"); ipc != nullptr) ipc_.TakePlan(ipc);
  const char* const path = std::getenv("BATON_CUDA_SIM_PLAN");
  if (path == nullptr) return;
  std::ifstream in(path);
  std::string name;
  int64_t value = 0;
  bool any = false;
  while (in >> name >> value) any = Set(name, value) == 0 || any;
  if (any) std::remove(path);
}

CUresult SimDevice::Allocate(size_t bytes, CUdeviceptr* out) {
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  MutexLock lock(&mutex_);
  if (bytes > limit_ || allocated_ > limit_ - bytes) return CUDA_ERROR_OUT_OF_MEMORY;
  void* const data = mmap(nullptr, Pages(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  std::memset(data, 0xff, bytes);  // As a float, a NaN.
  allocations_[data] = bytes;
  allocated_ += bytes;
  memory_.Add(data, bytes);
  *out = reinterpret_cast<CUdeviceptr>(data);
  return CUDA_SUCCESS;
}

// Waits for all work, as the driver does: a kernel may still use it.
CUresult SimDevice::Free(CUdeviceptr pointer) {
  if (pointer == 0) return CUDA_SUCCESS;
  SynchronizeAll();
  void* const data = reinterpret_cast<void*>(pointer);
  size_t bytes = 0;
  {
    MutexLock lock(&mutex_);
    const auto found = allocations_.find(data);
    if (found != allocations_.end()) {
      bytes = found->second;
      memory_.Remove(data);
      allocated_ -= bytes;
      allocations_.erase(found);
    }
  }
  if (bytes == 0) {
    if (ipc_.IsOpened(data)) Find("memory of another process was freed instead of closed");
    return CUDA_ERROR_INVALID_VALUE;
  }
  ipc_.Forget(data);
  munmap(data, Pages(bytes));
  return CUDA_SUCCESS;
}

CUresult SimDevice::Export(CUdeviceptr pointer, CUipcMemHandle* handle) {
  SynchronizeAll();
  void* const data = reinterpret_cast<void*>(pointer);
  size_t bytes = 0;
  {
    MutexLock lock(&mutex_);
    const auto found = allocations_.find(data);
    if (found == allocations_.end()) return CUDA_ERROR_INVALID_VALUE;
    bytes = found->second;
  }
  return ipc_.Export(data, bytes, handle);
}

CUresult SimDevice::Open(const CUipcMemHandle& handle, unsigned flags, CUdeviceptr* out) {
  void* data = nullptr;
  size_t bytes = 0;
  bool fresh = false;
  const CUresult opened = ipc_.Open(handle, flags, &data, &bytes, &fresh);
  if (opened != CUDA_SUCCESS) return opened;
  if (fresh) memory_.Add(data, bytes);
  *out = reinterpret_cast<CUdeviceptr>(data);
  return CUDA_SUCCESS;
}

CUresult SimDevice::Close(CUdeviceptr pointer) {
  void* const data = reinterpret_cast<void*>(pointer);
  return ipc_.Close(data, [this, data] { memory_.Remove(data); });
}

void SimDevice::Find(const std::string& finding) {
  MutexLock lock(&mutex_);
  if (findings_.size() < kMaxFindings) findings_.push_back(finding);
  std::fprintf(stderr, "libcuda_sim: %s\n", finding.c_str());  // For processes that nobody asks.
}

CUresult SimDevice::AllocateHost(size_t bytes, void** out) {
  *out = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  if (*out == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  MutexLock lock(&mutex_);
  pinned_.insert(*out);
  return CUDA_SUCCESS;
}

CUresult SimDevice::FreeHost(void* pointer) {
  MutexLock lock(&mutex_);
  if (pinned_.erase(pointer) == 0) return CUDA_ERROR_INVALID_VALUE;
  std::free(pointer);
  return CUDA_SUCCESS;
}

void SimDevice::MemoryInfo(size_t* free, size_t* total) const {
  MutexLock lock(&mutex_);
  *total = limit_;
  *free = limit_ - std::min(limit_, allocated_);
}

CUresult SimDevice::LoadModule(const char* image, CUmodule* out) {
  if (std::strncmp(image, "\x7f""ELF", 4) == 0) return CUDA_ERROR_NO_BINARY_FOR_GPU;  // Real code, for another GPU than this.
  auto loaded = ptx::LoadModule(image);
  if (!loaded.ok()) {
    std::fprintf(stderr, "libcuda_sim: %s\n", loaded.status().ToString().c_str());
    return CUDA_ERROR_INVALID_PTX;
  }
  auto module = std::make_unique<SimModule>();
  module->module = *std::move(loaded);
  for (const auto& [name, kernel] : module->module->kernels) {
    auto function = std::make_unique<SimFunction>();
    function->module = module.get();
    function->kernel = &kernel;
    module->functions[name] = std::move(function);
  }
  *out = reinterpret_cast<CUmodule>(module.get());
  MutexLock lock(&mutex_);
  modules_.push_back(std::move(module));  // Kept: launches may be under way when it is unloaded.
  return CUDA_SUCCESS;
}

SimStream* SimDevice::Stream(CUstream stream) {
  MutexLock lock(&mutex_);
  if (stream != nullptr) {
    auto* const known = reinterpret_cast<SimStream*>(stream);
    return streams_.count(known) != 0 ? known : nullptr;
  }
  if (default_stream_ == nullptr) default_stream_ = std::make_unique<SimStream>(&lazy_);
  return default_stream_.get();
}

CUstream SimDevice::CreateStream() {
  auto stream = std::make_unique<SimStream>(&lazy_);
  SimStream* const raw = stream.get();
  MutexLock lock(&mutex_);
  streams_[raw] = std::move(stream);
  return reinterpret_cast<CUstream>(raw);
}

CUresult SimDevice::DestroyStream(CUstream stream) {
  std::unique_ptr<SimStream> gone;  // Ends after the lock is given back: its work may need the device.
  {
    MutexLock lock(&mutex_);
    const auto found = streams_.find(reinterpret_cast<SimStream*>(stream));
    if (found == streams_.end()) return CUDA_ERROR_INVALID_HANDLE;
    gone = std::move(found->second);
    streams_.erase(found);
  }
  return CUDA_SUCCESS;
}

CUresult SimDevice::SynchronizeAll() {
  std::vector<std::shared_ptr<Completion>> markers;
  {
    MutexLock lock(&mutex_);
    for (const auto& [raw, stream] : streams_) {
      markers.push_back(stream->Marker());
      stream->Nudge();
    }
    if (default_stream_ != nullptr) {
      markers.push_back(default_stream_->Marker());
      default_stream_->Nudge();
    }
  }
  for (const auto& marker : markers) {
    if (!marker->Wait()) return CUDA_ERROR_LAUNCH_TIMEOUT;
  }
  return sticky();
}

CUresult SimDevice::Launch(SimFunction* function, const ptx::LaunchShape& shape, void** parameters, CUstream stream) {
  if (sticky() != CUDA_SUCCESS) return sticky();
  const ptx::Kernel& kernel = *function->kernel;
  if (shape.block.count() == 0 || shape.block.count() > static_cast<uint64_t>(kernel.max_threads)) return CUDA_ERROR_INVALID_VALUE;
  if (kernel.shared_bytes + shape.dynamic_shared_bytes > std::max<uint32_t>(function->max_dynamic_shared, 48 * 1024)) return CUDA_ERROR_INVALID_VALUE;
  if (parameters == nullptr && !kernel.parameters.empty()) return CUDA_ERROR_INVALID_VALUE;
  SimStream* const target = Stream(stream);
  if (target == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  std::vector<uint8_t> bytes(kernel.parameter_bytes);
  for (size_t i = 0; i < kernel.parameters.size(); ++i) {
    std::memcpy(bytes.data() + kernel.parameters[i].offset, parameters[i], kernel.parameters[i].bytes);
  }
  target->Enqueue([this, function, shape, bytes = std::move(bytes)] { RunLaunch(function, shape, bytes); });
  return CUDA_SUCCESS;
}

void SimDevice::RunLaunch(SimFunction* function, const ptx::LaunchShape& shape, const std::vector<uint8_t>& parameters) {
  if (sticky() != CUDA_SUCCESS) return;  // A context with an error runs nothing more.
  ptx::LaunchOptions options;
  bool fail = false;
  {
    MutexLock lock(&mutex_);
    options.reverse_warps = reverse_warps_;
    fail = launches_until_failure_ > 0 && --launches_until_failure_ == 0;
  }
  if (fail) return Fail(CUDA_ERROR_LAUNCH_FAILED, absl::StrCat(function->kernel->name, ": injected"));
  auto report = ptx::Launch(*function->module->module, *function->kernel, shape, parameters, memory_, options);
  if (!report.ok()) return Fail(CUDA_ERROR_INVALID_VALUE, report.status().ToString());
  {
    MutexLock lock(&mutex_);
    ++launches_;
    const ptx::Counters& c = report->counters;
    counters_.warp_instructions += c.warp_instructions;
    counters_.divergent_branches += c.divergent_branches;
    counters_.global_requests += c.global_requests;
    counters_.sectors += c.sectors;
    counters_.ideal_sectors += c.ideal_sectors;
    counters_.wavefronts += c.wavefronts;
    counters_.ideal_wavefronts += c.ideal_wavefronts;
    for (const ptx::Finding& finding : report->findings) {
      if (findings_.size() < kMaxFindings) findings_.push_back(finding.message);
    }
  }
  if (!report->aborted) return;
  const ptx::Finding& last = report->findings.back();
  Fail(last.kind == ptx::FindingKind::kOutOfBounds   ? CUDA_ERROR_ILLEGAL_ADDRESS
       : last.kind == ptx::FindingKind::kMisaligned  ? CUDA_ERROR_MISALIGNED_ADDRESS
       : last.kind == ptx::FindingKind::kTrap        ? CUDA_ERROR_LAUNCH_FAILED
                                                     : CUDA_ERROR_LAUNCH_TIMEOUT,
       last.message);
}

void SimDevice::Fail(CUresult error, const std::string& why) {
  int none = CUDA_SUCCESS;
  if (sticky_.compare_exchange_strong(none, error)) std::fprintf(stderr, "libcuda_sim: %s\n", why.c_str());
}

void SimDevice::CountGraphLaunch() {
  MutexLock lock(&mutex_);
  ++graph_launches_;
}

bool SimDevice::CountHostCopy(size_t bytes) {
  MutexLock lock(&mutex_);
  host_copy_bytes_ += static_cast<int64_t>(bytes);
  if (host_copies_until_stall_ == 0 || --host_copies_until_stall_ > 0) return false;
  stalled_ = true;
  return true;
}

void SimDevice::WaitStalled() {
  MutexLock lock(&mutex_);
  while (stalled_) unstalled_.WaitFor(&mutex_, absl::Seconds(1));
}

bool SimDevice::loses_stream_waits() const {
  MutexLock lock(&mutex_);
  return loses_stream_waits_;
}

void SimDevice::Reset() {
  Set("stall_host_copy", 0);
  ipc_.Reset();
  SynchronizeAll();
  sticky_ = CUDA_SUCCESS;
  MutexLock lock(&mutex_);
  limit_ = kDefaultMemory;
  launches_until_failure_ = 0;
  lazy_ = false;
  reverse_warps_ = false;
  loses_stream_waits_ = false;
  host_copy_bytes_ = 0;
  launches_ = graph_launches_ = 0;
  counters_ = {};
  findings_.clear();
}

int SimDevice::Set(const std::string& name, int64_t value) {
  if (ipc_.Set(name, value)) return 0;
  if (name == "lazy_streams") SynchronizeAll();
  MutexLock lock(&mutex_);
  if (name == "memory_limit") limit_ = static_cast<size_t>(value);
  else if (name == "fail_launch") launches_until_failure_ = value;
  else if (name == "lazy_streams") lazy_ = value != 0;
  else if (name == "reverse_warps") reverse_warps_ = value != 0;
  else if (name == "lose_stream_waits") loses_stream_waits_ = value != 0;
  else if (name == "stall_host_copy") {
    host_copies_until_stall_ = value;
    if (value == 0) stalled_ = false;
    unstalled_.NotifyAll();
  }
  else return 1;
  return 0;
}

int64_t SimDevice::Count(const std::string& name) const {
  if (const int64_t ipc = ipc_.count(name); ipc >= 0) return ipc;
  MutexLock lock(&mutex_);
  const std::pair<const char*, uint64_t> known[] = {
      {"launches", static_cast<uint64_t>(launches_)}, {"graph_launches", static_cast<uint64_t>(graph_launches_)},
      {"host_copy_bytes", static_cast<uint64_t>(host_copy_bytes_)}, {"findings", findings_.size()},
      {"warp_instructions", counters_.warp_instructions}, {"divergent_branches", counters_.divergent_branches},
      {"global_requests", counters_.global_requests}, {"sectors", counters_.sectors}, {"ideal_sectors", counters_.ideal_sectors},
      {"wavefronts", counters_.wavefronts}, {"ideal_wavefronts", counters_.ideal_wavefronts}};
  for (const auto& [text, value] : known) {
    if (name == text) return static_cast<int64_t>(value);
  }
  return -1;
}

std::string SimDevice::Findings() const {
  MutexLock lock(&mutex_);
  return absl::StrJoin(findings_, "\n");
}

}  // namespace baton::cuda_sim
