// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_TRANSFER_STREAM_STREAM_RECEIVER_H_
#define BATON_COMMON_KV_TRANSFER_STREAM_STREAM_RECEIVER_H_

#include <atomic>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "common/base/thread.h"
#include "common/kv_transfer/receiver_core.h"
#include "common/kv_transfer/stream/socket.h"
#include "common/kv_transfer/stream/stream_session.h"
#include "common/kv_transfer/stream/wire_format.h"

namespace baton {

struct StreamReceiverOptions {
  TransportKind kind = TransportKind::kTcp;
  std::string address;  // As told to writers.
  bool same_user = false;  // A Unix socket: who is another user's is refused.
  // The peer's process may write into the pool, whose memfd it is sent, or `pool_memory`, where that says how else it is opened: it must
  // be the same user's, and it is watched until it ends, because a closed link does not end what it may do.
  bool share_pool = false;
  std::string pool_memory = {};
  // How long Stop waits, where `pool_memory` says so, for those who have the pool open to close it: its memory goes with this process.
  absl::Duration release_timeout = absl::Seconds(10);
  decltype(StreamSessionOptions::open_placed) open_placed = nullptr;
  // Null, or what payloads come by: see StreamSessionOptions.
  decltype(StreamSessionOptions::open_payloads) open_payloads;
  int max_connections = 256;  // More are closed at once.
  absl::Duration hello_timeout = absl::Seconds(5);  // Who has not said who he is by then is cut off.
};

// The receiving end of a transport over stream sockets: a thread that accepts, and one per connection that reads.
class StreamReceiver final : public KvReceiver {
 public:
  // `listening` accepts connections. `directory` outlives the receiver.
  StreamReceiver(const StreamReceiverOptions& options, KvReceiverOptions receiver, Fd listening, LandingDirectory* directory,
                 KvReceiverEvents events);
  // As Stop.
  ~StreamReceiver() override;

  TransportKind kind() const override { return options_.kind; }
  TransportOffer offer() const override;
  void Grant(const PeerId& peer, const TransferId& transfer, int attempt, const LinkGrant& grant) override;
  void Deny(const PeerId& peer, const TransferId& transfer, int attempt, const absl::Status& why) override;
  void Abort(const PeerId& peer, const TransferId& transfer, int attempt) override;
  void Stop() override;

 private:
  struct Connection {
    Fd socket, wake;
    Fd read_out;  // An event: nothing more is read from the socket, nothing of it is under way.
    Fd process;  // The peer's, with same_user.
    Fd gone;     // An event: its thread has nothing left to do. What was shared is closed, or there was nothing.
    std::atomic<bool> shares{false};  // The peer may have been told how to open the pool.
    std::atomic<bool> finished{false};
    std::atomic<bool> superseded{false};  // A newer link of the same peer has taken over.
    Mutex write_mutex;
    Thread thread;
    // Its own thread's.
    bool greeted = false;
    bool released = false;  // The peer has said that the pool is closed.
    PeerId peer;
    uint64_t link = 0;
    std::shared_ptr<LinkAdmissions> admissions;  // The link's.
  };
  struct Link {
    uint64_t number = 0;
    std::vector<std::shared_ptr<Connection>> connections;  // The first one carries the answers.
    int num_ended = 0;
  };

  void Accept();
  void AddConnection(Fd socket);
  void Serve(const std::shared_ptr<Connection>& connection);
  absl::Status OnHello(const std::shared_ptr<Connection>& connection, const StreamHello& hello);
  absl::Status Join(const std::shared_ptr<Connection>& connection, const StreamHello& hello);
  absl::Status Welcome(Connection& connection, const StreamHello& hello);
  // `clean`: the peer closed it after whole messages. Then the others may have something to read still.
  void OnConnectionEnded(const std::shared_ptr<Connection>& connection, bool clean);
  void WatchProcess(const std::shared_ptr<Connection>& connection);
  // The writer behind a connection writes no more: its process, or its pool, is gone.
  void WriterGone(const Connection& connection);
  // Ends the links of those who have the pool open, and waits until they have closed it, or their processes are gone. False: not in time.
  bool TakeBackPool(std::span<const std::shared_ptr<Connection>> connections);
  void Send(const PeerId& peer, MessageType type, const TransferId& transfer, int attempt, std::span<const uint8_t> body);
  static absl::Status Write(Connection& connection, std::span<const uint8_t> message);
  static void Shutdown(const Connection& connection);

  const StreamReceiverOptions options_;
  const ReceiverCore core_;
  Fd listening_;  // Closed by Stop, so that who comes later is refused.
  const Fd stop_;
  Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::shared_ptr<Connection>> connections_ ABSL_GUARDED_BY(mutex_);
  std::map<PeerId, Link> links_ ABSL_GUARDED_BY(mutex_);
  // With share_pool: every connection of a peer whose thread lives, be it that it only waits for the process to end.
  std::map<PeerId, std::vector<std::shared_ptr<Connection>>> watched_ ABSL_GUARDED_BY(mutex_);
  Thread acceptor_;
};

}  // namespace baton

#endif  // BATON_COMMON_KV_TRANSFER_STREAM_STREAM_RECEIVER_H_
