// SPDX-License-Identifier: Apache-2.0
#include "tests/support/golden.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/support/paths.h"

namespace baton::testing {
namespace {

using Json = nlohmann::json;

// A file that is not there or no JSON fails the test that asks for it and gives an empty array.
Json ReadJson(const std::string& path) {
  std::ifstream file(path);
  Json json = Json::parse(file, nullptr, false);
  EXPECT_FALSE(json.is_discarded()) << path;
  return json.is_discarded() ? Json::array() : json;
}

}  // namespace

std::vector<GoldenCase> LoadSmolLm2Golden(absl::string_view path) {
  std::vector<GoldenCase> cases;
  for (const Json& json : ReadJson(path.empty() ? SourcePath("tests/golden/smollm2.json") : std::string(path))) {
    GoldenCase c;
    c.name = json["name"];
    c.prompt_ids = json["prompt_ids"].get<std::vector<int32_t>>();
    c.greedy_ids = json["greedy_ids"].get<std::vector<int32_t>>();
    c.margins = json["margins"].get<std::vector<float>>();
    for (const auto& [position, at] : json["at"].items()) {
      c.at.push_back({std::stoi(position), at["ids"].get<std::vector<int32_t>>(), at["logits"].get<std::vector<float>>(),
                      at["logsumexp"], at["mean"]});
    }
    for (const Json& kv : json["kv"]) {
      c.kv.push_back({kv["layer"], kv["key_last_head0_first8"].get<std::vector<float>>(),
                      kv["value_last_head0_first8"].get<std::vector<float>>(), kv["key_norm"], kv["value_norm"]});
    }
    cases.push_back(std::move(c));
  }
  return cases;
}

std::vector<GoldenTinyCase> LoadTinyGolden(absl::string_view folder) {
  std::vector<GoldenTinyCase> cases;
  const Json expected = ReadJson(std::string(folder) + "/expected.json");  // Lives through the loop.
  if (!expected.contains("cases")) return cases;
  for (const Json& json : expected["cases"]) {
    cases.push_back({json["prompt_ids"].get<std::vector<int32_t>>(),
                     json["last_logits_first16"].get<std::vector<float>>(), json["last_logsumexp"],
                     json["all_positions_argmax"].get<std::vector<int32_t>>(),
                     json["greedy_ids_ignore_eos"].get<std::vector<int32_t>>(),
                     json["margins"].get<std::vector<float>>()});
  }
  return cases;
}

std::optional<std::string> FindTinyModels() {
  for (const std::string& folder : {SourcePath("tests/golden/tiny"), SourcePath("../shared/golden/tiny")}) {
    if (access(folder.c_str(), R_OK) == 0) return folder;
  }
  return std::nullopt;
}

std::optional<std::string> FindSmolLm2() {
  std::string path;
  if (const char* model = std::getenv("BATON_MODEL")) {
    path = model;
  } else if (const char* home = std::getenv("HOME")) {
    path = std::string(home) + "/.cache/baton/models/SmolLM2-135M-Instruct.Q4_1.gguf";
  }
  if (path.empty() || access(path.c_str(), R_OK) != 0) return std::nullopt;
  return path;
}

int ArgMax(std::span<const float> logits) {
  return static_cast<int>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

float Margin(std::span<const float> logits) {
  float best = -INFINITY, second = -INFINITY;
  for (const float x : logits) {
    if (x > best) {
      second = best;
      best = x;
    } else {
      second = std::max(second, x);
    }
  }
  return best - second;
}

double LogSumExp(std::span<const float> logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += std::exp(x - largest);
  return largest + std::log(sum);
}

double KlDivergence(std::span<const float> reference, std::span<const float> other) {
  const double reference_lse = LogSumExp(reference);
  const double other_lse = LogSumExp(other);
  double kl = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    const double log_p = reference[i] - reference_lse;
    kl += std::exp(log_p) * (log_p - (other[i] - other_lse));
  }
  return kl;
}

}  // namespace baton::testing
