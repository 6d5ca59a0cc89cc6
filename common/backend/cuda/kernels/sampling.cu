// SPDX-License-Identifier: Apache-2.0
// Choosing tokens on the device. Weights are integers (2^40 is the best token's), so that sums do not depend on the order in which
// they are made: the same logits give the same token on every run.
#include <cfloat>

#include "common/backend/cuda/kernels/device_math.cuh"
#include "common/backend/cuda/kernels/kernel_types.h"

namespace baton::cuda {
namespace {

using Mass = unsigned long long;

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kChunk = 1024;       // Tokens that a warp sums up.
constexpr int kMaxChunks = 256;    // Vocabularies up to 262,144.
constexpr float kOne = 1099511627776.0f;

// Larger logits have larger keys.
__device__ __forceinline__ unsigned KeyOf(float logit) {
  const unsigned bits = __float_as_uint(logit);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// Which tokens are in: those with a larger key, and of those with this key the ones up to last_id.
struct Cut {
  unsigned key;
  int last_id;
};

struct Row {
  const float* logits;
  int vocab_size;
  float max, scale, min_p;
  Cut cut;

  __device__ bool In(int id) const {
    const unsigned key = KeyOf(logits[id]);
    return key > cut.key || (key == cut.key && id <= cut.last_id);
  }
  __device__ float Weight(int id) const { return expf((logits[id] - max) * scale); }
  __device__ Mass MassOf(int id) const {
    if (!In(id)) return 0;
    const float weight = Weight(id);
    return weight < min_p ? 0 : __float2ull_rn(weight * kOne);
  }
};

struct Scratch {
  Mass bins[256];
  Mass chunks[kMaxChunks];
  Mass result;
  unsigned digit;
  int id;
};

__device__ Mass WarpSumMass(Mass value) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(kFullWarp, value, step);
  return value;
}

// Sums `value` of all tokens, chunk by chunk, into scratch; everybody gets the sum.
template <typename F>
__device__ Mass SumChunks(int vocab_size, const F& value, Scratch* scratch) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, num_chunks = (vocab_size + kChunk - 1) / kChunk;
  __syncthreads();
  for (int chunk = warp; chunk < num_chunks; chunk += kWarps) {
    Mass sum = 0;
    const int end = min((chunk + 1) * kChunk, vocab_size);
    for (int id = chunk * kChunk + lane; id < end; id += 32) sum += value(id);
    sum = WarpSumMass(sum);
    if (lane == 0) scratch->chunks[chunk] = sum;
  }
  __syncthreads();
  Mass total = 0;
  for (int chunk = 0; chunk < num_chunks; ++chunk) total += scratch->chunks[chunk];
  return total;
}

// The first token, in order of the ids, at which the sum of `value` exceeds `target`, which is below the sum of all.
template <typename F>
__device__ int FindToken(int vocab_size, Mass target, const F& value, Scratch* scratch) {
  SumChunks(vocab_size, value, scratch);
  if (threadIdx.x < 32) {
    const int lane = threadIdx.x;
    int chunk = 0;
    for (; target >= scratch->chunks[chunk]; ++chunk) target -= scratch->chunks[chunk];
    for (int first = chunk * kChunk;; first += 32) {
      const int id = first + lane;
      const Mass mine = id < vocab_size ? value(id) : 0;
      Mass up_to = mine;  // With all lanes before.
#pragma unroll
      for (int step = 1; step < 32; step *= 2) {
        const Mass other = __shfl_up_sync(kFullWarp, up_to, step);
        if (lane >= step) up_to += other;
      }
      const unsigned reached = __ballot_sync(kFullWarp, up_to > target);
      if (reached != 0) {
        if (lane == 0) scratch->id = first + __popc((reached & -reached) - 1);  // Its lowest bit's number.
        break;
      }
      target -= __shfl_sync(kFullWarp, up_to, 31);
    }
  }
  __syncthreads();
  const int id = scratch->id;
  __syncthreads();
  return id;
}

// The cut below which the best tokens have at least `target` of `value` (1 each for a rank, their mass for a nucleus), the fewest
// that do: eight bits of the key at a time.
template <typename F>
__device__ Cut Select(const Row& row, Mass target, const F& value, Scratch* scratch) {
  unsigned prefix = 0;
  for (int shift = 24; shift >= 0; shift -= 8) {
    __syncthreads();
    scratch->bins[threadIdx.x] = 0;
    __syncthreads();
    for (int id = threadIdx.x; id < row.vocab_size; id += kThreads) {
      const unsigned key = KeyOf(row.logits[id]);
      if (shift == 24 || key >> (shift + 8) == prefix) atomicAdd(&scratch->bins[key >> shift & 0xff], value(id));
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      Mass left = target;
      unsigned digit = 255;
      for (; digit > 0 && scratch->bins[digit] < left; --digit) left -= scratch->bins[digit];
      scratch->digit = digit;
      scratch->result = left;
    }
    __syncthreads();
    prefix = prefix << 8 | scratch->digit;
    target = scratch->result;
  }
  // All that are left are equal: as many as it takes, the smallest ids first.
  const auto equal = [&](int id) -> Mass { return KeyOf(row.logits[id]) == prefix ? value(id) : 0; };
  const Mass all = SumChunks(row.vocab_size, equal, scratch);
  if (target >= all || target == 0) return {prefix, row.vocab_size};
  return {prefix, FindToken(row.vocab_size, target - 1, equal, scratch)};
}

// The largest key and its smallest id; false: a logit is not finite.
__device__ bool FindBest(const float* logits, int vocab_size, int* best) {
  __shared__ Mass keys[kWarps];
  __shared__ int all_finite[kWarps];
  Mass mine = 0;
  bool finite = true;
  for (int id = threadIdx.x; id < vocab_size; id += kThreads) {
    const float logit = logits[id];
    finite = finite && fabsf(logit) <= FLT_MAX;
    const Mass key = static_cast<Mass>(KeyOf(logit)) << 32 | (0xffffffffu - static_cast<unsigned>(id));
    mine = key > mine ? key : mine;
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    const Mass other = __shfl_xor_sync(kFullWarp, mine, step);
    mine = other > mine ? other : mine;
  }
  finite = __all_sync(kFullWarp, finite) != 0;
  if (threadIdx.x % 32 == 0) {
    keys[threadIdx.x / 32] = mine;
    all_finite[threadIdx.x / 32] = finite;
  }
  __syncthreads();
  for (int warp = 0; warp < kWarps; ++warp) {
    mine = keys[warp] > mine ? keys[warp] : mine;
    finite = finite && all_finite[warp] != 0;
  }
  *best = static_cast<int>(0xffffffffu - static_cast<unsigned>(mine));
  return finite;
}

}  // namespace
}  // namespace baton::cuda

// tokens[row] of logits [num_rows, vocab_size]; -1 where a logit is NaN or infinite. One block of 256 threads per row;
// vocab_size at most 262,144.
extern "C" __global__ void __launch_bounds__(256, 4)
sample(const float* logits, int vocab_size, const baton::cuda::SampleParams* params, int* tokens) {
  using namespace baton::cuda;
  __shared__ Scratch scratch;
  const SampleParams p = params[blockIdx.x];
  const float* const row_logits = logits + static_cast<long long>(blockIdx.x) * vocab_size;
  int best = 0;
  const bool finite = FindBest(row_logits, vocab_size, &best);
  if (!finite || p.scale == 0.0f) {
    if (threadIdx.x == 0) tokens[blockIdx.x] = finite ? best : -1;
    return;
  }
  Row row = {row_logits, vocab_size, row_logits[best], p.scale, p.min_p, {0u, vocab_size}};
  if (p.top_k > 0 && p.top_k < vocab_size) {
    row.cut = Select(row, static_cast<Mass>(p.top_k), [](int) -> Mass { return 1; }, &scratch);
  }
  const auto mass = [&](int id) { return row.MassOf(id); };
  Mass total = SumChunks(vocab_size, mass, &scratch);
  if (p.top_p < 1.0) {
    const Mass wanted = static_cast<Mass>(ceil(p.top_p * static_cast<double>(total)));
    row.cut = Select(row, wanted > 0 ? wanted : 1, mass, &scratch);
    total = SumChunks(vocab_size, mass, &scratch);
  }
  const Mass draw = static_cast<Mass>(p.uniform * static_cast<double>(total));
  const int token = FindToken(vocab_size, draw < total ? draw : total - 1, mass, &scratch);
  if (threadIdx.x == 0) tokens[blockIdx.x] = token;
}

// Changes logits [num_rows, vocab_size] in place: edits [edit_starts[row], edit_starts[row + 1]) of each row, every token at most
// once. A block of 128 threads per row.
extern "C" __global__ void __launch_bounds__(128)
edit_logits(float* logits, int vocab_size, const baton::cuda::LogitEdit* edits, const int* edit_starts, const baton::cuda::PenaltyParams* penalties) {
  float* const row = logits + static_cast<long long>(blockIdx.x) * vocab_size;
  const baton::cuda::PenaltyParams penalty = penalties[blockIdx.x];
  for (int i = edit_starts[blockIdx.x] + threadIdx.x; i < edit_starts[blockIdx.x + 1]; i += 128) {
    const baton::cuda::LogitEdit edit = edits[i];
    // What is not finite stays so, for `sample` to find.
    if (!(fabsf(row[edit.token_id]) <= FLT_MAX)) continue;
    float logit = row[edit.token_id] + edit.bias;
    if (edit.generated >= 0) {
      logit = logit > 0.0f ? logit / penalty.repetition : logit * penalty.repetition;
      logit -= penalty.frequency * static_cast<float>(edit.generated);
      if (edit.generated > 0) logit -= penalty.presence;
    }
    row[edit.token_id] = edit.masked != 0 ? -FLT_MAX : fminf(fmaxf(logit, -FLT_MAX), FLT_MAX);
  }
}
