// SPDX-License-Identifier: Apache-2.0
#include "deploy/cli/secrets.h"

#include <string>
#include <utility>

#include "gtest/gtest.h"

namespace baton::cli {
namespace {

TEST(SecretsTest, AreRemoved) {
  const std::pair<const char*, const char*> cases[] = {
      {"api-key: hunter2", "api-key: [removed]"},
      {"BATON_API_KEY=hunter2", "BATON_API_KEY=[removed]"},
      {"baton_router --http 0.0.0.0:1 --password hunter2 --grace 3s", "baton_router --http 0.0.0.0:1 --password [removed] --grace 3s"},
      {"--api-key=hunter2 --grace=3s", "--api-key=[removed] --grace=3s"},
      {R"({"secret": "hunter2", "n": 1})", R"({"secret": [removed], "n": 1})"},
      {"keys: [hunter2]", "keys: [removed]]"},
      {"Authorization: Basic aHVudGVyMg==", "Authorization: [removed]"},
      {"sent Bearer hunter2 to it", "sent Bearer [removed] to it"},
      {"http://user:hunter2@host:1/x", "http://[removed]@host:1/x"},
      {"token: hunter2", "token: [removed]"},
      {"HF_TOKEN=hunter2", "HF_TOKEN=[removed]"},
      {"client sk-abcdefgh12345678 was refused", "client [removed] was refused"},
      {"apikey=hunter2", "apikey=[removed]"},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(RemoveSecrets(text), expected);
}

TEST(SecretsTest, PrivateKeysGoWhole) {
  EXPECT_EQ(RemoveSecrets("a\n-----BEGIN RSA PRIVATE KEY-----\nMIIE\nAAAA\n-----END RSA PRIVATE KEY-----\nb"), "a\n[removed]\nb");
}

TEST(SecretsTest, TheRestStays) {
  const char* const text =
      "request 1 prompt_tokens=5 completion_tokens=3 total_ms=1.5\n"
      "token-timeout: 60s\nmax_tokens: 4\n"
      "baton_query_key_pairs_total{phase=\"decode\"} 12\n"
      "grpc: 127.0.0.1:9000  # http://host:80/path\n"
      "\tmonkey business\n";
  EXPECT_EQ(RemoveSecrets(text), text);
}

TEST(SecretsTest, AnyBytes) {
  EXPECT_EQ(RemoveSecrets(""), "");
  EXPECT_EQ(RemoveSecrets("key"), "key");
  EXPECT_EQ(RemoveSecrets("key:"), "key:");
  EXPECT_EQ(RemoveSecrets("key: \""), "key: [removed]");
  EXPECT_EQ(RemoveSecrets(std::string("\xff\x00 key=\xff", 8)), std::string("\xff\x00 key=[removed]", 16));
}

}  // namespace
}  // namespace baton::cli
