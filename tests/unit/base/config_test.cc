// SPDX-License-Identifier: Apache-2.0
#include "common/base/config.h"

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/time/time.h"
#include "common/base/quantity.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_files.h"

ABSL_FLAG(std::string, test_model, "", "Model file or folder.");
ABSL_FLAG(int32_t, test_threads, 4, "Compute threads.");
ABSL_FLAG(baton::AutoByteSize, test_kv_memory, {}, "Memory for keys and values.");
ABSL_FLAG(baton::ByteSize, test_max_request_bytes, baton::ByteSize{64 << 20}, "Largest request body.");
ABSL_FLAG(absl::Duration, test_timeout, absl::Seconds(30), "How long to wait.");
ABSL_FLAG(bool, test_local_prefill, false, "Prefill on the decode worker.");
ABSL_FLAG(double, test_ratio, 0.5, "A ratio.");
ABSL_FLAG(std::vector<std::string>, test_transports, {}, "Transports, most wanted first.");
ABSL_FLAG(int32_t, test_unlisted, 0, "Belongs to another program.");

namespace baton {
namespace {

using ::baton::testing::StatusIs;
using ::testing::HasSubstr;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

class ConfigTest : public ::testing::Test {
 protected:
  absl::StatusOr<ConfigResult> Parse(const std::vector<std::string>& args) {
    return ParseConfig(spec_, args, [this](const std::string& name) -> std::optional<std::string> {
      const auto found = environment_.find(name);
      return found == environment_.end() ? std::nullopt : std::make_optional(found->second);
    });
  }
  std::string WriteFile(const std::string& text) { return testing::WriteTempFile("config", text); }

  absl::FlagSaver saver_;
  std::map<std::string, std::string> environment_;
  ConfigSpec spec_ = {
      .program = "baton_test",
      .summary = "Tests the configuration.",
      .examples = "  baton_test --test-model m.gguf\n",
      .groups = {{"Model", {"test_model", "test_threads"}},
                 {"Memory", {"test_kv_memory", "test_max_request_bytes"}},
                 {"Serving", {"test_timeout", "test_local_prefill", "test_ratio", "test_transports"}}}};
};

TEST_F(ConfigTest, DefaultsStay) {
  ASSERT_OK_AND_ASSIGN(const ConfigResult result, Parse({}));
  EXPECT_EQ(absl::GetFlag(FLAGS_test_threads), 4);
  EXPECT_FALSE(absl::GetFlag(FLAGS_test_kv_memory).bytes.has_value());
  EXPECT_EQ(result.sources.at("test_threads"), ConfigSource::kDefault);
}

TEST_F(ConfigTest, BothSpellingsAndBothForms) {
  ASSERT_TRUE(Parse({"--test-threads", "2", "--test_kv_memory=512MiB", "--test-timeout=500ms", "--test-ratio", "-1.5"}).ok());
  EXPECT_EQ(absl::GetFlag(FLAGS_test_threads), 2);
  EXPECT_EQ(absl::GetFlag(FLAGS_test_kv_memory).bytes, 512 << 20);
  EXPECT_EQ(absl::GetFlag(FLAGS_test_timeout), absl::Milliseconds(500));
  EXPECT_EQ(absl::GetFlag(FLAGS_test_ratio), -1.5);
}

TEST_F(ConfigTest, Booleans) {
  const std::vector<std::pair<std::string, bool>> cases = {{"--test-local-prefill", true},
                                                           {"--test-local-prefill=false", false},
                                                           {"--test_local_prefill=1", true},
                                                           {"--no-test-local-prefill", false},
                                                           {"--notest_local_prefill", false}};
  for (const auto& [arg, value] : cases) {
    absl::SetFlag(&FLAGS_test_local_prefill, !value);
    ASSERT_TRUE(Parse({arg}).ok()) << arg;
    EXPECT_EQ(absl::GetFlag(FLAGS_test_local_prefill), value) << arg;
  }
}

TEST_F(ConfigTest, FlagOverEnvironmentOverFileOverDefault) {
  const std::string path = WriteFile("test-threads: 10\ntest_ratio: 0.1\ntest-timeout: 1s\n");
  environment_ = {{"BATON_TEST_THREADS", "20"}, {"BATON_TEST_RATIO", "0.2"}, {"BATON_CONFIG", path}};
  ASSERT_OK_AND_ASSIGN(const ConfigResult result, Parse({"--test-threads", "30"}));
  EXPECT_EQ(absl::GetFlag(FLAGS_test_threads), 30);
  EXPECT_EQ(absl::GetFlag(FLAGS_test_ratio), 0.2);
  EXPECT_EQ(absl::GetFlag(FLAGS_test_timeout), absl::Seconds(1));
  EXPECT_EQ(result.sources.at("test_threads"), ConfigSource::kFlag);
  EXPECT_EQ(result.sources.at("test_ratio"), ConfigSource::kEnvironment);
  EXPECT_EQ(result.sources.at("test_timeout"), ConfigSource::kFile);
  // --config wins over BATON_CONFIG.
  ASSERT_TRUE(Parse({"--config", WriteFile("test-timeout: 2s")}).ok());
  EXPECT_EQ(absl::GetFlag(FLAGS_test_timeout), absl::Seconds(2));
}

TEST_F(ConfigTest, YamlListsAndBooleansAndEmptyFiles) {
  ASSERT_TRUE(Parse({"--config=" + WriteFile("test-transports: [shm, grpc]\ntest-local-prefill: true\n")}).ok());
  EXPECT_THAT(absl::GetFlag(FLAGS_test_transports), ::testing::ElementsAre("shm", "grpc"));
  EXPECT_TRUE(absl::GetFlag(FLAGS_test_local_prefill));
  EXPECT_TRUE(Parse({"--config", WriteFile("")}).ok());
  EXPECT_TRUE(Parse({"--config", WriteFile("# only a comment\n")}).ok());
}

TEST_F(ConfigTest, UnknownNamesAreRefusedWithTheNearest) {
  EXPECT_THAT(Parse({"--test-thread", "2"}),
              StatusIs(kInvalid, ::testing::StrEq("unknown flag --test-thread; did you mean --test-threads?")));
  EXPECT_THAT(Parse({"--test-kv-mem=2G"}), StatusIs(kInvalid, HasSubstr("did you mean --test-kv-memory?")));
  EXPECT_THAT(Parse({"--confg", "x"}), StatusIs(kInvalid, HasSubstr("did you mean --config?")));
  EXPECT_THAT(Parse({"--zzzzzzzzzz"}), StatusIs(kInvalid, HasSubstr("unknown flag --zzzzzzzzzz; --help lists them")));
  EXPECT_THAT(Parse({"--no-test-threads"}), StatusIs(kInvalid, HasSubstr("unknown flag")));
  EXPECT_THAT(Parse({"-t"}), StatusIs(kInvalid, HasSubstr("begin with --")));
  // A flag of another program in the same binary is unknown too.
  EXPECT_THAT(Parse({"--test-unlisted=1"}), StatusIs(kInvalid, HasSubstr("unknown flag")));
  const std::string path = WriteFile("test-threads: 1\ntest_rati: 2\n");
  EXPECT_THAT(Parse({"--config", path}),
              StatusIs(kInvalid, ::testing::StrEq(path + ":2: unknown key test_rati; did you mean test-ratio?")));
}

TEST_F(ConfigTest, BadValuesNamePlaceAndReason) {
  EXPECT_THAT(Parse({"--test-threads", "many"}),
              StatusIs(kInvalid, ::testing::StrEq("--test-threads: bad value 'many': expected an integer in range")));
  EXPECT_THAT(Parse({"--test-threads=99999999999"}), StatusIs(kInvalid, HasSubstr("in range")));
  EXPECT_THAT(Parse({"--test-kv-memory", "12Q"}), StatusIs(kInvalid, HasSubstr("unknown unit 'q'")));
  EXPECT_THAT(Parse({"--test-timeout", "5"}), StatusIs(kInvalid, HasSubstr("--test-timeout: bad value '5': expected a duration")));
  EXPECT_THAT(Parse({"--test-local-prefill=maybe"}), StatusIs(kInvalid, HasSubstr("expected true or false")));
  EXPECT_THAT(Parse({"--test-threads"}), StatusIs(kInvalid, HasSubstr("--test-threads: a value must follow")));
  EXPECT_THAT(Parse({"stray"}), StatusIs(kInvalid, HasSubstr("unexpected argument 'stray'")));
  environment_ = {{"BATON_TEST_RATIO", "half"}};
  // Refused although the flag would win.
  EXPECT_THAT(Parse({"--test-ratio", "0.5"}),
              StatusIs(kInvalid, HasSubstr("BATON_TEST_RATIO in the environment: bad value 'half': expected a number")));
}

TEST_F(ConfigTest, BadFilesAreRefused) {
  EXPECT_THAT(Parse({"--config", "/nonexistent/x.yaml"}), StatusIs(kInvalid, HasSubstr("cannot read the file")));
  for (const char* text : {"a: [", "- 1\n- 2", "just words", "test-threads: {a: 1}", "test-threads:", "test-threads: x",
                           "test-threads: 1\ntest_threads: 2", "? [1]\n: 2", "&a [*a]", "test-transports: [[1]]"}) {
    const std::string path = WriteFile(text);
    EXPECT_THAT(Parse({"--config", path}), StatusIs(kInvalid, ::testing::StartsWith(path))) << text;
  }
}

TEST_F(ConfigTest, RequiredFlags) {
  spec_.required = {"test_model"};
  EXPECT_THAT(Parse({}), StatusIs(kInvalid, HasSubstr("--test-model is needed (or BATON_TEST_MODEL")));
  EXPECT_THAT(Parse({"--test-model="}), StatusIs(kInvalid, HasSubstr("--test-model is needed")));
  EXPECT_TRUE(Parse({"--test-model=x"}).ok());
  absl::SetFlag(&FLAGS_test_model, "");
  environment_ = {{"BATON_TEST_MODEL", "y"}};
  EXPECT_TRUE(Parse({}).ok());
}

TEST_F(ConfigTest, FlagsThatTheEnvironmentDoesNotSet) {
  spec_.not_from_environment = {"test_model"};
  environment_ = {{"BATON_TEST_MODEL", "a file"}, {"BATON_TEST_THREADS", "7"}};
  ASSERT_TRUE(Parse({}).ok());
  EXPECT_EQ(absl::GetFlag(FLAGS_test_model), "");
  EXPECT_EQ(absl::GetFlag(FLAGS_test_threads), 7);
  EXPECT_THAT(HelpText(spec_), ::testing::Not(HasSubstr("BATON_TEST_MODEL")));
}

TEST_F(ConfigTest, PositionalArguments) {
  spec_.allow_positional = true;
  ASSERT_OK_AND_ASSIGN(const ConfigResult result, Parse({"a", "--test-threads", "1", "-", "--", "--b"}));
  EXPECT_THAT(result.positional, ::testing::ElementsAre("a", "-", "--b"));
}

TEST_F(ConfigTest, HelpIsGroupedWithDefaultsAndEnvironment) {
  ASSERT_OK_AND_ASSIGN(const ConfigResult result, Parse({"--help", "--nonsense"}));
  EXPECT_TRUE(result.help);
  spec_.required = {"test_model"};
  const std::string help = HelpText(spec_);
  EXPECT_THAT(help, HasSubstr("Usage: baton_test [flags]\n\nExamples:\n  baton_test --test-model m.gguf\n\nModel:\n"));
  EXPECT_THAT(help, HasSubstr("  --test-kv-memory VALUE\n      Memory for keys and values. [default auto; BATON_TEST_KV_MEMORY]\n"));
  EXPECT_THAT(help, HasSubstr("  --test-local-prefill\n      Prefill on the decode worker. [default false; BATON_TEST_LOCAL_PREFILL]\n"));
  EXPECT_THAT(help, HasSubstr("[needed; BATON_TEST_MODEL]"));
  EXPECT_THAT(help, HasSubstr("[default 64MiB; BATON_TEST_MAX_REQUEST_BYTES]"));
  EXPECT_LT(help.find("Model:"), help.find("Memory:"));
  EXPECT_THAT(help, ::testing::Not(HasSubstr("unlisted")));
}

TEST_F(ConfigTest, ExitCodes) {
  EXPECT_EXIT(ParseConfigOrExit(spec_, {"--test-thread=1"}), ::testing::ExitedWithCode(2),
              "baton_test: unknown flag --test-thread; did you mean --test-threads");
  EXPECT_EXIT(ParseConfigOrExit(spec_, {"--help"}), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(ParseConfigOrExit(spec_, {"--version"}), ::testing::ExitedWithCode(0), "");
}

TEST(NearestName, Distances) {
  const std::vector<std::string> names = {"temperature", "top_k", "top_p", "max_tokens", "compute_threads"};
  EXPECT_EQ(NearestName("tempreature", names), "temperature");
  EXPECT_EQ(NearestName("max-token", names), "max_tokens");
  EXPECT_EQ(NearestName("TOP-K", names), "top_k");
  EXPECT_EQ(NearestName("threads", names), "compute_threads");
  EXPECT_EQ(NearestName("xyzzy_plugh", names), std::nullopt);
  EXPECT_EQ(NearestName(std::string(1000, 'a'), names), std::nullopt);
}

}  // namespace
}  // namespace baton
