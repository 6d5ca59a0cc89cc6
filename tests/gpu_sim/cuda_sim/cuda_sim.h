// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_GPU_SIM_CUDA_SIM_CUDA_SIM_H_
#define BATON_TESTS_GPU_SIM_CUDA_SIM_CUDA_SIM_H_

#include <stdint.h>

// What libcuda_sim offers beside the driver's entry points: tests look these up by name. Any thread.
extern "C" {

// Begins anew: no sticky error, no injected failure, no findings, no limit. Streams and memory stay.
typedef void BatonCudaSimReset(void);

// The failure to inject:
//   "memory_limit"     bytes of device memory that can be allocated at once; more is CUDA_ERROR_OUT_OF_MEMORY
//   "fail_launch"      the n-th launch from now (1: the next) ends with CUDA_ERROR_LAUNCH_FAILED on its stream, which sticks
//   "lazy_streams"     1: a stream runs only while somebody waits for it or for an event on it: finds every missing wait
//   "stall_host_copy"  the n-th copy from now on that is ordered between the host and the device stays on its stream until this is set to 0
//   "lose_stream_waits" 1: no stream waits for an event: each was forgotten
//   "reverse_warps"    1: the warps of a block take their turns in reverse
// 0: fine; 1: no such name. In a process that a test starts, $BATON_CUDA_SIM_PLAN names a file of lines "name value", which the first
// process that opens the library takes away.
typedef int BatonCudaSimSet(const char* name, int64_t value);

// What all launches since the reset did, summed: the names of ptx::Counters, "launches" (of kernels, those in graphs
// too), "graph_launches", "host_copy_bytes" (ordered between the host and the device) and "findings"; -1: no such name.
typedef int64_t BatonCudaSimCount(const char* name);

// Findings since the reset, one a line, cut to `bytes` with the final zero.
typedef void BatonCudaSimFindings(char* text, int64_t bytes);

// For the stand-ins of other libraries: whether [pointer, pointer + bytes) lies in one allocation of device memory; an error that
// sticks, as a kernel's would.
typedef int BatonCudaSimIsDevice(const void* pointer, int64_t bytes);
typedef void BatonCudaSimFail(const char* why);
// Whether what is enqueued on a stream is put down for a graph: it may then be done any number of times.
typedef int BatonCudaSimIsCapturing(void* stream);
BatonCudaSimIsCapturing baton_cuda_sim_is_capturing;
BatonCudaSimIsDevice baton_cuda_sim_is_device;
BatonCudaSimFail baton_cuda_sim_fail;

#ifdef BATON_CUDA_SIM_BUILD
BatonCudaSimReset baton_cuda_sim_reset;
BatonCudaSimSet baton_cuda_sim_set;
BatonCudaSimCount baton_cuda_sim_count;
BatonCudaSimFindings baton_cuda_sim_findings;
#endif

}  // extern "C"

#endif  // BATON_TESTS_GPU_SIM_CUDA_SIM_CUDA_SIM_H_
