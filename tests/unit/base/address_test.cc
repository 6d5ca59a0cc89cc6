// SPDX-License-Identifier: Apache-2.0
#include "common/base/host_port.h"
#include "common/base/secret_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_files.h"

namespace baton {
namespace {

using testing::StatusIs;
using ::testing::HasSubstr;

TEST(HostPortTest, WhatOnlyThisMachineReaches) {
  for (const char* text : {"127.0.0.1:0", "127.255.3.4:9000", "[::1]:80", "localhost:1", "unix:/run/baton", "unix-abstract:baton"}) {
    EXPECT_TRUE(IsLoopbackAddress(text)) << text;
  }
  for (const char* text : {"0.0.0.0:0", ":9000", "[::]:80", "10.0.0.1:9000", "128.0.0.1:1", "[::ffff:10.0.0.1]:1", "router:9000",
                           "localhost.example.com:1", "dns:///127.0.0.1:1", "127.0.0.1"}) {
    EXPECT_FALSE(IsLoopbackAddress(text)) << text;
  }
}

TEST(SecretFileTest, IsOneWord) {
  EXPECT_EQ(*ReadSecretFile("--key", testing::WriteTempFile("key", " word-1\r\n")), "word-1");
  EXPECT_THAT(ReadSecretFile("--key", "/nowhere"), StatusIs(absl::StatusCode::kNotFound, HasSubstr("--key /nowhere: cannot be read")));
  const std::pair<std::string, const char*> bad[] = {
      {"", "is empty"}, {"\n \n", "is empty"}, {"two words", "one word"}, {"caf\xc3\xa9", "one word"}, {std::string(5000, 'x'), "is over 4096 bytes"}};
  for (const auto& [text, message] : bad) {
    EXPECT_THAT(ReadSecretFile("--key", testing::WriteTempFile("key", text)),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
  }
}

}  // namespace
}  // namespace baton
