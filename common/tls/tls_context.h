// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_TLS_TLS_CONTEXT_H_
#define BATON_COMMON_TLS_TLS_CONTEXT_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/tls/tls_files.h"

struct ssl_ctx_st;
struct ssl_st;

namespace baton {

// What the connections of one end have in common: TLS 1.2 or 1.3, HTTP/1.1, certificates and whom they trust. Immutable, so
// that a change of files is another context and running connections keep theirs. Thread-safe.
class TlsContext {
 public:
  // With `material.ca` every client has to show a certificate of it, at each connection anew.
  //   INVALID_ARGUMENT  OpenSSL does not take the material, or it has no certificate.
  static absl::StatusOr<std::shared_ptr<const TlsContext>> Server(const TlsMaterial& material);
  // Takes servers whose certificate comes from `material.ca`, or from the system's CAs where that is empty, and has the name
  // or address that it was reached by.
  static absl::StatusOr<std::shared_ptr<const TlsContext>> Client(const TlsMaterial& material);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  ssl_ctx_st* native() const { return context_; }
  // Before a client's handshake: `host` is who has to answer, a name or an address.
  static void ExpectHost(ssl_st* connection, const std::string& host);

 private:
  TlsContext() = default;
  absl::Status Use(const TlsMaterial& material);
  ssl_ctx_st* context_ = nullptr;
};

}  // namespace baton

#endif  // BATON_COMMON_TLS_TLS_CONTEXT_H_
