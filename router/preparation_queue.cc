// SPDX-License-Identifier: Apache-2.0
#include "router/preparation_queue.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "router/status_details.h"

namespace baton {

absl::Status PreparationQueue::Reserve(int64_t bytes) {
  if (bytes > options_.max_bytes - bytes_) {
    return WithRetryAfter(absl::ResourceExhaustedError(absl::StrCat(
                              "request of ", bytes, " bytes: ", bytes_, " bytes of others are being prepared, and the bound is ",
                              options_.max_bytes, " bytes together (--max-preparing-bytes)")),
                          absl::Seconds(1));
  }
  bytes_ += bytes;
  return absl::OkStatus();
}

void PreparationQueue::Release(int64_t bytes) { bytes_ -= bytes; }

absl::StatusOr<PreparationQueue::Id> PreparationQueue::Push(int64_t bytes, MonotonicTime now) {
  if (num_waiting() >= options_.max_waiting) {
    return WithRetryAfter(
        absl::ResourceExhaustedError(absl::StrCat(num_waiting(), " requests wait to be prepared, which is the bound")), absl::Seconds(1));
  }
  Class& tasks = bytes < options_.long_bytes ? short_ : long_;
  const Id id = next_id_++;
  tasks.waiting.emplace(id, Task{.bytes = bytes, .arrived = now});
  tasks.by_bytes.emplace(bytes, id);
  return id;
}

std::optional<PreparationQueue::Id> PreparationQueue::Pop(MonotonicTime now) {
  const size_t most_long = static_cast<size_t>(std::max(1, std::min(options_.max_long, options_.num_threads - 1)));
  const bool long_may = !long_.waiting.empty() && running_long_.size() < most_long;
  const bool short_may = !short_.waiting.empty();
  if (!long_may && !short_may) return std::nullopt;
  const bool long_aged = long_may && !IsPatient(long_, now), short_aged = short_may && !IsPatient(short_, now);
  bool take_long = !short_may;
  if (long_may && short_may && long_aged) {
    take_long = !short_aged || long_.waiting.begin()->first < short_.waiting.begin()->first;
  }
  Class& tasks = take_long ? long_ : short_;
  const bool oldest = take_long ? long_aged : short_aged;
  const Id id = oldest ? tasks.waiting.begin()->first : tasks.by_bytes.begin()->second;
  Erase(tasks, id);
  if (take_long) running_long_.insert(id);
  return id;
}

void PreparationQueue::Finish(Id id) { running_long_.erase(id); }

bool PreparationQueue::Remove(Id id) {
  for (Class* tasks : {&short_, &long_}) {
    if (tasks->waiting.count(id) == 0) continue;
    Erase(*tasks, id);
    return true;
  }
  return false;
}

void PreparationQueue::Erase(Class& tasks, Id id) {
  const auto it = tasks.waiting.find(id);
  tasks.by_bytes.erase({it->second.bytes, id});
  tasks.waiting.erase(it);
}

// Whether its oldest may still be overtaken by shorter ones.
bool PreparationQueue::IsPatient(const Class& tasks, MonotonicTime now) const {
  return now - tasks.waiting.begin()->second.arrived < options_.patience;
}

}  // namespace baton
