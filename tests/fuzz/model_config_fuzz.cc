// SPDX-License-Identifier: Apache-2.0
#include "common/base/json.h"
#include "common/format/strict_json.h"
#include "common/model/model_config.h"
#include "tests/fuzz/fuzz_target.h"

// config.json.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto json = baton::ParseStrictJson(absl::string_view(reinterpret_cast<const char*>(data), size));
  if (!json.ok()) return 0;
  const auto config = baton::ConfigFromJson(*json);
  if (config.ok()) (void)baton::RopeInverseFrequencies(*config);
  return 0;
}

namespace baton::fuzz {

std::vector<std::string> Seeds() {
  return {
      R"({"model_type":"llama","hidden_size":64,"intermediate_size":96,"max_position_embeddings":512,)"
      R"("num_attention_heads":4,"num_key_value_heads":2,"num_hidden_layers":2,"rms_norm_eps":1e-5,"vocab_size":320,)"
      R"("rope_theta":500000.0,"rope_scaling":{"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,)"
      R"("high_freq_factor":4.0,"original_max_position_embeddings":64}})",
      R"({"model_type":"qwen2","hidden_size":64,"intermediate_size":96,"max_position_embeddings":512,"head_dim":null,)"
      R"("num_attention_heads":4,"num_hidden_layers":2,"vocab_size":320,"sliding_window":128,)"
      R"("use_sliding_window":true,"layer_types":["full_attention"],"tie_word_embeddings":true,)"
      R"("rope_parameters":{"rope_type":"linear","factor":2,"rope_theta":10000}})"};
}

int NumInputs() { return 20000; }

}  // namespace baton::fuzz
