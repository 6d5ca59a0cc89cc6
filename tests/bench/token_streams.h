// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_BENCH_TOKEN_STREAMS_H_
#define BATON_TESTS_BENCH_TOKEN_STREAMS_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/base/thread.h"
#include "grpcpp/support/server_callback.h"

namespace baton::bench {

// A stream of tokens as the pacer sees it.
class PacedStream {
 public:
  virtual ~PacedStream() = default;
  // So many tokens more are due. Any thread.
  virtual void Release(int64_t tokens) = 0;
};

// When tokens are due: each worker steps at moments of its own, as decode workers do, and a step is a token for each of its
// streams. Thread-safe.
class Pacer {
 public:
  explicit Pacer(int num_workers);
  ~Pacer();

  // Tokens per second and stream, from now on; 0: none but the first one.
  void SetRate(double tokens_per_second);
  // The stream has its first token at once.
  void Add(int worker, const std::shared_ptr<PacedStream>& stream);
  // How late a step began at worst since this was asked last: a pacer short of processor time does not keep its rate.
  absl::Duration TakeLateness();

 private:
  using Streams = std::vector<std::weak_ptr<PacedStream>>;
  void Run();
  static void Step(Streams* streams);

  Mutex mutex_;
  CondVar changed_;
  double rate_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Streams> workers_ ABSL_GUARDED_BY(mutex_);
  absl::Duration lateness_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  Thread thread_;
};

// The server's side of a bare stream: tokens, a message each, none before it is due. Lives until gRPC and the pacer have let go of
// it. gRPC's own callback API and no more: this is what a stream costs.
template <class Reactor, class Message>
class TokenStream : public Reactor, public PacedStream, public std::enable_shared_from_this<TokenStream<Reactor, Message>> {
 public:
  void Release(int64_t tokens) override {
    {
      MutexLock lock(&mutex_);
      due_ += tokens;
    }
    Write();
  }
  void OnWriteDone(bool ok) override {
    {
      MutexLock lock(&mutex_);
      writing_ = false;
      ended_ = ended_ || !ok;
    }
    Write();
  }
  void OnCancel() override { End(); }
  void OnDone() override { auto self = std::move(self_); }

 protected:
  virtual void FillToken(int64_t index, bool last, Message* message) = 0;
  // Once, in a shared pointer already.
  void KeepAlive() { self_ = this->shared_from_this(); }
  // When so many have been written the stream ends.
  void SetNumTokens(int64_t num_tokens) {
    MutexLock lock(&mutex_);
    num_tokens_ = num_tokens;
  }
  // Ends after what is being written.
  void End() {
    {
      MutexLock lock(&mutex_);
      ended_ = true;
    }
    Write();
  }

 private:
  void Write() {
    bool finish = false;
    {
      MutexLock lock(&mutex_);
      if (writing_ || finished_) return;
      if (ended_ || sent_ >= num_tokens_) {
        finish = finished_ = true;
      } else if (sent_ < due_) {
        message_.Clear();
        FillToken(sent_, sent_ + 1 == num_tokens_, &message_);
        ++sent_;
      } else {
        return;
      }
      writing_ = !finish;
    }
    if (finish) return this->Finish(grpc::Status::OK);
    this->StartWrite(&message_);
  }

  std::shared_ptr<TokenStream> self_;
  Mutex mutex_;
  Message message_;  // Being written, or nobody's.
  int64_t num_tokens_ ABSL_GUARDED_BY(mutex_) = std::numeric_limits<int64_t>::max();
  int64_t due_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t sent_ ABSL_GUARDED_BY(mutex_) = 0;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace baton::bench

#endif  // BATON_TESTS_BENCH_TOKEN_STREAMS_H_
