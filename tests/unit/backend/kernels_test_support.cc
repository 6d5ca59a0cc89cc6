// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/backend/kernels_test_support.h"

#include <cstring>

#include "common/base/half.h"

namespace baton::cpu {

// kernels_amx_emulated.cc, kernels_amx_avx512_emulated.cc
void LinearQuantisedEmulatedTiles(const QuantLinearArgs& args);
void LinearQuantisedAllEmulated(const QuantLinearArgs& args);
EmulatedTileUse UseOfEmulatedTiles();
EmulatedTileUse UseOfTilesAllEmulated();

namespace {

Kernels WithTiles(const Kernels& kernels, void (*linear_quantised)(const QuantLinearArgs&)) {
  Kernels k = kernels;
  k.isa = Isa::kAmx;
  k.name = "amx, emulated";
  k.bf16_rows = true;
  k.linear_quantised = linear_quantised;
  return k;
}

// Where each block keeps its half-precision numbers.
std::vector<int> HalfOffsets(GgmlType type) {
  switch (type) {
    case GgmlType::kQ4_1:
    case GgmlType::kQ5_1:
    case GgmlType::kQ4_K:
    case GgmlType::kQ5_K:
      return {0, 2};
    case GgmlType::kQ2_K:
      return {80, 82};
    case GgmlType::kQ3_K:
      return {108};
    case GgmlType::kQ6_K:
      return {208};
    case GgmlType::kMXFP4:
      return {};
    default:
      return {0};
  }
}

}  // namespace

EmulatedAmx EmulatedAmxOver(bool real_avx512) {
  if (FindKernels(real_avx512 ? Isa::kAvx512Vnni : Isa::kAvx2) == nullptr) return {nullptr, nullptr};
  if (real_avx512) {
    static const Kernels kernels = WithTiles(*FindKernels(Isa::kAvx512Vnni), LinearQuantisedEmulatedTiles);
    return {&kernels, UseOfEmulatedTiles};
  }
  static const Kernels kernels = WithTiles(kEmulatedAvx512Kernels, LinearQuantisedAllEmulated);
  return {&kernels, UseOfTilesAllEmulated};
}

std::vector<uint8_t> RandomBlocks(std::mt19937& rng, GgmlType type, int64_t rows, int64_t columns) {
  const GgmlTypeTraits& traits = TraitsOf(type);
  const int64_t blocks = rows * columns / traits.block_length;
  std::vector<uint8_t> bytes(static_cast<size_t>(blocks * traits.block_bytes));
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(rng());
  std::uniform_real_distribution<float> scale(-0.02f, 0.02f);
  for (int64_t b = 0; b < blocks; ++b) {
    uint8_t* block = bytes.data() + b * traits.block_bytes;
    for (int offset : HalfOffsets(type)) {
      const uint16_t half = FloatToHalf(scale(rng));
      std::memcpy(block + offset, &half, 2);
    }
    if (type == GgmlType::kMXFP4) block[0] = static_cast<uint8_t>(118 + block[0] % 8);
  }
  return bytes;
}

}  // namespace baton::cpu
