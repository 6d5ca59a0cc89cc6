// SPDX-License-Identifier: Apache-2.0
#include "common/model/checkpoint.h"

#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/model/checkpoint_fingerprint.h"
#include "nlohmann/json.hpp"
#include "tests/support/gguf_writer.h"
#include "tests/support/paths.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tiny_model.h"

namespace baton {
namespace {

using ::baton::testing::GgufWriter;
using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kUnsupported = absl::StatusCode::kFailedPrecondition;

const std::string kTiny = testing::SourcePath("tests/golden/tiny/");

testing::TinyModelOptions Small() {
  testing::TinyModelOptions options;
  options.hidden_size = 32;
  options.num_heads = 2;
  options.num_kv_heads = 1;
  options.intermediate_size = 64;
  options.vocab_size = 260;
  return options;
}

absl::StatusOr<std::shared_ptr<const Checkpoint>> Load(const std::string& bytes) {
  auto file = GgufFile::Parse({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, "x.gguf");
  if (!file.ok()) return file.status();
  return Checkpoint::FromGguf(*std::move(file));
}

absl::Status LoadChanged(const std::function<void(GgufWriter*)>& change, const std::string& architecture = "llama") {
  testing::TinyModelOptions options = Small();
  options.architecture = architecture;
  GgufWriter writer = testing::TinyModel(options);
  change(&writer);
  return Load(writer.Build()).status();
}

TEST(Checkpoint, TinyHuggingFaceFolders) {
  std::set<std::string> fingerprints;
  for (const char* name : {"llama3_rope_scaled", "llama_tied_gqa", "mistral_head_dim", "qwen2_bias", "qwen3_qk_norm"}) {
    SCOPED_TRACE(name);
    ASSERT_OK_AND_ASSIGN(const auto checkpoint, Checkpoint::Open(kTiny + name));
    const ModelConfig& c = checkpoint->config();
    EXPECT_EQ(checkpoint->layers().size(), static_cast<size_t>(c.num_layers));
    EXPECT_THAT(checkpoint->output().shape, ElementsAre(c.vocab_size, c.hidden_size));
    EXPECT_EQ(checkpoint->output().data == checkpoint->embedding().data, c.tied_embeddings);
    const LayerTensors& layer = checkpoint->layers()[1];
    EXPECT_THAT(layer.q.shape, ElementsAre(c.num_heads * c.head_dim, c.hidden_size));
    EXPECT_EQ(layer.q_bias.has_value(), c.architecture == "qwen2");
    EXPECT_EQ(layer.k_norm.has_value(), c.architecture == "qwen3");
    EXPECT_FALSE(c.rope.interleaved);
    EXPECT_EQ(checkpoint->gguf(), nullptr);
    fingerprints.insert(checkpoint->fingerprint());
    ASSERT_OK_AND_ASSIGN(const auto again, Checkpoint::Open(kTiny + name + "/"));
    EXPECT_EQ(again->fingerprint(), checkpoint->fingerprint());
  }
  EXPECT_EQ(fingerprints.size(), 5u);
}

TEST(Checkpoint, UnknownArchitectureIsRefusedByName) {
  EXPECT_THAT(Checkpoint::Open(kTiny + "qwen3_moe"),
              StatusIs(kUnsupported, HasSubstr("qwen3_moe/config.json: architecture \"qwen3_moe\" is not supported")));
}

TEST(Checkpoint, OldAndNewFieldNamesAreTheSameModel) {
  std::ifstream in(kTiny + "llama3_rope_scaled/config.json");
  nlohmann::json config = nlohmann::json::parse(in, nullptr, false);
  nlohmann::json scaling = config["rope_parameters"];
  config.erase("rope_parameters");
  config["rope_theta"] = scaling["rope_theta"];
  scaling.erase("rope_theta");
  config["rope_scaling"] = scaling;
  config["torch_dtype"] = config["dtype"];
  config.erase("dtype");
  const std::string folder = testing::MakeTempFolder("old");
  std::ofstream(folder + "/config.json") << config.dump();
  std::ofstream(folder + "/model.safetensors", std::ios::binary)
      << std::ifstream(kTiny + "llama3_rope_scaled/model.safetensors", std::ios::binary).rdbuf();
  ASSERT_OK_AND_ASSIGN(const auto old, Checkpoint::Open(folder));
  ASSERT_OK_AND_ASSIGN(const auto current, Checkpoint::Open(kTiny + "llama3_rope_scaled"));
  EXPECT_EQ(old->config(), current->config());
  EXPECT_EQ(old->fingerprint(), current->fingerprint());
}

TEST(Checkpoint, FoldersThatAreNone) {
  const std::string folder = testing::MakeTempFolder("none");
  EXPECT_THAT(Checkpoint::Open(folder), StatusIs(absl::StatusCode::kNotFound, HasSubstr("/config.json: cannot open")));
  EXPECT_THAT(Checkpoint::Open(folder + "/x.gguf"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("x.gguf: cannot open")));
  std::ofstream(folder + "/config.json") << std::string(100000, '[');
  EXPECT_THAT(Checkpoint::Open(folder), StatusIs(kInvalid, HasSubstr("/config.json: ")));
  std::ofstream(folder + "/config.json") << std::ifstream(kTiny + "llama_tied_gqa/config.json").rdbuf();
  EXPECT_THAT(Checkpoint::Open(folder),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("has neither model.safetensors nor")));
  // An empty container is valid; the model is not.
  std::ofstream(folder + "/model.safetensors", std::ios::binary) << std::string("\2\0\0\0\0\0\0\0{}", 10);
  EXPECT_THAT(Checkpoint::Open(folder), StatusIs(kInvalid, HasSubstr("tensor model.embed_tokens.weight is missing")));
}

TEST(Checkpoint, GgufArchitecturesTypesAndAlignments) {
  for (const char* architecture : {"llama", "qwen2", "qwen3"}) {
    for (bool tied : {false, true}) {
      testing::TinyModelOptions options = Small();
      options.architecture = architecture;
      options.tied = tied;
      const std::string bytes = testing::TinyModel(options).Build();
      ASSERT_OK_AND_ASSIGN(const auto checkpoint, Load(bytes));
      EXPECT_EQ(checkpoint->config().tied_embeddings, tied);
      EXPECT_EQ(checkpoint->config().rope.interleaved, std::string(architecture) == "llama");
      EXPECT_NE(checkpoint->gguf(), nullptr);
    }
  }
  for (GgmlType type : {GgmlType::kF16, GgmlType::kBF16, GgmlType::kQ8_0, GgmlType::kQ4_0, GgmlType::kQ4_1,
                        GgmlType::kQ5_0, GgmlType::kQ4_K, GgmlType::kQ6_K, GgmlType::kMXFP4}) {
    testing::TinyModelOptions options = Small();
    options.num_layers = 1;
    options.hidden_size = options.intermediate_size = 256;
    options.head_dim = 128;
    options.matrix_type = type;
    const std::string bytes = testing::TinyModel(options).Build();
    ASSERT_OK_AND_ASSIGN(const auto checkpoint, Load(bytes));
    EXPECT_EQ(checkpoint->layers()[0].down.type, type);
    std::vector<float> row(256);
    ASSERT_THAT(Dequantize(type, checkpoint->layers()[0].down.span(), 256, row.data()), IsOk());
    double square = 0;
    for (float v : row) square += v * v;
    EXPECT_GT(square / 256, 0.02 / 256) << GgmlTypeName(type);
    EXPECT_LT(square / 256, 50.0 / 256) << GgmlTypeName(type);
  }
  std::set<std::string> fingerprints;
  for (uint32_t alignment : {32u, 64u, 4096u}) {
    GgufWriter writer = testing::TinyModel(Small());
    writer.alignment = alignment;
    const std::string bytes = writer.Build();
    ASSERT_OK_AND_ASSIGN(const auto checkpoint, Load(bytes));
    fingerprints.insert(checkpoint->fingerprint());
  }
  EXPECT_EQ(fingerprints.size(), 1u);  // The same model, however it lies in the file.
}

TEST(Checkpoint, TensorsAreCheckedAgainstTheConfig) {
  EXPECT_THAT(LoadChanged([](GgufWriter*) {}), IsOk());
  EXPECT_THAT(LoadChanged([](GgufWriter* w) { w->AddTensor("extra.weight", GgmlType::kF32, {1}, "1234"); }), IsOk());
  for (const char* name :
       {"blk.1.ffn_up.weight", "output_norm.weight", "token_embd.weight", "blk.0.attn_norm.weight"}) {
    EXPECT_THAT(LoadChanged([&](GgufWriter* w) { w->RemoveTensor(name); }),
                StatusIs(kInvalid, AllOf(HasSubstr("x.gguf: "), HasSubstr(name))));
  }
  EXPECT_THAT(LoadChanged([](GgufWriter* w) { w->RemoveTensor("blk.0.attn_k.bias"); }, "qwen2"),
              StatusIs(kInvalid, HasSubstr("tensor blk.0.attn_k.bias is missing")));
  EXPECT_THAT(LoadChanged([](GgufWriter* w) {
                w->tensor("blk.0.attn_k.weight").shape = {32, 16};
              }),
              StatusIs(kInvalid, HasSubstr("tensor blk.0.attn_k.weight has shape [32, 16], the config says [16, 32]")));
  EXPECT_THAT(LoadChanged([](GgufWriter* w) { w->SetU32("llama.block_count", 3); }),
              StatusIs(kInvalid, HasSubstr("tensor blk.2.attn_norm.weight is missing")));
  EXPECT_THAT(
      LoadChanged([](GgufWriter* w) { w->SetU32("llama.feed_forward_length", 63); }),
      StatusIs(kInvalid, HasSubstr("tensor blk.0.ffn_gate.weight has shape [64, 32], the config says [63, 32]")));
  EXPECT_THAT(LoadChanged([](GgufWriter* w) { w->SetU32("llama.vocab_size", 261); }),
              StatusIs(kInvalid, HasSubstr("tensor token_embd.weight has shape [260, 32], the config says [261, 32]")));
  EXPECT_THAT(LoadChanged([](GgufWriter* w) {
                w->tensor("blk.0.attn_norm.weight").type = static_cast<uint32_t>(GgmlType::kI32);
              }),
              StatusIs(kUnsupported, HasSubstr("tensor blk.0.attn_norm.weight has type I32")));
}

TEST(Checkpoint, TensorsThatWouldChangeTheResultAreNotIgnored) {
  for (const char* name : {"blk.0.attn_q.bias", "blk.1.attn_output.bias", "blk.0.attn_q_norm.weight",
                           "blk.0.ffn_gate_inp.weight", "blk.1.ffn_down.bias"}) {
    EXPECT_THAT(LoadChanged([&](GgufWriter* w) { w->AddTensor(name, GgmlType::kF32, {1}, "1234"); }),
                StatusIs(kUnsupported, HasSubstr(absl::StrCat("tensor ", name, ": architecture llama"))));
  }
}

TEST(Checkpoint, EveryNumberOfTheFileSpoilt) {
  testing::TinyModelOptions options = Small();
  options.num_layers = 1;
  std::vector<GgufWriter::Field> fields;
  const std::string good = testing::TinyModel(options).Build(&fields);
  ASSERT_OK_AND_ASSIGN(const auto original, Load(good));
  for (const GgufWriter::Field& field : fields) {
    if (field.what.find("tokenizer.") != std::string::npos) continue;  // Read by the tokeniser, not by the model.
    uint64_t value = 0;
    memcpy(&value, good.data() + field.offset, static_cast<size_t>(field.bytes));
    for (uint64_t other : {uint64_t{0}, uint64_t{1}, value + 1, value - 1, uint64_t{1} << 31, (uint64_t{1} << 32) - 1,
                           uint64_t{1} << 63, ~uint64_t{0}}) {
      std::string bytes = good;
      memcpy(bytes.data() + field.offset, &other, static_cast<size_t>(field.bytes));
      if (bytes == good) continue;
      const auto checkpoint = Load(bytes);
      if (!checkpoint.ok()) {
        EXPECT_THAT(std::string(checkpoint.status().message()), HasSubstr("x.gguf: "));
        continue;
      }
      // What still loads is the same model: the version, or another integer type of the same value.
      EXPECT_EQ((*checkpoint)->fingerprint(), original->fingerprint()) << field.what << " = " << other;
    }
  }
}

TEST(Checkpoint, FingerprintFollowsWeightsAndConfig) {
  const auto fingerprint = [](const std::function<void(GgufWriter*)>& change, uint64_t seed = 1) {
    testing::TinyModelOptions options = Small();
    options.seed = seed;
    GgufWriter writer = testing::TinyModel(options);
    change(&writer);
    const std::string bytes = writer.Build();
    return (*Load(bytes))->fingerprint();
  };
  const std::string original = fingerprint([](GgufWriter*) {});
  EXPECT_EQ(original.size(), 32u);
  EXPECT_EQ(original, fingerprint([](GgufWriter* w) { w->SetString("general.name", "other"); }));
  EXPECT_NE(original, fingerprint([](GgufWriter*) {}, 2));
  EXPECT_NE(original, fingerprint([](GgufWriter* w) { w->SetF32("llama.rope.freq_base", 10001.0f); }));
  EXPECT_NE(original, fingerprint([](GgufWriter* w) { w->SetU32("llama.context_length", 513); }));
  EXPECT_NE(original, fingerprint([](GgufWriter* w) { w->tensor("blk.1.ffn_down.weight").data[777] ^= 1; }));
  EXPECT_NE(original, fingerprint([](GgufWriter* w) { w->tensor("output.weight").data.back() ^= 1; }));
}

TEST(Checkpoint, SampledFingerprintSeesOtherWeights) {
  std::vector<uint8_t> bytes(8 << 20);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 2654435761u >> 24);
  TensorView tensor{
      .name = "t", .type = GgmlType::kI8, .shape = {8, 1 << 20}, .data = bytes.data(), .bytes = bytes.size()};
  const TensorView* const tensors[] = {&tensor};
  const ModelConfig config;
  const std::string full = ModelFingerprint(config, tensors);
  const std::string sampled = ModelFingerprint(config, tensors, /*full_limit_bytes=*/1 << 20);
  EXPECT_EQ(sampled, ModelFingerprint(config, tensors, 1 << 20));
  bytes.back() ^= 1;
  EXPECT_NE(full, ModelFingerprint(config, tensors));
  EXPECT_NE(sampled, ModelFingerprint(config, tensors, 1 << 20));
  bytes.back() ^= 1;
  for (uint8_t& b : bytes) b = static_cast<uint8_t>(b + 1);
  bytes[0] -= 1;
  EXPECT_NE(sampled, ModelFingerprint(config, tensors, 1 << 20));
}

TEST(Checkpoint, ViewsOutliveNothingButTheCheckpoint) {
  const std::string path = testing::WriteTempFile("m.gguf", testing::TinyModel(Small()).Build());
  ASSERT_OK_AND_ASSIGN(auto checkpoint, Checkpoint::Open(path));
  ASSERT_EQ(remove(path.c_str()), 0);  // The mapping stays.
  EXPECT_EQ(checkpoint->layers()[1].down.num_elements(), 32 * 64);
  std::vector<float> row(32);
  EXPECT_THAT(Dequantize(GgmlType::kF32, checkpoint->embedding().span(), 32, row.data()), IsOk());
}

TEST(Checkpoint, ScriptedModelLoads) {
  testing::ScriptedModelOptions options;
  options.chains = {testing::TinyByteTokens("ABC")};
  options.default_next = testing::TinyByteToken('A');
  const std::string bytes = testing::ScriptedModel(options).Build();
  ASSERT_OK_AND_ASSIGN(const auto checkpoint, Load(bytes));
  EXPECT_EQ(checkpoint->config().num_layers, 1);
}

TEST(Checkpoint, SmolLm2) {
  const char* home = getenv("HOME");
  const char* model = getenv("BATON_MODEL");
  const std::string path = model != nullptr ? model
                                            : absl::StrCat(home != nullptr ? home : "",
                                                           "/.cache/baton/models/SmolLM2-135M-Instruct.Q4_1.gguf");
  struct stat st;
  if (stat(path.c_str(), &st) != 0) GTEST_SKIP() << path << " is absent; deploy/fetch_model fetches it";
  ASSERT_OK_AND_ASSIGN(const auto checkpoint, Checkpoint::Open(path));
  const ModelConfig& config = checkpoint->config();
  if (model != nullptr && config.hidden_size != 576) GTEST_SKIP() << "BATON_MODEL is another model";
  EXPECT_EQ(config.architecture, "llama");
  EXPECT_EQ(config.num_layers, 30);
  EXPECT_EQ(config.hidden_size, 576);
  EXPECT_EQ(config.num_heads, 9);
  EXPECT_EQ(config.num_kv_heads, 3);
  EXPECT_EQ(config.head_dim, 64);
  EXPECT_EQ(config.vocab_size, 49152);
  EXPECT_EQ(config.context_length, 8192);
  EXPECT_EQ(config.rope.theta, 100000.0);
  EXPECT_TRUE(config.rope.interleaved);
  EXPECT_TRUE(config.tied_embeddings);
  EXPECT_EQ(checkpoint->layers()[7].gate.type, GgmlType::kQ4_1);
}

}  // namespace
}  // namespace baton
