// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "common/base/half.h"
#include "common/format/ggml_types.h"
#include "nlohmann/json.hpp"
#include "tests/support/paths.h"
#include "tests/support/status_matchers.h"
#include "tests/support/xz.h"

namespace baton {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::testing::HasSubstr;

std::string FromBase64(const nlohmann::json& value) {
  std::string bytes;
  EXPECT_TRUE(absl::Base64Unescape(value.get<std::string>(), &bytes));
  return bytes;
}

std::span<const uint8_t> AsBytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

TEST(Dequantize, EveryTypeIsBitExactToTheGoldenBlocks) {
  const std::string text = testing::ReadXz(testing::SourcePath("tests/golden/gguf_blocks.json.xz"));
  const nlohmann::json golden = nlohmann::json::parse(text, nullptr, false);
  ASSERT_FALSE(golden.is_discarded());
  const int64_t count = golden["shape"][0].get<int64_t>() * golden["shape"][1].get<int64_t>();
  ASSERT_EQ(golden["types"].size(), 15u);
  for (const auto& [name, entry] : golden["types"].items()) {
    SCOPED_TRACE(name);
    const GgmlTypeTraits* traits = FindGgmlType(entry["ggml_type"].get<uint32_t>());
    ASSERT_NE(traits, nullptr);
    EXPECT_EQ(traits->name, name);
    EXPECT_EQ(traits->block_length, entry["block"].get<int64_t>());
    EXPECT_EQ(traits->block_bytes, entry["bytes_per_block"].get<int64_t>());
    const std::string data = FromBase64(entry["data_base64"]);
    const std::string expected = FromBase64(entry["f32_base64"]);
    ASSERT_EQ(expected.size(), count * sizeof(float));
    EXPECT_EQ(data.size(), count / traits->block_length * traits->block_bytes);
    std::vector<float> out(count);
    ASSERT_THAT(Dequantize(traits->type, AsBytes(data), count, out.data()), IsOk());
    for (int64_t i = 0; i < count; ++i) {
      uint32_t want, got;
      memcpy(&want, expected.data() + i * 4, 4);
      memcpy(&got, &out[i], 4);
      ASSERT_EQ(got, want) << "element " << i;
    }
  }
}

TEST(Dequantize, RefusesPartialBlocksShortDataAndIntegers) {
  const std::string data(36, '\1');
  std::vector<float> out(64);
  EXPECT_THAT(Dequantize(GgmlType::kQ4_0, AsBytes(data), 33, out.data()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("33 elements are no whole blocks of 32 (Q4_0)")));
  EXPECT_THAT(Dequantize(GgmlType::kQ4_0, AsBytes(data), -32, out.data()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("-32 elements")));
  EXPECT_THAT(Dequantize(GgmlType::kQ4_1, AsBytes(data), 64, out.data()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("36 bytes are too few")));
  EXPECT_THAT(Dequantize(GgmlType::kI32, AsBytes(data), 1, out.data()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("type I32")));
  EXPECT_THAT(Dequantize(GgmlType::kQ4_0, AsBytes(data), 0, nullptr), IsOk());
}

TEST(TensorBytes, CountsBlocksAndNeverWraps) {
  const std::vector<int64_t> matrix = {3, 512};
  EXPECT_EQ(*TensorBytes(GgmlType::kQ6_K, matrix), 3u * 2 * 210);
  EXPECT_EQ(*TensorBytes(GgmlType::kF32, {}), 4u);
  const std::vector<int64_t> empty = {int64_t{1} << 62, 0, int64_t{1} << 40};
  EXPECT_THAT(TensorBytes(GgmlType::kF32, empty), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("overflow")));
  const std::vector<int64_t> zero = {0, 5};
  EXPECT_EQ(*TensorBytes(GgmlType::kF32, zero), 0u);
  const std::vector<int64_t> huge = {int64_t{1} << 32, int64_t{1} << 32};
  EXPECT_THAT(TensorBytes(GgmlType::kF16, huge), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("overflow")));
  const std::vector<int64_t> ragged = {2, 33};
  EXPECT_THAT(TensorBytes(GgmlType::kQ8_0, ragged),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("row of 33")));
  const std::vector<int64_t> negative = {-1, 32};
  EXPECT_THAT(TensorBytes(GgmlType::kQ8_0, negative),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("negative")));
}

float FromBits(uint32_t bits) { return std::bit_cast<float>(bits); }

TEST(Half, KnownValues) {
  EXPECT_EQ(HalfToFloat(0x7bff), 65504.0f);
  EXPECT_EQ(HalfToFloat(0x0001), 5.9604645e-8f);
  EXPECT_EQ(HalfToFloat(0x8000), 0.0f);
  EXPECT_TRUE(std::signbit(HalfToFloat(0x8000)));
  EXPECT_EQ(HalfToFloat(0xfc00), -std::numeric_limits<float>::infinity());
  EXPECT_EQ(FloatToBFloat16(FromBits(0x3f808000)), 0x3f80);
  EXPECT_EQ(FloatToBFloat16(FromBits(0x3f818000)), 0x3f82);
  EXPECT_EQ(FloatToBFloat16(FromBits(0x7f7fffff)), 0x7f80);
  EXPECT_EQ(FloatToHalf(65519.0f), 0x7bff);
  EXPECT_EQ(FloatToHalf(65520.0f), 0x7c00);
  EXPECT_EQ(FloatToHalf(66975.0f), 0x7c00);
  EXPECT_EQ(FloatToHalf(2.98023224e-8f), 0x0000);  // Half of the smallest: to even, zero.
  EXPECT_EQ(FloatToHalf(FromBits(0x33000001)), 0x0001);
  EXPECT_EQ(FloatToHalf(6.1035156e-5f), 0x0400);
  EXPECT_EQ(FloatToHalf(FromBits(0x387fffff)), 0x0400);  // The last fp32 below 2^-14 rounds up to it.
}

TEST(Half, EveryValueRoundTripsAndNanStaysNan) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const uint16_t half = static_cast<uint16_t>(bits);
    if (std::isnan(HalfToFloat(half))) {
      EXPECT_TRUE(std::isnan(HalfToFloat(FloatToHalf(HalfToFloat(half)))));
    } else {
      ASSERT_EQ(FloatToHalf(HalfToFloat(half)), half);
    }
    if (std::isnan(BFloat16ToFloat(half))) {
      EXPECT_TRUE(std::isnan(BFloat16ToFloat(FloatToBFloat16(BFloat16ToFloat(half)))));
    } else {
      ASSERT_EQ(FloatToBFloat16(BFloat16ToFloat(half)), half);
    }
  }
  EXPECT_TRUE(std::isnan(HalfToFloat(FloatToHalf(FromBits(0x7f800001)))));
  EXPECT_TRUE(std::isnan(BFloat16ToFloat(FloatToBFloat16(FromBits(0x7f800001)))));
}

// Between two neighbouring halves the nearer one is taken, and the even one in the middle.
TEST(Half, RoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7bff; ++bits) {
    const double low = HalfToFloat(static_cast<uint16_t>(bits));
    const double high = HalfToFloat(static_cast<uint16_t>(bits + 1));
    const float middle = static_cast<float>((low + high) / 2);  // Exact: fp32 has 13 more bits.
    ASSERT_EQ(FloatToHalf(middle), (bits & 1) ? bits + 1 : bits);
    ASSERT_EQ(FloatToHalf(std::nextafterf(middle, 0.0f)), bits);
    ASSERT_EQ(FloatToHalf(std::nextafterf(middle, 1e9f)), bits + 1);
  }
}

}  // namespace
}  // namespace baton
