// SPDX-License-Identifier: Apache-2.0
// Only in ThreadSanitizer builds. Debian's gRPC and Abseil are not instrumented, so ThreadSanitizer does not see how they
// order threads, and takes whatever crosses them for a race. Suppressing that by library would hide our own races too: the
// libraries are in the stack of every callback. Instead this stands in front of the few functions by which they promise an
// order, and tells ThreadSanitizer of exactly that:
//   absl::Mutex, absl::CondVar   what was before an Unlock is before the next Lock
//   a call's batch               what was before its start is before its completion is taken from the queue
//   a server's start             what was before it is before anything that comes from a queue
//   a server call's counters     what was before their decrements, some of which are in the library, is before the end
//   a server's end               what was before its calls were let go is before it is destroyed
// A program's own definition comes before that of a shared library; the library's is found as the next one.
#include <dlfcn.h>
#include <sanitizer/tsan_interface.h>

#include <cstdlib>

#include "absl/synchronization/mutex.h"
#include "grpc/grpc.h"
#include "grpcpp/support/server_callback.h"

namespace {

template <class Function>
Function* Next(const char* name) {
  auto* const next = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
  if (next == nullptr) std::abort();
  return next;
}

char server_started, calls_let_go;

void Acquire(const grpc_event& event) {
  __tsan_acquire(&server_started);
  if (event.type == GRPC_OP_COMPLETE) __tsan_acquire(event.tag);
}

}  // namespace

namespace absl {
ABSL_NAMESPACE_BEGIN

void Mutex::Lock() {
  static auto* const next = Next<void(Mutex*)>("_ZN4absl7debian35Mutex4LockEv");
  next(this);
  __tsan_acquire(this);
}

bool Mutex::TryLock() {
  static auto* const next = Next<bool(Mutex*)>("_ZN4absl7debian35Mutex7TryLockEv");
  const bool locked = next(this);
  if (locked) __tsan_acquire(this);
  return locked;
}

void Mutex::Unlock() {
  static auto* const next = Next<void(Mutex*)>("_ZN4absl7debian35Mutex6UnlockEv");
  __tsan_release(this);
  next(this);
}

void CondVar::Wait(Mutex* mutex) {
  static auto* const next = Next<void(CondVar*, Mutex*)>("_ZN4absl7debian37CondVar4WaitEPNS0_5MutexE");
  __tsan_release(mutex);
  next(this, mutex);
  __tsan_acquire(mutex);
}

bool CondVar::WaitWithTimeout(Mutex* mutex, Duration timeout) {
  static auto* const next =
      Next<bool(CondVar*, Mutex*, Duration)>("_ZN4absl7debian37CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE");
  __tsan_release(mutex);
  const bool timed_out = next(this, mutex, timeout);
  __tsan_acquire(mutex);
  return timed_out;
}

bool CondVar::WaitWithDeadline(Mutex* mutex, Time deadline) {
  static auto* const next =
      Next<bool(CondVar*, Mutex*, Time)>("_ZN4absl7debian37CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE");
  __tsan_release(mutex);
  const bool timed_out = next(this, mutex, deadline);
  __tsan_acquire(mutex);
  return timed_out;
}

ABSL_NAMESPACE_END
}  // namespace absl

grpc_call_error grpc_call_start_batch(grpc_call* call, const grpc_op* ops, size_t num_ops, void* tag, void* reserved) {
  static auto* const next = Next<decltype(grpc_call_start_batch)>("grpc_call_start_batch");
  __tsan_release(tag);
  return next(call, ops, num_ops, tag, reserved);
}

grpc_event grpc_completion_queue_next(grpc_completion_queue* queue, gpr_timespec deadline, void* reserved) {
  static auto* const next = Next<decltype(grpc_completion_queue_next)>("grpc_completion_queue_next");
  const grpc_event event = next(queue, deadline, reserved);
  Acquire(event);
  return event;
}

grpc_event grpc_completion_queue_pluck(grpc_completion_queue* queue, void* tag, gpr_timespec deadline, void* reserved) {
  static auto* const next = Next<decltype(grpc_completion_queue_pluck)>("grpc_completion_queue_pluck");
  const grpc_event event = next(queue, tag, deadline, reserved);
  Acquire(event);
  return event;
}

void grpc_server_start(grpc_server* server) {
  static auto* const next = Next<decltype(grpc_server_start)>("grpc_server_start");
  __tsan_release(&server_started);
  next(server);
}

void grpc_call_unref(grpc_call* call) {
  static auto* const next = Next<decltype(grpc_call_unref)>("grpc_call_unref");
  __tsan_release(&calls_let_go);
  next(call);
}

void grpc_server_destroy(grpc_server* server) {
  static auto* const next = Next<decltype(grpc_server_destroy)>("grpc_server_destroy");
  next(server);
  __tsan_acquire(&calls_let_go);
}

namespace grpc::internal {

void ServerCallbackCall::ScheduleOnDone(bool inline_ondone) {
  static auto* const next =
      Next<void(ServerCallbackCall*, bool)>("_ZN4grpc8internal18ServerCallbackCall14ScheduleOnDoneEb");
  (void)callbacks_outstanding_.load(std::memory_order_acquire);
  next(this, inline_ondone);
}

void ServerCallbackCall::CallOnCancel(ServerReactor* reactor) {
  static auto* const next = Next<void(ServerCallbackCall*, ServerReactor*)>(
      "_ZN4grpc8internal18ServerCallbackCall12CallOnCancelEPNS0_13ServerReactorE");
  (void)on_cancel_conditions_remaining_.load(std::memory_order_acquire);
  next(this, reactor);
}

}  // namespace grpc::internal
