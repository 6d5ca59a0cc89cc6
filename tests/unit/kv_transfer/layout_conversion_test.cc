// SPDX-License-Identifier: Apache-2.0
#include "common/kv_transfer/layout_conversion.h"

#include <cstring>
#include <numeric>
#include <random>

#include "common/base/half.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/transport_pair.h"

namespace baton::testing {
namespace {

using ::testing::HasSubstr;

float ReadValue(const uint8_t* from, KvDtype dtype) {
  float value;
  uint16_t bits;
  std::memcpy(&value, from, dtype == KvDtype::kF32 ? 4 : 0);
  std::memcpy(&bits, from, dtype == KvDtype::kF32 ? 0 : 2);
  if (dtype == KvDtype::kF16) return HalfToFloat(bits);
  if (dtype == KvDtype::kBf16) return BFloat16ToFloat(bits);
  return value;
}

// K or V of one token straight from the pool, by the layout's definition.
float PoolValue(const KvPool& pool, int layer, std::span<const BlockId> blocks, bool is_v, int head, int dim, int token) {
  const KvLayout& l = pool.layout();
  const KvLayerView view = pool.Layer(layer);
  const size_t offset = static_cast<size_t>(token % l.block_size);
  const size_t h = static_cast<size_t>(head), d = static_cast<size_t>(dim), size = static_cast<size_t>(l.block_size),
               width = static_cast<size_t>(l.head_dim);
  const size_t element = is_v ? (h * size + offset) * width + d : (h * width + d) * size + offset;
  const uint8_t* base = (is_v ? view.v : view.k) + static_cast<size_t>(blocks[static_cast<size_t>(token / l.block_size)]) * view.block_stride;
  return ReadValue(base + element * l.element_bytes(), l.dtype);
}

float Rounded(float value, KvDtype dtype) {
  if (dtype == KvDtype::kF16) return HalfToFloat(FloatToHalf(value));
  if (dtype == KvDtype::kBf16) return BFloat16ToFloat(FloatToBFloat16(value));
  return value;
}

// Values with all their bits, in blocks of any order.
void FillWithNoise(KvPool* pool, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> noise;
  for (int layer = 0; layer < pool->layout().num_layers; ++layer) {
    for (int block = 0; block < pool->num_blocks(); ++block) {
      const std::span<uint8_t> cell = pool->Cell(layer, block);
      for (size_t i = 0; i < cell.size(); i += pool->layout().element_bytes()) {
        const float value = noise(rng);
        const uint16_t bits = pool->layout().dtype == KvDtype::kF16 ? FloatToHalf(value) : FloatToBFloat16(value);
        if (pool->layout().dtype == KvDtype::kF32) {
          std::memcpy(cell.data() + i, &value, 4);
        } else {
          std::memcpy(cell.data() + i, &bits, 2);
        }
      }
    }
  }
}

TEST(LayoutConversionTest, EveryPairOfLayoutsEqualsTheDefinition) {
  const std::vector<BlockId> blocks = {5, 0, 3, 7, 2, 9, 1};
  std::mt19937 rng(4);
  for (const KvDtype from : {KvDtype::kF32, KvDtype::kF16, KvDtype::kBf16}) {
    for (const KvDtype to : {KvDtype::kF32, KvDtype::kF16, KvDtype::kBf16}) {
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
            for (int dim = 0; dim < 8; ++dim) {
              for (const bool is_v : {false, true}) {
                ASSERT_EQ(PoolValue(*landed, layer, in_order, is_v, head, dim, token),
                          Rounded(PoolValue(*pool, layer, blocks, is_v, head, dim, token), to))
                    << KvDtypeName(from) << " B" << from_size << " to " << KvDtypeName(to) << " B" << to_size << ", token " << token;
              }
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

}  // namespace
}  // namespace baton::testing
