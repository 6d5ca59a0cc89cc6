// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_TLS_TLS_SESSION_H_
#define BATON_COMMON_TLS_TLS_SESSION_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/tls/tls_context.h"

struct ssl_st;
struct bio_st;

namespace baton {

// One connection's TLS as a function of bytes: what came goes in, what is to be sent comes out. Pure: no socket, no time.
// One thread at a time.
class TlsSession {
 public:
  enum class Role { kServer, kClient };
  // A client expects `host` to answer; a server leaves it empty.
  TlsSession(std::shared_ptr<const TlsContext> context, Role role, const std::string& host = "");
  ~TlsSession();

  // Whether a connection that begins with `bytes` speaks TLS at all.
  static bool LooksLikeTls(absl::string_view bytes);

  // Takes bytes of the other end; what they say is appended to `plain`. There may be output afterwards.
  //   UNAVAILABLE  the handshake or a record failed; says why. The output then ends with an alert; the session is over.
  absl::Status Receive(absl::string_view bytes, std::string* plain);
  // Encrypts `plain` into the output; before the handshake is done it waits for that. Nothing once the session is over.
  void Send(absl::string_view plain);
  // Says that nothing more will be sent.
  void Close();
  // A client's first words.
  void Begin();

  bool established() const { return established_; }  // The handshake is done.
  bool peer_closed() const { return peer_closed_; }  // The other end has said that it sends nothing more.
  bool has_output() const;
  std::string TakeOutput();

 private:
  absl::Status Handshake();
  void Encrypt(absl::string_view plain);
  absl::Status Failed();

  const std::shared_ptr<const TlsContext> context_;
  ssl_st* ssl_;
  bio_st* in_;   // Owned by ssl_, as is the next.
  bio_st* out_;
  std::string held_;  // Sent before the handshake was done.
  bool established_ = false;
  bool peer_closed_ = false;
  bool over_ = false;
};

}  // namespace baton

#endif  // BATON_COMMON_TLS_TLS_SESSION_H_
