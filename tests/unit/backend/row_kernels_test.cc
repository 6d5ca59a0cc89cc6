// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cstring>

#include "common/base/half.h"
#include "tests/unit/backend/kernels_test_support.h"

namespace baton::cpu {
namespace {

class RowKernelsTest : public KernelsTest {};

double UlpsApart(float got, double want) {
  const float nearest = static_cast<float>(want);
  const double ulp = static_cast<double>(std::nextafter(std::fabs(nearest), INFINITY)) - std::fabs(nearest);
  return std::fabs(static_cast<double>(got) - want) / ulp;
}

TEST_P(RowKernelsTest, Exp) {
  std::vector<float> x;
  for (float v = -87.0f; v <= 88.0f; v += 0.00173f) x.push_back(v);
  std::vector<float> y(x.size());
  k().exp(x.data(), static_cast<int64_t>(x.size()), y.data());
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) worst = std::max(worst, UlpsApart(y[i], std::exp(static_cast<double>(x[i]))));
  EXPECT_LE(worst, 2.0);
  const float special[] = {0.0f, -0.0f, -INFINITY, -88.0f, -1e30f, NAN, 89.0f, INFINITY};
  float out[8];
  k().exp(special, 8, out);
  EXPECT_EQ(out[0], 1.0f);
  EXPECT_EQ(out[1], 1.0f);
  EXPECT_EQ(out[2], 0.0f);
  EXPECT_EQ(out[3], 0.0f);
  EXPECT_EQ(out[4], 0.0f);
  EXPECT_TRUE(std::isnan(out[5]));
  EXPECT_EQ(out[6], out[7]);
  EXPECT_TRUE(std::isfinite(out[7]));
}

TEST_P(RowKernelsTest, NormSiluAdd) {
  std::mt19937 rng(21);
  for (int64_t n : {1, 15, 16, 17, 100, 576}) {
    const std::vector<float> x = RandomFloats(rng, 3 * n), w = RandomFloats(rng, n), up = RandomFloats(rng, n, 3.0f);
    std::vector<float> y(static_cast<size_t>(3 * n), 9.0f);
    k().rms_norm_rows(x.data(), n, w.data(), 1e-5f, n, 1, 3, y.data(), n);
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(y[static_cast<size_t>(i)], 9.0f);
    for (int64_t r = 1; r < 3; ++r) {
      double sum = 0;
      for (int64_t i = 0; i < n; ++i) sum += std::pow(static_cast<double>(x[static_cast<size_t>(r * n + i)]), 2);
      const double scale = 1 / std::sqrt(sum / static_cast<double>(n) + 1e-5);
      for (int64_t i = 0; i < n; ++i) {
        const double want = x[static_cast<size_t>(r * n + i)] * scale * w[static_cast<size_t>(i)];
        ASSERT_NEAR(y[static_cast<size_t>(r * n + i)], want, 1e-6 * (1 + std::fabs(want)));
      }
    }
    std::vector<float> z(static_cast<size_t>(n));
    k().silu_mul(x.data(), up.data(), n, z.data());
    for (size_t i = 0; i < z.size(); ++i) {
      const double want = x[i] / (1 + std::exp(-static_cast<double>(x[i]))) * up[i];
      ASSERT_NEAR(z[i], want, 1e-6 * (1 + std::fabs(want)));
    }
    std::vector<float> sum = z;
    k().add(up.data(), n, sum.data());
    for (size_t i = 0; i < z.size(); ++i) ASSERT_EQ(sum[i], z[i] + up[i]);
  }
  const float gate[] = {-200.0f, -1e30f, 200.0f, 0.0f}, one[] = {1, 1, 1, 1};
  float out[4];
  k().silu_mul(gate, one, 4, out);
  EXPECT_NEAR(out[0], 0, 1e-30);
  EXPECT_NEAR(out[1], 0, 1e-6);
  EXPECT_EQ(out[2], 200.0f);
  EXPECT_EQ(out[3], 0.0f);
}

TEST_P(RowKernelsTest, RoundingToHalf) {
  std::mt19937 rng(22);
  std::vector<float> x = {0.0f, -0.0f, 65504.0f, 65519.9f, 65520.0f, 1e9f, -1e9f, INFINITY, -INFINITY, 6e-8f, 2.9e-8f,
                          -6.1e-5f, 1.0f + 0x1p-11f, 1.0f + 0x3p-11f, NAN, -NAN, 3.4e38f, 1e-40f};
  for (uint32_t bits : {0x7fffffffu, 0xffffffffu, 0x7f800001u}) x.push_back(std::bit_cast<float>(bits));
  for (int i = 0; i < 3000; ++i) {
    x.push_back(std::ldexp(static_cast<float>(rng()) / 4294967296.0f - 0.5f, static_cast<int>(rng() % 60) - 40));
  }
  std::vector<uint16_t> bits(x.size());
  std::vector<float> back(x.size());
  k().round(x.data(), FloatType::kF16, static_cast<int64_t>(x.size()), reinterpret_cast<uint8_t*>(bits.data()));
  k().widen(reinterpret_cast<const uint8_t*>(bits.data()), FloatType::kF16, static_cast<int64_t>(x.size()), back.data());
  for (size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(x[i])) {
      ASSERT_TRUE(std::isnan(back[i]));
      continue;
    }
    ASSERT_EQ(bits[i], FloatToHalf(std::min(65504.0f, std::max(-65504.0f, x[i])))) << x[i];
    ASSERT_EQ(back[i], HalfToFloat(bits[i]));
  }
  k().round(x.data(), FloatType::kBf16, static_cast<int64_t>(x.size()), reinterpret_cast<uint8_t*>(bits.data()));
  k().widen(reinterpret_cast<const uint8_t*>(bits.data()), FloatType::kBf16, static_cast<int64_t>(x.size()), back.data());
  const float limit = std::bit_cast<float>(0x7f7f0000u);
  for (size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(x[i])) {
      ASSERT_TRUE(std::isnan(back[i]));
      continue;
    }
    ASSERT_EQ(bits[i], FloatToBFloat16(std::min(limit, std::max(-limit, x[i])))) << x[i];
    ASSERT_EQ(back[i], BFloat16ToFloat(bits[i]));
  }
  // Every half there is comes back as it was, but that infinities are cut to the largest finite value.
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  std::vector<float> wide(all.size());
  k().widen(reinterpret_cast<const uint8_t*>(all.data()), FloatType::kF16, 65536, wide.data());
  for (size_t i = 0; i < all.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(wide[i]), std::bit_cast<uint32_t>(HalfToFloat(all[i]))) << i;
  }
}

struct LinearShape {
  int64_t rows, out, in;
};

TEST_P(RowKernelsTest, LinearFloat) {
  std::mt19937 rng(23);
  for (GgmlType type : {GgmlType::kF32, GgmlType::kF16, GgmlType::kBF16}) {
    for (const LinearShape& s : {LinearShape{1, 1, 1}, {3, 17, 5}, {13, 96, 33}, {7, 130, 64}, {20, 64, 112}}) {
      SCOPED_TRACE(std::string(GgmlTypeName(type)) + " " + std::to_string(s.rows) + "x" + std::to_string(s.out));
      std::vector<float> w = RandomFloats(rng, s.out * s.in);
      std::vector<uint8_t> bytes(w.size() * static_cast<size_t>(TraitsOf(type).block_bytes));
      for (size_t i = 0; i < w.size(); ++i) {
        const uint16_t half = type == GgmlType::kF16 ? FloatToHalf(w[i]) : FloatToBFloat16(w[i]);
        if (type == GgmlType::kF32) {
          std::memcpy(&bytes[4 * i], &w[i], 4);
        } else {
          std::memcpy(&bytes[2 * i], &half, 2);
          w[i] = type == GgmlType::kF16 ? HalfToFloat(half) : BFloat16ToFloat(half);
        }
      }
      const TensorView view = View(bytes, type, s.out, s.in);
      absl::StatusOr<PackedFloat> packed = PackFloat({&view, 1});
      ASSERT_TRUE(packed.ok()) << packed.status();
      std::vector<float> row(static_cast<size_t>(s.in));
      UnpackRow(packed->matrix, s.out - 1, row.data());
      ASSERT_EQ(0, std::memcmp(row.data(), &w[static_cast<size_t>((s.out - 1) * s.in)], row.size() * 4));

      const std::vector<float> x = RandomFloats(rng, s.rows * s.in);
      auto run = [&](Epilogue epilogue, int64_t step, std::vector<float> y) {
        const int64_t width = static_cast<int64_t>(y.size()) / s.rows;
        for (int64_t r = 0; r < s.rows; r += step) {
          k().linear_float({&packed->matrix, x.data(), s.in, r, std::min(s.rows, r + step), 0, (width + 15) / 16, y.data(),
                            width, epilogue});
        }
        return y;
      };
      const std::vector<float> zero(static_cast<size_t>(s.rows * s.out));
      const std::vector<float> y = run(Epilogue::kStore, s.rows, zero);
      for (int64_t r = 0; r < s.rows; ++r) {
        for (int64_t o = 0; o < s.out; ++o) {
          double want = 0, magnitude = 0;
          for (int64_t i = 0; i < s.in; ++i) {
            const double term = static_cast<double>(w[static_cast<size_t>(o * s.in + i)]) * x[static_cast<size_t>(r * s.in + i)];
            want += term;
            magnitude += std::fabs(term);
          }
          ASSERT_NEAR(y[static_cast<size_t>(r * s.out + o)], want, 1e-6 * (magnitude + 1e-3));
        }
      }
      for (int64_t step : {1, 2, 5}) ASSERT_EQ(run(Epilogue::kStore, step, zero), y);
      const std::vector<float> sum = run(Epilogue::kAccumulate, 4, y);
      for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(sum[i], y[i] + y[i]);
      if (s.out % 32 != 0) continue;
      const std::vector<float> gated = run(Epilogue::kSiluMul, s.rows, std::vector<float>(y.size() / 2));
      for (int64_t r = 0; r < s.rows; ++r) {
        std::vector<float> want(static_cast<size_t>(s.out / 2));
        k().silu_mul(&y[static_cast<size_t>(r * s.out)], &y[static_cast<size_t>(r * s.out + s.out / 2)], s.out / 2, want.data());
        ASSERT_EQ(0, std::memcmp(want.data(), &gated[static_cast<size_t>(r * s.out / 2)], want.size() * 4));
      }
    }
  }
}

TEST_P(RowKernelsTest, QkvEpilogue) {
  std::mt19937 rng(24);
  for (int dim : {16, 64, 20}) {
    for (FloatType type : {FloatType::kF32, FloatType::kF16, FloatType::kBf16}) {
      for (bool interleaved : {false, true}) {
        const int heads = 4, kv_heads = 2, block_size = 16, half = dim / 2;
        const int64_t rows = 5, width = (heads + 2 * kv_heads) * dim, element = type == FloatType::kF32 ? 4 : 2;
        const std::vector<float> input = RandomFloats(rng, rows * width), bias = RandomFloats(rng, width);
        const std::vector<float> q_norm = RandomFloats(rng, dim), k_norm = RandomFloats(rng, dim);
        std::vector<float> angles(static_cast<size_t>(rows * dim));
        std::vector<const float*> cos_sin;
        for (int64_t r = 0; r < rows; ++r) {
          for (int i = 0; i < half; ++i) {
            const double angle = static_cast<double>(r + 3) * std::pow(100.0, -i / static_cast<double>(half));
            angles[static_cast<size_t>(r * dim + i)] = static_cast<float>(std::cos(angle));
            angles[static_cast<size_t>(r * dim + half + i)] = static_cast<float>(std::sin(angle));
          }
          cos_sin.push_back(&angles[static_cast<size_t>(r * dim)]);
        }
        const int64_t part = kv_heads * dim * block_size * element;
        std::vector<uint8_t> pool(static_cast<size_t>(2 * part * 3));
        const std::vector<int32_t> slots = {15, 16, 33, 47, 2};
        std::vector<float> qkv = input, q(static_cast<size_t>(rows * heads * dim));
        const QkvEpilogueArgs args = {qkv.data(), bias.data(), q_norm.data(), k_norm.data(), 1e-6f, cos_sin.data(), interleaved,
                                      heads, kv_heads, dim, q.data(), slots.data(), pool.data(), pool.data() + part, 2 * part,
                                      block_size, type};
        k().qkv_epilogue(args, 0, 2);
        k().qkv_epilogue(args, 2, rows);
        for (int64_t r = 0; r < rows; ++r) {
          for (int h = 0; h < heads + 2 * kv_heads; ++h) {
            std::vector<double> x(static_cast<size_t>(dim)), want(static_cast<size_t>(dim));
            double sum = 0;
            for (int d = 0; d < dim; ++d) {
              x[static_cast<size_t>(d)] = input[static_cast<size_t>(r * width + h * dim + d)] + bias[static_cast<size_t>(h * dim + d)];
              sum += x[static_cast<size_t>(d)] * x[static_cast<size_t>(d)];
            }
            const bool is_v = h >= heads + kv_heads;
            if (!is_v) {
              const std::vector<float>& norm = h < heads ? q_norm : k_norm;
              for (size_t d = 0; d < x.size(); ++d) x[d] *= norm[d] / std::sqrt(sum / dim + 1e-6);
              for (int i = 0; i < half; ++i) {
                const size_t a = static_cast<size_t>(interleaved ? 2 * i : i);
                const size_t b = static_cast<size_t>(interleaved ? 2 * i + 1 : i + half);
                const double c = cos_sin[static_cast<size_t>(r)][i], s = cos_sin[static_cast<size_t>(r)][half + i];
                want[a] = x[a] * c - x[b] * s;
                want[b] = x[b] * c + x[a] * s;
              }
            } else {
              want = x;
            }
            const int64_t block = slots[static_cast<size_t>(r)] / block_size, offset = slots[static_cast<size_t>(r)] % block_size;
            for (int d = 0; d < dim; ++d) {
              float got;
              if (h < heads) {
                got = q[static_cast<size_t>(r * heads * dim + h * dim + d)];
              } else {
                const int64_t at = is_v ? part + (((h - heads - kv_heads) * block_size + offset) * dim + d) * element
                                        : (((h - heads) * dim + d) * block_size + offset) * element;
                k().widen(pool.data() + 2 * part * block + at, type, 1, &got);
              }
              const double relative = h < heads || type == FloatType::kF32 ? 2e-6 : type == FloatType::kF16 ? 6e-4 : 5e-3;
              ASSERT_NEAR(got, want[static_cast<size_t>(d)], relative * (1 + std::fabs(want[static_cast<size_t>(d)])))
                  << "row " << r << " head " << h << " dim " << d << " interleaved " << interleaved;
            }
          }
        }
      }
    }
  }
}

// Elementwise results are the same bits on every instruction set.
TEST_P(RowKernelsTest, SameBitsAsScalar) {
  const Kernels& scalar = *FindKernels(Isa::kScalar);
  std::mt19937 rng(25);
  const std::vector<float> x = RandomFloats(rng, 1003, 20.0f), w = RandomFloats(rng, 1003);
  std::vector<float> a(1003), b(1003);
  k().exp(x.data(), 1003, a.data());
  scalar.exp(x.data(), 1003, b.data());
  EXPECT_EQ(0, std::memcmp(a.data(), b.data(), a.size() * 4));
  k().silu_mul(x.data(), w.data(), 1003, a.data());
  scalar.silu_mul(x.data(), w.data(), 1003, b.data());
  EXPECT_EQ(0, std::memcmp(a.data(), b.data(), a.size() * 4));
  k().rms_norm_rows(x.data(), 1003, w.data(), 1e-5f, 1003, 0, 1, a.data(), 1003);
  scalar.rms_norm_rows(x.data(), 1003, w.data(), 1e-5f, 1003, 0, 1, b.data(), 1003);
  EXPECT_EQ(0, std::memcmp(a.data(), b.data(), a.size() * 4));
}

BATON_INSTANTIATE_FOR_EVERY_ISA(RowKernelsTest);

}  // namespace
}  // namespace baton::cpu
