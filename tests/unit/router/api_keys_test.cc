// SPDX-License-Identifier: Apache-2.0
#include "router/api_keys.h"

#include <cstdio>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_files.h"

namespace baton {
namespace {

using testing::IsOk;
using testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kAlice[] = "0123456789abcdef", kWorker[] = "fedcba9876543210", kOps[] = "ops-ops-ops-ops-";
constexpr auto kUnknown = absl::StatusCode::kUnauthenticated;

std::string File() {
  return std::string("# who may\n\nalice ") + kAlice + "\n  w\t" + kWorker + "  worker\r\nops " + kOps + " admin";
}

TEST(ApiKeysTest, RolesAndNames) {
  ASSERT_OK_AND_ASSIGN(const auto keys, ApiKeys::Load(testing::WriteTempFile("keys", File())));
  const auto check = [&](const std::string& key, KeyRole role) { return keys->Check("Bearer " + key, role); };
  EXPECT_EQ(*check(kAlice, KeyRole::kClient), "alice");
  EXPECT_THAT(check(kAlice, KeyRole::kWorker), StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("alice is not one for workers")));
  EXPECT_THAT(check(kAlice, KeyRole::kAdmin), StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("for administration")));
  EXPECT_EQ(*check(kWorker, KeyRole::kWorker), "w");
  EXPECT_THAT(check(kWorker, KeyRole::kClient), StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("w is not one for clients")));
  for (const KeyRole role : {KeyRole::kClient, KeyRole::kWorker, KeyRole::kAdmin}) EXPECT_EQ(*check(kOps, role), "ops");
  EXPECT_EQ(*keys->Check(std::string("bearer  ") + kAlice + " ", KeyRole::kClient), "alice");
}

TEST(ApiKeysTest, WhatIsNoKey) {
  ASSERT_OK_AND_ASSIGN(const auto keys, ApiKeys::Load(testing::WriteTempFile("keys", File())));
  EXPECT_THAT(keys->Check("", KeyRole::kClient), StatusIs(kUnknown, HasSubstr("no API key was sent")));
  EXPECT_THAT(keys->Check(kAlice, KeyRole::kClient), StatusIs(kUnknown, HasSubstr("is not \"Bearer KEY\"")));
  const std::string alice = kAlice;
  for (const std::string& wrong : {std::string("x"), alice.substr(1), alice.substr(0, 15), alice + "0", alice + alice, std::string("0123456789ABCDEF")}) {
    const auto answer = keys->Check("Bearer " + wrong, KeyRole::kClient);
    EXPECT_THAT(answer, StatusIs(kUnknown, AllOf(HasSubstr("is not known"), Not(HasSubstr(wrong + " "))))) << wrong;
  }
  EXPECT_EQ(keys->Check("Bearer ", KeyRole::kClient).status().code(), kUnknown);
}

TEST(ApiKeysTest, MalformedFilesNameTheLineAndNoKey) {
  const std::string good = std::string("alice ") + kAlice + "\n";
  const std::pair<std::string, const char*> bad[] = {
      {"", "there is no key in it"},
      {"# nothing\n", "there is no key in it"},
      {kAlice, "line 1: needs NAME KEY [ROLE] [LIMIT=VALUE ...], has 1 words"},
      {good + "bob " + kWorker + " admin please\n", "line 2: word 4 is not LIMIT=VALUE"},
      {good + "bob " + kWorker + " root\n", "line 2: the role is none of client, worker, admin"},
      {std::string("bob admin ") + kWorker + "==\n", "line 1: word 3 is none of the limits max-concurrent,"},
      {"bob short\n", "line 1: the key of bob has 5 characters, at least 16 are needed"},
      {good + "alice " + kWorker + "\n", "line 2: the name alice is there before"},
      {good + "bob " + kAlice + "\n", "line 2: the key of bob is that of alice"},
      {"bob caf\xc3\xa9-0123456789abc\n", "line 1: has other characters than visible ASCII"}};
  for (const auto& [text, message] : bad) {
    const std::string path = testing::WriteTempFile("keys", text);
    EXPECT_THAT(ApiKeys::Load(path), StatusIs(absl::StatusCode::kInvalidArgument,
                                              AllOf(HasSubstr("--api-keys " + path), HasSubstr(message), Not(HasSubstr(kWorker)))));
  }
  EXPECT_THAT(ApiKeys::Load("/nowhere/keys"), StatusIs(absl::StatusCode::kNotFound, HasSubstr("/nowhere/keys: cannot be read")));
  EXPECT_THAT(ApiKeys::Load(testing::WriteTempFile("keys", std::string((1 << 20) + 1, '#'))),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is over 1048576 bytes")));
}

TEST(ApiKeysTest, AChangedFileIsReadAgainAndABrokenOneIsNot) {
  const std::string path = testing::WriteTempFile("keys", File());
  ASSERT_OK_AND_ASSIGN(const auto keys, ApiKeys::Load(path));
  const auto write = [&](const std::string& text) { std::ofstream(path, std::ios::trunc) << text; };
  const std::string bearer = std::string("Bearer ") + kAlice, other = std::string("Bearer ") + kWorker;
  write("bob short\n");
  keys->Reload();
  EXPECT_THAT(keys->Check(bearer, KeyRole::kClient), IsOk());
  std::remove(path.c_str());
  keys->Reload();
  EXPECT_THAT(keys->Check(bearer, KeyRole::kClient), IsOk());
  write(std::string("bob ") + kWorker + "\n");
  keys->Reload();
  EXPECT_THAT(keys->Check(bearer, KeyRole::kClient), StatusIs(kUnknown, HasSubstr("is not known")));
  EXPECT_EQ(*keys->Check(other, KeyRole::kClient), "bob");
}

}  // namespace
}  // namespace baton
