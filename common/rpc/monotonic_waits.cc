// SPDX-License-Identifier: Apache-2.0
// gRPC waits for its next timer by a condition variable of Abseil, and that of Debian's release waits until a time of the wall clock.
// When somebody sets the clock back by an hour meanwhile, the deadlines, keepalives and reconnects of the whole process stop for an hour.
// Abseil lets a program stand in for how its threads wait: here until the same moment of the monotonic clock. (Later releases of Abseil
// wait by that clock themselves.) A program's own definition comes before that of a shared library; CMakeLists.txt has it linked.
#include "absl/base/config.h"

#if defined(ABSL_LTS_RELEASE_VERSION) && ABSL_LTS_RELEASE_VERSION == 20220623
#include <dlfcn.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <ctime>

#include "absl/synchronization/internal/create_thread_identity.h"
#include "absl/synchronization/internal/kernel_timeout.h"
#include "absl/synchronization/internal/per_thread_sem.h"
#include "absl/synchronization/internal/waiter.h"

namespace {

using absl::synchronization_internal::KernelTimeout;
using absl::synchronization_internal::Waiter;

// A thread's semaphore is one counter that its waiter sleeps on, and nothing else.
static_assert(ABSL_WAITER_MODE == ABSL_WAITER_MODE_FUTEX && sizeof(Waiter) == sizeof(std::atomic<int32_t>));
// A timeout is nanoseconds of the wall clock.
static_assert(sizeof(KernelTimeout) == sizeof(int64_t));

constexpr int64_t kNanosPerSecond = 1'000'000'000;

int64_t Now(clockid_t clock) {
  timespec time;
  clock_gettime(clock, &time);
  return time.tv_sec * kNanosPerSecond + time.tv_nsec;
}

// Takes one from `count`; false when there is none until `end` of the monotonic clock.
bool TakeBefore(std::atomic<int32_t>* count, int64_t end) {
  const timespec until = {.tv_sec = end / kNanosPerSecond, .tv_nsec = end % kNanosPerSecond};
  while (true) {
    int32_t value = count->load(std::memory_order_relaxed);
    while (value != 0) {
      if (count->compare_exchange_weak(value, value - 1, std::memory_order_acquire, std::memory_order_relaxed)) return true;
    }
    const long result =
        syscall(SYS_futex, count, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, 0, &until, nullptr, FUTEX_BITSET_MATCH_ANY);
    if (result != 0 && errno == ETIMEDOUT) return false;
  }
}

}  // namespace

extern "C" __attribute__((visibility("default"))) bool ABSL_INTERNAL_C_SYMBOL(AbslInternalPerThreadSemWait)(KernelTimeout timeout) {
  if (!timeout.has_timeout()) {
    using Wait = bool (*)(KernelTimeout);
    static const Wait next = reinterpret_cast<Wait>(dlsym(RTLD_NEXT, "AbslInternalPerThreadSemWait_debian3"));
    if (next == nullptr) std::abort();
    return next(timeout);
  }
  // Converted at once: what the wall clock does from here on is nothing to who waits.
  const int64_t end = Now(CLOCK_MONOTONIC) + std::max<int64_t>(0, std::bit_cast<int64_t>(timeout) - Now(CLOCK_REALTIME));
  auto* const identity = absl::synchronization_internal::GetOrCreateCurrentThreadIdentity();
  return TakeBefore(reinterpret_cast<std::atomic<int32_t>*>(Waiter::GetWaiter(identity)), end);
}
#endif
