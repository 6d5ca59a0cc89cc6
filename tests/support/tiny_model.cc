// SPDX-License-Identifier: Apache-2.0
#include "tests/support/tiny_model.h"

#include <cmath>
#include <map>
#include <random>

#include "absl/strings/str_cat.h"
#include "common/base/logging.h"

namespace baton::testing {
namespace {

constexpr char kChatTemplate[] =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + "
    "'\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

// In order of rank; \x01 stands for the space's letter (U+0120).
// "\x01" "a" is two literals, because an escape takes every hexadecimal digit that follows.
constexpr const char* kMerges[][2] = {
    {"\x01", "t"},   {"h", "e"},      {"i", "n"},    {"\x01", "a"}, {"r", "e"},    {"o", "n"},
    {"\x01t", "he"}, {"e", "r"},      {"\x01", "s"}, {"a", "t"},    {"e", "n"},    {"o", "u"},
    {"i", "s"},      {"\x01", "w"},   {"o", "r"},    {"l", "l"},    {"i", "t"},    {"\x01" "a", "n"},
    {"e", "s"},      {"a", "l"},      {"n", "d"},    {"in", "g"},   {"\x01", "c"}, {"\x01", "o"},
    {"h", "i"},      {"\x01" "an", "d"}, {"e", "d"},    {"\x01", "b"}, {"a", "r"},    {"\x01", "\x01"},
};

std::string Utf8(uint32_t c) {
  if (c < 0x80) return std::string(1, static_cast<char>(c));
  return {static_cast<char>(0xc0 | (c >> 6)), static_cast<char>(0x80 | (c & 63))};
}

// GPT-2's letters for bytes: printable ones stand for themselves, the rest from U+0100 on.
std::vector<std::string> ByteLetters() {
  std::vector<std::string> letters;
  uint32_t next = 256;
  for (uint32_t b = 0; b < 256; ++b) {
    const bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    letters.push_back(Utf8(printable ? b : next++));
  }
  return letters;
}

std::string Expand(const char* text) {
  std::string out;
  for (; *text != '\0'; ++text) out += *text == '\x01' ? Utf8(0x120) : std::string(1, *text);
  return out;
}

class Weights {
 public:
  Weights(const TinyModelOptions& options, GgufWriter* writer)
      : options_(options), writer_(*writer), rng_(options.seed) {}

  void Matrix(const std::string& name, GgmlType type, int64_t rows, int64_t columns, float deviation) {
    const bool quantiser = TraitsOf(type).block_length == 1 || type == GgmlType::kQ8_0 || type == GgmlType::kQ4_0 ||
                           type == GgmlType::kQ4_1;
    std::string data = quantiser ? Quantize(type, Random(rows * columns, 0, deviation))
                                 : RandomBlocks(type, rows * columns, 2 * deviation, rng_());
    writer_.AddTensor(name, type, {rows, columns}, std::move(data));
  }
  void Vector(const std::string& name, int64_t size, float mean, float deviation) {
    writer_.AddTensor(name, GgmlType::kF32, {size}, Quantize(GgmlType::kF32, Random(size, mean, deviation)));
  }
  float Deviation(int columns) const { return options_.weight_scale / std::sqrt(static_cast<float>(columns)); }

 private:
  // Uniform, of the given mean and standard deviation.
  std::vector<float> Random(int64_t count, float mean, float deviation) {
    std::vector<float> values(static_cast<size_t>(count));
    for (float& v : values) {
      const double unit = static_cast<double>(rng_() >> 11) * 0x1p-53;
      v = static_cast<float>(mean + deviation * std::sqrt(12.0) * (unit - 0.5));
    }
    return values;
  }

  const TinyModelOptions& options_;
  GgufWriter& writer_;
  std::mt19937_64 rng_;
};

void AddConfig(const TinyModelOptions& o, GgufWriter* writer) {
  const auto key = [&](absl::string_view name) { return absl::StrCat(o.architecture, ".", name); };
  writer->SetString("general.architecture", o.architecture);
  writer->SetString("general.name", "tiny");
  writer->SetU32(key("block_count"), static_cast<uint32_t>(o.num_layers));
  writer->SetU32(key("context_length"), static_cast<uint32_t>(o.context_length));
  writer->SetU32(key("embedding_length"), static_cast<uint32_t>(o.hidden_size));
  writer->SetU32(key("feed_forward_length"), static_cast<uint32_t>(o.intermediate_size));
  writer->SetU32(key("attention.head_count"), static_cast<uint32_t>(o.num_heads));
  writer->SetU32(key("attention.head_count_kv"), static_cast<uint32_t>(o.num_kv_heads));
  writer->SetU32(key("attention.key_length"), static_cast<uint32_t>(o.head_dim));
  writer->SetU32(key("attention.value_length"), static_cast<uint32_t>(o.head_dim));
  writer->SetU32(key("rope.dimension_count"), static_cast<uint32_t>(o.head_dim));
  writer->SetF32(key("rope.freq_base"), o.rope_theta);
  writer->SetF32(key("attention.layer_norm_rms_epsilon"), o.rms_norm_eps);
  writer->SetU32(key("vocab_size"), static_cast<uint32_t>(o.vocab_size));
}

void AddLayer(const TinyModelOptions& o, int layer, Weights* weights) {
  const std::string prefix = absl::StrCat("blk.", layer, ".");
  const int q_rows = o.num_heads * o.head_dim;
  const int kv_rows = o.num_kv_heads * o.head_dim;
  const auto matrix = [&](const char* name, int rows, int columns) {
    weights->Matrix(prefix + name, o.matrix_type, rows, columns, weights->Deviation(columns));
  };
  weights->Vector(prefix + "attn_norm.weight", o.hidden_size, 1.0f, 0.1f);
  matrix("attn_q.weight", q_rows, o.hidden_size);
  matrix("attn_k.weight", kv_rows, o.hidden_size);
  matrix("attn_v.weight", kv_rows, o.hidden_size);
  matrix("attn_output.weight", o.hidden_size, q_rows);
  if (o.architecture == "qwen2") {
    weights->Vector(prefix + "attn_q.bias", q_rows, 0.0f, 0.2f);
    weights->Vector(prefix + "attn_k.bias", kv_rows, 0.0f, 0.2f);
    weights->Vector(prefix + "attn_v.bias", kv_rows, 0.0f, 0.2f);
  }
  if (o.architecture == "qwen3") {
    weights->Vector(prefix + "attn_q_norm.weight", o.head_dim, 1.0f, 0.1f);
    weights->Vector(prefix + "attn_k_norm.weight", o.head_dim, 1.0f, 0.1f);
  }
  weights->Vector(prefix + "ffn_norm.weight", o.hidden_size, 1.0f, 0.1f);
  matrix("ffn_gate.weight", o.intermediate_size, o.hidden_size);
  matrix("ffn_up.weight", o.intermediate_size, o.hidden_size);
  matrix("ffn_down.weight", o.hidden_size, o.intermediate_size);
}

}  // namespace

void AddTinyVocabulary(int vocab_size, GgufWriter* writer) {
  BATON_CHECK_GE(vocab_size, 259);
  const size_t size = static_cast<size_t>(vocab_size);
  std::vector<std::string> tokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  std::vector<int32_t> types(3, 3);  // Control.
  for (const std::string& letter : ByteLetters()) tokens.push_back(letter);
  std::vector<std::string> merges;
  for (const auto& merge : kMerges) {
    if (tokens.size() == size) break;
    merges.push_back(absl::StrCat(Expand(merge[0]), " ", Expand(merge[1])));
    tokens.push_back(Expand(merge[0]) + Expand(merge[1]));
  }
  types.resize(tokens.size(), 1);  // Normal.
  while (tokens.size() < size) {
    tokens.push_back(absl::StrCat("<|unused_", tokens.size(), "|>"));
    types.push_back(5);  // Unused.
  }
  writer->SetString("tokenizer.ggml.model", "gpt2");
  writer->SetString("tokenizer.ggml.pre", "smollm");
  writer->SetStrings("tokenizer.ggml.tokens", tokens);
  writer->SetI32s("tokenizer.ggml.token_type", types);
  writer->SetStrings("tokenizer.ggml.merges", merges);
  writer->SetU32("tokenizer.ggml.bos_token_id", kTinyBos);
  writer->SetU32("tokenizer.ggml.eos_token_id", kTinyEos);
  writer->SetU32("tokenizer.ggml.unknown_token_id", 0);
  writer->SetU32("tokenizer.ggml.padding_token_id", kTinyEos);
  writer->SetBool("tokenizer.ggml.add_bos_token", false);
  writer->SetBool("tokenizer.ggml.add_space_prefix", false);
  writer->SetString("tokenizer.chat_template", kChatTemplate);
}

std::vector<int> TinyByteTokens(absl::string_view text) {
  std::vector<int> tokens;
  for (char c : text) tokens.push_back(TinyByteToken(static_cast<unsigned char>(c)));
  return tokens;
}

GgufWriter TinyModel(const TinyModelOptions& o) {
  GgufWriter writer;
  AddConfig(o, &writer);
  AddTinyVocabulary(o.vocab_size, &writer);
  Weights weights(o, &writer);
  weights.Matrix("token_embd.weight", o.embedding_type, o.vocab_size, o.hidden_size, 1.0f);
  for (int layer = 0; layer < o.num_layers; ++layer) AddLayer(o, layer, &weights);
  weights.Vector("output_norm.weight", o.hidden_size, 1.0f, 0.1f);
  if (!o.tied) {
    weights.Matrix("output.weight", o.embedding_type, o.vocab_size, o.hidden_size, weights.Deviation(o.hidden_size));
  }
  if (!o.rope_factors.empty()) {
    writer.AddTensor("rope_freqs.weight", GgmlType::kF32, {static_cast<int64_t>(o.rope_factors.size())},
                     Quantize(GgmlType::kF32, o.rope_factors));
  }
  return writer;
}

// Every token with a successor of its own has a direction of its own; all others share direction 0. With the layer
// adding zero, the last norm makes sqrt(hidden) of the one-hot embedding, and row next(t) of the head answers it.
GgufWriter ScriptedModel(const ScriptedModelOptions& o) {
  std::map<int, int> next;
  for (const std::vector<int>& chain : o.chains) {
    for (size_t i = 0; i + 1 < chain.size(); ++i) {
      const bool fresh = next.emplace(chain[i], chain[i + 1]).second;
      BATON_CHECK(fresh || next[chain[i]] == chain[i + 1]) << "token " << chain[i] << " has two successors";
    }
  }
  for (const std::vector<int>& chain : o.chains) {
    if (!chain.empty()) next.emplace(chain.back(), kTinyEos);
  }
  TinyModelOptions tiny;
  tiny.num_layers = 1;
  tiny.hidden_size = (static_cast<int>(next.size()) + 1 + 63) / 64 * 64;
  tiny.num_heads = 2;
  tiny.num_kv_heads = 1;
  tiny.head_dim = 32;
  tiny.intermediate_size = 64;
  tiny.vocab_size = o.vocab_size;
  tiny.context_length = o.context_length;
  GgufWriter writer = TinyModel(tiny);
  for (const char* name : {"blk.0.attn_output.weight", "blk.0.ffn_down.weight"}) {
    std::string& data = writer.tensor(name).data;
    data.assign(data.size(), '\0');
  }
  const size_t hidden = static_cast<size_t>(tiny.hidden_size);
  writer.tensor("output_norm.weight").data = Quantize(GgmlType::kF32, std::vector<float>(hidden, 1.0f));
  const size_t vocab = static_cast<size_t>(o.vocab_size);
  std::vector<float> embedding(vocab * hidden), output(vocab * hidden);
  for (size_t t = 0; t < vocab; ++t) embedding[t * hidden] = next.count(static_cast<int>(t)) != 0 ? 0.0f : 1.0f;
  const float weight = o.gain / std::sqrt(static_cast<float>(hidden));
  output[static_cast<size_t>(o.default_next) * hidden] = weight;
  size_t direction = 1;
  for (const auto& [token, successor] : next) {
    BATON_CHECK(token >= 0 && token < o.vocab_size && successor >= 0 && successor < o.vocab_size) << token;
    embedding[static_cast<size_t>(token) * hidden + direction] = 1.0f;
    output[static_cast<size_t>(successor) * hidden + direction] = weight;
    ++direction;
  }
  writer.tensor("token_embd.weight").data = Quantize(GgmlType::kF32, embedding);
  writer.tensor("output.weight").data = Quantize(GgmlType::kF32, output);
  return writer;
}

}  // namespace baton::testing
