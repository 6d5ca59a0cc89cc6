// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BASE_THREAD_H_
#define BATON_COMMON_BASE_THREAD_H_

#include <functional>
#include <string>
#include <thread>

#include "absl/strings/string_view.h"

namespace baton {

// A thread with a name that debuggers and `top -H` show (its first 15 bytes). Joined by the destructor: whoever owns it
// first tells it to end.
class Thread {
 public:
  Thread() = default;  // No thread.
  Thread(absl::string_view name, std::function<void()> body);
  ~Thread() { Join(); }
  Thread(Thread&&) = default;
  Thread& operator=(Thread&& other);

  // Waits until the body has returned. Nothing when there is no thread or it was joined.
  void Join();
  bool joinable() const { return thread_.joinable(); }

 private:
  std::thread thread_;
};

// Sets the calling thread's nice value (-20 first ... 19 last). False, with nothing changed, where the system refuses
// (raising a priority needs a privilege): priorities are a wish, never a need.
bool SetThreadNice(int nice);

// Compute threads that this process may use: the CPUs of its affinity mask, less what the cgroup's quota withholds, at
// least 1.
int NumUsableCpus();

}  // namespace baton

#endif  // BATON_COMMON_BASE_THREAD_H_
