// SPDX-License-Identifier: Apache-2.0
// What `baton scale` and `baton serve` say to each other, and the socket between them.
#include <poll.h>
#include <unistd.h>

#include "common/base/thread.h"
#include "deploy/cli/control_socket.h"
#include "deploy/cli/scale_message.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace baton::cli {
namespace {

using ::baton::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ScaleMessage, ARequestSaysOnlyWhatIsToChange) {
  EXPECT_EQ(WriteScaleRequest({.decode = 3}), R"({"scale":{"decode":3}})");
  ASSERT_OK_AND_ASSIGN(const ScaleRequest decode, ReadScaleRequest(WriteScaleRequest({.decode = 3})));
  EXPECT_FALSE(decode.prefill);
  EXPECT_EQ(decode.decode, 3);
  ASSERT_OK_AND_ASSIGN(const ScaleRequest both, ReadScaleRequest(WriteScaleRequest({.prefill = 0, .decode = -1})));
  EXPECT_EQ(both.prefill, 0);
  EXPECT_EQ(both.decode, -1);
}

TEST(ScaleMessage, WhatIsNoRequestIsRefused) {
  for (const char* text : {"", "{", "[]", "{}", R"({"scale":3})", R"({"scale":{"prefill":"3"}})", R"({"scale":{"decode":1.5}})",
                           R"({"scale":{"decode":4294967297}})", R"({"other":{}})"}) {
    EXPECT_THAT(ReadScaleRequest(text), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no request"))) << text;
  }
}

TEST(ScaleMessage, AReplyIsTheWorkersOrTheError) {
  ASSERT_OK_AND_ASSIGN(const ScaleReply reply, ReadScaleReply(WriteScaleReply(ScaleReply{.workers = {"p-1", "d-1"}, .ending = {"d-2"}})));
  EXPECT_THAT(reply.workers, ElementsAre("p-1", "d-1"));
  EXPECT_THAT(reply.ending, ElementsAre("d-2"));
  EXPECT_THAT(ReadScaleReply(WriteScaleReply(absl::InvalidArgumentError("--decode 0"))),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--decode 0")));
  for (const char* text : {"", "{}", R"({"workers":[1],"ending":[]})", R"({"code":0,"message":"fine"})"}) {
    EXPECT_THAT(ReadScaleReply(text), StatusIs(absl::StatusCode::kInternal, ::testing::_)) << text;
  }
}

// A port number is only a name here; that of this process is nobody else's.
uint16_t Name() { return static_cast<uint16_t>(getpid()); }

TEST(ControlSocket, AnswersWhoAsks) {
  ASSERT_OK_AND_ASSIGN(const auto socket, ControlSocket::Open(Name()));
  EXPECT_THAT(ControlSocket::Open(Name()), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("in use")));
  Thread server("server", [&socket] {
    pollfd readable = {.fd = socket->fd(), .events = POLLIN};
    int num_answered = 0;  // One call may answer both.
    while (num_answered < 2 && poll(&readable, 1, 30000) == 1) {
      socket->Serve([&](absl::string_view request) {
        ++num_answered;
        return "to " + std::string(request);
      });
    }
  });
  ASSERT_OK_AND_ASSIGN(const std::string first, AskServe(Name(), "a question", absl::Seconds(30)));
  EXPECT_EQ(first, "to a question");
  ASSERT_OK_AND_ASSIGN(const std::string second, AskServe(Name(), "another", absl::Seconds(30)));
  EXPECT_EQ(second, "to another");
}

TEST(ControlSocket, SaysWhenNobodyIsThereOrAnswers) {
  EXPECT_THAT(AskServe(Name(), "x", absl::Seconds(30)), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("no `baton serve` of this machine")));
  ASSERT_OK_AND_ASSIGN(const auto socket, ControlSocket::Open(Name()));
  EXPECT_THAT(AskServe(Name(), "x", absl::Milliseconds(1)), StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("did not answer within 1ms")));
  int num_asked = 0;
  socket->Serve([&](absl::string_view) { return std::to_string(++num_asked); });  // Who asked has gone: no harm.
  EXPECT_EQ(num_asked, 1);
  socket->Serve([&](absl::string_view) { return std::to_string(++num_asked); });
  EXPECT_EQ(num_asked, 1);
}

}  // namespace
}  // namespace baton::cli
