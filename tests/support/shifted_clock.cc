// SPDX-License-Identifier: Apache-2.0
// A library to preload (LD_PRELOAD): the program's wall clock is that of the machine and so many nanoseconds more as the first eight
// bytes of the file $SHIFTED_CLOCK_FILE say, which may change while it runs. As when somebody sets the clock: who waits until a time of
// the wall clock (futexes with FUTEX_CLOCK_REALTIME, as Abseil's condition variables) waits as long as the new time says. The monotonic
// clock, and everything that goes by it, stays.
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdlib>
#include <ctime>

namespace {

constexpr int64_t kNanosPerSecond = 1'000'000'000;
constexpr int64_t kSlice = 5'000'000;  // How late a jump is noticed by who waits.

using ClockGettime = int (*)(clockid_t, timespec*);
using Syscall = long (*)(long, ...);

template <class Function>
Function Next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

int64_t Shift() {
  static const std::atomic<int64_t>* const shift = []() -> const std::atomic<int64_t>* {
    const char* const path = std::getenv("SHIFTED_CLOCK_FILE");
    const int file = path == nullptr ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return nullptr;
    void* const mapped = mmap(nullptr, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    return mapped == MAP_FAILED ? nullptr : static_cast<std::atomic<int64_t>*>(mapped);
  }();
  return shift == nullptr ? 0 : shift->load(std::memory_order_relaxed);
}

int RealTime(clockid_t clock, timespec* time) {
  static const ClockGettime next = Next<ClockGettime>("clock_gettime");
  return next(clock, time);
}

int64_t Nanos(const timespec& time) { return time.tv_sec * kNanosPerSecond + time.tv_nsec; }
timespec Time(int64_t nanos) { return {.tv_sec = nanos / kNanosPerSecond, .tv_nsec = nanos % kNanosPerSecond}; }

int64_t Now(clockid_t clock) {
  timespec time;
  RealTime(clock, &time);
  return Nanos(time) + (clock == CLOCK_REALTIME ? Shift() : 0);
}

// Waits until `end` of the shifted clock, wherever it goes meanwhile.
long WaitUntil(Syscall next, long word, long operation, long value, int64_t end, long bits) {
  while (true) {
    const int64_t left = end - Now(CLOCK_REALTIME);
    if (left <= 0) {
      errno = ETIMEDOUT;
      return -1;
    }
    const timespec slice = Time(Now(CLOCK_MONOTONIC) + std::min(left, kSlice));
    const long result = next(SYS_futex, word, operation & ~static_cast<long>(FUTEX_CLOCK_REALTIME), value, &slice, nullptr, bits);
    if (result == 0 || errno != ETIMEDOUT) return result;
  }
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const int result = RealTime(clock, time);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) *time = Time(Nanos(*time) + Shift());
  return result;
}

int gettimeofday(timeval* time, void*) noexcept {
  const int64_t nanos = Now(CLOCK_REALTIME);
  *time = {.tv_sec = nanos / kNanosPerSecond, .tv_usec = nanos % kNanosPerSecond / 1000};
  return 0;
}

time_t time(time_t* time) noexcept {
  const time_t seconds = Now(CLOCK_REALTIME) / kNanosPerSecond;
  if (time != nullptr) *time = seconds;
  return seconds;
}

long syscall(long number, ...) noexcept {
  static const Syscall next = Next<Syscall>("syscall");
  va_list list;
  va_start(list, number);
  long a[6];
  for (long& argument : a) argument = va_arg(list, long);
  va_end(list);
  if (number == SYS_futex && a[3] != 0 && (a[1] & FUTEX_CLOCK_REALTIME) != 0 && (a[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET) {
    return WaitUntil(next, a[0], a[1], a[2], Nanos(*reinterpret_cast<const timespec*>(a[3])), a[5]);
  }
  return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

}  // extern "C"
