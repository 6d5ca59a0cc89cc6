// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_TLS_TLS_FILES_H_
#define BATON_COMMON_TLS_TLS_FILES_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace baton {

// PEM files of one end of TLS, and the flags that named them, for messages.
struct TlsFiles {
  std::string cert;  // Own certificate, then those between it and the CA. Empty: shows none.
  std::string key;   // Of the first certificate; without a passphrase.
  std::string ca;    // Certificates that the other end's must come from. Empty: a server asks for none, a client takes the system's.
  std::string cert_flag = "--tls-cert", key_flag = "--tls-key", ca_flag = "--tls-client-ca";

  bool any() const { return !cert.empty() || !key.empty() || !ca.empty(); }
};

// What was in the files: checked, and still PEM, because its readers (OpenSSL contexts, gRPC) parse for themselves.
struct TlsMaterial {
  std::string identity;  // The certificate chain and its key in one text, so that whoever reads it has both or neither.
  std::string ca;
  absl::Time not_after = absl::InfiniteFuture();  // Of the own certificate.

  friend bool operator==(const TlsMaterial&, const TlsMaterial&) = default;
};

// Reads and checks the files. Messages have flag, file and reason, never a byte of a key.
//   INVALID_ARGUMENT  a certificate without a key or a key without one; a file that cannot be read, is over 1 MiB or holds
//                     nothing of its kind; a key with a passphrase, or of another certificate; a certificate out of its time.
absl::StatusOr<TlsMaterial> LoadTlsMaterial(const TlsFiles& files);

}  // namespace baton

#endif  // BATON_COMMON_TLS_TLS_FILES_H_
