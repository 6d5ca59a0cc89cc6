// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_RPC_CALLBACK_THREADS_H_
#define BATON_COMMON_RPC_CALLBACK_THREADS_H_

namespace baton {

// Keeps gRPC's callback threads from now until the process ends. All channels and servers share them, and whoever lets go of
// the last one ends and joins them: when a stream's end on such a thread is that (its ClientContext holds the channel), gRPC
// 1.51 joins the thread with itself, goes on, and the process aborts or worse. With one user that never leaves, a channel may
// be let go of on any thread. Any thread, any number of times; before the first callback call.
void KeepCallbackThreads();

}  // namespace baton

#endif  // BATON_COMMON_RPC_CALLBACK_THREADS_H_
