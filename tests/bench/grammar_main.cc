// SPDX-License-Identifier: Apache-2.0
// grammar MODEL: what constrained decoding costs beside a model's step: compiling a schema, the first mask of a state, a mask that
// is there, applying it in the sampler, following a token. Answers are drawn at random from the masks.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/engine/sampler.h"
#include "common/grammar/grammar.h"
#include "common/grammar/json_schema.h"
#include "common/text/text_bundle.h"

namespace baton {
namespace {

constexpr std::pair<const char*, const char*> kSchemas[] = {
    {"JSON mode", R"({"type":"object"})"},
    {"person", R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer","minimum":0,"maximum":130}},"required":["name","age"],"additionalProperties":false})"},
    {"bounded strings", R"({"type":"array","items":{"type":"string","minLength":5,"maxLength":200},"minItems":2,"maxItems":20})"},
    {"patterns", R"({"type":"array","items":{"anyOf":[{"type":"string","format":"date-time"},{"type":"string","format":"email"},{"type":"string","pattern":"^[A-Z]{2}-\\d+$"}]}})"},
    {"64 optional members", ""},
    {"2,000 enum values", ""},
};

std::string SchemaOf(int which) {
  std::string schema = kSchemas[which].second;
  if (!schema.empty()) return schema;
  if (which == 4) {
    schema = R"({"type":"object","properties":{)";
    for (int i = 0; i < 64; ++i) schema += (i > 0 ? ",\"member" : "\"member") + std::to_string(i * 77) + R"(":{"type":"integer"})";
    return schema + "}}";
  }
  schema = "{\"enum\":[0";
  for (int i = 0; i < 2000; ++i) schema += ",\"value " + std::to_string(i * 7919) + " of many\"";
  return schema + "]}";
}

struct Times {
  std::vector<double> us;
  void Add(absl::Duration d) { us.push_back(ToMs(d) * 1000); }
  double Quantile(double q) {
    if (us.empty()) return 0;
    std::ranges::sort(us);
    return us[std::min(us.size() - 1, static_cast<size_t>(q * static_cast<double>(us.size())))];
  }
};

// As a decode worker has them.
std::shared_ptr<const TokenTrie> AnswerTokens(const Tokenizer& tokenizer) {
  std::vector<absl::string_view> bytes(static_cast<size_t>(tokenizer.vocab_size()));
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.IsSpecial(id)) bytes[id] = tokenizer.TokenBytes(id);
  }
  return std::make_shared<TokenTrie>(bytes);
}

void Measure(int which, const std::shared_ptr<const TokenTrie>& tokens_of_answers) {
  const Clock* clock = Clock::Real();
  const std::string schema = SchemaOf(which);
  const MonotonicTime begin = clock->Now();
  auto program = CompileJsonSchema(schema);
  const double compile_ms = ToMs(clock->Now() - begin);
  if (!program.ok()) {
    std::printf("%s: %s\n", kSchemas[which].first, program.status().ToString().c_str());
    return;
  }
  const auto grammar = std::make_shared<Grammar>(*std::move(program), tokens_of_answers);
  SamplingParams params = {.temperature = 1, .grammar = grammar};
  const SamplingParams free = {.temperature = 1};
  const int vocab = tokens_of_answers->vocab_size();
  Sampler sampler(vocab);
  Times cold, warm, follow, constrained, unconstrained;
  std::mt19937_64 rng(1);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(vocab);
  for (uint64_t answer = 0; answer < 20; ++answer) {
    params.seed = answer;
    GrammarState state(grammar);
    std::vector<int32_t> tokens = {0};
    for (int i = 0; i < 60 && !state.complete(); ++i) {
      for (float& x : logits) x = normal(rng);
      const size_t masks = grammar->num_masks();
      MonotonicTime from = clock->Now();
      const auto mask = state.Mask();
      const absl::Duration took = clock->Now() - from;
      (grammar->num_masks() > masks ? cold : warm).Add(took);
      SamplingState sampling(&params, 0, tokens, 1), other(&free, 0, tokens, 1);
      from = clock->Now();
      const auto token = sampler.Sample(logits, sampling);
      constrained.Add(clock->Now() - from);
      from = clock->Now();
      (void)sampler.Sample(logits, other);
      unconstrained.Add(clock->Now() - from);
      if (!token.ok()) break;
      from = clock->Now();
      state.Append(token->token_id);
      follow.Add(clock->Now() - from);
      tokens.push_back(token->token_id);
    }
  }
  std::printf("%-20s compile %7.2f ms; cold mask p50 %7.1f p99 %8.1f us (%zu); warm %5.2f us; follow %5.2f us; sampler %6.1f us (%.1f without)\n",
              kSchemas[which].first, compile_ms, cold.Quantile(0.5), cold.Quantile(0.99), cold.us.size(), warm.Quantile(0.5),
              follow.Quantile(0.5), constrained.Quantile(0.5), unconstrained.Quantile(0.5));
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "Usage: grammar MODEL\n");
    return 2;
  }
  const auto bundle = baton::LoadTextBundle(argv[1]);
  if (!bundle.ok()) {
    std::fprintf(stderr, "%s\n", bundle.status().ToString().c_str());
    return 1;
  }
  const baton::MonotonicTime begin = baton::Clock::Real()->Now();
  const auto tokens = baton::AnswerTokens(*bundle->tokenizer);
  std::printf("%d tokens, %zu nodes, %.1f MB, made in %.0f ms\n", tokens->vocab_size(), tokens->nodes().size(),
              static_cast<double>(tokens->memory_bytes()) / 1e6, baton::ToMs(baton::Clock::Real()->Now() - begin));
  for (int i = 0; i < 6; ++i) baton::Measure(i, tokens);
  return 0;
}
