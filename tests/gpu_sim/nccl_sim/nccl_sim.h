// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_GPU_SIM_NCCL_SIM_NCCL_SIM_H_
#define BATON_TESTS_GPU_SIM_NCCL_SIM_NCCL_SIM_H_

#include <stdint.h>

// What libnccl_sim offers beside NCCL's entry points: tests look these up by name. Any thread.
extern "C" {

// Begins anew: no injected failure, no findings, counters at 0. Communicators stay.
typedef void BatonNcclSimReset(void);

// The failure to inject. Where a name has _send or _recv, it is the n-th operation of that kind that begins from now on (1: the next):
//   "stall_send", "stall_recv"  moves nothing until its communicator is aborted
//   "error_send", "error_recv"  ends its communicator with ncclRemoteError
//   "kill_send", "kill_recv"    ends this process (SIGKILL) when half of it has been moved
//   "flip_recv"                 delivers one bit that is another
//   "short_send"                sends half of what it was asked for
//   "fail_init"                 the n-th communicator from now on is not made: ncclSystemError
//   "deaf"                      1: nobody notices that his peer is gone, as on paths without an error report
//   "patience_ms"               how long an operation or a communicator waits for the peer before it is a finding (20000)
// 0: fine; 1: no such name. In processes that a test starts, $BATON_NCCL_SIM_PLAN names a file of lines "name value", which all of
// them obey; the one whose failure comes due takes the file away.
typedef int BatonNcclSimSet(const char* name, int64_t value);

// "communicators" that live now; since the reset "inits" (of communicators), "sends", "recvs" (that came to their end), "received_bytes" and "findings"; -1: no such
// name.
typedef int64_t BatonNcclSimCount(const char* name);

// Wrong uses since the reset, one a line, cut to `bytes` with the final zero.
typedef void BatonNcclSimFindings(char* text, int64_t bytes);

#ifdef BATON_NCCL_SIM_BUILD
BatonNcclSimReset baton_nccl_sim_reset;
BatonNcclSimSet baton_nccl_sim_set;
BatonNcclSimCount baton_nccl_sim_count;
BatonNcclSimFindings baton_nccl_sim_findings;
#endif

}  // extern "C"

#endif  // BATON_TESTS_GPU_SIM_NCCL_SIM_NCCL_SIM_H_
