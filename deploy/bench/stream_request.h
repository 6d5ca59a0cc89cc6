// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_DEPLOY_BENCH_STREAM_REQUEST_H_
#define BATON_DEPLOY_BENCH_STREAM_REQUEST_H_

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "deploy/bench/measurement.h"
#include "deploy/bench/workload.h"

namespace baton {
class TlsContext;
}

namespace baton::bench {

// Where requests go, and what they have in common.
struct Server {
  std::string host;  // For the Host header.
  std::string name;  // That its certificate has to be for.
  std::shared_ptr<const TlsContext> tls;  // Null: http.
  std::vector<boost::asio::ip::tcp::endpoint> endpoints;  // The first that answers is used.
  std::string base_path;  // "/v1"
  std::string model;
  std::string api_key;    // Empty: none.
  double temperature = 0;
  PromptKind kind = PromptKind::kIds;
  int vocab_size = 0;
  absl::Duration timeout = absl::Minutes(10);  // Of one request.
};

// What was said before in a conversation: words and answers, in turn. Empty for a first turn.
struct History {
  std::vector<std::string> said;  // User, assistant, user, assistant ...
};

// The request's path and JSON body.
std::string RequestPath(const Server& server);
std::string RequestBody(const Server& server, const History& history, const Turn& turn);

// Takes one event's data apart into `m` at time `now`. True when it ends the stream ("[DONE]").
bool ReadEvent(const std::string& data, MonotonicTime now, Measurement* m);

// Connections in use, so that they can be cut: Beast's operations know no cancellation slots in Boost 1.81. One thread.
class OpenStreams {
 public:
  // Ends what runs, and what begins later.
  void CancelAll();
  bool cancelled() const { return cancelled_; }

 private:
  friend class OpenStream;
  std::list<boost::beast::tcp_stream*> streams_;
  bool cancelled_ = false;
};

// Sends one request over a connection of its own and reads its stream to the end. Never throws; what goes wrong is in the
// measurement's status (CANCELLED after open->CancelAll). `due` is when the plan wanted it.
boost::asio::awaitable<Measurement> StreamRequest(const Server& server, std::string body, MonotonicTime due, OpenStreams* open);

}  // namespace baton::bench

#endif  // BATON_DEPLOY_BENCH_STREAM_REQUEST_H_
