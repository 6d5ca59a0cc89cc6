// SPDX-License-Identifier: Apache-2.0
// Causal prefill attention on tensor cores against double: whole prompts, chunks behind a cached prefix, several sequences.
#include <cmath>

#include "tests/gpu_sim/kernels/paged_cache.h"

namespace baton::cuda {
namespace {

using testing::PagedCache;
using testing::RandomFloats;

class PrefillAttentionTest : public testing::GpuTest {
 protected:
  // The last rows[s] tokens of each sequence are queries; q is [sum of rows, heads, head_dim].
  std::vector<float> Attend(const std::string& kernel, const PagedCache& cache, int group, const std::vector<float>& q, const std::vector<int>& rows) {
    std::vector<int> starts = {0}, positions;
    for (size_t s = 0; s < rows.size(); ++s) {
      for (int r = 0; r < rows[s]; ++r) positions.push_back(cache.contexts[s] - rows[s] + r);
      starts.push_back(starts.back() + rows[s]);
    }
    const auto pool = Upload(cache.pool);
    const auto tables = Upload(cache.tables), dstarts = Upload(starts), dpositions = Upload(positions);
    const auto dq = Upload(q), out = Poisoned<float>(q.size());
    PrefillAttentionParams p = {};
    p.q = dq.get();
    p.query_starts = dstarts.get();
    p.positions = dpositions.get();
    p.block_tables = tables.get();
    p.out = out.get();
    p.kv = cache.Params(pool.get());
    p.scale = 1.0f / std::sqrt(static_cast<float>(cache.head_dim));
    p.num_heads = cache.kv_heads * group;
    p.max_blocks = cache.max_blocks;
    const int longest = *std::max_element(rows.begin(), rows.end());
    Run(kernel, {static_cast<unsigned>((longest + 63) / 64), static_cast<unsigned>(p.num_heads), static_cast<unsigned>(rows.size())}, {128}, p);
    return Download(out);
  }
};

struct PrefillCase {
  const char* kernel;
  int group, kv_heads, head_dim, block_size;
  bool bf16;
  std::vector<int> contexts, rows;
};

TEST_F(PrefillAttentionTest, WholePromptsAndChunks) {
  const std::vector<PrefillCase> cases = {
      {"prefill_attention_f16_d64", 3, 1, 64, 16, false, {1, 31, 65, 130}, {1, 31, 65, 130}},
      {"prefill_attention_f16_d64", 1, 2, 64, 32, false, {100, 33, 64}, {4, 1, 64}},
      {"prefill_attention_f16_d128", 4, 1, 128, 16, false, {81}, {50}},
      {"prefill_attention_bf16_d128", 2, 1, 128, 48, true, {70}, {70}},
  };
  for (const bool reverse : {false, true}) {
    SimSet("reverse_warps", reverse);
    for (const PrefillCase& c : cases) {
      const PagedCache cache(c.kv_heads, c.head_dim, c.block_size, c.bf16, c.contexts, 61);
      const int heads = c.kv_heads * c.group;
      size_t num_rows = 0;
      for (const int n : c.rows) num_rows += n;
      const std::vector<float> q = RandomFloats(num_rows * heads * c.head_dim, 62);
      const std::vector<float> out = Attend(c.kernel, cache, c.group, q, c.rows);
      size_t row = 0;
      for (size_t s = 0; s < c.rows.size(); ++s) {
        for (int r = 0; r < c.rows[s]; ++r, ++row) {
          for (int head = 0; head < heads; ++head) {
            const size_t at = (row * heads + head) * c.head_dim;
            const std::vector<double> expected = cache.Attend(s, head / c.group, &q[at], true, c.contexts[s] - c.rows[s] + r + 1);
            for (int i = 0; i < c.head_dim; ++i) {  // Weights are rounded to the type; they add up to 1, values are below 1.
              ASSERT_NEAR(out[at + i], expected[i], c.bf16 ? 6e-3 : 8e-4) << c.kernel << " context " << c.contexts[s] << " row " << r << " head " << head;
            }
          }
        }
      }
    }
  }
}

// The same row, computed with the whole prompt and as the only one of a chunk.
TEST_F(PrefillAttentionTest, BitsDoNotDependOnTheChunk) {
  const PagedCache cache(1, 64, 16, false, {90}, 71);
  const std::vector<float> q = RandomFloats(90 * 64, 72);
  const std::vector<float> whole = Attend("prefill_attention_f16_d64", cache, 1, q, {90});
  for (const int last : {1, 7, 40}) {
    const std::vector<float> chunk = Attend("prefill_attention_f16_d64", cache, 1, {q.end() - last * 64, q.end()}, {last});
    for (size_t i = 0; i < chunk.size(); ++i) ASSERT_EQ(chunk[i], whole[whole.size() - chunk.size() + i]) << last << " rows, element " << i;
  }
}

// Each barrier and wait of the shipped PTX left out, one at a time, is reported.
TEST_F(PrefillAttentionTest, EveryBarrierIsNeeded) {
  if (!simulated()) GTEST_SKIP() << "a check of the simulator";
  const PagedCache cache(1, 64, 16, false, {100}, 85);
  const std::vector<float> q = RandomFloats(100 * 64, 86);
  int left_out = 0;
  for (const char* instruction : {"bar.sync", "cp.async.wait_group"}) {
    for (int n = 0; LeaveOut("prefill_attention_f16_d64", instruction, n); ++n, ++left_out) {
      Attend("prefill_attention_f16_d64", cache, 1, q, {100});
      EXPECT_NE(TakeFindings(), "") << instruction << " number " << n;
    }
  }
  EXPECT_EQ(left_out, 3);
}

// ldmatrix reads its eight rows without a bank conflict (the copies of keys into their padded rows have some), and copies read whole
// sectors.
TEST_F(PrefillAttentionTest, FewBankConflicts) {
  const PagedCache cache(1, 128, 16, false, {64}, 81);
  Attend("prefill_attention_f16_d128", cache, 1, RandomFloats(64 * 128, 82), {64});
  if (!simulated()) return;
  EXPECT_LE(static_cast<double>(SimCount("wavefronts")), 1.11 * static_cast<double>(SimCount("ideal_wavefronts")));
  EXPECT_LE(static_cast<double>(SimCount("sectors")), 1.05 * static_cast<double>(SimCount("ideal_sectors")));
}

}  // namespace
}  // namespace baton::cuda
