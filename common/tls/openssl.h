// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_TLS_OPENSSL_H_
#define BATON_COMMON_TLS_OPENSSL_H_

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

// Owners of OpenSSL's objects, for this folder's sources.
namespace baton::tls_internal {

template <auto Free>
struct Deleter {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
using Bio = std::unique_ptr<BIO, Deleter<BIO_free>>;
using Certificate = std::unique_ptr<X509, Deleter<X509_free>>;
using PrivateKey = std::unique_ptr<EVP_PKEY, Deleter<EVP_PKEY_free>>;

// Reads `text`, which outlives it.
Bio ReadFrom(absl::string_view text);
// Every certificate in a PEM text, in order; other things in it are passed over.
std::vector<Certificate> ReadCertificates(absl::string_view pem);
// The first private key in it; null when there is none, or when it wants a passphrase (nobody is asked for one).
PrivateKey ReadPrivateKey(absl::string_view pem);

// Why OpenSSL's last call on this thread failed; takes all errors off its queue.
std::string LastError();

}  // namespace baton::tls_internal

#endif  // BATON_COMMON_TLS_OPENSSL_H_
