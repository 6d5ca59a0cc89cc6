// SPDX-License-Identifier: Apache-2.0
// Whole seeded random models through the serving path and through the reference: head sizes, head ratios, widths and
// vocabularies that no released model has together.
#include <cmath>

#include "common/model/logits_probe.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tiny_model.h"

namespace baton {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::TinyModelOptions;

using Logits = std::vector<std::vector<float>>;

absl::StatusOr<Logits> AllLogits(std::shared_ptr<const Checkpoint> checkpoint, const std::string& backend,
                                 const std::string& activations, int num_tokens) {
  LogitsProbeOptions options;
  options.backend = backend;
  options.backend_options.num_threads = 2;
  options.backend_options.activations = activations;
  options.kv_dtype = KvDtype::kF32;
  options.chunk_tokens = 50;
  auto probe = LogitsProbe::Open(checkpoint, options);
  if (!probe.ok()) return probe.status();
  std::vector<int32_t> tokens;
  for (int i = 0; i < num_tokens; ++i) tokens.push_back(i * 37 % checkpoint->config().vocab_size);
  Logits logits;
  const absl::Status status = (*probe)->Run(tokens, 0, [&](int, std::span<const float> row) {
    logits.emplace_back(row.begin(), row.end());
  });
  if (!status.ok()) return status;
  return logits;
}

// Root mean square of the difference over that of the logits.
double RelativeError(const Logits& got, const Logits& want) {
  double difference = 0, size = 0;
  for (size_t p = 0; p < want.size(); ++p) {
    for (size_t i = 0; i < want[p].size(); ++i) {
      if (!std::isfinite(got[p][i])) return INFINITY;
      difference += (double{got[p][i]} - want[p][i]) * (double{got[p][i]} - want[p][i]);
      size += double{want[p][i]} * want[p][i];
    }
  }
  return std::sqrt(difference / size);
}

struct Shape {
  const char* architecture;
  GgmlType type;
  int hidden, heads, kv_heads, head_dim, intermediate, vocab;
};

class RandomModelsTest : public ::testing::TestWithParam<Shape> {};

TEST_P(RandomModelsTest, ServingAgreesWithTheReference) {
  const Shape& shape = GetParam();
  TinyModelOptions options;
  options.seed = 77;
  options.architecture = shape.architecture;
  options.num_layers = 3;
  options.hidden_size = shape.hidden;
  options.num_heads = shape.heads;
  options.num_kv_heads = shape.kv_heads;
  options.head_dim = shape.head_dim;
  options.intermediate_size = shape.intermediate;
  options.vocab_size = shape.vocab;
  options.matrix_type = shape.type;
  options.embedding_type = shape.type;
  const std::string path = testing::WriteTempFile("random.gguf", testing::TinyModel(options).Build());
  ASSERT_OK_AND_ASSIGN(const auto checkpoint, Checkpoint::Open(path));
  ASSERT_OK_AND_ASSIGN(const Logits reference, AllLogits(checkpoint, "reference", "", 120));
  const bool floats = TraitsOf(shape.type).block_length == 1;
  for (const auto& [activations, tolerance] : {std::pair("mixed", 0.03), {"two", 3e-4}}) {
    ASSERT_OK_AND_ASSIGN(const Logits served, AllLogits(checkpoint, "cpu", activations, 120));
    EXPECT_LT(RelativeError(served, reference), floats ? 1e-5 : tolerance) << activations << ", seed " << options.seed;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, RandomModelsTest,
    ::testing::Values(Shape{"llama", GgmlType::kQ4_1, 64, 6, 2, 32, 96, 333},        // 6 heads over 2
                      Shape{"llama", GgmlType::kQ4_0, 96, 8, 1, 16, 160, 259},       // one KV head
                      Shape{"llama", GgmlType::kQ8_0, 64, 8, 8, 16, 64, 401},        // no grouping
                      Shape{"llama", GgmlType::kQ8_0, 64, 4, 2, 32, 96, 320},        // heads wider than hidden
                      Shape{"qwen2", GgmlType::kQ5_1, 128, 16, 1, 80, 192, 291},     // 16 heads over 1
                      Shape{"qwen3", GgmlType::kQ4_K, 256, 2, 1, 256, 512, 500},     // the widest head
                      Shape{"qwen3", GgmlType::kQ6_K, 256, 4, 2, 128, 256, 262},     //
                      Shape{"qwen2", GgmlType::kF32, 112, 7, 1, 112, 176, 600},      // odd widths, in floating point
                      Shape{"llama", GgmlType::kF16, 50, 5, 5, 96, 75, 263},         //
                      Shape{"qwen3", GgmlType::kBF16, 36, 3, 1, 18, 41, 271}),       //
    [](const auto& info) {
      const Shape& s = info.param;
      return std::string(GgmlTypeName(s.type)) + "_" + std::to_string(s.heads) + "_" + std::to_string(s.kv_heads) + "_" +
             std::to_string(s.head_dim);
    });

// Products of gate and up beyond what fp16 holds (65,504) stay finite and exact.
TEST(LargeActivationsTest, StayFinite) {
  for (const GgmlType type : {GgmlType::kF16, GgmlType::kBF16}) {
    TinyModelOptions options;
    options.matrix_type = type;
    testing::GgufWriter writer = testing::TinyModel(options);
    for (const char* name : {"blk.0.ffn_gate.weight", "blk.0.ffn_up.weight"}) {
      std::vector<float> values(static_cast<size_t>(options.intermediate_size * options.hidden_size));
      for (size_t i = 0; i < values.size(); ++i) values[i] = 40.0f * std::sin(static_cast<float>(i));
      writer.tensor(name).data = testing::Quantize(type, values);
    }
    const std::string path = testing::WriteTempFile("large.gguf", writer.Build());
    ASSERT_OK_AND_ASSIGN(const auto checkpoint, Checkpoint::Open(path));
    for (const int num_tokens : {63, 64, 65}) {
      ASSERT_OK_AND_ASSIGN(const Logits reference, AllLogits(checkpoint, "reference", "", num_tokens));
      ASSERT_OK_AND_ASSIGN(const Logits served, AllLogits(checkpoint, "cpu", "", num_tokens));
      EXPECT_LT(RelativeError(served, reference), 1e-5) << GgmlTypeName(type) << ", " << num_tokens << " tokens";
    }
  }
}

}  // namespace
}  // namespace baton
