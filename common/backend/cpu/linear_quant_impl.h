// SPDX-License-Identifier: Apache-2.0
// Quantised linear layers: which variant, and what is done with the sums; included by one .cc per instruction set.

namespace baton::cpu {
namespace {

// Writes the sums of `num_rows` rows of one tile (or of a gate tile and its up tile).
void WriteTile(const QuantLinearArgs& args, int64_t tile, int64_t row, int num_rows, const float (*sums)[16],
               const float (*up_sums)[16]) {
  const int64_t left = args.w->out - 16 * tile;
  const int lanes = left < 16 ? static_cast<int>(left) : 16;
  for (int r = 0; r < num_rows; ++r) {
    float* y = args.y + (row + r) * args.ldy + 16 * tile;
    V value = Load(sums[r]);
    if (args.epilogue == Epilogue::kSiluMul) value = Mul(Silu(value), Load(up_sums[r]));
    if (args.epilogue == Epilogue::kAccumulate) value = Add(LoadFirst(y, lanes), value);
    StoreFirst(y, value, lanes);
  }
}

struct TilePair {
  int64_t first, second;  // second < 0: none
};

void SmallTiles(const QuantLinearArgs& args, bool two, TilePair tiles) {
  const QuantMatrix& w = *args.w;
  const int64_t groups = w.in / 32;
  const int64_t tile_bytes = groups * w.record_bytes;
  const int num_rows = static_cast<int>(args.row_end - args.row_begin);
  const bool pair = tiles.second >= 0;
  const uint8_t* first = w.data + tiles.first * tile_bytes;
  const int64_t stride = (tiles.second - tiles.first) * tile_bytes;
  alignas(64) TileSums sums;
  if (pair && kSmallTiles == 2) {
    SmallFunction<kSmallTiles>(w.format, two)(first, stride, groups, args.x, args.row_begin, num_rows, sums[0]);
  } else {
    const SmallFn one = SmallFunction<1>(w.format, two);
    one(first, 0, groups, args.x, args.row_begin, num_rows, sums[0]);
    if (pair) one(first + stride, 0, groups, args.x, args.row_begin, num_rows, sums[1]);
  }
  WriteTile(args, tiles.first, args.row_begin, num_rows, sums[0], sums[1]);
  if (pair && args.epilogue != Epilogue::kSiluMul) {
    WriteTile(args, tiles.second, args.row_begin, num_rows, sums[1], nullptr);
  }
}

void PanelTiles(const QuantLinearArgs& args, bool two, TilePair tiles) {
  const QuantMatrix& w = *args.w;
  const int64_t groups = w.in / 32;
  const int64_t stride = groups * kPanelRecord;
  const bool pair = tiles.second >= 0;
  Expand(w.format, w.data + tiles.first * groups * w.record_bytes, groups, args.scratch);
  if (pair) Expand(w.format, w.data + tiles.second * groups * w.record_bytes, groups, args.scratch + stride);
  const PanelFn one = PanelFunction<1>(w.format, two);
  alignas(64) TileSums second_sums;
  const PanelFn both = kPanelTiles == 2 ? PanelFunction<kPanelTiles>(w.format, two) : nullptr;
  alignas(64) TileSums sums;
  const float(*second)[16] = both != nullptr ? sums[1] : second_sums[0];
  for (int64_t row = args.row_begin; row < args.row_end; row += kPanelRows) {
    const int num_rows = static_cast<int>(args.row_end - row < kPanelRows ? args.row_end - row : kPanelRows);
    if (pair && both != nullptr) {
      both(args.scratch, stride, groups, args.x, row, num_rows, sums);
    } else {
      one(args.scratch, stride, groups, args.x, row, num_rows, sums);
      if (pair) one(args.scratch + stride, stride, groups, args.x, row, num_rows, second_sums);
    }
    if (args.epilogue == Epilogue::kSiluMul) {
      WriteTile(args, tiles.first, row, num_rows, sums[0], second);
    } else {
      WriteTile(args, tiles.first, row, num_rows, sums[0], nullptr);
      if (pair) WriteTile(args, tiles.second, row, num_rows, second, nullptr);
    }
  }
}

void LinearQuantised(const QuantLinearArgs& args) {
  const bool two = args.x.lo != nullptr;
  const bool silu = args.epilogue == Epilogue::kSiluMul;
  const bool few =
      args.row_end - args.row_begin <= kSmallRows && SmallFunction<1>(args.w->format, two) != nullptr;
  for (int64_t tile = args.tile_begin; tile < args.tile_end;) {
    TilePair tiles{tile, -1};
    if (silu) {
      tiles.second = tile + args.w->num_tiles / 2;
    } else if (tile + 1 < args.tile_end) {
      tiles.second = tile + 1;
    }
    few ? SmallTiles(args, two, tiles) : PanelTiles(args, two, tiles);
    tile += silu || tiles.second < 0 ? 1 : 2;
  }
}

}  // namespace
}  // namespace baton::cpu
