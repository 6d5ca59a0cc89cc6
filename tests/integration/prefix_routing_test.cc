// SPDX-License-Identifier: Apache-2.0
// Prompts that begin alike go where the beginning is cached, on both pools: workers say what they have, the router looks.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/integration/local_cluster.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tiny_model.h"

namespace baton::testing {
namespace {

constexpr int kPrefix = 64;

// A beginning that only `document` has, then an end that only this question has.
std::vector<int> Prompt(int document, int question) {
  std::vector<int> prompt;
  for (int i = 0; i < kPrefix; ++i) prompt.push_back(3 + (i * 31 + document * 7 + document * i * 3) % 250);
  for (int i = 0; i < 8; ++i) prompt.push_back(3 + (i * 17 + question * 41) % 250);
  return prompt;
}

// How many blocks the router knows to be cached.
double Known(const LocalCluster& cluster, const std::string& role) {
  const auto known = cluster.Metric(cluster.status(), "baton_cached_prefixes", absl::StrCat("role=\"", role, "\""));
  return known.ok() ? *known : -1;
}

TEST(PrefixRouting, TheNextQuestionGoesWhereTheDocumentIs) {
  ASSERT_OK_AND_ASSIGN(const auto cluster, LocalCluster::Start(WriteTempFile("tiny.gguf", TinyModel().Build()),
                                                               {"--prefill=2", "--decode=2", "--threads=1", "--kv-memory=16MiB"}));
  // Eight documents on two pairs of workers: by chance all of them would be found again once in 4^8 times.
  for (int document = 0; document < 8; ++document) {
    SCOPED_TRACE(document);
    const double prefill = Known(*cluster, "prefill"), decode = Known(*cluster, "decode");
    ASSERT_OK_AND_ASSIGN(const cli::Answer first, cluster->Generate(GreedyRequest(Prompt(document, 0), 4)));
    EXPECT_EQ(first.usage.cached_tokens(), 0);
    ASSERT_TRUE(Eventually([&] {
      return Known(*cluster, "prefill") >= prefill + kPrefix / 16 && Known(*cluster, "decode") >= decode + kPrefix / 16;
    }));
    ASSERT_OK_AND_ASSIGN(const cli::Answer second, cluster->Generate(GreedyRequest(Prompt(document, 1), 4)));
    EXPECT_EQ(second.timeline.prefill_worker(), first.timeline.prefill_worker());
    EXPECT_EQ(second.timeline.decode_worker(), first.timeline.decode_worker());
    EXPECT_GE(second.usage.cached_tokens(), kPrefix);
  }
}

}  // namespace
}  // namespace baton::testing
