// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "tests/unit/backend/kernels_test_support.h"

namespace baton::cpu {
namespace {

struct Shape {
  int heads, kv_heads, head_dim, block_size;
  FloatType type;
};

std::string Name(const Shape& s) {
  return std::to_string(s.heads) + "/" + std::to_string(s.kv_heads) + " heads x " + std::to_string(s.head_dim) + ", blocks of " +
         std::to_string(s.block_size) + ", type " + std::to_string(static_cast<int>(s.type));
}

// A pool of one layer with one sequence in shuffled blocks, the rest of it (and of the last block) full of NaN.
class Pool {
 public:
  Pool(std::mt19937& rng, const Shape& s, int64_t tokens) : shape_(s) {
    element_ = s.type == FloatType::kF32 ? 4 : 2;
    const int64_t num_blocks = (tokens + s.block_size - 1) / s.block_size;
    half_ = static_cast<int64_t>(s.kv_heads) * s.head_dim * s.block_size * element_;
    memory_.assign(static_cast<size_t>(2 * half_ * (num_blocks + 2)), 0xff);
    for (int64_t b = 0; b < num_blocks; ++b) table_.push_back(static_cast<int32_t>(b + 1));
    std::shuffle(table_.begin(), table_.end(), rng);
    k_ = RandomFloats(rng, tokens * s.kv_heads * s.head_dim);
    v_ = RandomFloats(rng, tokens * s.kv_heads * s.head_dim);
    for (int64_t t = 0; t < tokens; ++t) {
      uint8_t* block = memory_.data() + 2 * half_ * table_[static_cast<size_t>(t / s.block_size)];
      const int64_t offset = t % s.block_size;
      for (int64_t h = 0; h < s.kv_heads; ++h) {
        for (int64_t d = 0; d < s.head_dim; ++d) {
          const size_t i = static_cast<size_t>((t * s.kv_heads + h) * s.head_dim + d);
          Put(block + ((h * s.head_dim + d) * s.block_size + offset) * element_, &k_[i]);
          Put(block + half_ + ((h * s.block_size + offset) * s.head_dim + d) * element_, &v_[i]);
        }
      }
    }
  }

  AttentionArgs Args(const std::vector<float>& q, std::vector<float>* out, int64_t first_position) const {
    out->assign(q.size(), -3.0f);
    const int64_t width = static_cast<int64_t>(shape_.heads) * shape_.head_dim;
    return {q.data(), width, out->data(), width, first_position, table_.data(), memory_.data(), memory_.data() + half_,
            2 * half_, shape_.block_size, shape_.type, shape_.heads, shape_.kv_heads, shape_.head_dim,
            1.0f / std::sqrt(static_cast<float>(shape_.head_dim))};
  }

  // In double, from the values as stored.
  std::vector<double> Reference(const float* q, int head, int64_t position) const {
    const int64_t kv_head = head / (shape_.heads / shape_.kv_heads);
    const auto at = [&](int64_t t) { return static_cast<size_t>((t * shape_.kv_heads + kv_head) * shape_.head_dim); };
    std::vector<double> score(static_cast<size_t>(position + 1));
    double largest = -1e300, sum = 0;
    for (int64_t t = 0; t <= position; ++t) {
      double dot = 0;
      for (int64_t d = 0; d < shape_.head_dim; ++d) dot += static_cast<double>(q[d]) * k_[at(t) + static_cast<size_t>(d)];
      score[static_cast<size_t>(t)] = dot / std::sqrt(static_cast<double>(shape_.head_dim));
      largest = std::max(largest, score[static_cast<size_t>(t)]);
    }
    std::vector<double> out(static_cast<size_t>(shape_.head_dim), 0.0);
    for (int64_t t = 0; t <= position; ++t) {
      const double p = std::exp(score[static_cast<size_t>(t)] - largest);
      sum += p;
      for (size_t d = 0; d < out.size(); ++d) out[d] += p * v_[at(t) + d];
    }
    for (double& o : out) o /= sum;
    return out;
  }

 private:
  // Stores the value and keeps what was stored.
  void Put(uint8_t* to, float* value) {
    const Kernels& scalar = *FindKernels(Isa::kScalar);
    scalar.round(value, shape_.type, 1, to);
    scalar.widen(to, shape_.type, 1, value);
  }

  Shape shape_;
  int64_t element_, half_;
  std::vector<uint8_t> memory_;
  std::vector<int32_t> table_;
  std::vector<float> k_, v_;
};

std::vector<float> Attend(const Kernels& k, const Shape& s, const Pool& pool, const std::vector<float>& q, int64_t first,
                       int64_t step) {
  std::vector<float> out;
  const AttentionArgs args = pool.Args(q, &out, first);
  const int64_t rows = static_cast<int64_t>(q.size()) / (s.heads * s.head_dim);
  const std::shared_ptr<uint8_t[]> scratch =
      AllocateAligned(AttentionScratchBytes(s.head_dim, s.heads / s.kv_heads, std::min(step, rows)));
  for (int h = 0; h < s.kv_heads; ++h) {
    for (int64_t row = 0; row < rows; row += step) {
      k.attention_rows(args, h, row, std::min(rows, row + step), scratch.get());
    }
  }
  return out;
}

class AttentionKernelsTest : public KernelsTest {};

TEST_P(AttentionKernelsTest, MatchesDoubleReference) {
  const Shape shapes[] = {
      {9, 3, 64, 32, FloatType::kF16},  {4, 4, 128, 16, FloatType::kBf16}, {16, 1, 16, 64, FloatType::kF32},
      {7, 1, 80, 48, FloatType::kF16},  {2, 1, 256, 128, FloatType::kF16}, {6, 2, 24, 16, FloatType::kF16},
      {3, 3, 96, 16, FloatType::kBf16}, {5, 1, 112, 32, FloatType::kF32},  {4, 2, 32, 16, FloatType::kBf16},
  };
  std::mt19937 rng(11);
  for (const Shape& s : shapes) {
    SCOPED_TRACE(Name(s));
    const int64_t tokens = 150, first = 37, width = s.heads * s.head_dim;
    const Pool pool(rng, s, tokens);
    const std::vector<float> q = RandomFloats(rng, (tokens - first) * width);
    const std::vector<float> out = Attend(k(), s, pool, q, first, tokens);
    for (int64_t row = 0; row < tokens - first; row += 7) {
      for (int h = 0; h < s.heads; ++h) {
        const std::vector<double> want = pool.Reference(&q[static_cast<size_t>(row * width + h * s.head_dim)], h, first + row);
        for (int d = 0; d < s.head_dim; ++d) {
          ASSERT_NEAR(out[static_cast<size_t>(row * width + h * s.head_dim + d)], want[static_cast<size_t>(d)], 2e-6)
              << "row " << row << " head " << h << " dim " << d;
        }
      }
    }
  }
}

// A row has the same bits in any batch of rows, alone, split over its context, and on every instruction set.
TEST_P(AttentionKernelsTest, SameBitsHoweverItIsCut) {
  const Shape shapes[] = {{9, 3, 64, 32, FloatType::kF16}, {8, 1, 48, 16, FloatType::kBf16}, {2, 2, 20, 16, FloatType::kF32}};
  std::mt19937 rng(12);
  for (const Shape& s : shapes) {
    SCOPED_TRACE(Name(s));
    const int64_t tokens = 1060, first = 500, rows = 30, width = s.heads * s.head_dim;
    const Pool pool(rng, s, tokens);
    for (int64_t begin : {int64_t{0}, first, int64_t{1030}}) {
      const std::vector<float> q = RandomFloats(rng, rows * width, 2.0f);
      const std::vector<float> whole = Attend(k(), s, pool, q, begin, rows);
      for (float x : whole) ASSERT_TRUE(std::isfinite(x));
      for (int64_t step : {1, 2, 13}) {
        ASSERT_EQ(0, std::memcmp(whole.data(), Attend(k(), s, pool, q, begin, step).data(), whole.size() * 4)) << step;
      }
      ASSERT_EQ(0, std::memcmp(whole.data(), Attend(*FindKernels(Isa::kScalar), s, pool, q, begin, 17).data(),
                               whole.size() * 4));
      std::vector<float> merged;
      const AttentionArgs args = pool.Args(q, &merged, begin);
      const int heads = s.heads / s.kv_heads;
      const int64_t partial = AttentionPartialFloats(s.head_dim);
      const std::shared_ptr<uint8_t[]> scratch = AllocateAligned(AttentionScratchBytes(s.head_dim, heads, 1));
      const std::shared_ptr<uint8_t[]> parts = AllocateAligned(static_cast<size_t>(3 * heads * partial * 4));
      float* partials = reinterpret_cast<float*>(parts.get());
      for (int h = 0; h < s.kv_heads; ++h) {
        const int64_t row = 29;
        const int num_splits = static_cast<int>((begin + row) / kContextSplit) + 1;
        for (int split = num_splits - 1; split >= 0; --split) {
          k().attention_split(args, h, row, split, partials + split * heads * partial, partial, scratch.get());
        }
        for (int i = 0; i < heads; ++i) {
          float* out = merged.data() + row * width + (h * heads + i) * s.head_dim;
          k().attention_merge(partials + i * partial, heads * partial, num_splits, s.head_dim, out);
        }
      }
      ASSERT_EQ(0, std::memcmp(&whole[static_cast<size_t>(29 * width)], &merged[static_cast<size_t>(29 * width)],
                               static_cast<size_t>(width) * 4));
    }
  }
}

// Scores far apart, all equal, and hugely negative.
TEST_P(AttentionKernelsTest, ExtremeScores) {
  std::mt19937 rng(13);
  const Shape s = {2, 1, 32, 16, FloatType::kF32};
  const Pool pool(rng, s, 600);
  for (float scale : {0.0f, 300.0f}) {
    const std::vector<float> q = RandomFloats(rng, 600 * 64, scale);
    const std::vector<float> out = Attend(k(), s, pool, q, 0, 64);
    for (int64_t row : {0, 1, 63, 64, 511, 512, 599}) {
      const std::vector<double> want = pool.Reference(&q[static_cast<size_t>(row * 64)], 0, row);
      for (size_t d = 0; d < 32; ++d) {
        ASSERT_NEAR(out[static_cast<size_t>(row * 64) + d], want[d], scale == 0 ? 1e-6 : 2e-3) << row;
      }
    }
  }
}

BATON_INSTANTIATE_FOR_EVERY_ISA(AttentionKernelsTest);

}  // namespace
}  // namespace baton::cpu
