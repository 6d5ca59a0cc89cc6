// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_SUPPORT_GOLDEN_H_
#define BATON_TESTS_SUPPORT_GOLDEN_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace baton::testing {

// Reference values of SmolLM2-135M-Instruct Q4_1, computed elsewhere in fp32 from the dequantised weights
// (tests/golden/smollm2.json).
struct GoldenCase {
  struct At {
    int position = 0;
    std::vector<int32_t> ids;   // The 40 highest logits at this position of the prompt.
    std::vector<float> logits;
    float logsumexp = 0;
    float mean = 0;
  };
  struct Kv {
    int layer = 0;
    std::vector<float> key_last_head0_first8;  // After the rotary embedding, half-split order.
    std::vector<float> value_last_head0_first8;
    float key_norm = 0;
    float value_norm = 0;
  };
  std::string name;
  std::vector<int32_t> prompt_ids;
  std::vector<At> at;
  std::vector<Kv> kv;
  std::vector<int32_t> greedy_ids;
  std::vector<float> margins;  // Best minus second-best logit at each greedy step.
};
// Or those in another file of that form.
std::vector<GoldenCase> LoadSmolLm2Golden(absl::string_view path = "");

// Reference values of a tiny random model in `folder` (expected.json beside config.json and model.safetensors).
struct GoldenTinyCase {
  std::vector<int32_t> prompt_ids;
  std::vector<float> last_logits_first16;
  float last_logsumexp = 0;
  std::vector<int32_t> all_positions_argmax;
  std::vector<int32_t> greedy_ids;  // End-of-turn tokens ignored.
  std::vector<float> margins;
};
std::vector<GoldenTinyCase> LoadTinyGolden(absl::string_view folder);
// Where the tiny models lie; nullopt when they are not on this machine (they come with the design, not with the sources).
std::optional<std::string> FindTinyModels();

// The GGUF file that deploy/fetch_model fetches: $BATON_MODEL or the cache folder; nullopt when absent.
std::optional<std::string> FindSmolLm2();

int ArgMax(std::span<const float> logits);
// Best minus second best.
float Margin(std::span<const float> logits);
double LogSumExp(std::span<const float> logits);
// KL(softmax(reference) || softmax(other)) in nats.
double KlDivergence(std::span<const float> reference, std::span<const float> other);

}  // namespace baton::testing

#endif  // BATON_TESTS_SUPPORT_GOLDEN_H_
