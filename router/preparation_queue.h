// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_ROUTER_PREPARATION_QUEUE_H_
#define BATON_ROUTER_PREPARATION_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"

namespace baton {

struct PreparationOptions {
  int64_t max_bytes = 128 << 20;  // Of all requests that are read, rendered or tokenised, or wait for it.
  size_t max_waiting = 4096;      // Tasks.
  int num_threads = 4;
  // A task of at least so many bytes is long: of those at most max_long run at once, and num_threads - 1 (but one may always).
  int64_t long_bytes = 256 << 10;
  int max_long = 3;
  // A task that has waited so long goes before shorter ones.
  absl::Duration patience = absl::Seconds(2);
};

// Which request is read, rendered or tokenised next, and how many bytes of them there may be. The shortest first, so that a
// question does not wait for documents; a thread is kept free of long ones, and whoever has waited long goes first, so that
// both get on. Pure: one thread at a time, time is an argument.
class PreparationQueue {
 public:
  using Id = uint64_t;  // Never 0.

  explicit PreparationQueue(const PreparationOptions& options) : options_(options) {}

  // Takes `bytes` out of the budget, until they are given back.
  //   RESOURCE_EXHAUSTED  more than is left; the message has the bytes, those in use and the bound. With a retry-after.
  absl::Status Reserve(int64_t bytes);
  void Release(int64_t bytes);

  // A task waits.
  //   RESOURCE_EXHAUSTED  max_waiting do already. With a retry-after.
  absl::StatusOr<Id> Push(int64_t bytes, MonotonicTime now);
  // The task to run now, if any may. It runs until Finish.
  std::optional<Id> Pop(MonotonicTime now);
  void Finish(Id id);
  // False when it does not wait: it runs, or is over.
  bool Remove(Id id);

  int64_t bytes_reserved() const { return bytes_; }
  size_t num_waiting() const { return short_.waiting.size() + long_.waiting.size(); }

 private:
  struct Task {
    int64_t bytes;
    MonotonicTime arrived;
  };
  struct Class {
    std::map<Id, Task> waiting;                 // In order of arrival.
    std::set<std::pair<int64_t, Id>> by_bytes;  // The same ones.
  };

  static void Erase(Class& tasks, Id id);
  bool IsPatient(const Class& tasks, MonotonicTime now) const;

  const PreparationOptions options_;
  Class short_, long_;
  std::set<Id> running_long_;
  int64_t bytes_ = 0;
  Id next_id_ = 1;
};

}  // namespace baton

#endif  // BATON_ROUTER_PREPARATION_QUEUE_H_
