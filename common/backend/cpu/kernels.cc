// SPDX-License-Identifier: Apache-2.0
#include "common/backend/cpu/kernels.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "common/backend/cpu/tile_check.h"
#include "common/base/logging.h"

namespace baton::cpu {

extern const Kernels kScalarKernels;
extern const Kernels kAvx2Kernels;
extern const Kernels kAvxVnniKernels;
extern const Kernels kAvx512Kernels;
void LinearQuantisedAmx(const QuantLinearArgs& args);  // kernels_amx.cc

namespace {

constexpr Isa kAll[] = {Isa::kAmx, Isa::kAvx512Vnni, Isa::kAvxVnni, Isa::kAvx2, Isa::kScalar};

struct Features {
  bool avx2 = false, avx_vnni = false, avx512_vnni = false, amx = false;
};

// Linux hands out tiles on request only; once for the whole process.
bool TilesGranted() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;               // XFEATURE_XTILE_DATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

// What both the CPU and the operating system (which saves the registers) support.
Features DetectFeatures() {
  Features f;
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return f;
  const bool osxsave = (c >> 27) & 1, fma = (c >> 12) & 1, f16c = (c >> 29) & 1;
  if (!osxsave) return f;
  unsigned xcr0_low, xcr0_high;
  __asm__("xgetbv" : "=a"(xcr0_low), "=d"(xcr0_high) : "c"(0));
  const bool ymm_saved = (xcr0_low & 0x6) == 0x6;
  const bool zmm_saved = (xcr0_low & 0xe6) == 0xe6;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return f;
  f.avx2 = ymm_saved && fma && f16c && ((b >> 5) & 1);
  const bool avx512 = ((b >> 16) & 1) && ((b >> 17) & 1) && ((b >> 30) & 1) && ((b >> 31) & 1);  // F, DQ, BW, VL
  f.avx512_vnni = f.avx2 && zmm_saved && avx512 && ((c >> 11) & 1);
  const bool tiles = ((d >> 22) & 1) && ((d >> 24) & 1) && ((d >> 25) & 1);  // BF16, TILE, INT8
  const bool tiles_saved = (xcr0_low & 0x60000) == 0x60000;
  f.amx = f.avx512_vnni && tiles && tiles_saved && TilesGranted();
  const unsigned max_subleaf = a;
  if (max_subleaf >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) f.avx_vnni = f.avx2 && ((a >> 4) & 1);
  return f;
}

const Kernels& ChooseBest() {
  const char* forced = std::getenv("BATON_CPU_ISA");
  if (forced != nullptr && *forced != '\0') {
    for (Isa isa : kAll) {
      if (std::strcmp(forced, IsaName(isa)) != 0) continue;
      if (const Kernels* kernels = FindKernels(isa)) return *kernels;
    }
    BATON_LOG(WARNING) << "BATON_CPU_ISA=" << forced << ": this CPU does not run it; choosing by its features";
  }
  for (Isa isa : kAll) {
    if (const Kernels* kernels = FindKernels(isa)) return *kernels;
  }
  return kScalarKernels;
}

// All but the quantised matrices is AVX-512's.
const Kernels& AmxKernels() {
  static const Kernels kernels = [] {
    Kernels k = kAvx512Kernels;
    k.isa = Isa::kAmx;
    k.name = "amx";
    k.bf16_rows = true;
    k.linear_quantised = LinearQuantisedAmx;
    return k;
  }();
  return kernels;
}

// Asked once: for what the tiles of this machine do, see tile_check.h.
bool TilesAreRight() {
  static const bool right = [] {
    if (GivesTheSameBits(kAvx512Kernels, LinearQuantisedAmx)) return true;
    BATON_LOG(ERROR) << "AMX tiles of this machine give other results than AVX-512: they are not used";
    return false;
  }();
  return right;
}

int64_t PadTo(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

}  // namespace

const Kernels* FindKernels(Isa isa) {
  static const Features features = DetectFeatures();
  switch (isa) {
    case Isa::kScalar:
      return &kScalarKernels;
    case Isa::kAvx2:
      return features.avx2 ? &kAvx2Kernels : nullptr;
    case Isa::kAvxVnni:
      return features.avx_vnni ? &kAvxVnniKernels : nullptr;
    case Isa::kAvx512Vnni:
      return features.avx512_vnni ? &kAvx512Kernels : nullptr;
    case Isa::kAmx:
      return features.amx && TilesAreRight() ? &AmxKernels() : nullptr;
  }
  return nullptr;
}

const Kernels& BestKernels() {
  static const Kernels& best = ChooseBest();
  return best;
}

const char* IsaName(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return "scalar";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvxVnni:
      return "avxvnni";
    case Isa::kAvx512Vnni:
      return "avx512vnni";
    case Isa::kAmx:
      return "amx";
  }
  return "?";
}

namespace {

// Rows there is room for. With many rows the strides from group to group are odd multiples of 32 and of 256 bytes: powers of
// two would put all groups of a block of rows into a few sets of the first-level cache.
int64_t LeadingDimension(int64_t rows) { return rows <= 8 ? rows : PadTo(rows - 8, 16) + 8; }

}  // namespace

bool IsFourBit(QuantFormat format) {
  return format == QuantFormat::k4AsymF16 || format == QuantFormat::k4SymF16 || format == QuantFormat::k4AsymF32;
}

QuantisedRows QuantisedRowsIn(void* memory, int64_t rows, int64_t in, bool two_terms, RowForms forms, float lo_threshold) {
  const int64_t groups = in / 32, ld = LeadingDimension(rows);
  uint8_t* next = static_cast<uint8_t*>(memory);
  auto take = [&next](int64_t bytes) {
    uint8_t* p = next;
    next += PadTo(bytes, 64);
    return p;
  };
  QuantisedRows x;
  x.in = in;
  x.ld = ld;
  x.hi = reinterpret_cast<int8_t*>(take(ld * in));
  x.lo = two_terms ? reinterpret_cast<int8_t*>(take(ld * in)) : nullptr;
  x.wide = forms.wide ? reinterpret_cast<int16_t*>(take(ld * in * 2)) : nullptr;
  x.bf16_hi = forms.bf16 ? reinterpret_cast<uint16_t*>(take(ld * in * 2)) : nullptr;
  x.bf16_lo = forms.bf16 && two_terms ? reinterpret_cast<uint16_t*>(take(ld * in * 2)) : nullptr;
  x.scale = reinterpret_cast<float*>(take(ld * groups * 4));
  x.scale_hi = two_terms ? reinterpret_cast<float*>(take(ld * groups * 4)) : nullptr;
  x.scaled_sum = reinterpret_cast<float*>(take(ld * groups * 4));
  x.scaled_sum16 = reinterpret_cast<float*>(take(ld * groups * 8));
  x.neg_sum = reinterpret_cast<int32_t*>(take(ld * groups * 4));
  x.neg_sum16 = reinterpret_cast<int32_t*>(take(ld * groups * 8));
  x.lo_used = two_terms ? take(ld * groups) : nullptr;
  x.lo_threshold = lo_threshold;
  return x;
}

size_t QuantisedRowsBytes(int64_t rows, int64_t in, bool two_terms, RowForms forms) {
  const int64_t groups = in / 32, ld = LeadingDimension(rows);
  int64_t bytes = PadTo(ld * in, 64) + 3 * PadTo(ld * groups * 4, 64) + 2 * PadTo(ld * groups * 8, 64);
  if (two_terms) bytes += PadTo(ld * in, 64) + PadTo(ld * groups * 4, 64) + PadTo(ld * groups, 64);
  if (forms.wide) bytes += PadTo(ld * in * 2, 64);
  if (forms.bf16) bytes += (two_terms ? 2 : 1) * PadTo(ld * in * 2, 64);
  return static_cast<size_t>(bytes);
}

// Two expanded tiles: 512 bytes of integers and four vectors of scales per group (linear_quant_impl.h).
size_t LinearScratchBytes(int64_t in) { return static_cast<size_t>(std::max(2 * (in / 32) * 768, kTileScratchBytes)); }

int64_t AttentionPartialFloats(int head_dim) { return 16 + PadTo(head_dim, 16); }

size_t AttentionScratchBytes(int head_dim, int heads_per_kv_head, int64_t num_rows) {
  const int64_t padded_dim = PadTo(head_dim, 16);
  const int64_t lines = heads_per_kv_head * num_rows;
  const int64_t floats = 2 * kKeyTile * padded_dim + lines * (padded_dim + 2 * AttentionPartialFloats(head_dim));
  return static_cast<size_t>(floats * 4 + 64);
}

}  // namespace baton::cpu
