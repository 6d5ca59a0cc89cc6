// SPDX-License-Identifier: Apache-2.0
#include "common/model/model_config.h"

#include <cmath>
#include <functional>
#include <limits>

#include "common/base/json.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tiny_model.h"

namespace baton {
namespace {

using ::baton::testing::GgufWriter;
using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kUnsupported = absl::StatusCode::kFailedPrecondition;

Json Config() {
  return Json::parse(R"({"model_type":"llama","hidden_size":64,"intermediate_size":96,"max_position_embeddings":512,
    "num_attention_heads":4,"num_key_value_heads":2,"num_hidden_layers":2,"rms_norm_eps":1e-5,"vocab_size":320,
    "hidden_act":"silu","tie_word_embeddings":false,"torch_dtype":"bfloat16"})");
}

ModelConfig Rope(int head_dim, double theta) {
  ModelConfig config;
  config.head_dim = head_dim;
  config.rope.theta = theta;
  return config;
}

TEST(RopeInverseFrequencies, Llama3Scaling) {
  ModelConfig config = Rope(128, 5e5);
  config.rope.scaling = RopeScaling::kLlama3;
  config.rope.factor = 8;
  config.rope.low_freq_factor = 1;
  config.rope.high_freq_factor = 4;
  config.rope.original_context_length = 8192;
  const std::vector<float> f = RopeInverseFrequencies(config);
  ASSERT_EQ(f.size(), 64u);
  const std::vector<float> plain = RopeInverseFrequencies(Rope(128, 5e5));
  const std::pair<int, double> expected[] = {{28, 3.21144599e-3}, {29, 2.16657076e-3}, {31, 8.56751413e-4},
                                             {34, 1.78507813e-4}, {35, 9.55621235e-5}, {63, 3.06892599e-7}};
  for (const auto& [i, value] : expected) EXPECT_NEAR(f[i], value, value * 3e-7) << i;
  EXPECT_EQ(f[28], plain[28]);
  EXPECT_FLOAT_EQ(f[35], plain[35] / 8);
  EXPECT_EQ(f[0], 1.0f);

  config.head_dim = 64;
  config.rope.factor = 32;
  const std::vector<float> g = RopeInverseFrequencies(config);
  const std::pair<int, double> expected64[] = {
      {14, 3.21144599e-3}, {15, 1.29054793e-3}, {16, 4.29556797e-4}, {17, 9.7082878e-5}, {18, 1.94616382e-5}};
  for (const auto& [i, value] : expected64) EXPECT_NEAR(g[i], value, value * 3e-7) << i;
}

TEST(RopeInverseFrequencies, FactorsGiveTheSameAsLlama3) {
  ModelConfig scaled = Rope(64, 5e5);
  scaled.rope = {.theta = 5e5,
                 .scaling = RopeScaling::kLlama3,
                 .factor = 32,
                 .low_freq_factor = 1,
                 .high_freq_factor = 4,
                 .original_context_length = 8192};
  ModelConfig factors = Rope(64, 5e5);
  const std::vector<float> base = RopeInverseFrequencies(factors);
  const std::vector<float> expected = RopeInverseFrequencies(scaled);
  factors.rope.scaling = RopeScaling::kFactors;
  for (size_t i = 0; i < base.size(); ++i) factors.rope.frequency_factors.push_back(base[i] / expected[i]);
  const std::vector<float> got = RopeInverseFrequencies(factors);
  for (size_t i = 0; i < base.size(); ++i) EXPECT_NEAR(got[i], expected[i], expected[i] * 3e-7);
}

TEST(RopeInverseFrequencies, Linear) {
  ModelConfig config = Rope(8, 10000);
  config.rope.scaling = RopeScaling::kLinear;
  config.rope.factor = 4;
  EXPECT_THAT(RopeInverseFrequencies(config),
              ::testing::Pointwise(::testing::FloatEq(), {0.25f, 0.025f, 0.0025f, 0.00025f}));
}

TEST(ConfigFromJson, ReadsOldAndNewRopeFields) {
  Json old_form = Config();
  old_form["rope_theta"] = 500000.0;
  old_form["rope_scaling"] = Json::parse(R"({"factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,
    "original_max_position_embeddings":64,"rope_type":"llama3"})");
  Json new_form = Config();
  new_form["rope_parameters"] = old_form["rope_scaling"];
  new_form["rope_parameters"]["rope_theta"] = 500000.0;
  new_form["dtype"] = "bfloat16";
  ASSERT_OK_AND_ASSIGN(const ModelConfig a, ConfigFromJson(old_form));
  ASSERT_OK_AND_ASSIGN(const ModelConfig b, ConfigFromJson(new_form));
  EXPECT_EQ(a, b);
  EXPECT_EQ(a.rope.scaling, RopeScaling::kLlama3);
  EXPECT_EQ(a.rope.theta, 500000.0);
  EXPECT_EQ(a.rope.original_context_length, 64);
  EXPECT_EQ(a.head_dim, 16);
  EXPECT_FALSE(a.rope.interleaved);
  // The oldest spelling of the type.
  old_form["rope_scaling"]["type"] = "llama3";
  old_form["rope_scaling"].erase("rope_type");
  EXPECT_EQ(*ConfigFromJson(old_form), a);
  // Neither: 10000, unscaled.
  ASSERT_OK_AND_ASSIGN(const ModelConfig plain, ConfigFromJson(Config()));
  EXPECT_EQ(plain.rope, RopeConfig());
  // Both and equal; both and different.
  new_form["rope_theta"] = 500000.0;
  new_form["rope_scaling"] = old_form["rope_scaling"];
  EXPECT_EQ(*ConfigFromJson(new_form), a);
  new_form["rope_theta"] = 10000.0;
  EXPECT_THAT(ConfigFromJson(new_form),
              StatusIs(kInvalid, AllOf(HasSubstr("rope_theta is 10000"), HasSubstr("500000"))));
  new_form["rope_theta"] = 500000.0;
  new_form["rope_scaling"]["factor"] = 4.0;
  EXPECT_THAT(ConfigFromJson(new_form), StatusIs(kInvalid, HasSubstr("rope_scaling and rope_parameters")));
  // Old theta beside new parameters without one.
  new_form.erase("rope_scaling");
  new_form["rope_parameters"].erase("rope_theta");
  EXPECT_EQ(*ConfigFromJson(new_form), a);
}

TEST(ConfigFromJson, RopeTypesThatAreNotKnown) {
  for (const char* type : {"yarn", "dynamic", "longrope", "mrope"}) {
    for (const char* field : {"rope_scaling", "rope_parameters"}) {
      Json json = Config();
      json[field] = {{"rope_type", type}, {"factor", 2.0}};
      EXPECT_THAT(ConfigFromJson(json), StatusIs(kUnsupported, HasSubstr(std::string(field) + ": rope type \"" + type +
                                                                         "\" is not supported; supported: default")));
    }
  }
  Json nested = Config();
  nested["rope_parameters"]["full_attention"] = {{"rope_type", "default"}};
  EXPECT_THAT(ConfigFromJson(nested), StatusIs(kUnsupported, HasSubstr("per layer type")));
  Json partial = Config();
  partial["partial_rotary_factor"] = 0.5;
  EXPECT_THAT(ConfigFromJson(partial), StatusIs(kUnsupported, HasSubstr("partial_rotary_factor 0.5")));
  Json missing = Config();
  missing["rope_scaling"] = {{"rope_type", "llama3"}, {"factor", 8.0}};
  EXPECT_THAT(ConfigFromJson(missing), StatusIs(kInvalid, HasSubstr("low_freq_factor is missing")));
}

TEST(ConfigFromJson, Defaults) {
  Json json = Config();
  json.erase("num_key_value_heads");
  json["head_dim"] = nullptr;
  json.erase("tie_word_embeddings");
  ASSERT_OK_AND_ASSIGN(const ModelConfig config, ConfigFromJson(json));
  EXPECT_EQ(config.num_kv_heads, 4);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_FALSE(config.tied_embeddings);
}

TEST(ConfigFromJson, Architectures) {
  Json json = Config();
  for (const char* type : {"llama", "mistral", "qwen2", "qwen3"}) {
    json["model_type"] = type;
    ASSERT_OK_AND_ASSIGN(const ModelConfig config, ConfigFromJson(json));
    EXPECT_EQ(config.architecture, type);
    EXPECT_EQ(config.qkv_bias, config.architecture == "qwen2");
    EXPECT_EQ(config.qk_norm, config.architecture == "qwen3");
  }
  json["model_type"] = "qwen3_moe";
  EXPECT_THAT(ConfigFromJson(json), StatusIs(kUnsupported,
                                             "architecture \"qwen3_moe\" is not supported; supported in "
                                             "folders: llama, mistral, qwen2, qwen3"));
  json.erase("model_type");
  EXPECT_THAT(ConfigFromJson(json), StatusIs(kInvalid, HasSubstr("model_type is missing")));
  EXPECT_THAT(ConfigFromJson(Json::array()), StatusIs(kInvalid, HasSubstr("not a JSON object")));
}

TEST(ConfigFromJson, HeadCounts) {
  const auto with = [](int heads, int kv) {
    Json json = Config();
    json["hidden_size"] = 64;
    json["head_dim"] = 32;
    json["num_attention_heads"] = heads;
    json["num_key_value_heads"] = kv;
    return ConfigFromJson(json);
  };
  EXPECT_THAT(with(7, 2), StatusIs(kInvalid, "num_attention_heads 7 is no multiple of num_key_value_heads 2"));
  EXPECT_THAT(with(6, 2), IsOk());
  EXPECT_THAT(with(8, 1), IsOk());
  EXPECT_THAT(with(8, 8), IsOk());
  EXPECT_THAT(with(2, 4), StatusIs(kInvalid, HasSubstr("num_attention_heads 2 is no multiple")));
  EXPECT_THAT(with(0, 0), StatusIs(kInvalid, HasSubstr("num_attention_heads is 0, must be positive")));
  EXPECT_EQ(with(4, 2)->head_dim, 32);
  Json json = Config();
  json["num_attention_heads"] = 7;
  EXPECT_THAT(ConfigFromJson(json),
              StatusIs(kInvalid, HasSubstr("hidden_size 64 is no multiple of num_attention_heads 7")));
}

TEST(ConfigFromJson, BadValuesNameTheField) {
  const struct {
    const char* field;
    Json value;
    absl::StatusCode code;
    const char* message;
  } cases[] = {
      {"hidden_size", 0, kInvalid, "hidden_size is 0, not in [1, 1048576]"},
      {"hidden_size", "64", kInvalid, "hidden_size is \"64\", expected an integer"},
      {"hidden_size", 64.0, kInvalid, "hidden_size is 64.0, expected an integer"},
      {"hidden_size", uint64_t{18446744073709551615u}, kInvalid,
       "hidden_size is 18446744073709551615, expected an integer"},
      {"num_hidden_layers", 2147483648u, kInvalid, "num_hidden_layers is 2147483648, expected an integer below 2^31"},
      {"num_hidden_layers", -1, kInvalid, "num_hidden_layers is -1, not in [1, 1024]"},
      {"num_hidden_layers", nullptr, kInvalid, "num_hidden_layers is missing"},
      {"num_key_value_heads", 0, kInvalid, "num_key_value_heads is 0, not in [1, 4096]"},
      {"intermediate_size", 0, kInvalid, "intermediate_size is 0"},
      {"vocab_size", 0, kInvalid, "vocab_size is 0"},
      {"max_position_embeddings", 0, kInvalid, "max_position_embeddings is 0"},
      {"head_dim", 15, kInvalid, "head_dim is 15, must be even"},
      {"head_dim", 512, kInvalid, "head_dim is 512, not in [1, 256]"},
      {"rms_norm_eps", 0, kInvalid, "rms_norm_eps is 0, not in (0, 1]"},
      {"rms_norm_eps", -1e-5, kInvalid, "rms_norm_eps is -1e-05"},
      {"rope_theta", 0, kInvalid, "rope_theta is 0"},
      {"rope_theta", "10000", kInvalid, "rope_theta is \"10000\", expected a number"},
      {"sliding_window", -4, kInvalid, "sliding_window is -4"},
      {"tie_word_embeddings", 1, kInvalid, "tie_word_embeddings is 1, expected true or false"},
      {"hidden_act", "gelu", kUnsupported, "hidden_act \"gelu\" is not supported"},
      {"attention_bias", true, kUnsupported, "attention_bias true is not supported"},
      {"mlp_bias", true, kUnsupported, "mlp_bias true is not supported"},
      {"quantization_config", Json::object(), kUnsupported, "quantization_config is not supported"},
      {"layer_types", Json::array({"full_attention", "linear_attention"}), kUnsupported,
       "layer type \"linear_attention\""},
  };
  for (const auto& c : cases) {
    Json json = Config();
    json[c.field] = c.value;
    EXPECT_THAT(ConfigFromJson(json), StatusIs(c.code, HasSubstr(c.message)));
  }
}

TEST(ConfigFromJson, SlidingWindowCapsTheContext) {
  Json json = Config();
  json["sliding_window"] = 128;
  json["model_type"] = "mistral";
  EXPECT_EQ(ConfigFromJson(json)->context_length, 128);
  EXPECT_EQ(ConfigFromJson(json)->sliding_window, 128);
  json["sliding_window"] = 4096;  // Beyond the context: as good as none.
  EXPECT_EQ(ConfigFromJson(json)->context_length, 512);
  EXPECT_EQ(ConfigFromJson(json)->sliding_window, 0);
  json["sliding_window"] = nullptr;
  EXPECT_EQ(ConfigFromJson(json)->context_length, 512);
  json["sliding_window"] = 128;
  json["model_type"] = "qwen2";  // Off unless switched on.
  EXPECT_EQ(ConfigFromJson(json)->context_length, 512);
  json["use_sliding_window"] = true;
  EXPECT_EQ(ConfigFromJson(json)->context_length, 128);
}

absl::StatusOr<ModelConfig> FromGguf(const std::function<void(GgufWriter*)>& change,
                                     const testing::TinyModelOptions& options = {}) {
  GgufWriter writer = testing::TinyModel(options);
  change(&writer);
  const std::string bytes = writer.Build();
  auto file = GgufFile::Parse({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, "x.gguf");
  if (!file.ok()) return file.status();
  return ConfigFromGguf(**file);
}

TEST(ConfigFromGguf, ReadsTheTinyModel) {
  testing::TinyModelOptions options;
  options.head_dim = 32;
  ASSERT_OK_AND_ASSIGN(const ModelConfig config, FromGguf([](GgufWriter*) {}, options));
  EXPECT_EQ(config.architecture, "llama");
  EXPECT_EQ(config.num_layers, 2);
  EXPECT_EQ(config.hidden_size, 64);
  EXPECT_EQ(config.head_dim, 32);
  EXPECT_EQ(config.vocab_size, 320);
  EXPECT_EQ(config.rms_norm_eps, 1e-5f);
  EXPECT_TRUE(config.rope.interleaved);
  EXPECT_FALSE(config.tied_embeddings);
  options.architecture = "qwen3";
  options.tied = true;
  ASSERT_OK_AND_ASSIGN(const ModelConfig qwen, FromGguf([](GgufWriter*) {}, options));
  EXPECT_FALSE(qwen.rope.interleaved);
  EXPECT_TRUE(qwen.tied_embeddings);
  EXPECT_TRUE(qwen.qk_norm);
}

TEST(ConfigFromGguf, OptionalKeys) {
  ASSERT_OK_AND_ASSIGN(
      const ModelConfig config, FromGguf([](GgufWriter* w) {
        for (const char* key : {"attention.key_length", "attention.value_length", "rope.dimension_count",
                                "rope.freq_base", "vocab_size", "attention.head_count_kv"}) {
          w->Remove(std::string("llama.") + key);
        }
      }));
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.num_kv_heads, 4);
  EXPECT_EQ(config.rope.theta, 10000.0);
  EXPECT_EQ(config.vocab_size, 320);
  // One number per layer, all equal.
  ASSERT_OK_AND_ASSIGN(const ModelConfig per_layer, FromGguf([](GgufWriter* w) {
                         w->SetI32s("llama.attention.head_count_kv", {2, 2});
                       }));
  EXPECT_EQ(per_layer.num_kv_heads, 2);
}

TEST(ConfigFromGguf, BadValuesNameTheKey) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const struct {
    std::function<void(GgufWriter*)> change;
    absl::StatusCode code;
    const char* message;
  } cases[] = {
      {[](GgufWriter* w) { w->SetU32("llama.attention.head_count", 0); }, kInvalid, "llama.attention.head_count is 0"},
      {[](GgufWriter* w) { w->SetU32("llama.attention.head_count_kv", 0); }, kInvalid,
       "llama.attention.head_count_kv is 0"},
      {[](GgufWriter* w) { w->SetU32("llama.attention.head_count_kv", 3); }, kInvalid,
       "llama.attention.head_count 4 is no multiple of llama.attention.head_count_kv 3"},
      {[](GgufWriter* w) { w->SetU32("llama.block_count", 0); }, kInvalid, "llama.block_count is 0, not in [1, 1024]"},
      {[](GgufWriter* w) { w->SetU32("llama.block_count", 1u << 31); }, kInvalid, "llama.block_count is 2147483648"},
      {[](GgufWriter* w) { w->SetU64("llama.block_count", ~uint64_t{0}); }, kInvalid,
       "llama.block_count is 18446744073709551615"},
      {[](GgufWriter* w) { w->SetU32("llama.embedding_length", 0); }, kInvalid, "llama.embedding_length is 0"},
      {[](GgufWriter* w) { w->SetU32("llama.context_length", 0); }, kInvalid, "llama.context_length is 0"},
      {[](GgufWriter* w) { w->SetU32("llama.feed_forward_length", 0); }, kInvalid, "llama.feed_forward_length is 0"},
      {[](GgufWriter* w) { w->SetU32("llama.vocab_size", 0); }, kInvalid, "llama.vocab_size is 0"},
      {[](GgufWriter* w) { w->SetF32("llama.attention.layer_norm_rms_epsilon", 0); }, kInvalid,
       "llama.attention.layer_norm_rms_epsilon is 0"},
      {[=](GgufWriter* w) { w->SetF32("llama.attention.layer_norm_rms_epsilon", nan); }, kInvalid,
       "llama.attention.layer_norm_rms_epsilon is nan"},
      {[=](GgufWriter* w) { w->SetF32("llama.rope.freq_base", nan); }, kInvalid, "llama.rope.freq_base is nan"},
      {[](GgufWriter* w) { w->SetF32("llama.rope.freq_base", -1); }, kInvalid, "llama.rope.freq_base is -1"},
      {[](GgufWriter* w) { w->SetString("llama.block_count", "2"); }, kInvalid,
       "x.gguf: key llama.block_count: expected integer, found string"},
      {[](GgufWriter* w) { w->Remove("llama.block_count"); }, kInvalid, "x.gguf: key llama.block_count is missing"},
      {[](GgufWriter* w) { w->Remove("general.architecture"); }, kInvalid,
       "x.gguf: key general.architecture is missing"},
      {[](GgufWriter* w) { w->SetString("general.architecture", "qwen3moe"); }, kUnsupported,
       "x.gguf: architecture \"qwen3moe\" is not supported; supported in GGUF files: llama, qwen2, qwen3"},
      {[](GgufWriter* w) { w->SetU32("llama.expert_count", 8); }, kUnsupported, "llama.expert_count 8"},
      {[](GgufWriter* w) { w->SetU32("split.count", 2); }, kUnsupported, "one part of a file in 2 parts (split.count"},
      {[](GgufWriter* w) { w->SetString("llama.rope.scaling.type", "yarn"); }, kUnsupported,
       "llama.rope.scaling.type \"yarn\" is not supported"},
      {[](GgufWriter* w) { w->SetU32("llama.rope.dimension_count", 8); }, kUnsupported,
       "llama.rope.dimension_count 8 beside head_dim 16"},
      {[](GgufWriter* w) {
         w->SetI32s("llama.attention.head_count_kv", {2, 1});
       },
       kUnsupported, "different values per layer"},
      {[](GgufWriter* w) {
         w->SetStrings("tokenizer.ggml.tokens", {"a", "b"});
       },
       kInvalid, "tokenizer.ggml.tokens has 2 tokens, tensor token_embd.weight has shape [320, 64]"},
      {[](GgufWriter* w) { w->SetU32("tokenizer.ggml.tokens", 320); }, kInvalid,
       "key tokenizer.ggml.tokens: expected array of string, found u32"},
  };
  for (const auto& c : cases) EXPECT_THAT(FromGguf(c.change), StatusIs(c.code, HasSubstr(c.message)));
}

TEST(ConfigFromGguf, RopeScaling) {
  ASSERT_OK_AND_ASSIGN(const ModelConfig linear, FromGguf([](GgufWriter* w) {
                         w->SetString("llama.rope.scaling.type", "linear").SetF32("llama.rope.scaling.factor", 4);
                       }));
  EXPECT_EQ(linear.rope.scaling, RopeScaling::kLinear);
  EXPECT_EQ(linear.rope.factor, 4.0);
  ASSERT_OK_AND_ASSIGN(const ModelConfig old, FromGguf([](GgufWriter* w) { w->SetF32("llama.rope.scale_linear", 2); }));
  EXPECT_EQ(old.rope.factor, 2.0);
  testing::TinyModelOptions options;
  options.rope_factors = {1, 1, 1, 1, 2, 4, 8, 8};
  ASSERT_OK_AND_ASSIGN(const ModelConfig factors, FromGguf([](GgufWriter*) {}, options));
  EXPECT_EQ(factors.rope.scaling, RopeScaling::kFactors);
  EXPECT_EQ(factors.rope.frequency_factors, options.rope_factors);
  options.rope_factors = {1, 1, 1, 1, 2, 4, 8};
  EXPECT_THAT(FromGguf([](GgufWriter*) {}, options),
              StatusIs(kInvalid, HasSubstr("tensor rope_freqs.weight: F32 [7], expected F32 [8]")));
  options.rope_factors = {1, 1, 1, 1, 2, 4, 8, 0};
  EXPECT_THAT(FromGguf([](GgufWriter*) {}, options), StatusIs(kInvalid, HasSubstr("rope frequency factor is 0")));
}

}  // namespace
}  // namespace baton
