// SPDX-License-Identifier: Apache-2.0
// Quantised linear layers: which variant, and what is done with the sums; included by one .cc per instruction set.

namespace baton::cpu {
namespace {

// The packed tiles that are expanded after these, fetched while these are multiplied.
struct TilesAhead {
  const uint8_t* tiles[2] = {};
  int64_t bytes = 0;  // Of each.

  // Part `i` of `parts`.
  void Fetch(int64_t i, int64_t parts) const {
    const int64_t begin = bytes * i / parts / 64 * 64, end = bytes * (i + 1) / parts;
    for (int64_t at = begin; at < end; at += 64) {
      PrefetchFar(tiles[0] + at);
      PrefetchFar(tiles[1] + at);
    }
  }
};

// The block kernels over one source of weights.
struct BlockSet {
  int max_rows;          // In registers at once.
  const BlockFn* one;    // [max_rows + 1], by rows: one tile.
  const BlockFn* two;    // Two tiles; null where registers are few.
};

template <class Source, int kRows, int kTiles>
BlockSet SetOf(bool two_terms) {
  BlockSet set = {kRows, BlockFnsOf<Source, 1, kRows>(two_terms).of_rows, nullptr};
  if constexpr (kTiles == 2) set.two = BlockFnsOf<Source, 2, kRows>(two_terms).of_rows;
  return set;
}

// All rows with one or two tiles at `weights`, `stride` bytes apart.
void RunTiles(const QuantLinearArgs& args, const BlockSet& set, const uint8_t* weights, int64_t stride, TilePair tiles,
              const TilesAhead& ahead) {
  const int64_t groups = args.w->in / 32, num_rows = args.row_end - args.row_begin;
  const int64_t num_blocks = (num_rows + set.max_rows - 1) / set.max_rows;
  const bool pair = tiles.second >= 0;
  alignas(64) TileSums sums;
  for (int64_t i = 0; i < num_blocks; ++i) {  // Blocks as even as can be: few rows do not hide a block's own costs.
    const int64_t row = args.row_begin + num_rows * i / num_blocks;
    const int n = static_cast<int>(args.row_begin + num_rows * (i + 1) / num_blocks - row);
    ahead.Fetch(i, num_blocks);
    for (int r = 0; r < n; ++r) {  // Written at the end, and not in the cache by itself.
      Prefetch(args.y + (row + r) * args.ldy + 16 * tiles.first);
      if (pair && args.epilogue != Epilogue::kSiluMul) Prefetch(args.y + (row + r) * args.ldy + 16 * tiles.second);
    }
    if (pair && set.two != nullptr) {
      set.two[n](weights, stride, groups, args.x, row, sums[0]);
    } else {
      set.one[n](weights, 0, groups, args.x, row, sums[0]);
      if (pair) set.one[n](weights + stride, 0, groups, args.x, row, sums[1]);
    }
    WriteTile(args, tiles.first, row, n, sums[0], sums[1]);
    if (pair && args.epilogue != Epilogue::kSiluMul) WriteTile(args, tiles.second, row, n, sums[1], nullptr);
  }
}

template <class F>
void ExpandTile(const uint8_t* tile, int64_t groups, uint8_t* out) {
  using To = ExpandedOf<F>;
  for (int64_t g = 0; g < groups; ++g, tile += F::record_bytes, out += To::record_bytes) {
#pragma GCC unroll 8
    for (int s = 0; s < 8; ++s) StoreB(out + 64 * s, F::Step(tile, s));
    float* scales = reinterpret_cast<float*>(out + 512);
    for (int half = 0; half < F::num_scales; ++half) {
      Store(scales + 16 * half, F::Scale(tile, half));
      if constexpr (F::has_min) Store(scales + 16 * (F::num_scales + half), F::Minimum(tile, half));
    }
  }
}

// kDirect: few rows take the packed form; the rare formats do not, which saves their code.
template <class F, bool kDirect>
void LinearAs(const QuantLinearArgs& args) {
  using To = ExpandedOf<F>;
  const bool two_terms = args.x.lo != nullptr, silu = args.epilogue == Epilogue::kSiluMul;
  const bool direct = kDirect && args.row_end - args.row_begin <= kDirectRows;
  const int64_t groups = args.w->in / 32, tile_bytes = groups * F::record_bytes;
  BlockSet set = SetOf<To, kPanelRows, kPanelTiles>(two_terms);
  if constexpr (kDirect) {
    if (direct) set = SetOf<F, kSmallRows, kSmallTiles>(two_terms);
  }
  const auto pair_at = [&](int64_t tile) {
    if (silu) return TilePair{tile, tile + args.w->num_tiles / 2};
    return TilePair{tile, tile + 1 < args.tile_end ? tile + 1 : -1};
  };
  for (int64_t tile = args.tile_begin; tile < args.tile_end;) {
    const TilePair tiles = pair_at(tile);
    const int64_t next = tile + (silu || tiles.second < 0 ? 1 : 2);
    const uint8_t* weights = args.w->data + tile * tile_bytes;
    int64_t stride = (tiles.second - tile) * tile_bytes;
    TilesAhead ahead;
    if (!direct) {
      ExpandTile<F>(weights, groups, args.scratch);
      if (tiles.second >= 0) ExpandTile<F>(weights + stride, groups, args.scratch + groups * To::record_bytes);
      weights = args.scratch;
      stride = groups * To::record_bytes;
      if (next < args.tile_end) {
        const TilePair after = pair_at(next);
        ahead.bytes = tile_bytes;
        ahead.tiles[0] = args.w->data + after.first * tile_bytes;
        ahead.tiles[1] = args.w->data + (after.second < 0 ? after.first : after.second) * tile_bytes;
      }
    }
    RunTiles(args, set, weights, stride, tiles, ahead);
    tile = next;
  }
}

void LinearQuantised(const QuantLinearArgs& args) {
  switch (args.w->format) {
    case QuantFormat::k4AsymF16: return LinearAs<Q4AsymF16, true>(args);
    case QuantFormat::k4SymF16: return LinearAs<Q4SymF16, true>(args);
    case QuantFormat::k4AsymF32: return LinearAs<Q4AsymF32, true>(args);
    case QuantFormat::k8SymF16: return LinearAs<Q8SymF16, true>(args);
    case QuantFormat::k8SymF32: return LinearAs<Q8SymF32, false>(args);
    case QuantFormat::k8AsymF32: return LinearAs<Q8AsymF32, false>(args);
    case QuantFormat::k8SymF32G16: return LinearAs<Q8SymF32G16, true>(args);
    case QuantFormat::k8AsymF32G16: return LinearAs<Q8AsymF32G16, false>(args);
  }
}

}  // namespace
}  // namespace baton::cpu
