// SPDX-License-Identifier: Apache-2.0
#include "common/tls/tls_context.h"

#include <arpa/inet.h>
#include <openssl/x509v3.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/tls/openssl.h"

namespace baton {
namespace {

using tls_internal::Certificate;

absl::Status Refused(absl::string_view doing) {
  return absl::InvalidArgumentError(absl::StrCat("TLS: ", doing, ": ", tls_internal::LastError()));
}

// HTTP/1.1 is what is spoken here; a client that wants something else only is told so.
int ChooseProtocol(SSL*, const unsigned char** out, unsigned char* out_size, const unsigned char* in, unsigned in_size, void*) {
  static constexpr unsigned char kHttp11[] = "\x08http/1.1";
  unsigned char* chosen = nullptr;
  const int result = SSL_select_next_proto(&chosen, out_size, kHttp11, sizeof kHttp11 - 1, in, in_size);
  *out = chosen;
  return result == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL;
}

}  // namespace

TlsContext::~TlsContext() { SSL_CTX_free(context_); }

absl::Status TlsContext::Use(const TlsMaterial& material) {
  if (context_ == nullptr) return Refused("no context");
  SSL_CTX_set_min_proto_version(context_, TLS1_2_VERSION);
  SSL_CTX_set_options(context_, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE);
  // Thousands of streams are silent most of the time: they give their buffers back meanwhile.
  SSL_CTX_set_mode(context_, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  if (!material.identity.empty()) {
    const std::vector<Certificate> chain = tls_internal::ReadCertificates(material.identity);
    const tls_internal::PrivateKey key = tls_internal::ReadPrivateKey(material.identity);
    if (chain.empty() || SSL_CTX_use_certificate(context_, chain[0].get()) != 1) return Refused("the certificate");
    if (key == nullptr || SSL_CTX_use_PrivateKey(context_, key.get()) != 1) return Refused("the key");
    for (size_t i = 1; i < chain.size(); ++i) {
      if (SSL_CTX_add1_chain_cert(context_, chain[i].get()) != 1) return Refused("the certificate's chain");
    }
  }
  for (const Certificate& ca : tls_internal::ReadCertificates(material.ca)) {
    if (X509_STORE_add_cert(SSL_CTX_get_cert_store(context_), ca.get()) != 1) return Refused("the CA");
    SSL_CTX_add_client_CA(context_, ca.get());  // A hint to clients that have several certificates.
  }
  ERR_clear_error();
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const TlsContext>> TlsContext::Server(const TlsMaterial& material) {
  if (material.identity.empty()) return absl::InvalidArgumentError("TLS: a server needs a certificate");
  auto context = std::shared_ptr<TlsContext>(new TlsContext);
  context->context_ = SSL_CTX_new(TLS_server_method());
  BATON_RETURN_IF_ERROR(context->Use(material));
  SSL_CTX_set_alpn_select_cb(context->context_, ChooseProtocol, nullptr);
  if (!material.ca.empty()) {
    SSL_CTX_set_verify(context->context_, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
    // A resumed session would pass by what has become of its certificate and of the CA.
    SSL_CTX_set_session_cache_mode(context->context_, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_options(context->context_, SSL_OP_NO_TICKET);
    SSL_CTX_set_num_tickets(context->context_, 0);
  }
  return context;
}

absl::StatusOr<std::shared_ptr<const TlsContext>> TlsContext::Client(const TlsMaterial& material) {
  auto context = std::shared_ptr<TlsContext>(new TlsContext);
  context->context_ = SSL_CTX_new(TLS_client_method());
  BATON_RETURN_IF_ERROR(context->Use(material));
  if (material.ca.empty() && SSL_CTX_set_default_verify_paths(context->context_) != 1) return Refused("the system's CAs");
  SSL_CTX_set_verify(context->context_, SSL_VERIFY_PEER, nullptr);
  return context;
}

void TlsContext::ExpectHost(ssl_st* connection, const std::string& host) {
  X509_VERIFY_PARAM* expected = SSL_get0_param(connection);
  in6_addr address;
  if (inet_pton(AF_INET, host.c_str(), &address) == 1 || inet_pton(AF_INET6, host.c_str(), &address) == 1) {
    X509_VERIFY_PARAM_set1_ip_asc(expected, host.c_str());
    return;
  }
  SSL_set_tlsext_host_name(connection, host.c_str());
  X509_VERIFY_PARAM_set1_host(expected, host.data(), host.size());
}

}  // namespace baton
