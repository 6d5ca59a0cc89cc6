// SPDX-License-Identifier: Apache-2.0
#include "common/http/http_client.h"

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/host_port.h"
#include "common/base/status_macros.h"
#include "common/tls/tls_context.h"

namespace baton {
namespace {

namespace http = boost::beast::http;
using boost::asio::ip::tcp;
using boost::system::error_code;

// The steps of one fetch, each starting the next. Lives until io_.run_for() has returned.
class Fetch {
 public:
  Fetch(const HttpFetchRequest& request, const HostPort& address) : request_(request), resolver_(io_), socket_(io_) {
    if (request.tls != nullptr) {
      SSL_CTX_up_ref(request.tls->native());
      tls_context_.emplace(request.tls->native());  // Takes a reference.
      tls_.emplace(socket_, *tls_context_);
      TlsContext::ExpectHost(tls_->native_handle(), address.host);
    }
    message_.method_string(request.method);
    message_.target(request.target);
    message_.version(11);
    for (const auto& [name, value] : request.headers) message_.insert(name, value);
    message_.set(http::field::host, FormatHostPort(address.host, address.port));
    message_.set(http::field::connection, "close");
    message_.body() = request.body;
    message_.prepare_payload();
    parser_.body_limit(request.max_response_bytes);
    if (request.method == "HEAD") parser_.skip(true);
    Resolve(address);
  }

  absl::StatusOr<HttpResponse> Run() {
    io_.run_for(absl::ToChronoNanoseconds(request_.timeout));
    if (!done_) {
      return absl::DeadlineExceededError(
          absl::StrCat(request_.address, ": no answer within ", absl::FormatDuration(request_.timeout)));
    }
    BATON_RETURN_IF_ERROR(status_);
    HttpResponse response;
    response.status = parser_.get().result_int();
    for (const auto& field : parser_.get()) {
      response.headers.emplace_back(std::string(field.name_string().data(), field.name_string().size()),
                                    std::string(field.value().data(), field.value().size()));
    }
    response.body = std::move(parser_.get().body());
    return response;
  }

 private:
  void Resolve(const HostPort& address) {
    resolver_.async_resolve(address.host, std::to_string(address.port),
                            [this](const error_code& error, const tcp::resolver::results_type& found) {
                              if (error) return Finish(error);
                              boost::asio::async_connect(socket_, found, [this](const error_code& error, const tcp::endpoint&) {
                                if (error) return Finish(error);
                                if (tls_) return Handshake();
                                Exchange(socket_);
                              });
                            });
  }

  void Handshake() {
    tls_->async_handshake(boost::asio::ssl::stream_base::client, [this](const error_code& error) {
      if (!error) return Exchange(*tls_);
      const long verified = SSL_get_verify_result(tls_->native_handle());
      Finish(error);
      status_ = absl::UnavailableError(absl::StrCat(
          request_.address, ": TLS: ", verified == X509_V_OK ? error.message() : X509_verify_cert_error_string(verified)));
    });
  }

  // Reads while it writes: a server may refuse, and close, before it has taken the whole body.
  template <typename Stream>
  void Exchange(Stream& stream) {
    http::async_write(stream, message_, [](const error_code&, size_t) {});
    http::async_read(stream, buffer_, parser_, [this](const error_code& error, size_t) { Finish(error); });
  }

  void Finish(const error_code& error) {
    done_ = true;
    if (error && error.category() == error_code(http::error::bad_method).category() &&
        error != http::error::end_of_stream && error != http::error::partial_message) {
      status_ = absl::DataLossError(absl::StrCat(request_.address, ": ", error.message()));
    } else if (error) {
      status_ = absl::UnavailableError(absl::StrCat(request_.address, ": ", error.message()));
    }
    io_.stop();
  }

  const HttpFetchRequest& request_;
  boost::asio::io_context io_;
  tcp::resolver resolver_;
  tcp::socket socket_;
  std::optional<boost::asio::ssl::context> tls_context_;
  std::optional<boost::asio::ssl::stream<tcp::socket&>> tls_;
  http::request<http::string_body> message_;
  boost::beast::flat_buffer buffer_;
  http::response_parser<http::string_body> parser_;
  bool done_ = false;
  absl::Status status_;
};

}  // namespace

absl::StatusOr<HttpResponse> HttpFetch(const HttpFetchRequest& request) {
  BATON_ASSIGN_OR_RETURN(const HostPort address, ParseHostPort(request.address));
  Fetch fetch(request, address);
  return fetch.Run();
}

absl::StatusOr<HttpResponse> HttpGet(absl::string_view address, absl::string_view target, absl::Duration timeout,
                                     const std::shared_ptr<const TlsContext>& tls) {
  return HttpFetch({.address = std::string(address), .target = std::string(target), .timeout = timeout, .tls = tls});
}

}  // namespace baton
