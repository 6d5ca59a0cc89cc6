// SPDX-License-Identifier: Apache-2.0
#include "common/model/checkpoint.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/support/tiny_model.h"

// GGUF: the container, every typed lookup, and the model on top.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = baton::GgufFile::Parse({data, size}, "fuzz.gguf");
  if (!file.ok()) return 0;
  size_t sum = 0;
  for (const baton::GgufEntry& entry : (*file)->entries()) {
    sum += (*file)->GetU64(entry.key).ok() + (*file)->GetF64(entry.key).ok() + (*file)->GetBool(entry.key).ok();
    if (const auto text = (*file)->GetString(entry.key); text.ok()) {
      for (char c : *text) sum += static_cast<unsigned char>(c);
    }
    if (const auto texts = (*file)->GetStringArray(entry.key); texts.ok()) {
      for (absl::string_view text : *texts) sum += text.empty() ? 0 : static_cast<unsigned char>(text.back());
    }
    sum += (*file)->GetI64Array(entry.key).ok() + (*file)->GetF32Array(entry.key).ok();
  }
  for (const baton::TensorView& tensor : (*file)->tensors())
    sum += tensor.bytes == 0 ? 0 : tensor.data[tensor.bytes - 1];
  volatile size_t sink = sum;
  (void)sink;
  (void)baton::Checkpoint::FromGguf(*file);
  return 0;
}

namespace baton::fuzz {

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds;
  testing::TinyModelOptions options;
  options.num_layers = 1;
  options.hidden_size = 32;
  options.num_heads = 2;
  options.num_kv_heads = 1;
  options.intermediate_size = 32;
  options.vocab_size = 260;
  for (const char* architecture : {"llama", "qwen2", "qwen3"}) {
    options.architecture = architecture;
    options.matrix_type = GgmlType::kQ8_0;
    seeds.push_back(testing::TinyModel(options).Build());
  }
  // Without the vocabulary a file is short, so that damage meets the interesting parts more often.
  testing::GgufWriter bare = testing::TinyModel(options);
  for (const std::string& key : bare.Keys()) {
    if (key.rfind("tokenizer.", 0) == 0) bare.Remove(key);
  }
  seeds.push_back(bare.Build());
  return seeds;
}

int NumInputs() { return 8000; }

}  // namespace baton::fuzz
