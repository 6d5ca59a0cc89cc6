// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_TRANSFER_CALL_GATE_H_
#define BATON_COMMON_KV_TRANSFER_CALL_GATE_H_

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"

namespace baton {

// Lets calls into an object through until it is closed; closing waits for those inside, which must be short. Thread-safe.
class CallGate {
 public:
  // Held by a caller: true when it is inside.
  class Pass {
   public:
    explicit Pass(CallGate* gate) : gate_(gate->Enter() ? gate : nullptr) {}
    ~Pass() {
      if (gate_ != nullptr) gate_->Leave();
    }
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;
    explicit operator bool() const { return gate_ != nullptr; }

   private:
    CallGate* const gate_;
  };

  // Nobody is inside afterwards, and nobody gets in. Idempotent. Not from inside.
  void Close() {
    MutexLock lock(&mutex_);
    closed_ = true;
    while (inside_ > 0) left_.WaitFor(&mutex_, absl::Seconds(1));
  }
  bool closed() const {
    MutexLock lock(&mutex_);
    return closed_;
  }

 private:
  bool Enter() {
    MutexLock lock(&mutex_);
    if (closed_) return false;
    ++inside_;
    return true;
  }
  void Leave() {
    MutexLock lock(&mutex_);
    if (--inside_ == 0) left_.NotifyAll();
  }

  mutable Mutex mutex_;
  CondVar left_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  int inside_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace baton

#endif  // BATON_COMMON_KV_TRANSFER_CALL_GATE_H_
