// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_GPU_SIM_NCCL_SIM_SIM_COMM_H_
#define BATON_TESTS_GPU_SIM_NCCL_SIM_SIM_COMM_H_

#include <cuda.h>
#include <nccl.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/thread.h"

namespace baton::nccl_sim {

struct Op {
  bool send = false;
  uint8_t* buffer = nullptr;
  size_t bytes = 0;
};

// A communicator of one rank, which sends to itself, or of two, which have a socket for each direction. Operations happen on their
// stream, at its time. A send comes to its end against a posted receive only, whatever a socket could hold, and both ends compare sizes.
//
// A communicator that does not block takes its operations when somebody asks for its state the second time: who does not ask finds that
// they never happen.
class SimComm : public std::enable_shared_from_this<SimComm> {
 public:
  // `name`: what both ranks call the socket where they meet.
  SimComm(int num_ranks, int rank, uint64_t name, bool blocking);
  ~SimComm();

  // Meets the other rank: at once, or on a thread where it does not block.
  ncclResult_t Init();
  // As ncclCommGetAsyncError.
  ncclResult_t State();
  // Operations of one group.
  ncclResult_t Submit(std::vector<Op> ops, CUstream stream);
  ncclResult_t Finalize();
  // Operations that have not come to their end.
  int outstanding() const;
  // Ends what is under way, without its having happened; on return no buffer is touched any more.
  void Abort();

  int num_ranks() const { return num_ranks_; }
  int rank() const { return rank_; }
  bool blocking() const { return blocking_; }

 private:
  enum class Io { kDone, kEnded, kGone, kLate };

  void Meet();
  int Listen() const;
  Io Accept(int listening, int* fd) const;
  Io ConnectTo(uint8_t direction, int* fd);
  std::string SocketName() const;

  void Issue(std::vector<Op> ops, CUstream stream);
  void Run(const std::vector<Op>& ops);
  void RunAll(const std::vector<Op>& ops, bool sends);
  void RunWithin(const std::vector<Op>& ops);
  void Send(const Op& op);
  void Receive(const Op& op);
  void Stall();
  bool Injected(const char* kind);
  // Moves all of `bytes`, or says why not. `until`: the end of patience.
  Io Write(int fd, const void* data, size_t bytes) const;
  Io Read(int fd, void* data, size_t bytes) const;
  Io Await(int fd, short events, MonotonicTime until) const;
  void Failed(Io how, const std::string& doing);
  void Fail(ncclResult_t result, const std::string& why);
  bool ended() const { return aborted_.load() || result_.load() != ncclSuccess; }

  const int num_ranks_, rank_;
  const uint64_t name_;
  const bool blocking_;
  std::atomic<bool> meeting_{false}, aborted_{false};
  std::atomic<int> result_{ncclSuccess};  // The first failure.
  int in_ = -1, out_ = -1;  // Sockets, after Meet.
  uint64_t num_sent_ = 0, num_received_ = 0;
  Thread meeter_;

  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<std::function<void()>> unissued_ ABSL_GUARDED_BY(mutex_);
  bool asked_ ABSL_GUARDED_BY(mutex_) = false;
  bool finalizing_ ABSL_GUARDED_BY(mutex_) = false;
  int outstanding_ ABSL_GUARDED_BY(mutex_) = 0;
  int running_ ABSL_GUARDED_BY(mutex_) = 0;
};

// NCCL's own last error.
void SetLastError(const std::string& text);
const char* LastError();

}  // namespace baton::nccl_sim

#endif  // BATON_TESTS_GPU_SIM_NCCL_SIM_SIM_COMM_H_
