// SPDX-License-Identifier: Apache-2.0
#include "common/base/thread.h"

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <utility>

namespace baton {
namespace {

// CPUs that the cgroup's quota allows, or 0 when there is none. The root cgroup has no cpu.max, a container's own is
// mounted at the root.
double CgroupCpus() {
  std::ifstream v2("/sys/fs/cgroup/cpu.max");
  std::string quota_text;
  double quota = 0, period = 0;
  if (v2 >> quota_text >> period) {
    if (quota_text == "max" || period <= 0) return 0;
    return std::strtod(quota_text.c_str(), nullptr) / period;
  }
  std::ifstream quota_file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), period_file("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  if (quota_file >> quota && period_file >> period && quota > 0 && period > 0) return quota / period;
  return 0;
}

}  // namespace

Thread::Thread(absl::string_view name, std::function<void()> body) {
  thread_ = std::thread([name = std::string(name.substr(0, 15)), body = std::move(body)] {
    ::pthread_setname_np(::pthread_self(), name.c_str());
    body();
  });
}

Thread& Thread::operator=(Thread&& other) {
  if (this != &other) {
    Join();
    thread_ = std::move(other.thread_);
  }
  return *this;
}

void Thread::Join() {
  if (thread_.joinable()) thread_.join();
}

bool SetThreadNice(int nice) {
  const auto tid = static_cast<id_t>(::syscall(SYS_gettid));  // On Linux PRIO_PROCESS takes one thread.
  return ::setpriority(PRIO_PROCESS, tid, nice) == 0;
}

int NumUsableCpus() {
  int cpus = 1;
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof(set), &set) == 0) cpus = std::max(1, CPU_COUNT(&set));
  const double quota = CgroupCpus();
  if (quota > 0) cpus = std::min(cpus, std::max(1, static_cast<int>(std::ceil(quota))));
  return cpus;
}

}  // namespace baton
