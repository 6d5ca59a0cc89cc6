// SPDX-License-Identifier: Apache-2.0
// Paged decode attention against double: every group size, contexts at the edges of blocks and splits.
#include <cmath>

#include "tests/gpu_sim/kernels/paged_cache.h"

namespace baton::cuda {
namespace {

using testing::DeviceArray;
using testing::PagedCache;
using testing::RandomFloats;

class DecodeAttentionTest : public testing::GpuTest {
 protected:
  // One query per sequence and head; `num_sequences` of the cache's take part.
  std::vector<float> Attend(const std::string& kernel, const PagedCache& cache, int group, const std::vector<float>& q, int split_tokens, size_t num_sequences) {
    const auto sequences = static_cast<unsigned>(num_sequences), heads = static_cast<unsigned>(cache.kv_heads * group);
    const int longest = *std::max_element(cache.contexts.begin(), cache.contexts.end());
    const int num_splits = (longest + split_tokens - 1) / split_tokens;
    const DeviceArray<uint16_t> pool = Upload(cache.pool);
    const auto tables = Upload(cache.tables), contexts = Upload(cache.contexts);
    const auto dq = Upload(q);
    const auto partial = Poisoned<float>(static_cast<size_t>(sequences) * heads * num_splits * cache.head_dim);
    const auto max_sum = Poisoned<float>(static_cast<size_t>(sequences) * heads * num_splits * 2);
    const auto out = Poisoned<float>(static_cast<size_t>(sequences) * heads * cache.head_dim);
    DecodeAttentionParams p = {};
    p.q = dq.get();
    p.block_tables = tables.get();
    p.context_lengths = contexts.get();
    p.partial = partial.get();
    p.partial_max_sum = max_sum.get();
    p.out = out.get();
    p.kv = cache.Params(pool.get());
    p.scale = 1.0f / std::sqrt(static_cast<float>(cache.head_dim));
    p.num_heads = static_cast<int>(heads);
    p.max_blocks = cache.max_blocks;
    p.num_splits = num_splits;
    p.split_tokens = split_tokens;
    Run(kernel, {static_cast<unsigned>(num_splits), static_cast<unsigned>(cache.kv_heads), sequences}, {128}, p);
    Run("attention_combine", {heads, sequences}, {static_cast<unsigned>(cache.head_dim)}, p);
    return Download(out);
  }
};

struct AttentionCase {
  const char* kernel;
  int group, head_dim, kv_heads, block_size, split_tokens;
  bool bf16;
  std::vector<int> contexts;
};

TEST_F(DecodeAttentionTest, EveryGroupAndEdge) {
  const std::vector<AttentionCase> cases = {
      {"decode_attention_f16_g1_d64", 1, 64, 2, 16, 128, false, {1, 15, 16, 17, 128, 129}},
      {"decode_attention_f16_g3_d64", 3, 64, 3, 32, 64, false, {33, 64, 65, 200}},
      {"decode_attention_f16_g4_d128", 4, 128, 2, 16, 64, false, {77, 1}},
      {"decode_attention_f16_g8_d128", 8, 128, 1, 16, 256, false, {250}},
      {"decode_attention_bf16_g4_d128", 4, 128, 1, 16, 32, true, {31, 97}},
  };
  for (const bool reverse : {false, true}) {
    SimSet("reverse_warps", reverse);
    for (const AttentionCase& c : cases) {
      const PagedCache cache(c.kv_heads, c.head_dim, c.block_size, c.bf16, c.contexts, 31);
      const int heads = c.kv_heads * c.group;
      const std::vector<float> q = RandomFloats(c.contexts.size() * heads * c.head_dim, 32);
      const std::vector<float> out = Attend(c.kernel, cache, c.group, q, c.split_tokens, c.contexts.size());
      for (size_t s = 0; s < c.contexts.size(); ++s) {
        for (int head = 0; head < heads; ++head) {
          const size_t at = (s * heads + head) * c.head_dim;
          const std::vector<double> expected = cache.Attend(s, head / c.group, &q[at], false, c.contexts[s]);
          for (int i = 0; i < c.head_dim; ++i) {
            ASSERT_NEAR(out[at + i], expected[i], 2e-5) << c.kernel << " context " << c.contexts[s] << " head " << head << " dim " << i;
          }
        }
      }
    }
  }
}

// Keys and values are read in whole sectors, once for all heads of a group.
TEST_F(DecodeAttentionTest, ReadsWholeSectorsOnce) {
  const PagedCache cache(1, 128, 16, false, {256}, 41);
  Attend("decode_attention_f16_g4_d128", cache, 4, RandomFloats(4 * 128, 42), 256, 1);
  if (!simulated()) return;
  EXPECT_EQ(SimCount("sectors"), SimCount("ideal_sectors"));
  const int64_t kv_sectors = 256 * 128 * 2 * 2 / 32;
  EXPECT_LE(SimCount("sectors"), kv_sectors + 1000);  // What is not keys and values: q, table, partial results.
}

// Each barrier of the shipped PTX left out, one at a time, is reported.
TEST_F(DecodeAttentionTest, EveryBarrierIsNeeded) {
  if (!simulated()) GTEST_SKIP() << "a check of the simulator";
  const PagedCache cache(1, 64, 16, false, {130}, 45);
  const std::vector<float> q = RandomFloats(3 * 64, 46);
  int left_out = 0;
  for (const char* barrier : {"bar.sync", "bar.warp.sync"}) {
    for (int n = 0; LeaveOut("decode_attention_f16_g3_d64", barrier, n); ++n, ++left_out) {
      Attend("decode_attention_f16_g3_d64", cache, 3, q, 256, 1);
      EXPECT_NE(TakeFindings(), "") << barrier << " number " << n;
    }
  }
  EXPECT_EQ(left_out, 4);
}

TEST_F(DecodeAttentionTest, BitsDoNotDependOnTheBatch) {
  const PagedCache cache(1, 64, 16, false, {40, 90}, 51);
  const std::vector<float> q = RandomFloats(2 * 3 * 64, 52);
  const std::vector<float> both = Attend("decode_attention_f16_g3_d64", cache, 3, q, 32, 2);
  const std::vector<float> alone = Attend("decode_attention_f16_g3_d64", cache, 3, q, 32, 1);
  for (size_t i = 0; i < alone.size(); ++i) EXPECT_EQ(alone[i], both[i]) << i;
}

}  // namespace
}  // namespace baton::cuda
