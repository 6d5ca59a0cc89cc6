// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BACKEND_CUDA_COPY_QUEUE_H_
#define BATON_COMMON_BACKEND_CUDA_COPY_QUEUE_H_

#include <array>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "common/backend/backend.h"
#include "common/backend/cuda/cuda_context.h"

namespace baton::cuda {

// Copies between the host and the device on a stream of their own: behind what the compute stream had been asked for before, which an event
// says, and beside what it is asked for afterwards. The engine's thread; errors go to the context's status.
class CopyQueue {
 public:
  enum class Direction { kToHost, kToDevice };

  explicit CopyQueue(CudaContext* context) : context_(context) {}
  // Waits for what is under way.
  ~CopyQueue();
  CopyQueue(const CopyQueue&) = delete;
  CopyQueue& operator=(const CopyQueue&) = delete;

  // Orders the copies, of which there may be none: then it is the end of what was computed before that is waited for. The memory at both
  // ends stays as it is until they have ended. A number for them, more than any before.
  CopyTicket Order(std::span<const MemoryCopy> copies, Direction direction);
  // Whether they have; also after an error, which nothing can be expected of.
  bool Ended(CopyTicket ticket);
  void Wait(CopyTicket ticket);

 private:
  static constexpr size_t kMaxOpen = 64;  // Under way at once; the oldest is waited for then.
  bool Start();
  CUevent EventOf(CopyTicket ticket) const { return ended_[ticket % kMaxOpen]; }

  CudaContext* const context_;
  CUstream stream_ = nullptr;  // Null before the first copy.
  CUevent computed_ = nullptr;
  std::array<CUevent, kMaxOpen> ended_ = {};
  CopyTicket last_ = 0, num_ended_ = 0;
};

}  // namespace baton::cuda

#endif  // BATON_COMMON_BACKEND_CUDA_COPY_QUEUE_H_
