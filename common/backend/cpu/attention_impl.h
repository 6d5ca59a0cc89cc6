// SPDX-License-Identifier: Apache-2.0
// Causal attention over the paged pool, over a vec_*.h; included by one .cc per instruction set.
//
// A line is one query head of one row. Per line: for each context split, for each key tile of 64 positions in it:
// scores (sum over the head dimension in order), maximum, p = exp(s - max), l and o rescaled, then o += p v for keys in
// order; splits are merged in order. Keys after a line's own position have p = 0, and adding 0 v changes nothing; so a
// line's bits do not depend on which other lines share its tile. Few lines read the pool directly; many lines widen each
// tile once to fp32. Integers are widened as they are: a key's scale multiplies its score, a value's its p.

namespace baton::cpu {
namespace {

constexpr int kTileVectors = kKeyTile / 16;
constexpr int kPartialHeader = 16;  // m, l, padding

inline int64_t PadTo16(int64_t n) { return (n + 15) / 16 * 16; }

// What one call works on. Lines are ordered by row, then head: positions ascend.
struct AttentionWork {
  const AttentionArgs* args;
  int kv_head;
  int heads;              // Query heads per kv head.
  int num_lines;
  int64_t first_position; // Of line 0.
  int64_t padded_dim;
  int64_t partial_floats;
  int element_bytes;
  bool direct;            // Read the pool without widening.
  const uint8_t* k_head;  // args->k, v moved to the kv head
  const uint8_t* v_head;
  float* k_tile;  // [head_dim, 64]
  float* v_tile;  // [64, padded_dim]
  float* q;       // [num_lines, padded_dim], times scale
  float* current; // [num_lines, partial_floats]: the running split
  float* merged;  // [num_lines, partial_floats]
  int64_t Position(int line) const { return first_position + line / heads; }
};

// Sixteen keys at a time: where K (a column of head_dim values, `k_stride` bytes apart) and V (rows) of the tile are.
struct TileSource {
  const uint8_t* k[kTileVectors];
  const uint8_t* v[kTileVectors];
  const uint8_t* next_k[kTileVectors];  // The same of the tile that is read next, or of this one.
  const uint8_t* next_v[kTileVectors];
  int64_t k_stride, v_stride;  // Bytes.
  const float* k_scale[kTileVectors];  // Of integers only.
  const float* v_scale[kTileVectors];
};

TileSource PoolTile(const AttentionWork& work, int64_t tile_start, int64_t num_keys) {
  const AttentionArgs& a = *work.args;
  TileSource source = {};
  source.k_stride = static_cast<int64_t>(a.block_size) * work.element_bytes;
  source.v_stride = static_cast<int64_t>(a.head_dim) * work.element_bytes;
  for (int i = 0; i < kTileVectors; ++i) {
    const int64_t position = 16 * i < num_keys ? tile_start + 16 * i : tile_start;
    const int64_t block = a.block_table[position / a.block_size];
    const int64_t offset = position % a.block_size;
    source.k[i] = source.next_k[i] = work.k_head + block * a.block_stride + offset * work.element_bytes;
    source.v[i] = source.next_v[i] = work.v_head + block * a.block_stride + offset * source.v_stride;
    if (a.kv_type != FloatType::kI8) continue;
    const int64_t scale = static_cast<int64_t>(a.head_dim) * a.block_size + 4 * offset;
    source.k_scale[i] = reinterpret_cast<const float*>(work.k_head + block * a.block_stride + scale);
    source.v_scale[i] = reinterpret_cast<const float*>(work.v_head + block * a.block_stride + scale);
  }
  return source;
}

// Where the tile at `next_start` (or, past `end`, the one that is said to come next) lies. The hardware sees no stream: a
// tile's blocks lie anywhere, and a head's part of one is 2 KiB.
void LookAhead(const AttentionWork& work, int64_t next_start, int64_t end, TileSource* tile) {
  const AttentionArgs& a = *work.args;
  const int32_t* table = a.block_table;
  int64_t first = next_start, keys = end - next_start, head_offset = 0;
  if (keys <= 0) {
    if (a.ahead.block_table == nullptr) return;
    table = a.ahead.block_table;
    first = 0;
    keys = a.ahead.num_keys;
    head_offset = (a.ahead.kv_head - work.kv_head) * KvHeadBytes(a.kv_type, a.head_dim, a.block_size);
  }
  for (int i = 0; i < kTileVectors && 16 * i < keys; ++i) {
    const int64_t position = first + 16 * i, offset = position % a.block_size;
    const int64_t block = table[position / a.block_size] * a.block_stride + head_offset;
    tile->next_k[i] = work.k_head + block + offset * work.element_bytes;
    tile->next_v[i] = work.v_head + block + offset * tile->v_stride;
  }
}

TileSource WidenTile(const AttentionWork& work, const TileSource& pool, int64_t num_keys) {
  const AttentionArgs& a = *work.args;
  for (int64_t d = 0; d < a.head_dim; ++d) {
    for (int i = 0; 16 * i < num_keys; ++i) {
      Store(work.k_tile + d * kKeyTile + 16 * i, WidenVector(pool.k[i] + d * pool.k_stride, a.kv_type, 0));
    }
  }
  for (int64_t j = 0; j < num_keys; ++j) {
    float* row = work.v_tile + j * work.padded_dim;
    WidenArray(pool.v[j / 16] + (j % 16) * pool.v_stride, a.kv_type, a.head_dim, row);
    for (int64_t d = a.head_dim; d < work.padded_dim; ++d) row[d] = 0.0f;
  }
  TileSource source = pool;  // Of which the scales stay.
  source.k_stride = kKeyTile * 4;
  source.v_stride = work.padded_dim * 4;
  for (int i = 0; i < kTileVectors; ++i) {
    source.k[i] = reinterpret_cast<const uint8_t*>(work.k_tile + 16 * i);
    source.v[i] = reinterpret_cast<const uint8_t*>(work.v_tile + 16 * i * work.padded_dim);
  }
  return source;
}

// scores[r][16 v ..] for N vectors of keys from `first`.
template <FloatType T, int R, int N>
BATON_ALWAYS_INLINE void Scores(const float* const* q, int64_t head_dim, const TileSource& tile, int first,
                   float (*scores)[kKeyTile]) {
  V acc[R][N];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < N; ++v) acc[r][v] = Zero();
  }
  if constexpr (T == FloatType::kF32) {
    FmaBlock<R, N>(q, head_dim, VectorSource<T>{tile.k + first, tile.k_stride}, acc);
  } else {
    FmaBlock<R, N>(q, head_dim, FetchingSource<T>{tile.k + first, tile.k_stride, tile.next_k + first}, acc);
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < N; ++v) Store(scores[r] + 16 * (first + v), acc[r][v]);
  }
}

// o[r] (N vectors from column 16 first) = o[r] * correction[r] + sum over keys of p[r][j] v[j].
template <FloatType T, int R, int N>
BATON_ALWAYS_INLINE void Values(const float (*p)[kKeyTile], const float* correction, int64_t num_keys, const TileSource& tile,
                   int first, float* const* o) {
  V acc[R][N];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < N; ++v) acc[r][v] = Mul(Load(o[r] + 16 * (first + v)), Set(correction[r]));
  }
  for (int64_t j = 0; j < num_keys; j += 16) {
    const uint8_t *columns[N], *next[N];
    const float* rows[R];
    constexpr int kVectorBytes = T == FloatType::kF32 ? 64 : T == FloatType::kI8 ? 16 : 32;
#pragma GCC unroll 4
    for (int v = 0; v < N; ++v) {
      columns[v] = tile.v[j / 16] + (first + v) * kVectorBytes;
      next[v] = tile.next_v[j / 16] + (first + v) * kVectorBytes;
    }
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) rows[r] = p[r] + j;
    const int64_t keys = num_keys - j < 16 ? num_keys - j : 16;
    if constexpr (T == FloatType::kF32) {
      FmaBlock<R, N>(rows, keys, VectorSource<T>{columns, tile.v_stride}, acc);
    } else {
      FmaBlock<R, N>(rows, keys, FetchingSource<T>{columns, tile.v_stride, next}, acc);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < N; ++v) Store(o[r] + 16 * (first + v), acc[r][v]);
  }
}

// Soft-max step of one line over `num_vectors` vectors of scores of which `num_keys` are its own: p in place of the
// scores, and the line's new maximum and (not yet rescaled) sum.
BATON_ALWAYS_INLINE void SoftmaxLine(float* scores, int num_vectors, int64_t num_keys, float old_max, float* new_max, float* sum) {
  const V minus_infinity = Set(-__builtin_inff());
  V s[kTileVectors];
  V largest = Set(old_max);
  for (int v = 0; v < num_vectors; ++v) {
    const int64_t own = num_keys - 16 * v;
    s[v] = Load(scores + 16 * v);
    if (own < 16) s[v] = KeepFirst(s[v], own < 0 ? 0 : static_cast<int>(own), minus_infinity);
    largest = Max(s[v], largest);
  }
  *new_max = ReduceMax(largest);
  const V m = Set(*new_max);
  V total = Zero();
  for (int v = 0; v < num_vectors; ++v) {
    const V p = Exp(Sub(s[v], m));
    Store(scores + 16 * v, p);
    total = Add(total, p);
  }
  *sum = ReduceAdd(total);
}

inline void MulVectors(const float* const* factors, int num_vectors, float* x) {
  for (int v = 0; v < num_vectors; ++v) Store(x + 16 * v, Mul(Load(x + 16 * v), Load(factors[v])));
}

// Lines [line, line + R) against one key tile.
template <FloatType T, int R>
void TileBlock(const AttentionWork& work, const TileSource& tile, int64_t tile_start, int line) {
  alignas(64) float scores[R][kKeyTile];
  alignas(64) float correction[16] = {};
  const int64_t head_dim = work.args->head_dim;
  const float* q[R];
  float* state[R];
  float* o[R];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
    q[r] = work.q + (line + r) * work.padded_dim;
    state[r] = work.current + (line + r) * work.partial_floats;
    o[r] = state[r] + kPartialHeader;
  }
  const int64_t after = work.Position(line + R - 1) + 1 - tile_start;
  const int64_t num_keys = after < kKeyTile ? after : kKeyTile;
  const int num_vectors = static_cast<int>((num_keys + 15) / 16);
  constexpr int kVectors = DotVectors(R);
  int v = 0;
  for (; v + kVectors <= num_vectors; v += kVectors) Scores<T, R, kVectors>(q, head_dim, tile, v, scores);
  for (; v < num_vectors; ++v) Scores<T, R, 1>(q, head_dim, tile, v, scores);
  const bool integers = work.args->kv_type == FloatType::kI8;
  float sum[R];
  for (int r = 0; r < R; ++r) {
    const float old_max = state[r][0];
    if (integers) MulVectors(tile.k_scale, num_vectors, scores[r]);
    SoftmaxLine(scores[r], num_vectors, work.Position(line + r) + 1 - tile_start, old_max, &state[r][0], &sum[r]);
    correction[r] = old_max - state[r][0];
    if (integers) MulVectors(tile.v_scale, num_vectors, scores[r]);
  }
  Store(correction, Exp(Load(correction)));
  for (int r = 0; r < R; ++r) state[r][1] = __builtin_fmaf(state[r][1], correction[r], sum[r]);
  const int dim_vectors = static_cast<int>(work.padded_dim / 16);
  v = 0;
  for (; v + kVectors <= dim_vectors; v += kVectors) Values<T, R, kVectors>(scores, correction, num_keys, tile, v, o);
  for (; v < dim_vectors; ++v) Values<T, R, 1>(scores, correction, num_keys, tile, v, o);
}

template <FloatType T, int R = kDotRows>
void TileBlockOf(int num_lines, const AttentionWork& work, const TileSource& tile, int64_t tile_start, int line) {
  if (num_lines == R) return TileBlock<T, R>(work, tile, tile_start, line);
  if constexpr (R > 1) TileBlockOf<T, R - 1>(num_lines, work, tile, tile_start, line);
}

// Split `split` of the context, for all lines that reach into it, into work.current.
void RunSplit(const AttentionWork& work, int64_t split) {
  const int64_t begin = split * kContextSplit;
  const int64_t last = work.Position(work.num_lines - 1);
  const int64_t end = last + 1 < begin + kContextSplit ? last + 1 : begin + kContextSplit;
  for (int line = 0; line < work.num_lines; ++line) {
    float* state = work.current + line * work.partial_floats;
    state[0] = -__builtin_inff();
    for (int64_t i = 1; i < work.partial_floats; ++i) state[i] = 0.0f;
  }
  for (int64_t tile_start = begin; tile_start < end; tile_start += kKeyTile) {
    const int64_t num_keys = end - tile_start < kKeyTile ? end - tile_start : kKeyTile;
    TileSource pool = PoolTile(work, tile_start, num_keys);
    if (work.direct) LookAhead(work, tile_start + kKeyTile, end, &pool);
    const TileSource tile = work.direct ? pool : WidenTile(work, pool, num_keys);
    const FloatType type = work.direct ? work.args->kv_type : FloatType::kF32;
    const int64_t skipped_rows = tile_start - work.first_position;
    for (int line = skipped_rows > 0 ? static_cast<int>(skipped_rows) * work.heads : 0; line < work.num_lines;
         line += kDotRows) {
      const int num_lines = work.num_lines - line < kDotRows ? work.num_lines - line : kDotRows;
      switch (type) {
        case FloatType::kF16: TileBlockOf<FloatType::kF16>(num_lines, work, tile, tile_start, line); break;
        case FloatType::kBf16: TileBlockOf<FloatType::kBf16>(num_lines, work, tile, tile_start, line); break;
        case FloatType::kI8: TileBlockOf<FloatType::kI8>(num_lines, work, tile, tile_start, line); break;
        case FloatType::kF32: TileBlockOf<FloatType::kF32>(num_lines, work, tile, tile_start, line); break;
      }
    }
  }
}

// merged = the soft-max over both contexts; `part` comes after everything in `merged`.
inline void MergePart(const float* part, int64_t padded_dim, float* merged) {
  alignas(64) float scale[16] = {};
  const float m = part[0] > merged[0] ? part[0] : merged[0];
  scale[0] = merged[0] - m;
  scale[1] = part[0] - m;
  Store(scale, Exp(Load(scale)));
  merged[0] = m;
  merged[1] = __builtin_fmaf(part[1], scale[1], merged[1] * scale[0]);
  for (int64_t i = kPartialHeader; i < kPartialHeader + padded_dim; i += 16) {
    Store(merged + i, Fma(Load(part + i), Set(scale[1]), Mul(Load(merged + i), Set(scale[0]))));
  }
}

inline void FinishLine(const float* merged, int64_t head_dim, float* out) {
  const V sum = Set(merged[1]);
  for (int64_t i = 0; i < head_dim; i += 16) {
    const int lanes = head_dim - i < 16 ? static_cast<int>(head_dim - i) : 16;
    StoreFirst(out + i, Div(Load(merged + kPartialHeader + i), sum), lanes);
  }
}

inline float* TakeFloats(uint8_t** scratch, int64_t n) {
  float* p = reinterpret_cast<float*>(*scratch);
  *scratch += PadTo16(n) * 4;
  return p;
}

AttentionWork MakeWork(const AttentionArgs& args, int kv_head, int64_t row_begin, int64_t row_end, uint8_t* scratch) {
  AttentionWork work;
  work.args = &args;
  work.kv_head = kv_head;
  work.heads = args.num_heads / args.num_kv_heads;
  work.num_lines = static_cast<int>(row_end - row_begin) * work.heads;
  work.first_position = args.first_position + row_begin;
  work.padded_dim = PadTo16(args.head_dim);
  work.partial_floats = kPartialHeader + work.padded_dim;
  work.element_bytes = static_cast<int>(ElementBytes(args.kv_type));
  work.direct = work.num_lines <= kDotRows && args.head_dim % 16 == 0;
  const int64_t head_bytes = KvHeadBytes(args.kv_type, args.head_dim, args.block_size);
  work.k_head = args.k + kv_head * head_bytes;
  work.v_head = args.v + kv_head * head_bytes;
  work.k_tile = TakeFloats(&scratch, args.head_dim * kKeyTile);
  work.v_tile = TakeFloats(&scratch, work.padded_dim * kKeyTile);
  work.q = TakeFloats(&scratch, work.num_lines * work.padded_dim);
  work.current = TakeFloats(&scratch, work.num_lines * work.partial_floats);
  work.merged = TakeFloats(&scratch, work.num_lines * work.partial_floats);
  for (int line = 0; line < work.num_lines; ++line) {
    const int64_t row = row_begin + line / work.heads;
    const int head = kv_head * work.heads + line % work.heads;
    const float* q = args.q + row * args.ldq + static_cast<int64_t>(head) * args.head_dim;
    for (int64_t i = 0; i < args.head_dim; i += 16) {
      const int lanes = args.head_dim - i < 16 ? static_cast<int>(args.head_dim - i) : 16;
      Store(work.q + line * work.padded_dim + i, Mul(LoadFirst(q + i, lanes), Set(args.scale)));
    }
  }
  return work;
}

void AttentionRows(const AttentionArgs& args, int kv_head, int64_t row_begin, int64_t row_end, uint8_t* scratch) {
  const AttentionWork work = MakeWork(args, kv_head, row_begin, row_end, scratch);
  const int64_t last_split = work.Position(work.num_lines - 1) / kContextSplit;
  for (int64_t split = 0; split <= last_split; ++split) {
    RunSplit(work, split);
    for (int line = 0; line < work.num_lines; ++line) {
      if (work.Position(line) < split * kContextSplit) continue;
      const float* part = work.current + line * work.partial_floats;
      float* merged = work.merged + line * work.partial_floats;
      if (split == 0) {
        for (int64_t i = 0; i < work.partial_floats; i += 16) Store(merged + i, Load(part + i));
      } else {
        MergePart(part, work.padded_dim, merged);
      }
    }
  }
  for (int line = 0; line < work.num_lines; ++line) {
    const int64_t row = row_begin + line / work.heads;
    const int head = kv_head * work.heads + line % work.heads;
    FinishLine(work.merged + line * work.partial_floats, args.head_dim,
               args.out + row * args.ldo + static_cast<int64_t>(head) * args.head_dim);
  }
}

void AttentionSplit(const AttentionArgs& args, int kv_head, int64_t row, int split, float* partials,
                    int64_t partial_stride, uint8_t* scratch) {
  const AttentionWork work = MakeWork(args, kv_head, row, row + 1, scratch);
  RunSplit(work, split);
  for (int line = 0; line < work.num_lines; ++line) {
    for (int64_t i = 0; i < work.partial_floats; i += 16) {
      Store(partials + line * partial_stride + i, Load(work.current + line * work.partial_floats + i));
    }
  }
}

void AttentionMerge(const float* partials, int64_t split_stride, int num_splits, int head_dim, float* out) {
  alignas(64) float merged[kPartialHeader + 256];
  const int64_t padded_dim = PadTo16(head_dim);
  for (int64_t i = 0; i < kPartialHeader + padded_dim; i += 16) Store(merged + i, Load(partials + i));
  for (int split = 1; split < num_splits; ++split) MergePart(partials + split * split_stride, padded_dim, merged);
  FinishLine(merged, head_dim, out);
}

}  // namespace
}  // namespace baton::cpu
