// SPDX-License-Identifier: Apache-2.0
// A router aborted at the end of a drain ("ref_counted.h: assertion failed: prior > 0"): its last decode stream ended on a
// gRPC thread after the server was gone, and let go of the process's last channel there. gRPC then joined that thread with
// itself and freed the queue under it.
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "baton/internal/registry.grpc.pb.h"
#include "common/base/mutex.h"
#include "common/rpc/channel.h"
#include "common/rpc/event_stream.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

using Stream = ClientEventStream<internal::WorkerReport, internal::RouterReply>;

// Gone when the stream's callbacks are, which is when the gRPC thread has nothing left to do but to let go of the channel.
struct Released {
  explicit Released(std::function<void()> t) : tell(std::move(t)) {}
  ~Released() { tell(); }
  const std::function<void()> tell;
};

TEST(LastChannelTest, MayGoOnAGrpcThread) {
  // Many times: each end of the callback threads was a chance to see it, and the next channel starts them again.
  for (int i = 0; i < 400; ++i) {
    Mutex mutex;
    CondVar changed;
    bool over = false;
    absl::Status status;
    {
      auto released = std::make_shared<Released>([&] {
        MutexLock lock(&mutex);
        over = true;
        changed.NotifyAll();
      });
      auto stream = Stream::Create({.on_message = nullptr, .on_done = [&, released](absl::Status end) {
                                      MutexLock lock(&mutex);
                                      status = std::move(end);
                                    }});
      // Nobody listens there. The call alone holds the channel from here on.
      internal::Registry::NewStub(CreateChannel("unix:/nonexistent/baton.socket"))
          ->async()
          ->Register(stream->context(), stream->reactor());
      stream->Start();
    }
    MutexLock lock(&mutex);
    while (!over) changed.WaitFor(&mutex, absl::Seconds(1));
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  }
}

}  // namespace
}  // namespace baton
