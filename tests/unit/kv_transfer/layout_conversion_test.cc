// SPDX-License-Identifier: Apache-2.0
#include "common/kv_transfer/layout_conversion.h"

#include <numeric>
#include <optional>
#include <random>

#include "absl/strings/str_cat.h"
#include "common/backend/kv_int8.h"
#include "common/backend/reference_ops.h"
#include "common/base/half.h"
#include "common/kv_transfer/kv_precision.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/transport_pair.h"

namespace baton::testing {
namespace {

using ::testing::HasSubstr;

// K or V of one token and head straight from the pool, by the layout's definition.
std::vector<float> PoolValues(const KvPool& pool, int layer, std::span<const BlockId> blocks, bool is_v, int head, int token) {
  const KvLayerView view = pool.Layer(layer);
  const int offset = token % view.block_size;
  const uint8_t* const values = (is_v ? view.v : view.k) + static_cast<size_t>(blocks[static_cast<size_t>(token / view.block_size)]) * view.block_stride +
                                head * KvHeadBytes(view);
  std::vector<float> x;
  for (int d = 0; d < view.head_dim; ++d) {
    const int64_t index = is_v ? offset * view.head_dim + d : d * view.block_size + offset;
    x.push_back(KvScale(view, values, offset) * LoadKvElement(values, index, view.dtype));
  }
  return x;
}

std::vector<float> Rounded(std::vector<float> x, KvDtype dtype) {
  std::vector<int8_t> integers(x.size());
  const float scale = dtype == KvDtype::kInt8 ? QuantiseKvHead(x.data(), x.size(), integers.data()) : 1.0f;
  for (size_t i = 0; i < x.size(); ++i) {
    if (dtype == KvDtype::kF16) x[i] = HalfToFloat(FloatToHalf(x[i]));
    if (dtype == KvDtype::kBf16) x[i] = BFloat16ToFloat(FloatToBFloat16(x[i]));
    if (dtype == KvDtype::kInt8) x[i] = scale * integers[i];
  }
  return x;
}

// Values with all their bits, in blocks of any order.
void FillWithNoise(KvPool* pool, uint32_t seed) {
  const KvLayout& layout = pool->layout();
  std::mt19937 rng(seed);
  std::normal_distribution<float> noise;
  std::vector<float> k(static_cast<size_t>(layout.num_kv_heads * layout.head_dim)), v(k.size());
  for (int layer = 0; layer < layout.num_layers; ++layer) {
    for (int slot = 0; slot < pool->num_blocks() * layout.block_size; ++slot) {
      for (float& x : k) x = noise(rng);
      for (float& x : v) x = noise(rng);
      ReferenceWriteKv(pool->Layer(layer), slot, k.data(), v.data());
    }
  }
}

TEST(LayoutConversionTest, EveryPairOfLayoutsEqualsTheDefinition) {
  const std::vector<BlockId> blocks = {5, 0, 3, 7, 2, 9, 1};
  std::mt19937 rng(4);
  const KvDtype all[] = {KvDtype::kF32, KvDtype::kF16, KvDtype::kBf16, KvDtype::kInt8};
  for (const KvDtype from : all) {
    for (const KvDtype to : all) {
      for (const auto& [from_size, to_size] : {std::pair(16, 16), std::pair(16, 48), std::pair(32, 16), std::pair(48, 32)}) {
        auto pool = FilledPool(SmallLayout(from_size, from), 10, 1);
        FillWithNoise(pool.get(), 9);
        const KvLayout target = SmallLayout(to_size, to);
        const int begin = to_size * static_cast<int>(rng() % 2);
        const int end = begin + 1 + static_cast<int>(rng() % static_cast<uint32_t>(7 * from_size - begin - 1));
        const int layer = static_cast<int>(rng() % 3);
        std::vector<uint8_t> wire(static_cast<size_t>(end - begin) * target.token_layer_bytes());
        ReadTokensAs(*pool, target, layer, blocks, begin, end, wire);
        // Into a pool of the target's, and from there by the definition: what the receiver will see.
        auto landed = FilledPool(target, 24, 2);
        for (int token = begin, i = begin / to_size; token < end; token += to_size, ++i) {
          const int count = std::min(to_size, end - token);
          landed->WriteTokens(layer, i, 0, count,
                              std::span<const uint8_t>(wire).subspan(static_cast<size_t>(token - begin) * target.token_layer_bytes(),
                                                                     static_cast<size_t>(count) * target.token_layer_bytes()));
        }
        std::vector<BlockId> in_order(24);
        std::iota(in_order.begin(), in_order.end(), 0);
        for (int token = begin; token < end; ++token) {
          for (int head = 0; head < 2; ++head) {
            for (const bool is_v : {false, true}) {
              const std::vector<float> values = PoolValues(*pool, layer, blocks, is_v, head, token);
              ASSERT_EQ(PoolValues(*landed, layer, in_order, is_v, head, token), from == to ? values : Rounded(values, to))
                  << KvDtypeName(from) << " B" << from_size << " to " << KvDtypeName(to) << " B" << to_size << ", token " << token;
            }
          }
        }
      }
    }
  }
}

TEST(LayoutConversionTest, OnlyBlockSizeAndTypeMayDiffer) {
  const KvLayout local = SmallLayout();
  EXPECT_THAT(CheckConvertible(SmallLayout(64, KvDtype::kF32), local), IsOk());
  const auto refused = [&](auto change) {
    KvLayout peer = SmallLayout();
    change(peer);
    EXPECT_THAT(CheckConvertible(peer, local), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(peer.fingerprint())));
    EXPECT_THAT(CheckConvertible(peer, local), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(local.fingerprint())));
  };
  refused([](KvLayout& l) { l.num_layers = 4; });
  refused([](KvLayout& l) { l.num_kv_heads = 1; });
  refused([](KvLayout& l) { l.head_dim = 16; });
  refused([](KvLayout& l) { l.num_ranks = 2; });
}

TEST(KvPrecisionTest, WhatSufficesForWhichPool) {
  constexpr KvDtype kF32 = KvDtype::kF32, kF16 = KvDtype::kF16, kBf16 = KvDtype::kBf16, kInt8 = KvDtype::kInt8;
  const struct {
    std::vector<KvDtype> held_in;
    bool f32, f16, bf16;
    const char* text;
  } cases[] = {
      {{}, true, true, true, ""},
      {{kF32}, true, true, true, "f32"},
      {{kF16}, false, true, false, "f16"},
      {{kBf16, kBf16}, false, false, true, "bf16"},
      {{kInt8}, false, false, false, "int8"},
      {{kF16, kF32}, false, true, false, "f32,f16"},
      {{kBf16, kF16}, false, false, false, "f16,bf16"},
      {{kInt8, kF16}, false, false, false, "f16,int8"},
  };
  for (const auto& c : cases) {
    KvPrecision precision, sum;
    for (const KvDtype dtype : c.held_in) precision.Add(dtype);
    EXPECT_EQ(precision.ToString(), c.text);
    EXPECT_EQ(precision.SufficesFor(kF32), c.f32) << c.text;
    EXPECT_EQ(precision.SufficesFor(kF16), c.f16) << c.text;
    EXPECT_EQ(precision.SufficesFor(kBf16), c.bf16) << c.text;
    EXPECT_TRUE(precision.SufficesFor(kInt8)) << c.text;
    sum.Add(precision);
    EXPECT_EQ(sum, precision);
    if (c.held_in.empty()) continue;
    const std::string numerics = precision.AddTo("cpu-x/1");
    EXPECT_EQ(numerics, absl::StrCat("cpu-x/1;kv=", c.text));
    EXPECT_EQ(precision.AddTo("cpu-x/1;kv=f32"), numerics);
    EXPECT_EQ(KvPrecision::FromNumerics(numerics), precision);
  }
  for (const char* unsaid : {"", "cpu-x/1", "cpu-x/1;kv=", "cpu-x/1;kv=f16,fp4"}) EXPECT_EQ(KvPrecision::FromNumerics(unsaid), std::nullopt) << unsaid;
  EXPECT_FALSE(KvPrecision::Unknown().SufficesFor(kF16));
}

}  // namespace
}  // namespace baton::testing
