// SPDX-License-Identifier: Apache-2.0
// Kernels that work row by row, against double: RMSNorm, rotary embedding with the cache write, KV blocks, quantised matrices.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <span>
#include <utility>

#include "common/backend/cuda/kernels/kernel_types.h"
#include "common/base/half.h"
#include "common/format/ggml_types.h"
#include "tests/gpu_sim/kernels/gpu_test_support.h"

namespace baton::cuda {
namespace {

using testing::RandomFloats;

class RowKernelsTest : public testing::GpuTest {};

float FromBits(uint16_t bits, bool bf16) { return bf16 ? BFloat16ToFloat(bits) : HalfToFloat(bits); }
// Half a unit in the last place of the format, and the fp32 sums before it.
double Tolerance(double value, bool bf16) { return std::abs(value) * (bf16 ? 0x1.1p-8 : 0x1.1p-11) + 1e-6; }

TEST_F(RowKernelsTest, RmsNormWithAndWithoutResidual) {
  for (const bool bf16 : {false, true}) {
    for (const int n : {4, 32, 1020, 1024, 2052}) {
      for (const bool residual : {false, true}) {
        const size_t rows = 3;
        const std::vector<float> x = RandomFloats(rows * n, 1), delta = RandomFloats(rows * n, 2), weight = RandomFloats(n, 3);
        const auto dx = Upload(x), ddelta = Upload(delta), dweight = Upload(weight);
        const auto y = Poisoned<uint16_t>(rows * n);
        Run(bf16 ? "rms_norm_bf16" : "rms_norm_f16", {rows}, {256}, dx.get(), residual ? ddelta.get() : nullptr, dweight.get(), 1e-5f, n, y.get());
        const std::vector<float> after = Download(dx);
        const std::vector<uint16_t> out = Download(y);
        for (size_t row = 0; row < rows; ++row) {
          double squares = 0;
          for (int i = 0; i < n; ++i) {
            const size_t at = row * n + i;
            ASSERT_EQ(after[at], residual ? x[at] + delta[at] : x[at]) << at;
            squares += double{after[at]} * after[at];
          }
          const double scale = 1 / std::sqrt(squares / n + 1e-5);
          for (int i = 0; i < n; ++i) {
            const double expected = after[row * n + i] * scale * weight[i];
            ASSERT_NEAR(FromBits(out[row * n + i], bf16), expected, Tolerance(expected, bf16)) << "n " << n << " row " << row << " column " << i;
          }
        }
      }
    }
  }
  if (!simulated()) return;
  EXPECT_LE(static_cast<double>(SimCount("sectors")), 1.1 * static_cast<double>(SimCount("ideal_sectors")));
}

struct RopeCase {
  int heads, kv_heads, head_dim, block_size;
  bool interleaved, bias, norm, bf16;
};

TEST_F(RowKernelsTest, RopeAndCacheWrite) {
  for (const RopeCase& c : std::vector<RopeCase>{{9, 3, 64, 16, false, false, false, false}, {4, 4, 64, 16, true, true, false, true},
                                                 {8, 1, 128, 32, false, false, true, false}, {2, 2, 256, 16, false, true, true, true}, {2, 1, 2, 16, true, false, false, false}}) {
    const int rows = 4, all = c.heads + 2 * c.kv_heads, d = c.head_dim, positions = 40, blocks = 5;
    const std::vector<float> qkv = RandomFloats(static_cast<size_t>(rows) * all * d, 4), bias = RandomFloats(all * d, 5);
    const std::vector<float> q_norm = RandomFloats(d, 6), k_norm = RandomFloats(d, 7);
    std::vector<float> cos_sin(static_cast<size_t>(positions) * d);
    for (int p = 0; p < positions; ++p) {
      for (int i = 0; i < d / 2; ++i) {
        const double angle = p * std::pow(10000.0, -2.0 * i / d);
        cos_sin[p * d + 2 * i] = static_cast<float>(std::cos(angle));
        cos_sin[p * d + 2 * i + 1] = static_cast<float>(std::sin(angle));
      }
    }
    const std::vector<int> position = {0, 15, 16, 39};
    const std::vector<int> slots = {0, 2 * c.block_size - 1, 2 * c.block_size, 4 * c.block_size + 7};
    const size_t cell = static_cast<size_t>(c.kv_heads) * d * c.block_size;  // Of K, and of V behind it.
    const auto pool = Poisoned<uint16_t>(blocks * 2 * cell);
    const auto q = Poisoned<float>(static_cast<size_t>(rows) * c.heads * d);
    const auto dqkv = Upload(qkv), dbias = Upload(bias), dq_norm = Upload(q_norm), dk_norm = Upload(k_norm), dcos_sin = Upload(cos_sin);
    const auto dposition = Upload(position), dslots = Upload(slots);
    RopeCacheParams p = {};
    p.qkv = dqkv.get();
    p.bias = c.bias ? dbias.get() : nullptr;
    p.q_norm = c.norm ? dq_norm.get() : nullptr;
    p.k_norm = c.norm ? dk_norm.get() : nullptr;
    p.cos_sin = dcos_sin.get();
    p.positions = dposition.get();
    p.slots = dslots.get();
    p.q = q.get();
    p.kv = {reinterpret_cast<unsigned char*>(pool.get()), reinterpret_cast<unsigned char*>(pool.get() + cell), static_cast<long long>(4 * cell), c.block_size, c.kv_heads, d};
    p.norm_eps = 1e-6f;
    p.num_heads = c.heads;
    p.interleaved = c.interleaved ? 1 : 0;
    Run(c.bf16 ? "rope_cache_bf16" : "rope_cache_f16", {static_cast<unsigned>(rows), static_cast<unsigned>((all + 3) / 4)}, {128}, p);
    const std::vector<float> got_q = Download(q);
    std::vector<uint16_t> got_pool = Download(pool);
    for (int row = 0; row < rows; ++row) {
      for (int head = 0; head < all; ++head) {
        std::vector<double> v(d);
        double squares = 0;
        for (int i = 0; i < d; ++i) {
          v[i] = qkv[(row * all + head) * d + i] + (c.bias ? bias[head * d + i] : 0.0f);
          squares += v[i] * v[i];
        }
        const bool is_q = head < c.heads, is_v = head >= c.heads + c.kv_heads;
        if (c.norm && !is_v) {
          for (int i = 0; i < d; ++i) v[i] *= (is_q ? q_norm[i] : k_norm[i]) / std::sqrt(squares / d + 1e-6);
        }
        for (int i = 0; i < d / 2 && !is_v; ++i) {
          const int a = c.interleaved ? 2 * i : i, b = c.interleaved ? 2 * i + 1 : i + d / 2;
          const double angle = position[row] * std::pow(10000.0, -2.0 * i / d), va = v[a], vb = v[b];
          v[a] = va * std::cos(angle) - vb * std::sin(angle);
          v[b] = va * std::sin(angle) + vb * std::cos(angle);
        }
        for (int i = 0; i < d; ++i) {
          if (is_q) {
            ASSERT_NEAR(got_q[(row * c.heads + head) * d + i], v[i], 2e-5) << "q of row " << row << " head " << head;
            continue;
          }
          const int kv_head = head - c.heads - (is_v ? c.kv_heads : 0), block = slots[row] / c.block_size, offset = slots[row] % c.block_size;
          const size_t at = block * 2 * cell + (is_v ? cell + (static_cast<size_t>(kv_head) * c.block_size + offset) * d + i
                                                     : (static_cast<size_t>(kv_head) * d + i) * c.block_size + offset);
          ASSERT_NEAR(FromBits(got_pool[at], c.bf16), v[i], Tolerance(v[i], c.bf16) + 2e-5) << (is_v ? "v" : "k") << " of row " << row << " head " << head;
          got_pool[at] = 0xffff;
        }
      }
    }
    // No other slot was touched.
    EXPECT_EQ(std::count(got_pool.begin(), got_pool.end(), 0xffff), static_cast<int64_t>(got_pool.size()));
  }
}

TEST_F(RowKernelsTest, GatherAndScatterBlocks) {
  const int stride = 4096 + 64, bytes = 4096, blocks = 9;
  std::vector<uint8_t> pool(static_cast<size_t>(stride) * blocks);
  for (size_t i = 0; i < pool.size(); ++i) pool[i] = static_cast<uint8_t>(i * 31 >> 3);
  const std::vector<int> ids = {8, 0, 3, 7};
  const auto dpool = Upload(pool), target = Poisoned<uint8_t>(pool.size());
  const auto dids = Upload(ids);
  const auto staging = Poisoned<uint8_t>(ids.size() * bytes);
  Run("gather_blocks", {4}, {128}, dpool.get(), static_cast<long long>(stride), dids.get(), bytes, staging.get());
  const std::vector<uint8_t> gathered = Download(staging);
  for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(std::memcmp(&gathered[i * bytes], &pool[ids[i] * stride], bytes), 0) << i;
  Run("scatter_blocks", {4}, {128}, target.get(), static_cast<long long>(stride), dids.get(), bytes, staging.get());
  const std::vector<uint8_t> scattered = Download(target);
  for (int block = 0; block < blocks; ++block) {
    const bool written = std::count(ids.begin(), ids.end(), block) != 0;
    for (int i = 0; i < stride; ++i) ASSERT_EQ(scattered[block * stride + i], written && i < bytes ? pool[block * stride + i] : 0xff) << block << " " << i;
  }
  if (!simulated()) return;
  EXPECT_LE(static_cast<double>(SimCount("sectors")), 1.1 * static_cast<double>(SimCount("ideal_sectors")));
}

// Rows of every type that is gathered on the device, in the file's form: the host's bits.
TEST_F(RowKernelsTest, EmbeddingIsTheHostsBitForBit) {
  const std::pair<const char*, GgmlType> types[] = {{"embed_f32", GgmlType::kF32}, {"embed_f16", GgmlType::kF16}, {"embed_bf16", GgmlType::kBF16},
                                                    {"embed_q4_0", GgmlType::kQ4_0}, {"embed_q4_1", GgmlType::kQ4_1}, {"embed_q5_0", GgmlType::kQ5_0},
                                                    {"embed_q5_1", GgmlType::kQ5_1}, {"embed_q8_0", GgmlType::kQ8_0}};
  constexpr int kRows = 9;
  for (const auto& [kernel, type] : types) {
    for (const int n : {32, 288, 544}) {
      const GgmlTypeTraits& traits = TraitsOf(type);
      const size_t block_bytes = static_cast<size_t>(traits.block_bytes), row_bytes = static_cast<size_t>(n / traits.block_length) * block_bytes;
      std::mt19937 random(static_cast<uint32_t>(n));
      std::vector<uint8_t> table(kRows * row_bytes);
      for (uint8_t& byte : table) byte = static_cast<uint8_t>(random());
      // Scales and minima, and values that have a form of their own: numbers.
      const bool quantised = traits.block_length > 1, minimum = type == GgmlType::kQ4_1 || type == GgmlType::kQ5_1;
      for (size_t at = 0; at < table.size(); at += block_bytes) {
        const float value = static_cast<float>(static_cast<int>(random() % 20001) - 10000) * 1e-4f;
        if (quantised || type == GgmlType::kF16) {
          const uint16_t bits = FloatToHalf(value);
          std::memcpy(&table[at], &bits, 2);
        } else if (type == GgmlType::kBF16) {
          const uint16_t bits = FloatToBFloat16(value);
          std::memcpy(&table[at], &bits, 2);
        } else {
          std::memcpy(&table[at], &value, 4);
        }
        if (!minimum) continue;
        const uint16_t bits = FloatToHalf(-0.37f * value + 0.01f);
        std::memcpy(&table[at + 2], &bits, 2);
      }
      const std::vector<int> ids = {8, 0, 3, 3, 7};
      const auto dtable = Upload(table);
      const auto dids = Upload(ids);
      const auto out = Poisoned<float>(ids.size() * static_cast<size_t>(n));
      Run(kernel, {static_cast<unsigned>((n + 255) / 256), static_cast<unsigned>(ids.size())}, {256}, static_cast<const unsigned char*>(dtable.get()),
          static_cast<long long>(row_bytes), static_cast<const int*>(dids.get()), n, out.get());
      const std::vector<float> got = Download(out);
      std::vector<float> want(static_cast<size_t>(n));
      for (size_t i = 0; i < ids.size(); ++i) {
        const std::span<const uint8_t> row(&table[static_cast<size_t>(ids[i]) * row_bytes], row_bytes);
        ASSERT_TRUE(Dequantize(type, row, n, want.data()).ok());
        ASSERT_EQ(std::memcmp(&got[i * static_cast<size_t>(n)], want.data(), want.size() * sizeof(float)), 0) << kernel << " of " << n << ", row " << ids[i];
      }
    }
  }
}

// Quantised as the kernel reads it, and as doubles.
struct QuantMatrix {
  std::vector<uint8_t> quants;
  std::vector<uint32_t> high;
  std::vector<uint16_t> scales;  // Pairs.
  std::vector<double> values;    // [rows, columns]
};

QuantMatrix MakeQuantMatrix(int bits, int rows, int columns, uint32_t seed) {
  QuantMatrix m;
  const std::vector<float> random = RandomFloats(static_cast<size_t>(rows) * columns, seed);
  m.values.resize(random.size());
  for (size_t block = 0; block < random.size() / 32; ++block) {
    // Extremes too: a block of zeros, and one of the largest quants.
    const float scale = HalfToFloat(FloatToHalf(block % 7 == 3 ? 0.0f : 0.01f + 0.001f * static_cast<float>(block % 11)));
    const float minimum = bits == 8 ? 0.0f : HalfToFloat(FloatToHalf(-0.05f * static_cast<float>(block % 5)));
    m.scales.push_back(FloatToHalf(scale));
    m.scales.push_back(FloatToHalf(minimum));
    int quants[32];
    for (int j = 0; j < 32; ++j) {
      const float r = block % 7 == 5 ? 1.0f : random[block * 32 + j];
      quants[j] = bits == 8 ? std::max(-128, static_cast<int>(r * 127)) : std::min((1 << bits) - 1, static_cast<int>((r + 1) * (1 << (bits - 1))));
      m.values[block * 32 + j] = double{scale} * quants[j] + minimum;
    }
    uint32_t high = 0;
    for (int j = 0; j < 32; ++j) high |= static_cast<uint32_t>(quants[j] >> 4 & 1) << j;
    m.high.push_back(high);
    for (int j = 0; j < (bits == 8 ? 32 : 16); ++j) {
      m.quants.push_back(static_cast<uint8_t>(bits == 8 ? quants[j] : (quants[j] & 15) | (quants[j + 16] & 15) << 4));
    }
  }
  return m;
}

TEST_F(RowKernelsTest, QuantizedMatrixTimesVectors) {
  for (const int bits : {4, 5, 8}) {
    for (const int batch : {1, 4, 8}) {
      for (const auto& [rows, columns] : {std::pair(5, 32), {4, 1056}, {33, 1024}}) {
        const QuantMatrix m = MakeQuantMatrix(bits, rows, columns, 11);
        std::vector<float> x = RandomFloats(static_cast<size_t>(batch) * columns, 12);
        std::fill(x.begin(), x.begin() + 32, 0.0f);  // A block whose scale is 0.
        const auto quants = Upload(m.quants);
        const auto high = Upload(m.high);
        const auto scales = Upload(m.scales);
        const auto dx = Upload(x);
        const auto xq = Poisoned<int8_t>(x.size());
        const auto xs = Poisoned<float>(x.size() / 16);
        const auto y = Poisoned<float>(static_cast<size_t>(batch) * rows);
        Run("quantize_rows", {3}, {128}, dx.get(), static_cast<long long>(x.size() / 32), xq.get(), xs.get());
        Run("quant_gemv_q" + std::to_string(bits) + "_b" + std::to_string(batch), {static_cast<unsigned>((rows + 3) / 4)}, {128}, quants.get(), high.get(),
            scales.get(), xq.get(), xs.get(), rows, columns / 32, y.get(), static_cast<long long>(rows));
        const std::vector<int8_t> rounded = Download(xq);
        const std::vector<float> scale = Download(xs), out = Download(y);
        for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(rounded[i] * scale[i / 32 * 2], x[i], scale[i / 32 * 2] * 0.5001) << i;
        for (int b = 0; b < batch; ++b) {
          for (int row = 0; row < rows; ++row) {
            double expected = 0, magnitude = 0;
            for (int i = 0; i < columns; ++i) {
              const size_t at = static_cast<size_t>(b) * columns + i;
              const double term = m.values[static_cast<size_t>(row) * columns + i] * rounded[at] * scale[at / 32 * 2];
              expected += term;
              magnitude += std::abs(term);
            }
            ASSERT_NEAR(out[static_cast<size_t>(b) * rows + row], expected, 1e-6 * magnitude + 1e-7) << bits << " bits, row " << row << " of " << rows << ", vector " << b;
          }
        }
      }
    }
  }
  if (!simulated()) return;
  // Rows begin anywhere within a sector, and short ones use a part of the last.
  EXPECT_LE(static_cast<double>(SimCount("sectors")), 1.15 * static_cast<double>(SimCount("ideal_sectors")));
}

// A row's bits do not depend on what else is in the batch.
TEST_F(RowKernelsTest, AVectorHasTheSameBitsInEveryBatch) {
  const int rows = 8, columns = 512;
  const QuantMatrix m = MakeQuantMatrix(4, rows, columns, 21);
  const std::vector<float> x = RandomFloats(4 * columns, 22);
  const auto quants = Upload(m.quants);
  const auto scales = Upload(m.scales);
  const auto dx = Upload(x);
  const auto xq = Poisoned<int8_t>(x.size());
  const auto xs = Poisoned<float>(x.size() / 16), together = Poisoned<float>(4 * rows), alone = Poisoned<float>(rows);
  const uint32_t* const none = nullptr;
  Run("quantize_rows", {3}, {128}, dx.get(), static_cast<long long>(x.size() / 32), xq.get(), xs.get());
  Run("quant_gemv_q4_b4", {2}, {128}, quants.get(), none, scales.get(), xq.get(), xs.get(), rows, columns / 32, together.get(), static_cast<long long>(rows));
  const std::vector<float> all = Download(together);
  for (int b = 0; b < 4; ++b) {
    Run("quant_gemv_q4_b1", {2}, {128}, quants.get(), none, scales.get(), xq.get() + b * columns, xs.get() + b * columns / 16, rows, columns / 32, alone.get(), static_cast<long long>(rows));
    const std::vector<float> one = Download(alone);
    for (int row = 0; row < rows; ++row) EXPECT_EQ(one[row], all[b * rows + row]) << b << " " << row;
  }
}

// Nor on which kernel multiplies: up to 64 vectors on tensor cores are as each of them alone.
TEST_F(RowKernelsTest, ManyVectorsHaveTheBitsOfEachAlone) {
  for (const int bits : {4, 5, 8}) {
    for (const auto& [rows, columns] : {std::pair(37, 33 * 32), {16, 5 * 32}, {70, 512}}) {
      const QuantMatrix m = MakeQuantMatrix(bits, rows, columns, 31);
      std::vector<float> x = RandomFloats(64 * static_cast<size_t>(columns), 32);
      std::fill(x.begin(), x.begin() + 32, 0.0f);
      std::fill(x.begin() + 32, x.begin() + 64, -1.0f);  // The largest dot products.
      const auto quants = Upload(m.quants);
      const auto high = Upload(m.high);
      const auto scales = Upload(m.scales);
      const auto dx = Upload(x);
      const auto xq = Poisoned<int8_t>(x.size());
      const auto xs = Poisoned<float>(x.size() / 16);
      Run("quantize_rows", {8}, {128}, dx.get(), static_cast<long long>(x.size() / 32), xq.get(), xs.get());
      const auto alone = Poisoned<float>(64 * static_cast<size_t>(rows));
      for (int b = 0; b < 64; ++b) {
        Run("quant_gemv_q" + std::to_string(bits) + "_b1", {static_cast<unsigned>((rows + 3) / 4)}, {128}, quants.get(), high.get(), scales.get(), xq.get() + b * columns, xs.get() + b * columns / 16,
            rows, columns / 32, alone.get() + b * rows, static_cast<long long>(rows));
      }
      const std::vector<float> expected = Download(alone);
      for (const auto& [vectors, count] : {std::pair(16, 9), {16, 16}, {32, 17}, {32, 32}, {64, 33}, {64, 64}, {64, 1}}) {
        const auto y = Poisoned<float>(64 * static_cast<size_t>(rows));
        const unsigned rows_each = vectors == 64 ? 16 : 32;
        Run("quant_gemm_q" + std::to_string(bits) + "_v" + std::to_string(vectors), {(static_cast<unsigned>(rows) + rows_each - 1) / rows_each}, {512},
            quants.get(), high.get(), scales.get(), xq.get(), xs.get(), rows, columns / 32, count, y.get(), static_cast<long long>(rows));
        const std::vector<float> got = Download(y);
        for (int i = 0; i < 64 * rows; ++i) {
          if (i < count * rows) ASSERT_EQ(got[i], expected[i]) << bits << " bits, " << vectors << " vectors, " << count << ": " << i / rows << " " << i % rows;
          else ASSERT_TRUE(std::isnan(got[i])) << "written: vector " << i / rows;
        }
      }
    }
  }
}

// What 32 vectors read: the weights once, not for every eight of them.
TEST_F(RowKernelsTest, ManyVectorsReadTheWeightsOnce) {
  if (!simulated()) GTEST_SKIP() << "needs the simulator";
  const int rows = 64, columns = 1024, blocks = columns / 32;
  const QuantMatrix m = MakeQuantMatrix(8, rows, columns, 41);
  const std::vector<float> x = RandomFloats(32 * columns, 42);
  const auto quants = Upload(m.quants);
  const auto scales = Upload(m.scales);
  const auto dx = Upload(x);
  const auto xq = Poisoned<int8_t>(x.size());
  const auto xs = Poisoned<float>(x.size() / 16), y = Poisoned<float>(32 * rows);
  const uint32_t* const none = nullptr;
  Run("quantize_rows", {8}, {128}, dx.get(), static_cast<long long>(x.size() / 32), xq.get(), xs.get());
  TakeFindings();  // And counters from zero.
  for (int b = 0; b < 32; b += 8) {
    Run("quant_gemv_q8_b8", {rows / 4}, {128}, quants.get(), none, scales.get(), xq.get() + b * columns, xs.get() + b * columns / 16, rows, blocks,
        y.get() + b * rows, static_cast<long long>(rows));
  }
  const int64_t by_eights = SimCount("sectors");
  TakeFindings();
  Run("quant_gemm_q8_v32", {rows / 32}, {512}, quants.get(), none, scales.get(), xq.get(), xs.get(), rows, blocks, 32, y.get(), static_cast<long long>(rows));
  EXPECT_LT(SimCount("sectors") * 2, by_eights);
  TakeFindings();
  for (const int n : {0, 1}) {
    ASSERT_TRUE(LeaveOut("quant_gemm_q8_v32", "bar.sync", n));
    Run("quant_gemm_q8_v32", {rows / 32}, {512}, quants.get(), none, scales.get(), xq.get(), xs.get(), rows, blocks, 32, y.get(), static_cast<long long>(rows));
    EXPECT_NE(TakeFindings(), "") << "barrier " << n;
  }
}

}  // namespace
}  // namespace baton::cuda
