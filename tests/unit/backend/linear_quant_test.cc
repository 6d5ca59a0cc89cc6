// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <cstring>

#include "tests/support/status_matchers.h"
#include "tests/unit/backend/kernels_test_support.h"

namespace baton::cpu {
namespace {

using ::baton::testing::StatusIs;
using ::testing::HasSubstr;

constexpr GgmlType kTypes[] = {GgmlType::kQ4_0, GgmlType::kQ4_1, GgmlType::kQ5_0,   GgmlType::kQ5_1,   GgmlType::kQ8_0,
                               GgmlType::kQ2_K, GgmlType::kQ3_K, GgmlType::kQ4_K,   GgmlType::kQ5_K,   GgmlType::kQ6_K,
                               GgmlType::kIQ4_NL, GgmlType::kIQ4_XS, GgmlType::kMXFP4};

struct Problem {
  std::vector<float> dense;  // [out, in]
  PackedQuant packed;
};

Problem MakeProblem(std::mt19937& rng, GgmlType type, int64_t out, int64_t in) {
  Problem p;
  const std::vector<uint8_t> bytes = RandomBlocks(rng, type, out, in);
  p.dense.resize(static_cast<size_t>(out * in));
  EXPECT_TRUE(Dequantize(type, bytes, out * in, p.dense.data()).ok());
  const TensorView view = View(bytes, type, out, in);
  absl::StatusOr<PackedQuant> packed = PackQuant({&view, 1});
  EXPECT_TRUE(packed.ok()) << packed.status();
  p.packed = *std::move(packed);
  return p;
}

// y of rows [begin, end) and all outputs.
std::vector<float> Multiply(const Kernels& k, const PackedQuant& w, const QuantisedRows& x, int64_t rows, int64_t begin,
                            int64_t end, Epilogue epilogue = Epilogue::kStore, std::vector<float> y = {}) {
  const int64_t width = epilogue == Epilogue::kSiluMul ? w.matrix.out / 2 : w.matrix.out;
  y.resize(static_cast<size_t>(rows * width), -7.0f);
  const std::shared_ptr<uint8_t[]> scratch = AllocateAligned(LinearScratchBytes(w.matrix.in));
  QuantLinearArgs args{&w.matrix, x, begin, end, 0, (width + 15) / 16, y.data(), width, epilogue, scratch.get()};
  k.linear_quantised(args);
  return y;
}

// Of an integer that bf16 holds.
uint16_t Bf16(int value) {
  const float x = static_cast<float>(value);
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  EXPECT_EQ(bits & 0xffff, 0);
  return static_cast<uint16_t>(bits >> 16);
}

// With outliers, so that some groups have a second term.
std::vector<float> RandomActivations(std::mt19937& rng, int64_t n) {
  std::vector<float> x = RandomFloats(rng, n);
  for (size_t i = rng() % 150; i < x.size(); i += 1 + rng() % 150) x[i] *= 8;
  return x;
}

class LinearQuantTest : public KernelsTest {};

TEST_P(LinearQuantTest, PackHoldsTheFilesValues) {
  std::mt19937 rng(1);
  for (GgmlType type : kTypes) {
    SCOPED_TRACE(GgmlTypeName(type));
    const Problem p = MakeProblem(rng, type, 19, 512);
    std::vector<float> row(512);
    for (int64_t r = 0; r < 19; ++r) {
      UnpackRow(p.packed.matrix, r, row.data());
      for (int64_t i = 0; i < 512; ++i) {
        const float want = p.dense[static_cast<size_t>(r * 512 + i)];
        ASSERT_NEAR(row[static_cast<size_t>(i)], want, 1e-6f * (std::fabs(want) + 1.0f)) << r << "," << i;
      }
    }
  }
}

// With activations that are integers times a power of two, one-term rounding is exact, and so is the product but for the
// fp32 sums over groups.
TEST_P(LinearQuantTest, ExactActivationsGiveTheProduct) {
  std::mt19937 rng(2);
  for (GgmlType type : kTypes) {
    for (bool two_terms : {false, true}) {
      SCOPED_TRACE(std::string(GgmlTypeName(type)) + (two_terms ? " two terms" : ""));
      const int64_t out = 37, in = TraitsOf(type).block_length == 256 ? 768 : 352, rows = 34;
      const Problem p = MakeProblem(rng, type, out, in);
      std::vector<float> x(static_cast<size_t>(rows * in));
      std::uniform_int_distribution<int> integer(-127, 127);
      for (float& v : x) v = static_cast<float>(integer(rng)) * 0.03125f;
      for (size_t g = 0; g < x.size(); g += 32) x[g + 5] = 127 * 0.03125f;
      OwnedRows q(rows, in, two_terms);
      k().quantise_rows(x.data(), in, 0, rows, &q.view);
      for (int64_t begin : {int64_t{0}, rows - 3}) {  // Many rows, few rows.
        const std::vector<float> y = Multiply(k(), p.packed, q.view, rows, begin, rows);
        for (int64_t r = begin; r < rows; ++r) {
          for (int64_t o = 0; o < out; ++o) {
            double want = 0, magnitude = 0;
            for (int64_t i = 0; i < in; ++i) {
              const double term = static_cast<double>(p.dense[static_cast<size_t>(o * in + i)]) *
                                  static_cast<double>(x[static_cast<size_t>(r * in + i)]);
              want += term;
              magnitude += std::fabs(term);
            }
            // Two terms divide by 32639 / 4.0, which rounds: half a step of each activation.
            const double tolerance = magnitude * (two_terms ? 2e-5 : 2e-6);
            ASSERT_NEAR(y[static_cast<size_t>(r * out + o)], want, tolerance) << "row " << r << " output " << o;
          }
        }
      }
    }
  }
}

TEST_P(LinearQuantTest, RowsDoNotDependOnEachOther) {
  std::mt19937 rng(3);
  for (GgmlType type : {GgmlType::kQ4_1, GgmlType::kQ4_0, GgmlType::kQ4_K, GgmlType::kQ8_0, GgmlType::kQ6_K,
                        GgmlType::kQ5_1, GgmlType::kQ2_K, GgmlType::kMXFP4}) {
    for (bool two_terms : {false, true}) {
      SCOPED_TRACE(std::string(GgmlTypeName(type)) + (two_terms ? " two terms" : ""));
      const int64_t out = 64, in = 512, rows = 33;
      const Problem p = MakeProblem(rng, type, out, in);
      const std::vector<float> x = RandomActivations(rng, rows * in);
      OwnedRows q(rows, in, two_terms);
      k().quantise_rows(x.data(), in, 0, rows, &q.view);
      for (Epilogue epilogue : {Epilogue::kStore, Epilogue::kSiluMul}) {
        const std::vector<float> all = Multiply(k(), p.packed, q.view, rows, 0, rows, epilogue);
        const size_t width = all.size() / rows;
        for (int64_t count = 1; count <= 20; ++count) {
          for (int64_t begin = 0; begin + count <= rows; begin += count) {
            const std::vector<float> some = Multiply(k(), p.packed, q.view, rows, begin, begin + count, epilogue);
            ASSERT_EQ(0, std::memcmp(&some[static_cast<size_t>(begin) * width], &all[static_cast<size_t>(begin) * width],
                                     static_cast<size_t>(count) * width * 4))
                << count << " rows from " << begin;
          }
        }
      }
    }
  }
}

TEST_P(LinearQuantTest, SameBitsAsScalar) {
  std::mt19937 rng(4);
  for (GgmlType type : kTypes) {
    for (bool two_terms : {false, true}) {
      SCOPED_TRACE(std::string(GgmlTypeName(type)) + (two_terms ? " two terms" : ""));
      const int64_t out = 32, in = 512, rows = 35;
      const Problem p = MakeProblem(rng, type, out, in);
      const std::vector<float> x = RandomActivations(rng, rows * in);
      OwnedRows q(rows, in, two_terms), q_scalar(rows, in, two_terms);
      const Kernels& scalar = *FindKernels(Isa::kScalar);
      k().quantise_rows(x.data(), in, 0, rows, &q.view);
      scalar.quantise_rows(x.data(), in, 0, rows, &q_scalar.view);
      ASSERT_EQ(0, std::memcmp(q.memory.get(), q_scalar.memory.get(), q.bytes));
      for (Epilogue epilogue : {Epilogue::kStore, Epilogue::kSiluMul}) {
        EXPECT_EQ(Multiply(k(), p.packed, q.view, rows, 0, rows, epilogue),
                  Multiply(scalar, p.packed, q.view, rows, 0, rows, epilogue));
      }
    }
  }
}

// The largest weights times the largest integers of either sign: no intermediate sum may saturate or wrap.
TEST_P(LinearQuantTest, LargestIntegersAreExact) {
  std::mt19937 rng(12);
  for (GgmlType type : {GgmlType::kQ4_0, GgmlType::kQ4_1, GgmlType::kQ8_0, GgmlType::kQ5_1, GgmlType::kQ6_K, GgmlType::kQ2_K}) {
    const int64_t out = 32, in = 256, rows = 37;
    Problem p = MakeProblem(rng, type, out, in);
    const QuantMatrix& w = p.packed.matrix;
    const bool four_bit = w.format == QuantFormat::k4AsymF16 || w.format == QuantFormat::k4SymF16;
    for (int64_t i = 0; i < w.num_tiles * (in / 32); ++i) {
      std::memset(p.packed.memory.get() + i * w.record_bytes, 0xff, four_bit ? 256 : 512);
    }
    const std::vector<float> x = RandomFloats(rng, rows * in);
    for (const auto& [hi, lo] : {std::pair(-127, -128), {127, 127}}) {
      SCOPED_TRACE(std::string(GgmlTypeName(type)) + " times " + std::to_string(256 * hi + lo));
      OwnedRows q(rows, in, true);
      q.view.lo_threshold = 0;
      k().quantise_rows(x.data(), in, 0, rows, &q.view);
      std::fill_n(q.view.hi, q.view.ld * in, static_cast<int8_t>(hi));
      std::fill_n(q.view.lo, q.view.ld * in, static_cast<int8_t>(lo));
      std::fill_n(q.view.wide, q.view.ld * in, static_cast<int16_t>(256 * hi + lo));
      std::fill_n(q.view.neg_sum, q.view.ld * in / 32, -32 * (256 * hi + lo));
      std::fill_n(q.view.neg_sum16, q.view.ld * in / 16, -16 * (256 * hi + lo));
      std::fill_n(q.view.bf16_hi, q.view.ld * in, Bf16(256 * hi));
      std::fill_n(q.view.bf16_lo, q.view.ld * in, Bf16(lo));
      EXPECT_EQ(Multiply(k(), p.packed, q.view, rows, 0, rows),
                Multiply(*FindKernels(Isa::kScalar), p.packed, q.view, rows, 0, rows));
    }
  }
}

TEST_P(LinearQuantTest, EpiloguesAndTileRanges) {
  std::mt19937 rng(5);
  const int64_t out = 96, in = 64, rows = 34;
  const Problem p = MakeProblem(rng, GgmlType::kQ4_1, out, in);
  const std::vector<float> x = RandomFloats(rng, rows * in);
  OwnedRows q(rows, in, true);
  k().quantise_rows(x.data(), in, 0, rows, &q.view);
  const std::vector<float> y = Multiply(k(), p.packed, q.view, rows, 0, rows);

  const std::vector<float> start = RandomFloats(rng, rows * out);
  const std::vector<float> sum = Multiply(k(), p.packed, q.view, rows, 0, rows, Epilogue::kAccumulate, start);
  for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(sum[i], start[i] + y[i]);

  const std::vector<float> gated = Multiply(k(), p.packed, q.view, rows, 0, rows, Epilogue::kSiluMul);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < out / 2; ++i) {
      const float gate = y[static_cast<size_t>(r * out + i)], up = y[static_cast<size_t>(r * out + out / 2 + i)];
      const float want = gate / (1.0f + std::exp(-gate)) * up;
      ASSERT_NEAR(gated[static_cast<size_t>(r * out / 2 + i)], want, 1e-5f * (1.0f + std::fabs(want)));
    }
  }

  std::vector<float> pieces(static_cast<size_t>(rows * out));
  const std::shared_ptr<uint8_t[]> scratch = AllocateAligned(LinearScratchBytes(in));
  for (int64_t tile : {3, 0, 1, 4}) {
    const int64_t end = tile == 1 ? 3 : tile == 4 ? 6 : tile + 1;
    k().linear_quantised(
        {&p.packed.matrix, q.view, 0, rows, tile, end, pieces.data(), out, Epilogue::kStore, scratch.get()});
  }
  EXPECT_EQ(pieces, y);
}

TEST_P(LinearQuantTest, RoundingOfActivations) {
  std::mt19937 rng(6);
  const int64_t in = 96, rows = 40;
  std::vector<float> x = RandomFloats(rng, rows * in);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < in; ++i) x[static_cast<size_t>(r * in + i)] *= std::exp2(static_cast<float>(r - 20));
  }
  for (size_t i = 0; i < 32; ++i) x[i] = 0;
  for (bool two_terms : {false, true}) {
    OwnedRows q(rows, in, two_terms);
    q.view.lo_threshold = 0;
    k().quantise_rows(x.data(), in, 0, rows, &q.view);
    for (size_t g = 0; g < x.size() / 32; ++g) {
      const size_t row = g / 3, group = g % 3, ld = static_cast<size_t>(q.view.ld);  // A group's rows lie side by side.
      const size_t at = group * ld + row, at16 = 2 * group * ld + row;
      float amax = 0;
      int32_t sum = 0;
      for (size_t i = g * 32; i < g * 32 + 32; ++i) amax = std::max(amax, std::fabs(x[i]));
      for (size_t i = 0; i < 32; ++i) {
        const size_t j = at * 32 + i;
        const int value = two_terms ? 256 * q.view.hi[j] + q.view.lo[j] : q.view.hi[j];
        const size_t paired = at * 32 + (i & 28) + ((i & 1) * 2) + ((i & 2) / 2);
        ASSERT_EQ(q.view.wide[paired], value);
        ASSERT_EQ(q.view.bf16_hi[paired], Bf16(two_terms ? 256 * q.view.hi[j] : q.view.hi[j]));
        if (two_terms) {
          ASSERT_EQ(q.view.bf16_lo[paired], Bf16(q.view.lo[j]));
        }
        sum += value;
        ASSERT_NEAR(static_cast<float>(value) * q.view.scale[at], x[g * 32 + i], amax / (two_terms ? 65278 : 254) * 1.001f);
      }
      ASSERT_EQ(q.view.neg_sum[at], -sum);
      ASSERT_EQ(q.view.neg_sum16[at16] + q.view.neg_sum16[at16 + ld], -sum);
      ASSERT_EQ(q.view.scaled_sum[at], q.view.scale[at] * static_cast<float>(sum));
    }
  }
}

TEST_P(LinearQuantTest, SecondTermWhereAGroupStandsOut) {
  std::mt19937 rng(10);
  const int64_t in = 320;
  std::vector<float> x = RandomFloats(rng, in, 0.1f);
  x[70] = 5.0f;
  OwnedRows q(1, in, true);
  k().quantise_rows(x.data(), in, 0, 1, &q.view);
  for (size_t g = 0; g < 10; ++g) {
    EXPECT_EQ(q.view.lo_used[g], g == 2 ? 1 : 0);
    const float step = g == 2 ? 5.0f / 32639 : 256 * q.view.scale[g];
    for (size_t i = g * 32; i < g * 32 + 32; ++i) {
      const int value = 256 * q.view.hi[i] + q.view.lo[i];
      if (g != 2) {
        ASSERT_EQ(q.view.lo[i], 0);
      }
      ASSERT_NEAR(static_cast<float>(value) * q.view.scale[g], x[i], step * 0.5001f);
    }
  }
  // The norm in front of it is the same as a norm of its own.
  const std::vector<float> weight = RandomFloats(rng, in);
  std::vector<float> normed(static_cast<size_t>(in));
  k().rms_norm_rows(x.data(), in, weight.data(), 1e-5f, in, 0, 1, normed.data(), in);
  OwnedRows fused(1, in, true), apart(1, in, true);
  k().rms_norm_quantise_rows(x.data(), in, weight.data(), 1e-5f, 0, 1, &fused.view);
  k().quantise_rows(normed.data(), in, 0, 1, &apart.view);
  EXPECT_EQ(0, std::memcmp(fused.memory.get(), apart.memory.get(), fused.bytes));
}

TEST_P(LinearQuantTest, ValuesThatAreNotFiniteShow) {
  for (float bad : {NAN, INFINITY, -INFINITY}) {
    std::vector<float> x(64, 0.5f);
    x[40] = bad;
    OwnedRows q(1, 64, false);
    k().quantise_rows(x.data(), 64, 0, 1, &q.view);
    EXPECT_FALSE(std::isnan(q.view.scale[0]));
    EXPECT_TRUE(std::isnan(q.view.scale[1]));
    std::mt19937 rng(7);
    const Problem p = MakeProblem(rng, GgmlType::kQ8_0, 16, 64);
    for (float y : Multiply(k(), p.packed, q.view, 1, 0, 1)) EXPECT_TRUE(std::isnan(y));
  }
}

BATON_INSTANTIATE_FOR_EVERY_ISA(LinearQuantTest);

TEST(PackQuantTest, RefusesWhatDoesNotFit) {
  std::mt19937 rng(8);
  const std::vector<uint8_t> a = RandomBlocks(rng, GgmlType::kQ4_1, 4, 64), b = RandomBlocks(rng, GgmlType::kQ4_1, 4, 32);
  const std::vector<uint8_t> c = RandomBlocks(rng, GgmlType::kQ8_0, 4, 64);
  std::vector<TensorView> parts = {View(a, GgmlType::kQ4_1, 4, 64), View(b, GgmlType::kQ4_1, 4, 32)};
  EXPECT_THAT(PackQuant(parts).status(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("32 columns")));
  parts[1] = View(c, GgmlType::kQ8_0, 4, 64);
  EXPECT_THAT(PackQuant(parts).status(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("Q8_0")));
  parts[1] = View(a, GgmlType::kQ4_1, 3, 64);
  EXPECT_THAT(PackQuant(parts).status(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("160 bytes")));
  EXPECT_THAT(PackQuant({}).status(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no tensor")));
}

TEST(PackQuantTest, StacksParts) {
  std::mt19937 rng(9);
  const std::vector<uint8_t> a = RandomBlocks(rng, GgmlType::kQ8_0, 5, 64), b = RandomBlocks(rng, GgmlType::kQ5_0, 20, 64);
  const TensorView parts[] = {View(a, GgmlType::kQ8_0, 5, 64), View(b, GgmlType::kQ5_0, 20, 64)};
  absl::StatusOr<PackedQuant> packed = PackQuant(parts);
  ASSERT_TRUE(packed.ok()) << packed.status();
  EXPECT_EQ(packed->matrix.out, 25);
  std::vector<float> want(64), got(64);
  ASSERT_TRUE(Dequantize(GgmlType::kQ5_0, parts[1].span().subspan(17 * 44, 44), 64, want.data()).ok());
  UnpackRow(packed->matrix, 5 + 17, got.data());
  EXPECT_EQ(got, want);
}

}  // namespace
}  // namespace baton::cpu
