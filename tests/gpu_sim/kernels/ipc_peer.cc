// SPDX-License-Identifier: Apache-2.0
// Another process whose device memory a test opens: allocates the bytes that its second argument says with the driver that its first one
// names, fills them with 0x5a and writes their handle to its output in hexadecimal digits. Then it answers each line of its input by one:
// "read" the first and the last byte, "free" the result of freeing, "findings" how many there are. It ends with its input.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "common/backend/cuda/cuda_api.h"
#include "common/backend/cuda/cuda_ipc_api.h"
#include "common/backend/cuda/dynamic_library.h"
#include "tests/gpu_sim/cuda_sim/cuda_sim.h"

int main(int argc, char** argv) {
  using namespace baton::cuda;
  if (argc != 3) return 2;
  const auto api = CudaApi::Load(argv[1]);
  const auto ipc = CudaIpcApi::Load(argv[1]);
  const auto library = DynamicLibrary::Open(argv[1]);
  if (!api.ok() || !ipc.ok() || !library.ok()) return 3;
  auto* const count = reinterpret_cast<BatonCudaSimCount*>(library->Find("baton_cuda_sim_count"));
  const size_t bytes = static_cast<size_t>(std::atoll(argv[2]));
  CUdevice device = 0;
  CUcontext context = nullptr;
  CUdeviceptr memory = 0;
  CUstream stream = nullptr;
  CUipcMemHandle handle = {};
  const CUresult results[] = {api->cuInit(0), api->cuDeviceGet(&device, 0), api->cuDevicePrimaryCtxRetain(&context, device),
                              api->cuCtxSetCurrent(context), api->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), api->cuMemAlloc(&memory, bytes),
                              api->cuMemsetD8Async(memory, 0x5a, bytes, stream), ipc->cuIpcGetMemHandle(&handle, memory)};
  for (const CUresult result : results) {
    if (result != CUDA_SUCCESS) return 4;
  }
  for (const char byte : handle.reserved) std::printf("%02x", static_cast<unsigned char>(byte));
  std::printf("\n");
  std::fflush(stdout);
  char line[64];
  while (std::fgets(line, sizeof(line), stdin) != nullptr) {
    const std::string command(line, std::strcspn(line, "\n"));
    if (command == "read") {
      std::vector<unsigned char> host(bytes);
      if (api->cuMemcpyDtoHAsync(host.data(), memory, bytes, stream) != CUDA_SUCCESS || api->cuStreamSynchronize(stream) != CUDA_SUCCESS) return 5;
      std::printf("%02x %02x\n", host.front(), host.back());
    } else if (command == "free") {
      std::printf("%d\n", static_cast<int>(api->cuMemFree(memory)));
    } else {
      std::printf("%d\n", count == nullptr ? 0 : static_cast<int>(count("findings")));
    }
    std::fflush(stdout);
  }
  return 0;
}
