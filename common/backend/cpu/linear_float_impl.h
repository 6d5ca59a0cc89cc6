// SPDX-License-Identifier: Apache-2.0
// fp32 multiply-add blocks and linear layers with F32, F16 or BF16 weights over a vec_*.h; included by one .cc per
// instruction set. One output: acc = fma(x[k], w[k], acc) for k ascending, from zero.

namespace baton::cpu {
namespace {

template <FloatType T>
inline V LoadAs(const uint8_t* p) {
  if constexpr (T == FloatType::kF16) return LoadF16(p);
  if constexpr (T == FloatType::kBf16) return LoadBf16(p);
  if constexpr (T == FloatType::kI8) return LoadI8(p);
  return Load(reinterpret_cast<const float*>(p));
}

// Vector v of step k lies at base[v] + k * stride bytes.
template <FloatType T>
struct VectorSource {
  const uint8_t* const* base;
  int64_t stride;
  inline V operator()(int64_t k, int v) const { return LoadAs<T>(base[v] + k * stride); }
};

// The same, with what another source has at the same places fetched ahead of its use.
template <FloatType T>
struct FetchingSource {
  const uint8_t* const* base;
  int64_t stride;
  const uint8_t* const* next;
  inline V operator()(int64_t k, int v) const {
    Prefetch(next[v] + k * stride);
    return LoadAs<T>(base[v] + k * stride);
  }
};

// acc[r][v] += sum over k of x[r][k] source(k, v), in order of k.
template <int R, int N, class Source>
BATON_ALWAYS_INLINE void FmaBlock(const float* const* x, int64_t steps, const Source& source, V (&acc)[R][N]) {
  const float* row[R];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) row[r] = x[r];
  for (int64_t k = 0; k < steps; ++k) {
    if constexpr (kVectorsOneByOne) {
      // Little is left beside the sums: inputs are broadcast anew for each vector.
#pragma GCC unroll 4
      for (int v = 0; v < N; ++v) {
        const V w = source(k, v);
#pragma GCC unroll 6
        for (int r = 0; r < R; ++r) acc[r][v] = Fma(Set(row[r][k]), w, acc[r][v]);
        KeepOrder();
      }
    } else {
      V w[N];
#pragma GCC unroll 4
      for (int v = 0; v < N; ++v) w[v] = source(k, v);
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        const V a = Set(row[r][k]);
#pragma GCC unroll 4
        for (int v = 0; v < N; ++v) acc[r][v] = Fma(a, w[v], acc[r][v]);
      }
    }
  }
}

template <FloatType T, int N, int R>
void FloatBlock(const float* const* x, int64_t in, const uint8_t* const* tiles, float (*out)[kDotRows][16]) {
  V acc[R][N];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < N; ++v) acc[r][v] = Zero();
  }
  FmaBlock<R, N>(x, in, VectorSource<T>{tiles, 16 * (T == FloatType::kF32 ? 4 : 2)}, acc);
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < N; ++v) Store(out[v][r], acc[r][v]);
  }
}

template <FloatType T, int N, int R = kDotRows>
void FloatRows(const float* const* x, int num_rows, int64_t in, const uint8_t* const* tiles,
               float (*out)[kDotRows][16]) {
  if (num_rows == R) return FloatBlock<T, N, R>(x, in, tiles, out);
  if constexpr (R > 1) FloatRows<T, N, R - 1>(x, num_rows, in, tiles, out);
}

// Sums of `num_tiles` tiles (at most kDotVectors, or two for gate and up) of up to kDotRows rows.
template <FloatType T>
void FloatTiles(const float* const* x, int num_rows, int64_t in, const uint8_t* const* tiles, int num_tiles,
                float (*out)[kDotRows][16]) {
  int t = 0;
  for (; t + kDotVectors <= num_tiles; t += kDotVectors) {
    FloatRows<T, kDotVectors>(x, num_rows, in, tiles + t, out + t);
  }
  for (; t < num_tiles; ++t) FloatRows<T, 1>(x, num_rows, in, tiles + t, out + t);
}

template <FloatType T>
void LinearFloatAs(const FloatLinearArgs& args) {
  constexpr int kMaxTiles = kDotVectors > 2 ? kDotVectors : 2;
  const FloatMatrix& w = *args.w;
  const int64_t tile_bytes = w.in * 16 * (T == FloatType::kF32 ? 4 : 2);
  const bool silu = args.epilogue == Epilogue::kSiluMul;
  const int64_t step = silu ? 1 : kDotVectors;
  alignas(64) float sums[kMaxTiles][kDotRows][16];
  for (int64_t tile = args.tile_begin; tile < args.tile_end; tile += step) {
    const uint8_t* tiles[kMaxTiles];
    int num_tiles = static_cast<int>(args.tile_end - tile < step ? args.tile_end - tile : step);
    for (int t = 0; t < num_tiles; ++t) tiles[t] = w.data + (tile + t) * tile_bytes;
    if (silu) {
      tiles[1] = w.data + (tile + w.num_tiles / 2) * tile_bytes;
      num_tiles = 2;
    }
    for (int64_t row = args.row_begin; row < args.row_end; row += kDotRows) {
      const int num_rows = static_cast<int>(args.row_end - row < kDotRows ? args.row_end - row : kDotRows);
      const float* x[kDotRows];
      for (int r = 0; r < num_rows; ++r) x[r] = args.x + (row + r) * args.ldx;
      FloatTiles<T>(x, num_rows, w.in, tiles, num_tiles, sums);
      if (silu) {
        WriteTile(args, tile, row, num_rows, sums[0], sums[1]);
        continue;
      }
      for (int t = 0; t < num_tiles; ++t) WriteTile(args, tile + t, row, num_rows, sums[t], nullptr);
    }
  }
}

void LinearFloat(const FloatLinearArgs& args) {
  switch (args.w->type) {
    case FloatType::kF32: return LinearFloatAs<FloatType::kF32>(args);
    case FloatType::kF16: return LinearFloatAs<FloatType::kF16>(args);
    case FloatType::kBf16: return LinearFloatAs<FloatType::kBf16>(args);
    case FloatType::kI8: return;  // No matrix is.
  }
}

}  // namespace
}  // namespace baton::cpu
