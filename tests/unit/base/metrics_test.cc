// SPDX-License-Identifier: Apache-2.0
#include "common/base/metrics.h"

#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "common/base/thread.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

struct Sample {
  std::map<std::string, std::string> labels;
  double value = 0;
};
struct ParsedFamily {
  std::string type, help;
  std::map<std::string, std::vector<Sample>> samples;  // By sample name.
};

// A strict reader of text exposition 0.0.4: any deviation is a test failure.
class Parser {
 public:
  explicit Parser(const std::string& text) {
    EXPECT_TRUE(text.empty() || text.back() == '\n') << "the last line must end";
    std::istringstream lines(text);
    std::set<std::string> series;
    for (std::string line; std::getline(lines, line);) {
      if (line[0] == '#') {
        ReadComment(line);
      } else {
        EXPECT_TRUE(series.insert(line.substr(0, line.rfind(' '))).second) << "twice: " << line;
        ReadSample(line);
      }
    }
  }
  std::map<std::string, ParsedFamily> families;

 private:
  void ReadComment(const std::string& line) {
    const size_t name_end = line.find(' ', 7);
    ASSERT_NE(name_end, std::string::npos) << line;
    const std::string name = line.substr(7, name_end - 7), rest = line.substr(name_end + 1);
    if (line.starts_with("# HELP ")) {
      EXPECT_EQ(families.count(name), 0u) << "a family must stand together: " << name;
      families[name].help = rest;
    } else {
      ASSERT_TRUE(line.starts_with("# TYPE ")) << line;
      EXPECT_EQ(name, current_) << "TYPE follows HELP";
      families[name].type = rest;
    }
    current_ = name;
  }

  void ReadSample(const std::string& line) {
    const size_t name_end = line.find_first_of("{ ");
    const std::string name = line.substr(0, name_end);
    Sample sample;
    size_t at = name_end;
    if (line[at] == '{') {
      do {
        const size_t equals = line.find("=\"", ++at);
        ASSERT_NE(equals, std::string::npos) << line;
        std::string value;
        size_t i = equals + 2;
        for (; i < line.size() && line[i] != '"'; ++i) {
          if (line[i] != '\\') {
            value += line[i];
            continue;
          }
          ++i;
          ASSERT_TRUE(line[i] == 'n' || line[i] == '"' || line[i] == '\\') << line;
          value += line[i] == 'n' ? '\n' : line[i];
        }
        EXPECT_TRUE(sample.labels.emplace(line.substr(at, equals - at), value).second);
        at = i + 1;
      } while (line[at] == ',');
      ASSERT_EQ(line[at], '}') << line;
      ++at;
    }
    ASSERT_EQ(line[at], ' ') << line;
    char* end = nullptr;
    sample.value = std::strtod(line.c_str() + at + 1, &end);
    EXPECT_EQ(*end, '\0') << line;
    EXPECT_TRUE(name == current_ || (families[current_].type == "histogram" && name.starts_with(current_ + "_"))) << line;
    families[current_].samples[name].push_back(sample);
  }
  std::string current_;
};

TEST(Metrics, CountersAndGauges) {
  MetricRegistry registry;
  Counter* counter = registry.GetCounter("baton_x_total", "Things.", {{"reason", "stop"}, {"kind", "a"}});
  counter->Increment();
  counter->Increment(41);
  registry.GetCounter("baton_x_total", "Things.", {{"kind", "a"}, {"reason", "length"}});
  registry.GetGauge("baton_depth", "Depth.")->Set(2.5);
  registry.GetGauge("baton_depth", "Depth.")->Add(-3);
  // The order of labels does not matter.
  EXPECT_EQ(registry.GetCounter("baton_x_total", "Things.", {{"kind", "a"}, {"reason", "stop"}}), counter);
  EXPECT_EQ(registry.RenderPrometheus(),
            "# HELP baton_depth Depth.\n# TYPE baton_depth gauge\nbaton_depth -0.5\n"
            "# HELP baton_x_total Things.\n# TYPE baton_x_total counter\n"
            "baton_x_total{kind=\"a\",reason=\"length\"} 0\nbaton_x_total{kind=\"a\",reason=\"stop\"} 42\n");
}

TEST(Metrics, EscapesLabelsAndHelp) {
  MetricRegistry registry;
  const std::string value = "a\"b\\c\nd\xC3\xA9";
  registry.GetGauge("g", "line 1\nback\\slash \"quoted\"", {{"l", value}, {"m", "\xFF"}})->Set(1);
  const Parser parsed(registry.RenderPrometheus());
  const ParsedFamily& family = parsed.families.at("g");
  EXPECT_EQ(family.help, "line 1\\nback\\\\slash \"quoted\"");
  EXPECT_EQ(family.samples.at("g")[0].labels.at("l"), value);
  EXPECT_EQ(family.samples.at("g")[0].labels.at("m"), "\xEF\xBF\xBD");
}

TEST(Metrics, Histogram) {
  MetricRegistry registry;
  Histogram* histogram = registry.GetHistogram("h_seconds", "H.", {0.1, 1, 10}, {{"w", "d-1"}});
  for (double value : {0.05, 0.1, 0.5, 1.0, 5.0, 100.0, std::nan("")}) histogram->Observe(value);
  const Parser parsed(registry.RenderPrometheus());
  const ParsedFamily& family = parsed.families.at("h_seconds");
  EXPECT_EQ(family.type, "histogram");
  std::vector<std::pair<std::string, double>> buckets;
  for (const Sample& sample : family.samples.at("h_seconds_bucket")) {
    EXPECT_EQ(sample.labels.at("w"), "d-1");
    buckets.emplace_back(sample.labels.at("le"), sample.value);
  }
  EXPECT_EQ(buckets, (std::vector<std::pair<std::string, double>>{{"0.1", 2}, {"1", 4}, {"10", 5}, {"+Inf", 6}}));
  EXPECT_EQ(family.samples.at("h_seconds_count")[0].value, 6);
  EXPECT_DOUBLE_EQ(family.samples.at("h_seconds_sum")[0].value, 106.65);
  EXPECT_EQ(histogram->count(), 6u);
}

TEST(Metrics, SpecialValuesAndPrecision) {
  MetricRegistry registry;
  registry.GetGauge("a", "A.")->Set(std::nan(""));
  registry.GetGauge("b", "B.")->Set(-INFINITY);
  registry.GetGauge("c", "C.")->Set(1.0 / 3);
  const std::string text = registry.RenderPrometheus();
  EXPECT_THAT(text, ::testing::HasSubstr("\na NaN\n"));
  EXPECT_THAT(text, ::testing::HasSubstr("\nb -Inf\n"));
  EXPECT_EQ(Parser(text).families.at("c").samples.at("c")[0].value, 1.0 / 3);
}

TEST(Metrics, CallbackLivesAsLongAsItsHandle) {
  auto registry = std::make_unique<MetricRegistry>();
  double value = 7;
  auto handle = registry->AddCallback(MetricKind::kGauge, "live", "L.", {{"a", "b"}}, [&] { return value; });
  EXPECT_THAT(registry->RenderPrometheus(), ::testing::HasSubstr("live{a=\"b\"} 7\n"));
  value = 8;
  EXPECT_THAT(registry->RenderPrometheus(), ::testing::HasSubstr("live{a=\"b\"} 8\n"));
  handle.reset();
  EXPECT_THAT(registry->RenderPrometheus(), ::testing::Not(::testing::HasSubstr("live{")));
  handle = registry->AddCallback(MetricKind::kGauge, "live", "L.", {{"a", "b"}}, [] { return 9; });
  EXPECT_THAT(registry->RenderPrometheus(), ::testing::HasSubstr("live{a=\"b\"} 9\n"));
  registry.reset();  // The handle may outlive the registry.
}

TEST(Metrics, ACallbackMayUseTheRegistry) {
  MetricRegistry registry;
  auto handle = registry.AddCallback(MetricKind::kCounter, "reads_total", "R.", {}, [&] {
    registry.GetCounter("other_total", "O.")->Increment();
    return 1.0;
  });
  registry.RenderPrometheus();
  EXPECT_EQ(registry.GetCounter("other_total", "O.")->value(), 1u);
}

TEST(Metrics, AliasesRepeatSeriesUnderOtherNames) {
  MetricRegistry registry;
  registry.AddAlias({.name = "other:running", .of = "requests", .help = "Same.", .select = {{"state", "running"}}, .add = {{"model", "m"}}});
  registry.AddAlias({.name = "other:seconds", .of = "seconds", .help = "Same.", .rename = {{"why", "reason"}}});
  registry.AddAlias({.name = "other:nothing", .of = "not_there", .help = "None."});
  const auto read = registry.AddCallback(MetricKind::kGauge, "requests", "R.", {{"state", "running"}}, [] { return 3.0; });
  registry.GetGauge("requests", "R.", {{"state", "waiting"}})->Set(5);
  registry.GetHistogram("seconds", "S.", {1}, {{"why", "stop"}})->Observe(0.5);
  const std::string text = registry.RenderPrometheus();
  const Parser parsed(text);
  EXPECT_THAT(text, ::testing::HasSubstr("# TYPE other:running gauge\nother:running{model=\"m\"} 3\n"));
  EXPECT_EQ(parsed.families.at("other:running").samples.at("other:running").size(), 1u);
  EXPECT_THAT(text, ::testing::HasSubstr("other:seconds_bucket{reason=\"stop\",le=\"1\"} 1\n"));
  EXPECT_EQ(parsed.families.count("other:nothing"), 0u);
}

TEST(Metrics, BucketsResolveATokenGapAndALongPrompt) {
  const auto around = [](const std::vector<double>& bounds, double value) {
    const auto upper = std::lower_bound(bounds.begin(), bounds.end(), value);
    return std::pair(*(upper - 1) / value, *upper / value);
  };
  EXPECT_GE(around(InterTokenBuckets(), 0.0051).first, 0.75);
  EXPECT_LE(around(InterTokenBuckets(), 0.0051).second, 1.25);
  EXPECT_GE(around(LatencyBuckets(), 100).first, 0.75);
  EXPECT_LE(around(LatencyBuckets(), 100).second, 1.25);
}

TEST(Metrics, ThreadsLoseNoIncrement) {
  MetricRegistry registry;
  std::vector<Thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back("count", [&] {
      for (int i = 0; i < 10000; ++i) {
        registry.GetCounter("c_total", "C.")->Increment();
        registry.GetGauge("g", "G.")->Add(1);
        registry.GetHistogram("h", "H.", {1})->Observe(1);
        if (i % 1000 == 0) registry.RenderPrometheus();
      }
    });
  }
  threads.clear();
  const Parser parsed(registry.RenderPrometheus());
  EXPECT_EQ(parsed.families.at("c_total").samples.at("c_total")[0].value, 40000);
  EXPECT_EQ(parsed.families.at("g").samples.at("g")[0].value, 40000);
  EXPECT_EQ(parsed.families.at("h").samples.at("h_sum")[0].value, 40000);
}

using MetricsDeathTest = ::testing::Test;
TEST(MetricsDeathTest, MisuseIsABug) {
  MetricRegistry registry;
  registry.GetCounter("a_total", "A.");
  EXPECT_DEATH(registry.GetGauge("a_total", "A."), "defined twice");
  EXPECT_DEATH(registry.GetCounter("0bad", "A."), "metric name");
  EXPECT_DEATH(registry.GetHistogram("h", "H.", {2, 1}), "increase");
}

}  // namespace
}  // namespace baton
