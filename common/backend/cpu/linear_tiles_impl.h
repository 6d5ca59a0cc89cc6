// SPDX-License-Identifier: Apache-2.0
// Quantised linear layers on AMX tiles, for many rows; included by one .cc, after vec_avx512.h and the tile instructions.
//
// The integers of weights and activations travel as bf16, which holds eight bits exactly: a group of 32 fills a tile, costs what
// half a tile of bytes would, and its dot product arrives as the fp32 number that the other sets get by converting an int32. It is
// exact whatever the order of the tile unit's sums: every partial sum is an integer (with two terms maybe a multiple of 256) of
// at most 24 bits. Terms: activations hold 256 hi, and lo. Weights of four bits sum both in one tile: at most 32 x 15 x 32896
// is below 2^24. Weights of eight bits could pass it: their lo product has a tile of its own, and one fp32 addition rounds as
// the int32's conversion would. Symmetric weights come with their offset taken off. What follows is linear_quant_impl.h's order
// of fp32 operations, to the bit.
//
// One pass is up to kPassRows rows by kPairs pairs of tiles of outputs. It goes over the groups in chunks: a chunk's weights are
// expanded into first-level cache and meet all rows there; sums of a chunk wait in scratch for the next. Blocks of 16 rows by one
// pair go through two stages: tiles multiply into a buffer (Multiply), while the block before is scaled and summed from
// the other buffer (AddUnits), half of its rows at a time: 8 rows by 2 tiles of sums stay in registers.

namespace baton::cpu {
namespace {

constexpr int kUnits = 4;  // Per chunk. A unit has scales of its own: a group, or a half in formats with groups of 16.
constexpr int kPairs = 2;
constexpr int kPassRows = 256;
constexpr int kBlockRows = 16, kHalfRows = 8;

// Tile registers: sums 0..3, activations 4 (hi) and 5 (lo), weights 6 and 7.
constexpr int kHiTile = 4, kLoTile = 5, kWeightTile = 6;

struct TileScratch {
  alignas(64) uint8_t weights[kPairs][2][kUnits][1024];
  alignas(64) float scales[kPairs][kUnits][4][16];  // d and m of the pair's first tile, then of its second.
  alignas(64) float products[2][kUnits][2][kBlockRows][16];     // [buffer, unit, tile of the pair, row, output]
  alignas(64) float lo_products[2][kUnits][2][kBlockRows][16];  // Weights of eight bits only.
  alignas(64) float sums[kPassRows / kHalfRows][kPairs][2][kHalfRows][16];
  bool lo_used[2][kUnits];
};
static_assert(sizeof(TileScratch) <= kTileScratchBytes);
static_assert(kMinTileRows >= kBlockRows);

// What is being multiplied: one chunk of one pass.
struct TilePass {
  const QuantLinearArgs& args;
  TileScratch* scratch;
  TilePair pairs[kPairs];
  int num_pairs;
  int64_t row, num_rows;  // num_rows: kBlockRows to kPassRows.
  int64_t group;          // The chunk's first.
  int num_units;
  bool first, last;  // Of the pass' chunks.

  int num_blocks() const { return static_cast<int>((num_rows + kBlockRows - 1) / kBlockRows) * num_pairs; }
};

// Block `index` of a pass; those of the same rows follow each other.
struct TileBlock {
  int pair;
  int row_block;
  int64_t row;   // Its first. The last block of rows overlaps the one before, so that all are whole:
  int num_old;  // this many of its rows have been done.

  TileBlock(const TilePass& pass, int index) : pair(index % pass.num_pairs), row_block(index / pass.num_pairs) {
    const int64_t begin = int64_t{kBlockRows} * row_block, most = pass.num_rows - kBlockRows;
    row = pass.row + (begin < most ? begin : most);
    num_old = static_cast<int>(pass.row + begin - row);
  }
};

template <class F>
TileConfig ShapesFor() {
  TileConfig config;
  for (int i = 0; i < 8; ++i) {
    config.rows[i] = static_cast<uint8_t>(i < kWeightTile ? kBlockRows : 16 / F::num_scales);
    config.row_bytes[i] = static_cast<uint16_t>(i == kHiTile || i == kLoTile ? 64 / F::num_scales : 64);
  }
  return config;
}

// ---- Weights ----------------------------------------------------------------------------------------------------------

// bf16 of 0..15 less the offset, twice: LookUpWords takes five bits.
struct NibbleTable {
  alignas(64) uint16_t words[32];
  explicit constexpr NibbleTable(int offset) : words() {
    for (int i = 0; i < 32; ++i) {
      const int value = i % 16 - offset;
      unsigned magnitude = static_cast<unsigned>(value < 0 ? -value : value), exponent = 127 + 7;
      for (; magnitude != 0 && magnitude < 128; magnitude *= 2) --exponent;  // One bit, and seven of fraction.
      words[i] = static_cast<uint16_t>(magnitude == 0 ? 0 : (value < 0 ? 0x8000u : 0u) | exponent << 7 | (magnitude - 128));
    }
  }
};

// A record's 32 x 16 integers as the 16 rows of a weight tile (or 8 and 8 of two). Row 2 s + j has inputs 4 s + j and 4 s + j + 2 of
// each output, side by side: the order of QuantisedRows::wide.
template <class F>
BATON_ALWAYS_INLINE void ExpandRecord(const uint8_t* record, B table, uint8_t (*units)[1024]) {
  constexpr int kRows = 16 / F::num_scales;
  const auto store = [units](int row, B value) { StoreB(units[row / kRows] + row % kRows * 64, value); };
  if constexpr (F::four_bit) {
#pragma GCC unroll 4
    for (int s = 0; s < 4; ++s) {  // Low nibbles are step s, high ones step s + 4.
      const B x = LoadB(record + 64 * s);
      store(2 * s, LookUpWords(table, x));
      store(2 * s + 1, LookUpWords(table, ShrWords<8>(x)));
      store(2 * s + 8, LookUpWords(table, ShrWords<4>(x)));
      store(2 * s + 9, LookUpWords(table, ShrWords<12>(x)));
    }
  } else {
#pragma GCC unroll 2
    for (int s = 0; s < 8; ++s) {
      W b0, b1, b2, b3;
      if constexpr (F::has_min) {
        const B x = LoadB(record + 64 * s);
        const W byte = SetI(255);
        b0 = AndI(x, byte), b1 = AndI(Sar<8>(x), byte), b2 = AndI(Sar<16>(x), byte), b3 = AndI(Sar<24>(x), byte);
      } else {
        const B x = AddB(LoadB(record + 64 * s), 128);  // Signed: the offset is off.
        b0 = Sar<24>(Shl<24>(x)), b1 = Sar<24>(Shl<16>(x)), b2 = Sar<24>(Shl<8>(x)), b3 = Sar<24>(x);
      }
      // Eight bits leave the low half of a float empty.
      store(2 * s, AddI(ShrLogical16(Bits(ToFloat(b0))), Bits(ToFloat(b2))));
      store(2 * s + 1, AddI(ShrLogical16(Bits(ToFloat(b1))), Bits(ToFloat(b3))));
    }
  }
}

template <class F>
void ExpandChunk(const TilePass& pass) {
  const QuantMatrix& w = *pass.args.w;
  static constexpr NibbleTable nibbles(F::has_min ? 0 : 8);
  const B table = LoadB(reinterpret_cast<const uint8_t*>(nibbles.words));
  for (int pair = 0; pair < pass.num_pairs; ++pair) {
    for (int c = 0; c < 2; ++c) {
      const int64_t tile = c == 0 ? pass.pairs[pair].first : pass.pairs[pair].second;
      const uint8_t* record = w.data + (tile * (w.in / 32) + pass.group) * F::record_bytes;
      for (int unit = 0; unit < pass.num_units; unit += F::num_scales, record += F::record_bytes) {
        Prefetch(record + kPrefetchBytes);
        ExpandRecord<F>(record, table, pass.scratch->weights[pair][c] + unit);
        for (int half = 0; half < F::num_scales; ++half) {
          float(*scales)[16] = pass.scratch->scales[pair][unit + half];
          Store(scales[2 * c], F::Scale(record, half));
          if constexpr (F::has_min) Store(scales[2 * c + 1], F::Minimum(record, half));
        }
      }
    }
  }
}

// ---- The two stages ---------------------------------------------------------------------------------------------------

inline bool LoUsed(const QuantisedRows& x, int64_t g, int64_t row) {
  uint64_t flags[2];
  __builtin_memcpy(flags, x.lo_used + g * x.ld + row, sizeof(flags));
  return (flags[0] | flags[1]) != 0;
}

// Into tiles kSums and kSums + 1, and from there to `to`. lo: null where no row has a second term.
template <bool kOneSum, int kSums>
BATON_ALWAYS_INLINE void MultiplyUnit(const uint8_t* hi, const uint8_t* lo, const uint8_t* w0, const uint8_t* w1,
                                      float (*to)[kBlockRows][16], float (*lo_to)[kBlockRows][16]) {
  constexpr int kLoSums = kOneSum ? kSums : kSums ^ 2;
  ZeroTile<kSums>();
  ZeroTile<kSums + 1>();
  LoadTile<kHiTile>(hi, 64);
  LoadTile<kWeightTile>(w0, 64);
  DotBf16<kSums, kHiTile, kWeightTile>();
  LoadTile<kWeightTile + 1>(w1, 64);
  DotBf16<kSums + 1, kHiTile, kWeightTile + 1>();
  if (lo != nullptr) {
    LoadTile<kLoTile>(lo, 64);
    if constexpr (!kOneSum) {
      ZeroTile<kLoSums>();
      ZeroTile<kLoSums + 1>();
    }
    DotBf16<kLoSums, kLoTile, kWeightTile>();
    DotBf16<kLoSums + 1, kLoTile, kWeightTile + 1>();
    if constexpr (!kOneSum) {
      StoreTile<kLoSums>(lo_to[0], 64);
      StoreTile<kLoSums + 1>(lo_to[1], 64);
    }
  }
  StoreTile<kSums>(to[0], 64);
  StoreTile<kSums + 1>(to[1], 64);
}

// Unit `unit` of a block into buffer `buffer`.
template <class F, bool kTwo>
BATON_ALWAYS_INLINE void Multiply(const TilePass& pass, const TileBlock& block, int buffer, int unit) {
  const QuantisedRows& x = pass.args.x;
  TileScratch& scratch = *pass.scratch;
  const int64_t g = pass.group + unit / F::num_scales;
  const int64_t at = (g * x.ld + block.row) * 32 + unit % F::num_scales * 16;
  const bool two = kTwo && LoUsed(x, g, block.row);
  const uint8_t* hi = reinterpret_cast<const uint8_t*>(x.bf16_hi + at);
  const uint8_t* lo = two ? reinterpret_cast<const uint8_t*>(x.bf16_lo + at) : nullptr;
  const uint8_t* w0 = scratch.weights[block.pair][0][unit];
  const uint8_t* w1 = scratch.weights[block.pair][1][unit];
  if constexpr (kTwo && !F::four_bit) scratch.lo_used[buffer][unit] = two;
  // Other tiles than the unit's before, which may still be on their way out.
  if (unit % 2 == 0) {
    MultiplyUnit<F::four_bit, 0>(hi, lo, w0, w1, scratch.products[buffer][unit], scratch.lo_products[buffer][unit]);
  } else {
    MultiplyUnit<F::four_bit, 2>(hi, lo, w0, w1, scratch.products[buffer][unit], scratch.lo_products[buffer][unit]);
  }
}

// sums += unit `unit` of half a block. kLo: add lo's product, which has a tile of its own.
template <class F, bool kLo>
BATON_ALWAYS_INLINE void AddUnit(const TilePass& pass, const TileBlock& block, int buffer, int unit, int half,
                                 V (&sums)[kHalfRows][2]) {
  const QuantisedRows& x = pass.args.x;
  const TileScratch& scratch = *pass.scratch;
  const int64_t g = pass.group + unit / F::num_scales, row = block.row + half * kHalfRows;
  const float* scale = x.scale + g * x.ld + row;
  const float* scaled_sum = (F::group16 ? x.scaled_sum16 : x.scaled_sum) +
                            (F::num_scales * g + unit % F::num_scales) * x.ld + row;
  const float* products = Opaque(scratch.products[buffer][unit][0][half * kHalfRows]);
  const float* lo_products = kLo ? Opaque(scratch.lo_products[buffer][unit][0][half * kHalfRows]) : nullptr;
  const float(*scales)[16] = scratch.scales[block.pair][unit];
  const V d[2] = {Load(scales[0]), Load(scales[2])};
  const V m[2] = {F::has_min ? Load(scales[1]) : d[0], F::has_min ? Load(scales[3]) : d[1]};
#pragma GCC unroll 8
  for (int r = 0; r < kHalfRows; ++r) {
    const V row_scale = Set(scale[r]);
    V row_sum = row_scale;
    if constexpr (F::has_min) row_sum = Set(scaled_sum[r]);
#pragma GCC unroll 2
    for (int c = 0; c < 2; ++c) {
      const int at = (c * kBlockRows + r) * 16;
      V product = Load(products + at);
      if constexpr (kLo) product = Add(product, Load(lo_products + at));
      sums[r][c] = Fma(product, Mul(d[c], row_scale), sums[r][c]);
      if constexpr (F::has_min) sums[r][c] = Fma(m[c], row_sum, sums[r][c]);
    }
  }
}

void WriteHalf(const TilePass& pass, const TileBlock& block, int half, int num_old, const float (*sums)[kHalfRows][16]) {
  const TilePair& pair = pass.pairs[block.pair];
  const int64_t row = block.row + half * kHalfRows + num_old;
  WriteTile(pass.args, pair.first, row, kHalfRows - num_old, sums[0] + num_old, sums[1] + num_old);
  if (pass.args.epilogue != Epilogue::kSiluMul) {
    WriteTile(pass.args, pair.second, row, kHalfRows - num_old, sums[1] + num_old, nullptr);
  }
}

// All units of half a block; in between, every second time, a unit of the next block is multiplied.
template <class F, bool kTwo>
void RunHalf(const TilePass& pass, int index, int half) {
  const TileBlock block(pass, index), next(pass, index + 1);
  const bool has_next = index + 1 < pass.num_blocks();
  const int buffer = index % 2, num_old = block.num_old - half * kHalfRows;
  int step = half * pass.num_units;
  if (num_old >= kHalfRows) {
    for (int unit = 0; unit < pass.num_units && has_next; ++unit, ++step) {
      if (step % 2 == 0) Multiply<F, kTwo>(pass, next, 1 - buffer, step / 2);
    }
    return;
  }
  float(*kept)[kHalfRows][16] = pass.scratch->sums[2 * block.row_block + half][block.pair];
  V sums[kHalfRows][2];
#pragma GCC unroll 8
  for (int r = 0; r < kHalfRows; ++r) {
#pragma GCC unroll 2
    for (int c = 0; c < 2; ++c) sums[r][c] = pass.first ? Zero() : Load(kept[c][r]);
  }
  if (pass.last) {  // Written soon, and not in the cache by itself.
    const TilePair& pair = pass.pairs[block.pair];
    for (int r = 0; r < kHalfRows; ++r) {
      const float* y = pass.args.y + (block.row + half * kHalfRows + r) * pass.args.ldy;
      Prefetch(y + 16 * pair.first);
      if (pass.args.epilogue != Epilogue::kSiluMul) Prefetch(y + 16 * pair.second);
    }
  }
  for (int unit = 0; unit < pass.num_units; ++unit, ++step) {
    if (step % 2 == 0 && has_next) Multiply<F, kTwo>(pass, next, 1 - buffer, step / 2);
    if (kTwo && !F::four_bit && pass.scratch->lo_used[buffer][unit]) {
      AddUnit<F, kTwo && !F::four_bit>(pass, block, buffer, unit, half, sums);
    } else {
      AddUnit<F, false>(pass, block, buffer, unit, half, sums);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kHalfRows; ++r) {
#pragma GCC unroll 2
    for (int c = 0; c < 2; ++c) Store(kept[c][r], sums[r][c]);
  }
  if (pass.last) WriteHalf(pass, block, half, num_old > 0 ? num_old : 0, kept);
}

template <class F, bool kTwo>
void RunPass(TilePass& pass) {
  constexpr int kGroups = kUnits / F::num_scales;
  const int64_t groups = pass.args.w->in / 32, num_chunks = (groups + kGroups - 1) / kGroups;
  for (int64_t chunk = 0; chunk < num_chunks; ++chunk) {
    pass.group = groups * chunk / num_chunks;
    pass.num_units = static_cast<int>(groups * (chunk + 1) / num_chunks - pass.group) * F::num_scales;
    pass.first = chunk == 0;
    pass.last = chunk + 1 == num_chunks;
    ExpandChunk<F>(pass);
    for (int unit = 0; unit < pass.num_units; ++unit) Multiply<F, kTwo>(pass, TileBlock(pass, 0), 0, unit);
    for (int index = 0; index < pass.num_blocks(); ++index) {
      for (int half = 0; half < 2; ++half) RunHalf<F, kTwo>(pass, index, half);
    }
  }
}

template <class F>
void LinearTilesAs(const QuantLinearArgs& args) {
  const bool silu = args.epilogue == Epilogue::kSiluMul;
  const int64_t num_tiles = args.tile_end - args.tile_begin, num_pairs = silu ? num_tiles : num_tiles / 2;
  const int64_t num_rows = args.row_end - args.row_begin, num_passes = (num_rows + kPassRows - 1) / kPassRows;
  const TileConfig shapes = ShapesFor<F>();
  ConfigureTiles(shapes);
  for (int64_t p = 0; p < num_pairs; p += kPairs) {
    for (int64_t i = 0; i < num_passes; ++i) {
      TilePass pass = {args, reinterpret_cast<TileScratch*>(args.scratch), {}, 0, 0, 0, 0, 0, false, false};
      for (int64_t q = p; q < num_pairs && q < p + kPairs; ++q) {
        const int64_t first = args.tile_begin + (silu ? q : 2 * q);
        pass.pairs[pass.num_pairs++] = {first, silu ? first + args.w->num_tiles / 2 : first + 1};
      }
      pass.row = args.row_begin + num_rows * i / num_passes;
      pass.num_rows = args.row_begin + num_rows * (i + 1) / num_passes - pass.row;
      if (args.x.lo != nullptr) {
        RunPass<F, true>(pass);
      } else {
        RunPass<F, false>(pass);
      }
    }
  }
  ReleaseTiles();
}

// At least kMinTileRows rows; an even number of tiles, or all but the last. x.bf16_hi is not null.
void LinearTiles(const QuantLinearArgs& args) {
  switch (args.w->format) {
    case QuantFormat::k4AsymF16: return LinearTilesAs<Q4AsymF16>(args);
    case QuantFormat::k4SymF16: return LinearTilesAs<Q4SymF16>(args);
    case QuantFormat::k4AsymF32: return LinearTilesAs<Q4AsymF32>(args);
    case QuantFormat::k8SymF16: return LinearTilesAs<Q8SymF16>(args);
    case QuantFormat::k8SymF32: return LinearTilesAs<Q8SymF32>(args);
    case QuantFormat::k8AsymF32: return LinearTilesAs<Q8AsymF32>(args);
    case QuantFormat::k8SymF32G16: return LinearTilesAs<Q8SymF32G16>(args);
    case QuantFormat::k8AsymF32G16: return LinearTilesAs<Q8AsymF32G16>(args);
  }
}

}  // namespace
}  // namespace baton::cpu
