// SPDX-License-Identifier: Apache-2.0
#include "common/tls/tls_session.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/tls/openssl.h"

namespace baton {

TlsSession::TlsSession(std::shared_ptr<const TlsContext> context, Role role, const std::string& host) : context_(std::move(context)) {
  ssl_ = SSL_new(context_->native());
  in_ = BIO_new(BIO_s_mem());
  out_ = BIO_new(BIO_s_mem());
  BATON_CHECK(ssl_ != nullptr && in_ != nullptr && out_ != nullptr) << "OpenSSL: " << tls_internal::LastError();  // Memory only.
  BIO_set_mem_eof_return(in_, -1);  // Empty means wait, not the end.
  SSL_set_bio(ssl_, in_, out_);
  if (role == Role::kServer) {
    SSL_set_accept_state(ssl_);
  } else {
    TlsContext::ExpectHost(ssl_, host);
    SSL_set_connect_state(ssl_);
  }
}

TlsSession::~TlsSession() { SSL_free(ssl_); }

bool TlsSession::LooksLikeTls(absl::string_view bytes) { return !bytes.empty() && bytes[0] == 0x16; }  // A handshake record.

absl::Status TlsSession::Failed() {
  over_ = true;
  const long verified = SSL_get_verify_result(ssl_);
  const std::string reason = tls_internal::LastError();
  if (verified == X509_V_OK) return absl::UnavailableError(absl::StrCat("TLS: ", reason));
  return absl::UnavailableError(absl::StrCat("TLS: the other end's certificate: ", X509_verify_cert_error_string(verified)));
}

absl::Status TlsSession::Handshake() {
  ERR_clear_error();
  const int result = SSL_do_handshake(ssl_);
  if (result == 1) {
    established_ = true;
    if (!held_.empty()) Encrypt(std::exchange(held_, std::string()));
    return absl::OkStatus();
  }
  return SSL_get_error(ssl_, result) == SSL_ERROR_WANT_READ ? absl::OkStatus() : Failed();
}

void TlsSession::Begin() { (void)Handshake(); }

absl::Status TlsSession::Receive(absl::string_view bytes, std::string* plain) {
  if (over_) return absl::UnavailableError("TLS: the session is over");
  BATON_CHECK(BIO_write(in_, bytes.data(), static_cast<int>(bytes.size())) == static_cast<int>(bytes.size()));  // Memory only.
  if (!established_) BATON_RETURN_IF_ERROR(Handshake());
  if (!established_) return absl::OkStatus();
  std::array<char, 16384> piece;  // A record's plain text.
  while (true) {
    ERR_clear_error();
    const int size = SSL_read(ssl_, piece.data(), piece.size());
    if (size > 0) {
      plain->append(piece.data(), static_cast<size_t>(size));
      continue;
    }
    switch (SSL_get_error(ssl_, size)) {
      case SSL_ERROR_WANT_READ:
        return absl::OkStatus();
      case SSL_ERROR_ZERO_RETURN:
        peer_closed_ = true;
        return absl::OkStatus();
      default:
        return Failed();
    }
  }
}

void TlsSession::Send(absl::string_view plain) {
  if (over_ || plain.empty()) return;
  if (established_) return Encrypt(plain);
  held_.append(plain.data(), plain.size());
}

void TlsSession::Encrypt(absl::string_view plain) {
  constexpr size_t kPiece = 1 << 30;  // Lengths are int there.
  while (!plain.empty() && !over_) {
    ERR_clear_error();
    const int size = SSL_write(ssl_, plain.data(), static_cast<int>(std::min(plain.size(), kPiece)));
    if (size <= 0) {  // Into memory: only a session that is over.
      over_ = true;
      return;
    }
    plain.remove_prefix(static_cast<size_t>(size));
  }
}

void TlsSession::Close() {
  if (over_ || !established_) return;
  over_ = true;
  ERR_clear_error();
  SSL_shutdown(ssl_);
  ERR_clear_error();
}

bool TlsSession::has_output() const { return BIO_pending(out_) > 0; }

std::string TlsSession::TakeOutput() {
  std::string output(static_cast<size_t>(BIO_pending(out_)), '\0');
  if (!output.empty()) BIO_read(out_, output.data(), static_cast<int>(output.size()));
  return output;
}

}  // namespace baton
