// SPDX-License-Identifier: Apache-2.0
#include "deploy/bench/sse_parser.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton::bench {
namespace {

using ::testing::ElementsAre;

constexpr absl::string_view kStream =
    ": keep-alive\n\ndata: one\n\nevent: x\r\ndata:two\r\ndata: lines\r\n\r\ndata\r\rdatab: no\n\ndata: [DONE]\n\ndata: unfinished";

TEST(SseParser, ReadsEventsWhateverTheLineEnds) {
  SseParser parser;
  std::vector<std::string> events;
  parser.Feed(kStream, &events);
  EXPECT_THAT(events, ElementsAre("one", "two\nlines", "", "[DONE]"));
}

TEST(SseParser, ReadsTheSameInPiecesOfEverySize) {
  for (size_t size = 1; size < kStream.size(); ++size) {
    SseParser parser;
    std::vector<std::string> events;
    for (size_t at = 0; at < kStream.size(); at += size) parser.Feed(kStream.substr(at, size), &events);
    EXPECT_THAT(events, ElementsAre("one", "two\nlines", "", "[DONE]")) << size;
  }
}

}  // namespace
}  // namespace baton::bench
