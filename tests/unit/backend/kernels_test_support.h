// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_UNIT_BACKEND_KERNELS_TEST_SUPPORT_H_
#define BATON_TESTS_UNIT_BACKEND_KERNELS_TEST_SUPPORT_H_

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "common/backend/cpu/kernels.h"
#include "common/backend/cpu/quant_pack.h"
#include "tests/unit/backend/emulated_tile_use.h"

namespace baton::cpu {

// The kernels of AVX-512 on intrinsics made of AVX2 (emulated_avx512.h).
extern const Kernels kEmulatedAvx512Kernels;

// The table of AMX on emulated tiles, beside real AVX-512 or the emulated one. Null where this CPU lacks what is real.
struct EmulatedAmx {
  const Kernels* kernels;
  EmulatedTileUse (*use)();  // Of the calling thread.
};
EmulatedAmx EmulatedAmxOver(bool real_avx512);

// Runs over every instruction set, AVX-512 and tiles emulated where this CPU lacks them; another is skipped, with a line.
class KernelsTest : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    kernels_ = FindKernels(GetParam());
    if (kernels_ == nullptr && GetParam() == Isa::kAvx512Vnni && FindKernels(Isa::kAvx2) != nullptr) {
      kernels_ = &kEmulatedAvx512Kernels;
    }
    for (const bool real_avx512 : {true, false}) {
      if (kernels_ == nullptr && GetParam() == Isa::kAmx) kernels_ = EmulatedAmxOver(real_avx512).kernels;
    }
    if (kernels_ == nullptr) GTEST_SKIP() << "this CPU cannot run " << IsaName(GetParam());
  }
  const Kernels& k() const { return *kernels_; }
  const Kernels* kernels_ = nullptr;
};

inline std::string IsaParamName(const ::testing::TestParamInfo<Isa>& info) { return IsaName(info.param); }

#define BATON_INSTANTIATE_FOR_EVERY_ISA(suite)                                                                      \
  INSTANTIATE_TEST_SUITE_P(Isa, suite,                                                                              \
                           ::testing::Values(Isa::kScalar, Isa::kAvx2, Isa::kAvxVnni, Isa::kAvx512Vnni, Isa::kAmx), \
                           IsaParamName)

inline std::vector<float> RandomFloats(std::mt19937& rng, int64_t n, float scale = 1.0f) {
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> x(static_cast<size_t>(n));
  for (float& v : x) v = normal(rng);
  return x;
}

// Random bytes that are a valid tensor of `type`: half-precision scales are finite and small.
std::vector<uint8_t> RandomBlocks(std::mt19937& rng, GgmlType type, int64_t rows, int64_t columns);

inline TensorView View(const std::vector<uint8_t>& bytes, GgmlType type, int64_t rows, int64_t columns) {
  TensorView view;
  view.name = "test." + std::string(GgmlTypeName(type));
  view.type = type;
  view.shape = {rows, columns};
  view.data = bytes.data();
  view.bytes = bytes.size();
  return view;
}

// Quantised rows, in every form if not said otherwise, with the memory they live in.
struct OwnedRows {
  OwnedRows(int64_t rows, int64_t in, bool two_terms, RowForms forms = {.wide = true, .bf16 = true})
      : bytes(QuantisedRowsBytes(rows, in, two_terms, forms)),
        memory(AllocateAligned(bytes)),
        view(QuantisedRowsIn(memory.get(), rows, in, two_terms, forms)) {}
  size_t bytes;
  std::shared_ptr<uint8_t[]> memory;
  QuantisedRows view;
};

}  // namespace baton::cpu

#endif  // BATON_TESTS_UNIT_BACKEND_KERNELS_TEST_SUPPORT_H_
