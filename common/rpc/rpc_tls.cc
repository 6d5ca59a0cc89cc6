// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/rpc_tls.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "grpc/support/log.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/security/tls_credentials_options.h"

namespace baton {
namespace {

constexpr unsigned kRefreshSeconds = 1;

// A file that only this process sees, as a path. Its text changes at once for whoever opens it next: the descriptor comes to
// mean another file. gRPC 1.51 can only be given paths to watch, and with the operator's own files it would take a certificate
// without its key, or one that is malformed, and refuse every handshake until the next change.
class PrivateFile {
 public:
  PrivateFile() = default;
  ~PrivateFile() {
    if (fd_ >= 0) close(fd_);
  }
  PrivateFile(const PrivateFile&) = delete;
  PrivateFile& operator=(const PrivateFile&) = delete;

  absl::Status Write(absl::string_view text) {
    const int fd = memfd_create("tls", MFD_CLOEXEC);
    if (fd < 0) return absl::UnavailableError(absl::StrCat("memfd_create: ", std::strerror(errno)));
    const bool written = write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    if (!written || (fd_ >= 0 && dup3(fd, fd_, O_CLOEXEC) < 0)) {
      const absl::Status status = absl::UnavailableError(absl::StrCat("memory file: ", std::strerror(errno)));
      close(fd);
      return status;
    }
    if (fd_ < 0) {
      fd_ = fd;
    } else {
      close(fd);
    }
    return absl::OkStatus();
  }
  std::string path() const { return absl::StrCat("/proc/self/fd/", fd_); }

 private:
  int fd_ = -1;
};

// gRPC writes a line to standard error for every handshake that fails, as often as strangers knock. Here it is the log's, and
// at most one a second.
void TakeHandshakeFailures() {
  static std::atomic<int64_t> last_s{-1};
  gpr_set_log_function([](gpr_log_func_args* args) {
    if (absl::StrContains(args->file, "ssl_transport_security")) {
      const int64_t now = absl::ToInt64Seconds(Clock::Real()->Now());
      if (last_s.exchange(now, std::memory_order_relaxed) == now) return;
      BATON_LOG(INFO) << "gRPC: " << args->message;
    } else {
      BATON_LOG(WARNING) << "gRPC: " << args->message;
    }
  });
}

}  // namespace

struct RpcTls::State {
  std::shared_ptr<TlsStore> store;
  RpcTlsOptions options;
  bool has_identity = false, has_ca = false;  // Of the files; which there are does not change.
  // Shared with the store's callback.
  std::shared_ptr<PrivateFile> identity = std::make_shared<PrivateFile>(), ca = std::make_shared<PrivateFile>();
  std::shared_ptr<grpc::experimental::CertificateProviderInterface> provider;  // Null: nothing to show and nobody of our own to trust.
  std::shared_ptr<grpc::ChannelCredentials> channel;
};

RpcTls::RpcTls(std::unique_ptr<State> state) : state_(std::move(state)) {}
RpcTls::~RpcTls() = default;
const std::string& RpcTls::peer_name() const { return state_->options.peer_name; }
const std::shared_ptr<TlsStore>& RpcTls::store() const { return state_->store; }
std::shared_ptr<grpc::ChannelCredentials> RpcTls::channel() const { return state_->channel; }

absl::StatusOr<std::shared_ptr<const RpcTls>> RpcTls::Create(std::shared_ptr<TlsStore> store, const RpcTlsOptions& options) {
  TakeHandshakeFailures();
  auto state = std::make_unique<State>();
  state->options = options;
  absl::Status status;
  store->OnChange([identity = state->identity, ca = state->ca, &status, first = true](const TlsMaterial& material) mutable {
    absl::Status written = material.identity.empty() ? absl::OkStatus() : identity->Write(material.identity);
    if (written.ok() && !material.ca.empty()) written = ca->Write(material.ca);
    if (std::exchange(first, false)) {
      status = written;
    } else if (!written.ok()) {
      BATON_LOG(WARNING) << "new certificates are not used for gRPC: " << written.message();
    }
  });
  BATON_RETURN_IF_ERROR(status);
  const std::shared_ptr<const TlsMaterial> material = store->material();
  state->has_identity = !material->identity.empty();
  state->has_ca = !material->ca.empty();
  state->store = std::move(store);
  if (state->has_identity || state->has_ca) {
    const std::string identity = state->has_identity ? state->identity->path() : "";
    state->provider = std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
        identity, identity, state->has_ca ? state->ca->path() : "", kRefreshSeconds);
  }
  grpc::experimental::TlsChannelCredentialsOptions channel;
  if (state->provider != nullptr) channel.set_certificate_provider(state->provider);
  if (state->has_ca) channel.watch_root_certs();
  if (state->has_identity) channel.watch_identity_key_cert_pairs();
  if (!options.verify_server) {
    channel.set_verify_server_certs(false);
    channel.set_check_call_host(false);
    channel.set_certificate_verifier(std::make_shared<grpc::experimental::NoOpCertificateVerifier>());
  }
  state->channel = grpc::experimental::TlsCredentials(channel);
  return std::shared_ptr<const RpcTls>(new RpcTls(std::move(state)));
}

std::shared_ptr<grpc::ServerCredentials> RpcTls::server() const {
  BATON_CHECK(state_->has_identity) << "a server needs a certificate";
  grpc::experimental::TlsServerCredentialsOptions options(state_->provider);
  options.watch_identity_key_cert_pairs();
  if (state_->has_ca) {
    options.watch_root_certs();
    options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  }
  return grpc::experimental::TlsServerCredentials(options);
}

absl::StatusOr<std::shared_ptr<const RpcTls>> OpenRpcTls(const TlsFiles& files, const RpcTlsOptions& options) {
  BATON_ASSIGN_OR_RETURN(std::shared_ptr<TlsStore> store, TlsStore::Open(files));
  return RpcTls::Create(std::move(store), options);
}

}  // namespace baton
