// SPDX-License-Identifier: Apache-2.0
#include "common/base/log_record.h"

#include <algorithm>

#include "common/base/json.h"
#include "common/base/logging.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// What `write` writes to standard error, in this format.
template <class Write>
std::string Written(LogFormat format, const Write& write, LogSeverity min_severity = LogSeverity::kINFO) {
  SetLogOptions({.min_severity = min_severity, .format = format, .process = "router"});
  ::testing::internal::CaptureStderr();
  write();
  SetLogOptions({});
  return ::testing::internal::GetCapturedStderr();
}

LogRecord Example() {
  LogRecord record("request", "r-1");
  record.Add("reason", "stop").Add("route", "least loaded").Add("transport", "").Add("tokens", 7).AddMs("total_ms", 12.3456);
  return record;
}

TEST(LogRecord, ForPeopleIsALineOfWords) {
  EXPECT_EQ(Example().Text(), "request r-1 reason=stop route=\"least loaded\" transport=\"\" tokens=7 total_ms=12.3");
  const std::string line = Written(LogFormat::kText, [] { Example().Write("a/b/x.cc", 7); });
  EXPECT_THAT(line, EndsWith(" info    router: " + Example().Text() + "\n"));
}

TEST(LogRecord, ForProgramsItsValuesAreMembers) {
  const std::string line = Written(LogFormat::kJson, [] { Example().Write("a/b/x.cc", 7); });
  const auto parsed = ParseJson(line);
  ASSERT_TRUE(parsed.ok()) << line;
  nlohmann::json json = *parsed;
  EXPECT_THAT(json["time"].get<std::string>(), StartsWith("2"));
  json.erase("time");
  EXPECT_EQ(json, nlohmann::json({{"severity", "info"}, {"process", "router"}, {"source", "x.cc:7"}, {"message", "request"}, {"id", "r-1"},
                                  {"reason", "stop"}, {"route", "least loaded"}, {"transport", ""}, {"tokens", 7}, {"total_ms", 12.3}}));
}

TEST(LogRecord, NothingOfAValueEndsTheLine) {
  LogRecord record("request", "r-1");
  record.Add("client_id", "a\nb \"c\" \xff");
  EXPECT_EQ(record.Text(), "request r-1 client_id=\"a\\nb \\\"c\\\" \\xff\"");
  const std::string line = Written(LogFormat::kJson, [&] { record.Write("x.cc", 1); });
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
  EXPECT_TRUE(ParseJson(line).ok()) << line;
}

TEST(LogRecord, OtherLinesAreAsTheyWere) {
  const auto write = [] { BATON_LOG(WARNING) << "worker " << 7 << " is \"gone\""; };
  EXPECT_THAT(Written(LogFormat::kText, write), EndsWith(" warning router: worker 7 is \"gone\"\n"));
  const auto json = ParseJson(Written(LogFormat::kJson, write));
  ASSERT_TRUE(json.ok());
  EXPECT_EQ((*json)["message"], "worker 7 is \"gone\"");
  EXPECT_EQ((*json)["severity"], "warning");
  EXPECT_THAT((*json)["source"].get<std::string>(), HasSubstr("log_record_test.cc:"));
}

TEST(LogRecord, IsNotWrittenWhereInfoIsNotLogged) {
  EXPECT_EQ(Written(LogFormat::kText, [] { Example().Write("x.cc", 1); }, LogSeverity::kWARNING), "");
}

}  // namespace
}  // namespace baton
