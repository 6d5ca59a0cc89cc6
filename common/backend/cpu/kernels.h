// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BACKEND_CPU_KERNELS_H_
#define BATON_COMMON_BACKEND_CPU_KERNELS_H_

// The seam between instruction sets: plain structs and one table of functions per instruction set. This header is
// included by files compiled with wide -m flags, so it holds no inline function and includes no C++ library header: an
// inline function compiled there could be the copy that the linker keeps for machines that cannot run it.
//
// Numerics, for every function here: a row's result depends on that row (and its context) alone, bit for bit: not on the
// number of rows, the range of outputs, or who else runs. All of it is fp32 with one fixed order of operations per
// output; integer dot products are exact. The instruction sets share one source and give the same bits.

#include <cstddef>
#include <cstdint>

namespace baton::cpu {

enum class Isa : uint8_t { kScalar, kAvx2, kAvxVnni, kAvx512Vnni, kAmx };

// ---- Linear, quantised ---------------------------------------------------------------------------------------------

// How a packed matrix stores one group (32 or 16 elements of a row): unsigned integers q, fp scale d and, in the
// asymmetric formats, fp minimum m: w = d q + m. Symmetric formats have w = d (q - offset).
enum class QuantFormat : uint8_t {
  k4AsymF16,     // Q4_1
  k4SymF16,      // Q4_0; offset 8
  k4AsymF32,     // Q4_K
  k8SymF16,      // Q8_0, Q5_0, IQ4_NL; offset 128
  k8SymF32,      // IQ4_XS, MXFP4; offset 128
  k8AsymF32,     // Q5_1, Q5_K
  k8SymF32G16,   // Q6_K, Q3_K; offset 128, groups of 16
  k8AsymF32G16,  // Q2_K; groups of 16
};

// A view of packed weights: tiles of 16 outputs, each [in / 32] records of: q interleaved for u8 x s8 dot products of
// four, then the 16 scales of each group, then the 16 minima. Rows beyond `out` in the last tile are zero.
struct QuantMatrix {
  QuantFormat format;
  int64_t out;           // Outputs (rows of W).
  int64_t in;            // Multiple of 32.
  int64_t num_tiles;     // ceil(out / 16)
  int64_t record_bytes;  // One group of 32 columns of one tile.
  const uint8_t* data;   // 64-byte aligned; [num_tiles, in / 32, record_bytes]
};

// Rows of activations as integers. One term (lo is null): x = scale hi, 127 steps each way. Two terms: x = scale (256 hi +
// lo), 32639 steps; but a group whose largest value is at most lo_threshold times the row's root mean square has lo = 0
// and 127 steps, and a kernel skips the second product where no row has one: the error of a group grows with its largest
// value, so a few groups with outliers carry nearly all of it. Which groups these are depends on the row alone.
// A group that holds a value that is not finite gets a NaN scale, so that the product shows it.
struct QuantisedRows {
  int64_t in;
  int64_t ld;           // Rows there is room for; a group's rows lie side by side in every array.
  int8_t* hi;           // [in / 32, ld, 32]
  int8_t* lo;           // [in / 32, ld, 32], or null: one term.
  int16_t* wide;        // [in / 32, ld, 32], or null: 256 hi + lo (or hi alone), each four as elements 0, 2, 1, 3.
  uint16_t* bf16_hi;    // [in / 32, ld, 32], or null: 256 hi (one term: hi) as bf16, exact; in the order of wide.
  uint16_t* bf16_lo;    // [in / 32, ld, 32]: lo as bf16. Two terms only.
  float* scale;         // [in / 32, ld]
  float* scale_hi;      // [in / 32, ld]: 256 scale. Two terms only.
  float* scaled_sum;    // [in / 32, ld]: scale times the sum of the integers
  float* scaled_sum16;  // [in / 16, ld]
  int32_t* neg_sum;     // [in / 32, ld]: minus the sum of the integers
  int32_t* neg_sum16;   // [in / 16, ld]
  uint8_t* lo_used;     // [in / 32, ld]: 1 where lo is not all zero by the rule above. Two terms only.
  float lo_threshold;   // 0: every group has two terms.
};

// What rows hold beside their bytes: only what the kernels that read them need.
struct RowForms {
  bool wide, bf16;
};

// Why 3: see README.md. The number is part of the numerics: CpuBackend::numerics_id has a version for it.
inline constexpr float kLoThreshold = 3.0f;

enum class Epilogue : uint8_t {
  kStore,       // y = W x
  kAccumulate,  // y += W x
  // y[j] = silu(gate_j) up_j for j < out / 2: the first half of the rows of W is the gate, the second the up
  // projection. out must be a multiple of 32; tiles are counted in the first half.
  kSiluMul,
};

struct QuantLinearArgs {
  const QuantMatrix* w;
  QuantisedRows x;
  int64_t row_begin, row_end;
  int64_t tile_begin, tile_end;  // Outputs [16 tile_begin, min(out, 16 tile_end)). Even tile_begin is faster.
  float* y;                      // Row r of x goes to y + r * ldy; output j to element j.
  int64_t ldy;                   // Floats.
  Epilogue epilogue;
  uint8_t* scratch;  // 64-byte aligned, LinearScratchBytes(in); one per thread.
};

// ---- Linear, floating point ----------------------------------------------------------------------------------------

// kI8: of the KV pool alone, with scales beside them.
enum class FloatType : uint8_t { kF32, kF16, kBf16, kI8 };

struct FloatMatrix {
  FloatType type;
  int64_t out, in;      // Any sizes.
  int64_t num_tiles;    // ceil(out / 16)
  const uint8_t* data;  // [num_tiles, in, 16], 64-byte aligned.
};

struct FloatLinearArgs {
  const FloatMatrix* w;
  const float* x;  // [rows, ldx]
  int64_t ldx;
  int64_t row_begin, row_end;
  int64_t tile_begin, tile_end;
  float* y;
  int64_t ldy;
  Epilogue epilogue;  // kSiluMul as above.
};

// ---- Attention -----------------------------------------------------------------------------------------------------

// Key tiles are kKeyTile positions, counted from position 0; every kContextSplit positions a fresh soft-max starts, and
// the parts are merged in order. Both are part of the numerics: prefill, decode and any split of the work over threads
// give the same bits.
inline constexpr int kKeyTile = 64;
inline constexpr int kContextSplit = 512;

// Rows of one sequence; row r has position first_position + r and sees positions 0..first_position + r.
// The beginning of a context that is probably read next: a hint.
struct AttentionAhead {
  const int32_t* block_table;  // Null: nothing.
  int64_t num_keys;
  int kv_head;
};

struct AttentionArgs {
  const float* q;  // [num_rows, ldq]; head h at h * head_dim
  int64_t ldq;
  float* out;  // [num_rows, ldo]
  int64_t ldo;
  int64_t first_position;
  const int32_t* block_table;
  // One layer of the pool; the layout is that of KvLayerView in common/backend/backend.h.
  const uint8_t* k;
  const uint8_t* v;
  int64_t block_stride;  // Bytes.
  int block_size;        // Multiple of 16.
  FloatType kv_type;
  int num_heads, num_kv_heads, head_dim;
  float scale;  // Usually 1 / sqrt(head_dim).
  AttentionAhead ahead;
};

// What a part of the context contributes to one (row, head): its soft-max's maximum and sum, and the weighted values.
// Laid out as [m, l, pad to 16 floats, o[head_dim]]: AttentionPartialFloats(head_dim) floats.

// ---- Rotary embedding and the write into the pool --------------------------------------------------------------------

struct QkvEpilogueArgs {
  float* qkv;  // [num_rows, (num_heads + 2 num_kv_heads) head_dim], overwritten as scratch
  const float* bias;            // [the same width] or null
  const float* q_norm;          // [head_dim] or null: RMSNorm per head before the rotary embedding
  const float* k_norm;          // [head_dim] or null
  float norm_eps;
  const float* const* cos_sin;  // [num_rows] pointers to cos[head_dim / 2], sin[head_dim / 2] of the row's position
  bool rope_interleaved;        // Pairs (2i, 2i + 1) instead of (i, i + head_dim / 2).
  int num_heads, num_kv_heads, head_dim;
  float* q;  // [num_rows, num_heads head_dim]
  const int32_t* slots;  // [num_rows]
  uint8_t* k;
  uint8_t* v;
  int64_t block_stride;
  int block_size;
  FloatType kv_type;
};

// ---- The table -------------------------------------------------------------------------------------------------------

struct Kernels {
  Isa isa;
  const char* name;  // "avx512-vnni"
  bool wide_bytes;   // linear_quantised reads QuantisedRows::wide where weights have eight bits: it must not be null then.
  bool bf16_rows;    // linear_quantised of kMinTileRows rows and more is faster where QuantisedRows::bf16_hi is not null.

  // Rounds rows [row_begin, row_end) of x [rows, ldx] to integers, symmetric, per group of 32: one term when out->lo is
  // null, else two where the threshold asks for it.
  void (*quantise_rows)(const float* x, int64_t ldx, int64_t row_begin, int64_t row_end, const QuantisedRows* out);
  // The same of weight * x / rms(x).
  void (*rms_norm_quantise_rows)(const float* x, int64_t ldx, const float* weight, float eps, int64_t row_begin,
                                 int64_t row_end, const QuantisedRows* out);
  void (*linear_quantised)(const QuantLinearArgs& args);
  void (*linear_float)(const FloatLinearArgs& args);

  // y = weight * x / rms(x), rows [row_begin, row_end).
  void (*rms_norm_rows)(const float* x, int64_t ldx, const float* weight, float eps, int64_t n, int64_t row_begin,
                        int64_t row_end, float* y, int64_t ldy);
  // y = silu(gate) * up over n elements.
  void (*silu_mul)(const float* gate, const float* up, int64_t n, float* y);
  // y += x
  void (*add)(const float* x, int64_t n, float* y);

  // Bias, qk-norm and rotary embedding of rows [row_begin, row_end); q to args.q, K and V to their slots, rounded to
  // nearest even. A finite value beyond the pool type's range becomes the largest finite value of that sign, so that one
  // odd channel cannot turn a whole context into NaN; NaN stays NaN. With kI8 as common/backend/kv_int8.h, to the bit.
  void (*qkv_epilogue)(const QkvEpilogueArgs& args, int64_t row_begin, int64_t row_end);

  // Whole attention of rows [row_begin, row_end) for the query heads of one kv head, written to args.out. Any number of
  // rows; scratch of AttentionScratchBytes(head_dim, heads per kv head, row_end - row_begin) bytes.
  void (*attention_rows)(const AttentionArgs& args, int kv_head, int64_t row_begin, int64_t row_end, uint8_t* scratch);
  // One row, one kv head, context split `split`: writes a partial per query head to
  // partials + head_in_group * partial_stride.
  void (*attention_split)(const AttentionArgs& args, int kv_head, int64_t row, int split, float* partials,
                          int64_t partial_stride, uint8_t* scratch);
  // Merges num_splits partials (in order, split_stride floats apart) of one head into out[head_dim].
  void (*attention_merge)(const float* partials, int64_t split_stride, int num_splits, int head_dim, float* out);

  // y = exp(x), for tests: the function that soft-max and SiLU use. 2 ulp on [-87, 88]; 0 below -87.
  void (*exp)(const float* x, int64_t n, float* y);
  // Widens / rounds n values; the pool's rounding as above. Not kI8.
  void (*widen)(const uint8_t* x, FloatType type, int64_t n, float* y);
  void (*round)(const float* x, FloatType type, int64_t n, uint8_t* y);
};

// ---- Not specific to an instruction set (kernels.cc) -----------------------------------------------------------------

// The table for `isa`, or null when this CPU (or build) cannot run it.
const Kernels* FindKernels(Isa isa);
// The widest that this CPU runs, or what the environment variable BATON_CPU_ISA names (scalar, avx2, avxvnni,
// avx512vnni, amx), if this CPU runs it.
const Kernels& BestKernels();
const char* IsaName(Isa isa);

// Weights below 16.
bool IsFourBit(QuantFormat format);

// Bytes for `rows` quantised rows, and the pointers into such memory (64-byte aligned). Fewer rows or columns, or less of what
// they hold, never need more.
size_t QuantisedRowsBytes(int64_t rows, int64_t in, bool two_terms, RowForms forms);
QuantisedRows QuantisedRowsIn(void* memory, int64_t rows, int64_t in, bool two_terms, RowForms forms,
                              float lo_threshold = kLoThreshold);

size_t LinearScratchBytes(int64_t in);
// From how many rows on tiles (Kernels::bf16_rows) are used, and what they want of the scratch.
inline constexpr int64_t kMinTileRows = 32;
inline constexpr int64_t kTileScratchBytes = 120 << 10;
size_t AttentionScratchBytes(int head_dim, int heads_per_kv_head, int64_t num_rows);
int64_t AttentionPartialFloats(int head_dim);

}  // namespace baton::cpu

#endif  // BATON_COMMON_BACKEND_CPU_KERNELS_H_
