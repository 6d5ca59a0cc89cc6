// SPDX-License-Identifier: Apache-2.0
#include "common/http/request_reader.h"

#include <random>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

using std::string_literals::operator""s;
using State = RequestReader::State;

// Feeds `text` in pieces of `step` bytes until the request is complete or refused; returns the bytes consumed.
size_t Feed(RequestReader& reader, const std::string& text, size_t step) {
  size_t begin = 0, end = 0;
  while (reader.state() == State::kHeader || reader.state() == State::kBody) {
    const size_t taken = reader.Consume(absl::string_view(text).substr(begin, end - begin));
    begin += taken;
    if (taken > 0) continue;
    if (end == text.size()) break;
    end = std::min(text.size(), end + step);
  }
  return begin;
}

TEST(RequestReader, RequestsInPiecesOfAnySize) {
  const std::string get = "GET /v1/models?a=1&b HTTP/1.1\r\nHost: x\r\nX-A: 1\r\nx-a:  2 \r\n\r\n";
  const std::string post = "POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 11\r\n\r\nhello world";
  const std::string chunked =
      "POST /p HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5;ext=1\r\nhello\r\n6\r\n world\r\n0\r\nX-Trailer: t\r\n\r\n";
  for (size_t step : {1, 2, 3, 7, 1000}) {
    RequestReader get_reader(1000, 1000);
    EXPECT_EQ(Feed(get_reader, get + "GET /next", step), get.size());
    ASSERT_EQ(get_reader.state(), State::kDone);
    const HttpRequest request = get_reader.TakeRequest();
    EXPECT_EQ(request.method, "GET");
    EXPECT_EQ(request.path, "/v1/models");
    EXPECT_EQ(request.query, "a=1&b");
    EXPECT_EQ(request.Header("X-a"), "1");
    EXPECT_TRUE(request.keep_alive);
    for (const std::string& text : {post, chunked}) {
      RequestReader reader(1000, 1000);
      EXPECT_EQ(Feed(reader, text + "GET /next", step), text.size());
      ASSERT_EQ(reader.state(), State::kDone) << reader.error().message;
      const HttpRequest posted = reader.TakeRequest();
      EXPECT_EQ(posted.body, "hello world");
      EXPECT_EQ(posted.Header("X-Trailer"), std::nullopt);  // A trailer is no header.
    }
  }
}

TEST(RequestReader, KeepAliveAndVersions) {
  const auto keep_alive = [](const std::string& text) {
    RequestReader reader(1000, 1000);
    Feed(reader, text, 1000);
    EXPECT_EQ(reader.state(), State::kDone) << text;
    return reader.TakeRequest().keep_alive;
  };
  EXPECT_TRUE(keep_alive("GET / HTTP/1.1\r\nHost: x\r\n\r\n"));
  EXPECT_FALSE(keep_alive("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"));
  EXPECT_FALSE(keep_alive("GET / HTTP/1.0\r\n\r\n"));
  EXPECT_TRUE(keep_alive("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
  EXPECT_TRUE(keep_alive("\r\n\r\nGET http://host/path HTTP/1.1\r\nHost: x\r\n\r\n"));
}

TEST(RequestReader, Expectations) {
  RequestReader waits(1000, 1000);
  Feed(waits, "POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-Continue\r\nContent-Length: 3\r\n\r\n", 1000);
  EXPECT_EQ(waits.state(), State::kBody);
  EXPECT_TRUE(waits.expects_continue());
  RequestReader no_body(1000, 1000);
  Feed(no_body, "GET / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n\r\n", 1000);
  EXPECT_EQ(no_body.state(), State::kDone);
  EXPECT_FALSE(no_body.expects_continue());
}

TEST(RequestReader, RefusesWithTheRightStatus) {
  const std::string head = "POST / HTTP/1.1\r\nHost: x\r\n";
  const struct {
    std::string text;
    int status;
  } cases[] = {
      {head + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
      {head + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n", 400},
      {head + "Content-Length: 5\r\nContent-Length: 6\r\n\r\n", 400},
      {head + "Content-Length: -1\r\n\r\n", 400},
      {head + "Content-Length: 1x\r\n\r\n", 400},
      {head + "Content-Length: 99999999999999999999999\r\n\r\n", 400},
      {head + "Content-Length: 1001\r\n\r\n", 413},
      {head + "Transfer-Encoding: chunked\r\n\r\n7d0\r\n" + std::string(2000, 'x'), 413},
      {head + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400},
      {head + "Transfer-Encoding: chunked\r\n\r\n-1\r\n", 400},
      {head + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n", 400},
      {head + "Transfer-Encoding: gzip, chunked\r\n\r\n", 501},
      {head + "Transfer-Encoding: identity\r\nContent-Length: 1\r\n\r\n", 400},
      {head + "Expect: miracles\r\nContent-Length: 1\r\n\r\n", 417},
      {head + "X: " + std::string(2000, 'x'), 431},
      {head + "Transfer-Encoding: chunked\r\n\r\n1;" + std::string(20000, 'x'), 431},
      {head + "Transfer-Encoding: chunked\r\n\r\n0\r\nX: " + std::string(20000, 'x'), 431},
      {head + "Host: y\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n\r\n", 400},
      {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
      {"GET nowhere HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"GET / HTTP/2.0\r\nHost: x\r\n\r\n", 505},
      {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
      {"\x16\x03\x01\x02\x01", 400},
      {"GET / HTTP/1.1\r\nHost: x\r\nBad Name: 1\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost : x\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: x\r\nA: \0\r\n\r\n"s, 400},
      {"GET\r\n\r\n", 400},
  };
  for (const auto& c : cases) {
    for (size_t step : {size_t{1}, c.text.size()}) {
      RequestReader reader(1000, 1000);
      Feed(reader, c.text, step);
      ASSERT_EQ(reader.state(), State::kError) << c.text.substr(0, 100);
      EXPECT_EQ(reader.error().status, c.status) << c.text.substr(0, 100) << ": " << reader.error().message;
    }
  }
}

// Whatever the bytes, the reader neither crashes nor grows, and takes each byte once.
TEST(RequestReader, RandomMutations) {
  const std::string seed_text =
      "POST /p?x=1 HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nT: t\r\n\r\n";
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    std::mt19937 random(seed);
    std::string text = seed_text;
    for (int i = 0; i < 3; ++i) {
      const size_t at = random() % text.size();
      switch (random() % 3) {
        case 0: text[at] = static_cast<char>(random()); break;
        case 1: text.erase(at, 1 + random() % 4); break;
        case 2: text.insert(at, text.substr(random() % text.size(), random() % 16)); break;
      }
    }
    RequestReader reader(200, 100);
    const size_t taken = Feed(reader, text, 1 + random() % 40);
    ASSERT_LE(taken, text.size()) << "seed " << seed;
    ASSERT_LE(reader.body_bytes(), 100u) << "seed " << seed;
    if (reader.state() == State::kError) {
      ASSERT_GE(reader.error().status, 400) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace baton
