// SPDX-License-Identifier: Apache-2.0
#include "common/backend/cpu/tile_check.h"

#include <bit>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <random>
#include <vector>

namespace baton::cpu {
namespace {

constexpr int64_t kRows = kMinTileRows + 5, kIn = 9 * 32, kOut = 3 * 16;  // No whole chunk, block or pair of anything.

// Memory of `bytes` at a multiple of 64, zeroed.
class Aligned {
 public:
  explicit Aligned(size_t bytes) : memory_(bytes + 64) {}
  uint8_t* data() {
    const size_t past = std::bit_cast<uintptr_t>(memory_.data()) % 64;
    return memory_.data() + (past == 0 ? 0 : 64 - past);
  }

 private:
  std::vector<uint8_t> memory_;
};

struct Form {
  QuantFormat format;
  int64_t quant_bytes, scale_bytes;  // Of a record; scales are fp16.
};

bool SameBits(const Kernels& reference, void (*linear)(const QuantLinearArgs&), const Form& form, bool two_terms) {
  std::mt19937 rng(7);
  const int64_t record_bytes = form.quant_bytes + form.scale_bytes, num_tiles = kOut / 16;
  Aligned weights(static_cast<size_t>(num_tiles * (kIn / 32) * record_bytes));
  for (int64_t record = 0; record < num_tiles * (kIn / 32); ++record) {
    uint8_t* p = weights.data() + record * record_bytes;
    for (int64_t i = 0; i < form.quant_bytes; ++i) p[i] = static_cast<uint8_t>(rng());
    for (int64_t i = 0; i < form.scale_bytes; i += 2) {
      const uint16_t scale = static_cast<uint16_t>(0x2000 + rng() % 0x0c00);  // 1/128 to 1/16
      std::memcpy(p + form.quant_bytes + i, &scale, sizeof(scale));
    }
  }
  std::vector<float> x(static_cast<size_t>(kRows * kIn));
  for (float& value : x) value = static_cast<float>(static_cast<int>(rng() % 2001) - 1000) / 1000.0f * (rng() % 64 == 0 ? 20.0f : 1.0f);
  Aligned rows(QuantisedRowsBytes(kRows, kIn, two_terms, {.wide = reference.wide_bytes, .bf16 = true}));
  const QuantisedRows quantised = QuantisedRowsIn(rows.data(), kRows, kIn, two_terms, {.wide = reference.wide_bytes, .bf16 = true});
  reference.quantise_rows(x.data(), kIn, 0, kRows, &quantised);
  const QuantMatrix w = {form.format, kOut, kIn, num_tiles, record_bytes, weights.data()};
  Aligned scratch(LinearScratchBytes(kIn));
  std::vector<float> expected(static_cast<size_t>(kRows * kOut)), got(expected.size());
  QuantLinearArgs args = {&w, quantised, 0, kRows, 0, num_tiles, expected.data(), kOut, Epilogue::kStore, scratch.data()};
  reference.linear_quantised(args);
  args.y = got.data();
  linear(args);
  return std::memcmp(expected.data(), got.data(), expected.size() * sizeof(float)) == 0;
}

}  // namespace

bool GivesTheSameBits(const Kernels& reference, void (*linear)(const QuantLinearArgs& args)) {
  for (const Form& form : {Form{QuantFormat::k4AsymF16, 256, 64}, Form{QuantFormat::k8SymF16, 512, 32}}) {
    for (const bool two_terms : {false, true}) {
      if (!SameBits(reference, linear, form, two_terms)) return false;
    }
  }
  return true;
}

}  // namespace baton::cpu
