// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_SUPPORT_TINY_MODEL_H_
#define BATON_TESTS_SUPPORT_TINY_MODEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/gguf_writer.h"

namespace baton::testing {

// A seeded random model, as GGUF. The same options give the same bytes.
struct TinyModelOptions {
  uint64_t seed = 1;
  std::string architecture = "llama";  // "llama", "qwen2" (with biases), "qwen3" (with q and k norms)
  int num_layers = 2;
  int hidden_size = 64;
  int num_heads = 4;
  int num_kv_heads = 2;
  int head_dim = 16;
  int intermediate_size = 96;
  int vocab_size = 320;  // >= 259 for the vocabulary below.
  int context_length = 512;
  float rms_norm_eps = 1e-5f;
  float rope_theta = 10000.0f;
  std::vector<float> rope_factors;           // rope_freqs.weight, if not empty: [head_dim / 2].
  GgmlType matrix_type = GgmlType::kF32;     // Of q, k, v, o, gate, up, down. Rows must be whole blocks.
  GgmlType embedding_type = GgmlType::kF32;  // Of the embedding and the output.
  bool tied = false;
  float weight_scale = 1.0f;  // Matrices have standard deviation weight_scale / sqrt(columns).
};

// The writer is returned rather than the file, so that a test can change or spoil something before Build().
GgufWriter TinyModel(const TinyModelOptions& options = TinyModelOptions());

// A byte-level BPE vocabulary like SmolLM2's: 0 <|endoftext|>, 1 <|im_start|> (bos), 2 <|im_end|> (eos), then the 256
// bytes in order (id = 3 + byte), some merges, and unused tokens up to `vocab_size`. With ChatML template.
void AddTinyVocabulary(int vocab_size, GgufWriter* writer);
inline constexpr int kTinyBos = 1;
inline constexpr int kTinyEos = 2;
inline int TinyByteToken(unsigned char byte) { return 3 + byte; }
std::vector<int> TinyByteTokens(absl::string_view text);  // One token per byte.

// A model that says what it is told: greedy decoding follows the chains, whatever came before the last token. Attention
// and MLP run, but add zero. Good for streaming, stop strings and UTF-8; blind to faults of the KV cache.
struct ScriptedModelOptions {
  // a, b, c: after a comes b, after b comes c, after c comes kTinyEos unless another chain continues from c. A token
  // has one successor.
  std::vector<std::vector<int>> chains;
  // What follows every token that no chain continues: the start of the answer, whatever the prompt's last token was.
  int default_next = kTinyEos;
  int vocab_size = 320;
  int context_length = 4096;
  float gain = 20.0f;  // Logit of the scripted token; all others are 0.
};

// With the vocabulary above; a test may replace the tokenizer keys (and must keep the number of tokens).
GgufWriter ScriptedModel(const ScriptedModelOptions& options);

}  // namespace baton::testing

#endif  // BATON_TESTS_SUPPORT_TINY_MODEL_H_
