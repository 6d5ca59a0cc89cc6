// SPDX-License-Identifier: Apache-2.0
#include "common/backend/cpu/onednn_linear.h"

#include <cstring>
#include <thread>

#include "common/base/half.h"
#include "tests/unit/backend/kernels_test_support.h"

namespace baton::cpu {
namespace {

struct Problem {
  int64_t out, in;
  std::vector<float> w;
  std::unique_ptr<OneDnnLinear> linear;
};

Problem MakeProblem(std::mt19937& rng, int64_t out, int64_t in, bool bf16) {
  Problem p{out, in, RandomFloats(rng, out * in), nullptr};
  absl::StatusOr<std::unique_ptr<OneDnnLinear>> linear = OneDnnLinear::Create(
      [&](int64_t i, float* row) { std::memcpy(row, &p.w[static_cast<size_t>(i * in)], static_cast<size_t>(in) * 4); }, out, in,
      bf16);
  if (linear.ok()) p.linear = *std::move(linear);
  return p;
}

std::vector<float> Multiply(const Problem& p, const std::vector<float>& x, int64_t begin, int64_t rows, Epilogue epilogue,
                            std::vector<float> y) {
  const std::shared_ptr<uint8_t[]> scratch = AllocateAligned(p.linear->scratch_bytes());
  const int64_t width = epilogue == Epilogue::kSiluMul ? p.out / 2 : p.out;
  y.resize(static_cast<size_t>(rows * width));
  p.linear->Run(BestKernels(), x.data() + begin * p.in, p.in, rows, y.data(), width, epilogue, scratch.get());
  return y;
}

TEST(OneDnnLinearTest, Product) {
  std::mt19937 rng(31);
  for (bool bf16 : {false, true}) {
    for (auto [out, in] : {std::pair<int64_t, int64_t>{96, 64}, {50, 33}, {960, 576}}) {
      const Problem p = MakeProblem(rng, out, in, bf16);
      if (p.linear == nullptr) GTEST_SKIP() << "oneDNN has no bf16 matmul on this CPU";
      const int64_t rows = 9;
      const std::vector<float> x = RandomFloats(rng, rows * in);
      const std::vector<float> y = Multiply(p, x, 0, rows, Epilogue::kStore, {});
      auto stored = [bf16](float v) { return bf16 ? BFloat16ToFloat(FloatToBFloat16(v)) : v; };
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t o = 0; o < out; ++o) {
          double want = 0, magnitude = 0;
          for (int64_t i = 0; i < in; ++i) {
            const double term = static_cast<double>(stored(p.w[static_cast<size_t>(o * in + i)])) *
                                stored(x[static_cast<size_t>(r * in + i)]);
            want += term;
            magnitude += std::fabs(term);
          }
          ASSERT_NEAR(y[static_cast<size_t>(r * out + o)], want, 1e-6 * magnitude + 1e-6);
        }
      }
      const std::vector<float> sum = Multiply(p, x, 0, rows, Epilogue::kAccumulate, y);
      for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(sum[i], y[i] + y[i]);
    }
  }
}

// The same bits alone, in a full panel, and from several threads at once.
TEST(OneDnnLinearTest, RowsDoNotDependOnEachOther) {
  std::mt19937 rng(32);
  for (bool bf16 : {false, true}) {
    const Problem p = MakeProblem(rng, 192, 160, bf16);
    if (p.linear == nullptr) GTEST_SKIP() << "oneDNN has no bf16 matmul on this CPU";
    const std::vector<float> x = RandomFloats(rng, 64 * 160);
    for (Epilogue epilogue : {Epilogue::kStore, Epilogue::kSiluMul}) {
      const std::vector<float> all = Multiply(p, x, 0, 64, epilogue, {});
      const size_t width = all.size() / 64;
      auto check = [&](int64_t begin, int64_t rows) {
        const std::vector<float> some = Multiply(p, x, begin, rows, epilogue, {});
        EXPECT_EQ(0, std::memcmp(some.data(), &all[static_cast<size_t>(begin) * width], some.size() * 4))
            << rows << " rows from " << begin;
      };
      std::vector<std::thread> threads;
      for (int t = 0; t < 3; ++t) {
        threads.emplace_back([&check, t] {
          for (int64_t rows : {1, 2, 7, 31}) check(t + 3, rows);
        });
      }
      for (std::thread& t : threads) t.join();
    }
  }
}

}  // namespace
}  // namespace baton::cpu
