// SPDX-License-Identifier: Apache-2.0
#include "common/kv/kv_layout.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace baton {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::testing::HasSubstr;

KvLayout SmolLm2() {
  KvLayout layout;
  layout.num_layers = 30;
  layout.num_kv_heads = 3;
  layout.head_dim = 64;
  return layout;
}

TEST(KvLayoutTest, CountsBytes) {
  const KvLayout layout = SmolLm2();
  EXPECT_THAT(layout.Validate(), IsOk());
  EXPECT_EQ(layout.element_bytes(), 2u);
  EXPECT_EQ(layout.token_layer_bytes(), 2u * 3 * 64 * 2);
  EXPECT_EQ(layout.token_bytes(), 23040u);
  EXPECT_EQ(layout.block_layer_bytes(), 16u * 768);
  EXPECT_EQ(layout.block_bytes(), 16u * 23040);
}

// 64 integers and a scale, for K and for V: 17/32 of f16.
TEST(KvLayoutTest, IntegersHaveAScalePerTokenAndHead) {
  KvLayout layout = SmolLm2();
  layout.dtype = KvDtype::kInt8;
  EXPECT_EQ(layout.element_bytes(), 1u);
  EXPECT_EQ(layout.token_layer_bytes(), 2u * 3 * (64 + 4));
  EXPECT_EQ(layout.token_bytes(), 12240u);
  EXPECT_EQ(layout.fingerprint(), "kv1:L30:H3:D64:B16:int8:r0/1");
}

TEST(KvLayoutTest, FingerprintNamesEveryField) {
  KvLayout layout = SmolLm2();
  EXPECT_EQ(layout.fingerprint(), "kv1:L30:H3:D64:B16:f16:r0/1");
  const std::string before = layout.fingerprint();
  layout.dtype = KvDtype::kBf16;
  layout.block_size = 32;
  layout.num_ranks = 2;
  layout.rank = 1;
  EXPECT_EQ(layout.fingerprint(), "kv1:L30:H3:D64:B32:bf16:r1/2");
  EXPECT_NE(layout.fingerprint(), before);
}

TEST(KvLayoutTest, RefusesWhatItNames) {
  const auto refused = [](auto change, const char* message) {
    KvLayout layout = SmolLm2();
    change(layout);
    EXPECT_THAT(layout.Validate(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
  };
  refused([](KvLayout& l) { l.num_layers = 0; }, "num_layers 0 is outside [1, 65536]");
  refused([](KvLayout& l) { l.num_kv_heads = -1; }, "num_kv_heads -1");
  refused([](KvLayout& l) { l.head_dim = 258; }, "head_dim 258 is outside [2, 256]");
  refused([](KvLayout& l) { l.head_dim = 63; }, "head_dim 63 is odd");
  refused([](KvLayout& l) { l.block_size = 24; }, "block_size 24 is no multiple of 16");
  refused([](KvLayout& l) { l.rank = 1; }, "rank 1 is outside [0, 0]");
  refused([](KvLayout& l) { l.dtype = static_cast<KvDtype>(9); }, "dtype 9 is unknown");
}

TEST(KvLayoutTest, FingerprintsGoBothWays) {
  KvLayout layout = SmolLm2();
  layout.dtype = KvDtype::kBf16;
  layout.block_size = 48;
  layout.num_ranks = 4;
  layout.rank = 3;
  ASSERT_OK_AND_ASSIGN(const KvLayout parsed, ParseKvLayout(layout.fingerprint()));
  EXPECT_EQ(parsed, layout);
  for (const char* bad : {"", "kv1", "kv2:L30:H3:D64:B16:f16:r0/1", "kv1:L30:H3:D64:B16:f16", "kv1:L30:H3:D64:B16:f16:r0",
                          "kv1:L30:H3:D64:B17:f16:r0/1", "kv1:L030:H3:D64:B16:f16:r0/1", "kv1:L30:H3:D64:B16:f12:r0/1",
                          "kv1:L30:H3:D64:B16:f16:r0/1:x", "kv1:H30:L3:D64:B16:f16:r0/1", "kv1:L99999999999:H3:D64:B16:f16:r0/1"}) {
    EXPECT_EQ(ParseKvLayout(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

TEST(KvLayoutTest, GeometryIsWhatConversionCannotChange) {
  KvLayout layout = SmolLm2();
  const std::string geometry = layout.geometry();
  layout.dtype = KvDtype::kF32;
  layout.block_size = 64;
  EXPECT_EQ(layout.geometry(), geometry);
  layout.num_kv_heads = 4;
  EXPECT_NE(layout.geometry(), geometry);
}

TEST(KvLayoutTest, DtypeNamesGoBothWays) {
  for (const KvDtype dtype : {KvDtype::kF32, KvDtype::kF16, KvDtype::kBf16, KvDtype::kInt8}) {
    ASSERT_OK_AND_ASSIGN(const KvDtype parsed, ParseKvDtype(KvDtypeName(dtype)));
    EXPECT_EQ(parsed, dtype);
  }
  EXPECT_THAT(ParseKvDtype("fp8"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("\"fp8\"")));
}

}  // namespace
}  // namespace baton
