// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu_sim/nccl_sim/sim_comm.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/clock.h"
#include "tests/gpu_sim/nccl_sim/sim_state.h"

namespace baton::nccl_sim {
namespace {

constexpr uint64_t kMagic = 0x6e63636c2d73696d;
constexpr int kLookMs = 10;

struct Hello {
  uint64_t magic = kMagic;
  uint64_t name = 0;
  uint64_t direction = 0;  // 0: from rank 0 to rank 1.
};
// Before an operation: the sender's, and the receiver's answer.
struct Announcement {
  uint64_t number = 0;
  uint64_t bytes = 0;
};

Mutex last_error_mutex;
std::string last_error ABSL_GUARDED_BY(last_error_mutex);

}  // namespace

void SetLastError(const std::string& text) {
  MutexLock lock(&last_error_mutex);
  last_error = text;
}

const char* LastError() {
  static thread_local std::string copy;
  MutexLock lock(&last_error_mutex);
  copy = last_error;
  return copy.c_str();
}

SimComm::SimComm(int num_ranks, int rank, uint64_t name, bool blocking)
    : num_ranks_(num_ranks), rank_(rank), name_(name), blocking_(blocking) {}

SimComm::~SimComm() { Abort(); }

void SimComm::Fail(ncclResult_t result, const std::string& why) {
  int none = ncclSuccess;
  if (result_.compare_exchange_strong(none, result)) SetLastError(why);
}

// ---- Meeting.

ncclResult_t SimComm::Init() {
  SimState::Get().Count("inits");
  if (SimState::Get().Due("fail_init")) {
    Fail(ncclSystemError, "injected: no communicator");
    return ncclSystemError;
  }
  if (num_ranks_ == 1) return ncclSuccess;
  if (blocking_) {
    Meet();
    return static_cast<ncclResult_t>(result_.load());
  }
  meeting_ = true;
  meeter_ = Thread("nccl-sim-init", [this] {
    Meet();
    meeting_ = false;
  });
  return ncclInProgress;
}

std::string SimComm::SocketName() const { return absl::StrFormat("baton-nccl-sim-%016x", name_); }

namespace {

sockaddr_un AddressOf(const std::string& name, socklen_t* length) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  *length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

}  // namespace

int SimComm::Listen() const {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  socklen_t length = 0;
  const sockaddr_un address = AddressOf(SocketName(), &length);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), length) == 0 && listen(fd, 2) == 0) return fd;
  close(fd);
  return -1;
}

SimComm::Io SimComm::Accept(int listening, int* fd) const {
  const MonotonicTime until = Clock::Real()->Now() + SimState::Get().patience();
  while (true) {
    *fd = accept4(listening, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (*fd >= 0) return Io::kDone;
    if (const Io waited = Await(listening, POLLIN, until); waited != Io::kDone) return waited;
  }
}

SimComm::Io SimComm::ConnectTo(uint8_t direction, int* fd) {
  const MonotonicTime until = Clock::Real()->Now() + SimState::Get().patience();
  socklen_t length = 0;
  const sockaddr_un address = AddressOf(SocketName(), &length);
  *fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  while (connect(*fd, reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    if (ended()) return Io::kEnded;
    if (Clock::Real()->Now() >= until) return Io::kLate;
    poll(nullptr, 0, 1);  // The other rank has not come yet.
  }
  const Hello hello = {.name = name_, .direction = direction};
  uint8_t answer = 0;
  const Io written = Write(*fd, &hello, sizeof(hello));
  return written == Io::kDone ? Read(*fd, &answer, sizeof(answer)) : written;
}

void SimComm::Meet() {
  if (rank_ == 1) {
    for (const uint8_t direction : {0, 1}) {
      const Io met = ConnectTo(direction, direction == 0 ? &in_ : &out_);
      if (met != Io::kDone) return Failed(met, "waiting for rank 0");
    }
    return;
  }
  const int listening = Listen();
  if (listening < 0) return Fail(ncclSystemError, "two ranks 0 with one id");
  for (int i = 0; i < 2; ++i) {
    int fd = -1;
    Hello hello;
    Io met = Accept(listening, &fd);
    if (met == Io::kDone) met = Read(fd, &hello, sizeof(hello));
    if (met == Io::kDone && (hello.magic != kMagic || hello.name != name_)) met = Io::kGone;
    if (met == Io::kDone) {
      (hello.direction == 0 ? out_ : in_) = fd;
      met = Write(fd, "!", 1);
    }
    if (met != Io::kDone) {
      Failed(met, "waiting for rank 1");
      break;
    }
  }
  close(listening);
}

// ---- Bytes.

SimComm::Io SimComm::Await(int fd, short events, MonotonicTime until) const {
  if (ended()) return Io::kEnded;
  if (Clock::Real()->Now() >= until) return Io::kLate;
  pollfd waited = {.fd = fd, .events = events, .revents = 0};
  poll(&waited, 1, kLookMs);
  return Io::kDone;
}

SimComm::Io SimComm::Write(int fd, const void* data, size_t bytes) const {
  const MonotonicTime until = Clock::Real()->Now() + SimState::Get().patience();
  const auto* from = static_cast<const uint8_t*>(data);
  while (bytes > 0) {
    const ssize_t sent = send(fd, from, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      from += sent;
      bytes -= static_cast<size_t>(sent);
      continue;
    }
    if (sent < 0 && errno != EAGAIN && errno != EINTR) return Io::kGone;
    if (const Io waited = Await(fd, POLLOUT, until); waited != Io::kDone) return waited;
  }
  return Io::kDone;
}

SimComm::Io SimComm::Read(int fd, void* data, size_t bytes) const {
  const MonotonicTime until = Clock::Real()->Now() + SimState::Get().patience();
  auto* to = static_cast<uint8_t*>(data);
  while (bytes > 0) {
    const ssize_t got = recv(fd, to, bytes, MSG_DONTWAIT);
    if (got > 0) {
      to += got;
      bytes -= static_cast<size_t>(got);
      continue;
    }
    if (got == 0 || (errno != EAGAIN && errno != EINTR)) return Io::kGone;
    if (const Io waited = Await(fd, POLLIN, until); waited != Io::kDone) return waited;
  }
  return Io::kDone;
}

void SimComm::Failed(Io how, const std::string& doing) {
  switch (how) {
    case Io::kDone:
    case Io::kEnded:
      return;
    case Io::kGone:
      if (SimState::Get().deaf()) return Stall();
      return Fail(ncclRemoteError, absl::StrCat(doing, ": the peer is gone"));
    case Io::kLate: {
      const std::string why = absl::StrCat(doing, ": the peer did nothing for ", absl::FormatDuration(SimState::Get().patience()),
                                           "; it never posted what matches");
      SimState::Get().Find(why);
      return Fail(ncclSystemError, why);
    }
  }
}

void SimComm::Stall() {
  while (!aborted_.load()) poll(nullptr, 0, kLookMs);
}

// ---- Operations.

ncclResult_t SimComm::State() {
  std::vector<std::function<void()>> due;
  {
    MutexLock lock(&mutex_);
    if (result_.load() != ncclSuccess) return static_cast<ncclResult_t>(result_.load());
    if (meeting_.load()) return ncclInProgress;
    if (!unissued_.empty()) {
      if (!std::exchange(asked_, true)) return ncclInProgress;
      due.swap(unissued_);
    } else if (finalizing_ && outstanding_ > 0) {
      return ncclInProgress;
    }
  }
  for (const auto& issue : due) issue();
  return ncclSuccess;
}

ncclResult_t SimComm::Submit(std::vector<Op> ops, CUstream stream) {
  MutexLock lock(&mutex_);
  outstanding_ += static_cast<int>(ops.size());
  auto issue = [self = shared_from_this(), ops = std::move(ops), stream] { self->Issue(ops, stream); };
  if (blocking_) {
    issue();
    return ncclSuccess;
  }
  unissued_.push_back(std::move(issue));
  asked_ = false;
  return ncclInProgress;
}

void SimComm::Issue(std::vector<Op> ops, CUstream stream) {
  auto* const work = new std::function<void()>([self = shared_from_this(), ops = std::move(ops)] { self->Run(ops); });
  const auto run = [](void* argument) {
    const std::unique_ptr<std::function<void()>> due(static_cast<std::function<void()>*>(argument));
    (*due)();
  };
  if (cuLaunchHostFunc(stream, run, work) == CUDA_SUCCESS) return;
  delete work;
  Fail(ncclUnhandledCudaError, "cuLaunchHostFunc");
}

void SimComm::Run(const std::vector<Op>& ops) {
  {
    MutexLock lock(&mutex_);
    ++running_;
  }
  if (num_ranks_ == 1) {
    RunWithin(ops);
  } else {
    // Both directions of a group go side by side.
    Thread sends("nccl-sim-send", [&] { RunAll(ops, true); });
    RunAll(ops, false);
    sends.Join();
  }
  MutexLock lock(&mutex_);
  --running_;
  outstanding_ -= static_cast<int>(ops.size());
  changed_.NotifyAll();
}

void SimComm::RunAll(const std::vector<Op>& ops, bool sends) {
  for (const Op& op : ops) {
    if (op.send != sends || ended()) continue;
    if (sends) {
      Send(op);
    } else {
      Receive(op);
    }
  }
}

// To itself: the first send to the first receive, and so on; the entry points have seen to sizes.
void SimComm::RunWithin(const std::vector<Op>& ops) {
  std::vector<const Op*> sends, receives;
  for (const Op& op : ops) (op.send ? sends : receives).push_back(&op);
  for (size_t i = 0; i < sends.size(); ++i) {
    std::memmove(receives[i]->buffer, sends[i]->buffer, sends[i]->bytes);
    SimState::Get().Count("sends");
    SimState::Get().Count("recvs");
    SimState::Get().Count("received_bytes", static_cast<int64_t>(sends[i]->bytes));
  }
}

// Stalls and errors. True: the operation is over.
bool SimComm::Injected(const char* kind) {
  SimState& state = SimState::Get();
  if (state.Due(absl::StrCat("stall_", kind))) {
    Stall();
    return true;
  }
  if (!state.Due(absl::StrCat("error_", kind))) return false;
  Fail(ncclRemoteError, absl::StrCat("injected: ", kind));
  return true;
}

void SimComm::Send(const Op& op) {
  if (Injected("send")) return;
  const bool kill_half = SimState::Get().Due("kill_send");
  const size_t bytes = SimState::Get().Due("short_send") ? op.bytes / 2 : op.bytes;
  const std::string doing = absl::StrCat("rank ", rank_, " sends ", bytes, " bytes");
  const Announcement own = {num_sent_++, bytes};
  Announcement peer;
  Io io = Write(out_, &own, sizeof(own));
  if (io == Io::kDone) io = Read(out_, &peer, sizeof(peer));
  if (io != Io::kDone) return Failed(io, doing);
  if (peer.bytes != own.bytes || peer.number != own.number) {
    const std::string why = absl::StrCat(doing, ", rank ", 1 - rank_, " expects ", peer.bytes);
    SimState::Get().Find(why);
    return Fail(ncclInvalidUsage, why);
  }
  if (kill_half) {
    Write(out_, op.buffer, bytes / 2);
    raise(SIGKILL);
  }
  io = Write(out_, op.buffer, bytes);
  if (io != Io::kDone) return Failed(io, doing);
  SimState::Get().Count("sends");
}

// What is read before its time is not yet what was there before.
void SimComm::Receive(const Op& op) {
  std::memset(op.buffer, 0xff, op.bytes);
  if (Injected("recv")) return;
  const bool kill_half = SimState::Get().Due("kill_recv"), flip = SimState::Get().Due("flip_recv");
  const std::string doing = absl::StrCat("rank ", rank_, " receives ", op.bytes, " bytes");
  Announcement peer;
  const Announcement own = {num_received_++, op.bytes};
  Io io = Read(in_, &peer, sizeof(peer));
  if (io == Io::kDone) io = Write(in_, &own, sizeof(own));
  if (io != Io::kDone) return Failed(io, doing);
  if (peer.bytes != own.bytes || peer.number != own.number) {
    const std::string why = absl::StrCat(doing, ", rank ", 1 - rank_, " sends ", peer.bytes);
    SimState::Get().Find(why);
    return Fail(ncclInvalidUsage, why);
  }
  if (kill_half) {
    Read(in_, op.buffer, op.bytes / 2);
    raise(SIGKILL);
  }
  io = Read(in_, op.buffer, op.bytes);
  if (io != Io::kDone) return Failed(io, doing);
  if (flip && op.bytes > 0) op.buffer[op.bytes / 2] ^= 4;
  SimState::Get().Count("recvs");
  SimState::Get().Count("received_bytes", static_cast<int64_t>(op.bytes));
}

// ---- The end.

int SimComm::outstanding() const {
  MutexLock lock(&mutex_);
  return outstanding_;
}

ncclResult_t SimComm::Finalize() {
  MutexLock lock(&mutex_);
  finalizing_ = true;
  while (blocking_ && outstanding_ > 0 && !ended()) changed_.WaitFor(&mutex_, absl::Milliseconds(kLookMs));
  return outstanding_ > 0 ? ncclInProgress : ncclSuccess;
}

void SimComm::Abort() {
  aborted_ = true;
  meeter_.Join();
  {
    MutexLock lock(&mutex_);
    unissued_.clear();
    while (running_ > 0) changed_.WaitFor(&mutex_, absl::Milliseconds(kLookMs));
  }
  for (int* fd : {&in_, &out_}) {
    if (*fd >= 0) close(std::exchange(*fd, -1));
  }
}

}  // namespace baton::nccl_sim
