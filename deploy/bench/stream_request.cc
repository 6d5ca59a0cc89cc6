// SPDX-License-Identifier: Apache-2.0
#include "deploy/bench/stream_request.h"

#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/tls/tls_context.h"
#include "deploy/bench/sse_parser.h"

namespace baton::bench {
namespace {

namespace http = boost::beast::http;
using boost::system::error_code;
constexpr auto kAwait = boost::asio::as_tuple(boost::asio::use_awaitable);
constexpr size_t kMaxErrorBody = 64 << 10;

absl::Status Failed(const error_code& error, absl::string_view doing) {
  if (error == boost::beast::error::timeout) return absl::DeadlineExceededError(absl::StrCat(doing, ": timeout"));
  if (error == boost::asio::error::operation_aborted) return absl::CancelledError("stopped");
  return absl::UnavailableError(absl::StrCat(doing, ": ", error.message()));
}

// Null and absent members are the same to a client.
const nlohmann::json* Member(const nlohmann::json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(name);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

std::string Text(const nlohmann::json* value) { return value != nullptr && value->is_string() ? value->get<std::string>() : ""; }
int Count(const nlohmann::json* value) { return value != nullptr && value->is_number() ? value->get<int>() : 0; }

// The text of OpenAI's error shape, or of whatever came.
std::string ErrorText(const std::string& body) {
  const auto json = ParseJson(body);
  if (!json.ok()) return body.substr(0, 200);
  const nlohmann::json* error = Member(*json, "error");
  if (error == nullptr) return body.substr(0, 200);
  return error->is_string() ? error->get<std::string>() : Text(Member(*error, "message"));
}

void ReadUsage(const nlohmann::json& usage, Measurement* m) {
  m->prompt_tokens = Count(Member(usage, "prompt_tokens"));
  m->output_tokens = Count(Member(usage, "completion_tokens"));
  if (const auto* details = Member(usage, "prompt_tokens_details")) m->cached_tokens = Count(Member(*details, "cached_tokens"));
}

using Parser = http::response_parser<http::buffer_body>;

// Reads what is there of the body, at least a byte, into `piece`.
template <typename Stream>
boost::asio::awaitable<error_code> ReadSome(Stream& stream, boost::beast::flat_buffer& buffer, Parser& parser,
                                            std::array<char, 16384>& space, absl::string_view* piece) {
  parser.get().body().data = space.data();
  parser.get().body().size = space.size();
  auto [error, size] = co_await http::async_read_some(stream, buffer, parser, kAwait);
  if (error == http::error::need_buffer) error = {};
  *piece = absl::string_view(space.data(), space.size() - parser.get().body().size);
  co_return error;
}

template <typename Stream>
boost::asio::awaitable<void> ReadError(Stream& stream, boost::beast::flat_buffer& buffer, Parser& parser, Measurement* m) {
  std::string body;
  std::array<char, 16384> space;
  while (!parser.is_done() && body.size() < kMaxErrorBody) {
    absl::string_view piece;
    if (co_await ReadSome(stream, buffer, parser, space, &piece)) break;
    absl::StrAppend(&body, piece);
  }
  m->status = absl::UnavailableError(ErrorText(body));
}

template <typename Stream>
boost::asio::awaitable<void> ReadStream(Stream& stream, boost::beast::flat_buffer& buffer, Parser& parser, Measurement* m) {
  SseParser events;
  std::vector<std::string> ready;
  std::array<char, 16384> space;
  bool done = false;
  while (!parser.is_done() && !done) {
    absl::string_view piece;
    const error_code error = co_await ReadSome(stream, buffer, parser, space, &piece);
    const MonotonicTime now = Clock::Real()->Now();
    ready.clear();
    events.Feed(piece, &ready);
    for (const std::string& data : ready) done = ReadEvent(data, now, m) || done;
    if (error) {
      if (m->status.ok()) m->status = Failed(error, "reading the stream");
      co_return;
    }
  }
  if (!done && m->status.ok()) m->status = absl::DataLossError("the stream ended without [DONE]");
}

template <typename Stream>
boost::asio::awaitable<void> Exchange(const Server& server, Stream& stream, std::string body, Measurement* m) {
  http::request<http::string_body> request(http::verb::post, RequestPath(server), 11);
  request.set(http::field::host, server.host);
  request.set(http::field::content_type, "application/json");
  request.set(http::field::accept, "text/event-stream");
  request.set(http::field::connection, "close");
  if (!server.api_key.empty()) request.set(http::field::authorization, absl::StrCat("Bearer ", server.api_key));
  request.body() = std::move(body);
  request.prepare_payload();
  auto [write_error, written] = co_await http::async_write(stream, request, kAwait);
  if (write_error) {
    m->status = Failed(write_error, "sending");
    co_return;
  }
  boost::beast::flat_buffer buffer;
  Parser parser;
  parser.body_limit(boost::none);
  auto [read_error, read] = co_await http::async_read_header(stream, buffer, parser, kAwait);
  if (read_error) {
    m->status = Failed(read_error, "waiting for the answer");
    co_return;
  }
  m->http_status = parser.get().result_int();
  if (m->http_status == 200) {
    co_await ReadStream(stream, buffer, parser, m);
  } else {
    co_await ReadError(stream, buffer, parser, m);
  }
}

boost::asio::awaitable<void> ExchangeByTls(const Server& server, boost::beast::tcp_stream& stream, std::string body, Measurement* m) {
  SSL_CTX_up_ref(server.tls->native());
  boost::asio::ssl::context context(server.tls->native());  // Takes a reference.
  boost::asio::ssl::stream<boost::beast::tcp_stream&> tls(stream, context);
  TlsContext::ExpectHost(tls.native_handle(), server.name);
  auto [error] = co_await tls.async_handshake(boost::asio::ssl::stream_base::client, kAwait);
  if (error) {
    m->status = Failed(error, "TLS");
    co_return;
  }
  co_await Exchange(server, tls, std::move(body), m);
}

boost::asio::awaitable<void> Connect(const Server& server, boost::beast::tcp_stream& stream, std::string body, Measurement* m) {
  auto [error, endpoint] = co_await stream.async_connect(server.endpoints, kAwait);
  if (error) {
    m->status = Failed(error, "connecting");
    co_return;
  }
  stream.socket().set_option(boost::asio::ip::tcp::no_delay(true));
  if (server.tls != nullptr) {
    co_await ExchangeByTls(server, stream, std::move(body), m);
  } else {
    co_await Exchange(server, stream, std::move(body), m);
  }
}

}  // namespace

std::string RequestPath(const Server& server) {
  return absl::StrCat(server.base_path, server.kind == PromptKind::kChat ? "/chat/completions" : "/completions");
}

std::string RequestBody(const Server& server, const History& history, const Turn& turn) {
  nlohmann::json body = {{"model", server.model},       {"max_tokens", turn.max_tokens}, {"temperature", server.temperature},
                         {"ignore_eos", true},          {"stream", true},                {"stream_options", {{"include_usage", true}}}};
  if (server.kind == PromptKind::kIds) {
    body["prompt"] = PromptIds(turn.words, server.vocab_size);
  } else if (server.kind == PromptKind::kText) {
    std::string prompt;
    for (const std::string& said : history.said) absl::StrAppend(&prompt, said, "\n");
    body["prompt"] = prompt + PromptText(turn.words);
  } else {
    nlohmann::json messages = nlohmann::json::array();
    for (size_t i = 0; i < history.said.size(); ++i) {
      messages.push_back({{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", history.said[i]}});
    }
    messages.push_back({{"role", "user"}, {"content", PromptText(turn.words)}});
    body["messages"] = messages;
  }
  return DumpJson(body);
}

bool ReadEvent(const std::string& data, MonotonicTime now, Measurement* m) {
  if (data == "[DONE]") return true;
  const auto json = ParseJson(data);
  if (!json.ok()) {
    m->status = absl::DataLossError(absl::StrCat("an event is not JSON: ", json.status().message()));
    return true;
  }
  if (Member(*json, "error") != nullptr) {
    m->status = absl::UnavailableError(ErrorText(data));
    return true;
  }
  if (const auto* usage = Member(*json, "usage")) ReadUsage(*usage, m);
  if (const auto* timeline = Member(*json, "timeline"); timeline != nullptr && timeline->is_object()) {
    for (const auto& [name, value] : timeline->items()) {
      if (value.is_number() && absl::EndsWith(name, "_ms")) m->timeline_ms[name] = value.get<double>();
    }
  }
  const nlohmann::json* choices = Member(*json, "choices");
  if (choices == nullptr || !choices->is_array() || choices->empty()) return false;
  const nlohmann::json& choice = choices->front();
  const nlohmann::json* delta = Member(choice, "delta");
  const std::string text = Text(Member(delta != nullptr ? *delta : choice, delta != nullptr ? "content" : "text"));
  // Random prompts make models say things that are no text yet (half a character): a piece with ids counts as well.
  const nlohmann::json* ids = Member(choice, "token_ids");
  if (text.empty() && (ids == nullptr || !ids->is_array() || ids->empty())) return false;
  m->pieces.push_back(now);
  m->text += text;
  return false;
}

void OpenStreams::CancelAll() {
  cancelled_ = true;
  // Closed, not only cancelled: an operation that is over but has not been heard of would be followed by one that waits.
  for (boost::beast::tcp_stream* stream : streams_) stream->close();
}

// One entry of the list.
class OpenStream {
 public:
  OpenStream(OpenStreams* open, boost::beast::tcp_stream* stream) : open_(open), it_(open->streams_.insert(open->streams_.end(), stream)) {}
  ~OpenStream() { open_->streams_.erase(it_); }
  OpenStream(const OpenStream&) = delete;
  OpenStream& operator=(const OpenStream&) = delete;

 private:
  OpenStreams* const open_;
  const std::list<boost::beast::tcp_stream*>::iterator it_;
};

boost::asio::awaitable<Measurement> StreamRequest(const Server& server, std::string body, MonotonicTime due, OpenStreams* open) {
  Measurement m{.due = due};
  boost::beast::tcp_stream stream(co_await boost::asio::this_coro::executor);
  const OpenStream entry(open, &stream);
  stream.expires_after(absl::ToChronoNanoseconds(server.timeout));
  m.sent = Clock::Real()->Now();
  const bool begins = !open->cancelled();
  if (begins) co_await Connect(server, stream, std::move(body), &m);
  if (open->cancelled() && (!begins || !m.status.ok())) m.status = absl::CancelledError("stopped");
  m.ended = Clock::Real()->Now();
  if (m.output_tokens == 0) m.output_tokens = static_cast<int>(m.pieces.size());
  co_return m;
}

}  // namespace baton::bench
