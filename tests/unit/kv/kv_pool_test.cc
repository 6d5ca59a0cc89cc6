// SPDX-License-Identifier: Apache-2.0
#include "common/kv/kv_pool.h"

#include <sys/mman.h>
#include <unistd.h>

#include <random>
#include <vector>

#include "common/backend/reference_backend.h"
#include "common/backend/reference_ops.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace baton {
namespace {

using ::baton::testing::StatusIs;
using ::testing::HasSubstr;

KvLayout Layout(KvDtype dtype, int block_size) {
  KvLayout layout;
  layout.num_layers = 2;
  layout.num_kv_heads = 3;
  layout.head_dim = 8;
  layout.block_size = block_size;
  layout.dtype = dtype;
  return layout;
}

class KvPoolTest : public ::testing::TestWithParam<std::tuple<KvDtype, int>> {
 protected:
  void SetUp() override {
    const auto [dtype, block_size] = GetParam();
    auto pool = KvPool::Create(Layout(dtype, block_size), 5, &backend_);
    ASSERT_TRUE(pool.ok()) << pool.status();
    pool_ = *std::move(pool);
  }
  // Fills every cell with bytes that no other cell has.
  void FillRandomly(uint32_t seed) {
    std::mt19937 rng(seed);
    for (int layer = 0; layer < 2; ++layer) {
      for (int block = 0; block < 5; ++block) {
        for (uint8_t& byte : pool_->Cell(layer, block)) byte = static_cast<uint8_t>(rng());
      }
    }
  }
  std::vector<uint8_t> Copy(int layer, int block) {
    const auto cell = pool_->Cell(layer, block);
    return {cell.begin(), cell.end()};
  }
  ReferenceBackend backend_{1};
  std::unique_ptr<KvPool> pool_;
};

TEST_P(KvPoolTest, CellsTileTheMemoryAndStartZeroed) {
  const size_t cell_bytes = pool_->layout().block_layer_bytes();
  EXPECT_EQ(pool_->bytes(), 2 * 5 * cell_bytes);
  const uint8_t* expected = pool_->Cell(0, 0).data();
  for (int layer = 0; layer < 2; ++layer) {
    const KvLayerView view = pool_->Layer(layer);
    for (int block = 0; block < 5; ++block) {
      EXPECT_EQ(pool_->Cell(layer, block).data(), expected);
      EXPECT_EQ(view.k + static_cast<size_t>(block) * view.block_stride, expected);
      EXPECT_EQ(view.v + static_cast<size_t>(block) * view.block_stride, expected + cell_bytes / 2);
      expected += cell_bytes;
      EXPECT_THAT(pool_->Cell(layer, block), ::testing::Each(0));
    }
  }
}

TEST_P(KvPoolTest, WireFormHoldsTheTokensAsDocumented) {
  // Tokens written by the arithmetic of the reference are found at their place in the wire form.
  const KvLayout& layout = pool_->layout();
  const int width = layout.num_kv_heads * layout.head_dim;
  std::vector<float> k(static_cast<size_t>(width)), v(static_cast<size_t>(width));
  for (int offset = 0; offset < layout.block_size; ++offset) {
    for (int i = 0; i < width; ++i) {
      k[static_cast<size_t>(i)] = static_cast<float>(offset + 50 * (i % 4));
      v[static_cast<size_t>(i)] = -static_cast<float>(i + 4 * offset);
    }
    ReferenceWriteKv(pool_->Layer(1), 3 * layout.block_size + offset, k.data(), v.data());
  }
  const int offset = 5, tokens = 7;
  // By the definition of the wire form, scales included.
  const KvLayerView wire_cell = {.block_size = tokens, .num_kv_heads = layout.num_kv_heads, .head_dim = layout.head_dim, .dtype = layout.dtype};
  const auto value = [&](const uint8_t* half, int h, int t, int64_t index) {
    const uint8_t* const head = half + h * KvHeadBytes(wire_cell);
    return KvScale(wire_cell, head, t) * LoadKvElement(head, index, layout.dtype);
  };
  std::vector<uint8_t> wire(static_cast<size_t>(tokens) * layout.token_layer_bytes());
  pool_->ReadTokens(1, 3, offset, tokens, std::span<uint8_t>(wire));
  for (int h = 0; h < layout.num_kv_heads; ++h) {
    for (int t = 0; t < tokens; ++t) {
      for (int d = 0; d < layout.head_dim; ++d) {
        const int i = h * layout.head_dim + d;
        const float k_value = static_cast<float>(offset + t + 50 * (i % 4)), v_value = -static_cast<float>(i + 4 * (offset + t));
        const float step = layout.dtype == KvDtype::kInt8 ? 1.0f : 0.0f;  // The largest value has 127 steps.
        EXPECT_NEAR(value(wire.data(), h, t, d * tokens + t), k_value, step);
        EXPECT_NEAR(value(wire.data() + wire.size() / 2, h, t, t * layout.head_dim + d), v_value, step);
      }
    }
  }
}

TEST_P(KvPoolTest, PartsWrittenApartMakeTheWholeCell) {
  FillRandomly(1);
  const int block_size = pool_->layout().block_size;
  const size_t token = pool_->layout().token_layer_bytes();
  for (const int cut : {1, 7, block_size - 1}) {
    std::vector<uint8_t> head(static_cast<size_t>(cut) * token), tail(static_cast<size_t>(block_size - cut) * token);
    pool_->ReadTokens(0, 2, 0, cut, std::span<uint8_t>(head));
    pool_->ReadTokens(0, 2, cut, block_size - cut, std::span<uint8_t>(tail));
    pool_->WriteTokens(1, 4, cut, block_size - cut, tail);
    pool_->WriteTokens(1, 4, 0, cut, head);
    EXPECT_EQ(Copy(1, 4), Copy(0, 2)) << "cut at " << cut;
    FillRandomly(2);
  }
}

TEST_P(KvPoolTest, WritesTouchOnlyTheirTokens) {
  FillRandomly(3);
  const std::vector<uint8_t> left = Copy(0, 1), right = Copy(0, 3), other_layer = Copy(1, 2);
  const size_t token = pool_->layout().token_layer_bytes();
  std::vector<uint8_t> before(3 * token), after(3 * token);
  pool_->ReadTokens(0, 2, 0, 3, std::span<uint8_t>(before));
  pool_->WriteTokens(0, 2, 3, 4, std::vector<uint8_t>(4 * token, 0xab));
  pool_->ReadTokens(0, 2, 0, 3, std::span<uint8_t>(after));
  EXPECT_EQ(before, after);
  EXPECT_EQ(Copy(0, 1), left);
  EXPECT_EQ(Copy(0, 3), right);
  EXPECT_EQ(Copy(1, 2), other_layer);
}

TEST_P(KvPoolTest, CopyBlockCopiesAllLayers) {
  FillRandomly(4);
  pool_->CopyBlock(1, 4);
  for (int layer = 0; layer < 2; ++layer) EXPECT_EQ(Copy(layer, 4), Copy(layer, 1));
  const std::vector<uint8_t> same = Copy(0, 1);
  pool_->CopyBlock(1, 1);
  EXPECT_EQ(Copy(0, 1), same);
}

INSTANTIATE_TEST_SUITE_P(All, KvPoolTest,
                         ::testing::Combine(::testing::Values(KvDtype::kF32, KvDtype::kF16, KvDtype::kBf16, KvDtype::kInt8),
                                            ::testing::Values(16, 48)));

TEST(KvPoolCreateTest, Refuses) {
  ReferenceBackend backend(1);
  EXPECT_THAT(KvPool::Create(Layout(KvDtype::kF16, 16), 0, &backend),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("num_blocks 0 is outside [1, 134217727]")));
  EXPECT_THAT(KvPool::Create(Layout(KvDtype::kF16, 10), 1, &backend),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("block_size 10")));
  KvLayout huge = Layout(KvDtype::kF32, 1024);
  huge.num_layers = 60000;
  huge.num_kv_heads = 60000;
  EXPECT_THAT(KvPool::Create(huge, 2000000, &backend),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("kv pool of 2000000 blocks")));
}

TEST(KvPoolSharedTest, BothSidesSeeOneMemory) {
  const KvLayout layout = Layout(KvDtype::kF16, 16);
  ASSERT_OK_AND_ASSIGN(const auto owner, KvPool::CreateShared(layout, 5));
  ASSERT_GE(owner->shared_fd(), 0);
  ASSERT_OK_AND_ASSIGN(const auto peer, KvPool::MapShared(layout, 5, owner->shared_fd()));
  EXPECT_EQ(peer->shared_fd(), -1);
  EXPECT_EQ(owner->Cell(1, 4)[0], 0);
  peer->Cell(1, 4)[0] = 7;
  EXPECT_EQ(owner->Cell(1, 4)[0], 7);
}

TEST(KvPoolSharedTest, NobodyCanCutTheMemory) {
  ASSERT_OK_AND_ASSIGN(const auto owner, KvPool::CreateShared(Layout(KvDtype::kF16, 16), 5));
  EXPECT_NE(ftruncate(owner->shared_fd(), 0), 0);
  EXPECT_NE(ftruncate(owner->shared_fd(), 1 << 30), 0);
}

TEST(KvPoolSharedTest, AMappingOfSomethingElseIsRefused) {
  const KvLayout layout = Layout(KvDtype::kF16, 16);
  ASSERT_OK_AND_ASSIGN(const auto owner, KvPool::CreateShared(layout, 50));
  EXPECT_THAT(KvPool::MapShared(layout, 51, owner->shared_fd()),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("51 blocks")));
  EXPECT_THAT(KvPool::MapShared(Layout(KvDtype::kF32, 16), 50, owner->shared_fd()),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("f32")));
  const int unsealed = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_GE(unsealed, 0);
  EXPECT_THAT(KvPool::MapShared(layout, 50, unsealed), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("not sealed")));
  close(unsealed);
}

}  // namespace
}  // namespace baton
