// SPDX-License-Identifier: Apache-2.0
// The table of one instruction set; included last by its .cc.

namespace baton::cpu {
namespace {

constexpr Kernels MakeTable(Isa isa, const char* name) {
  return Kernels{isa,          name,        kWideBytes,    /*bf16_rows=*/false, QuantiseRows,  RmsNormQuantiseRows,
                 LinearQuantised, LinearFloat,
                 RmsNormRows,  SiluMulArray, AddArray,     QkvEpilogue,         AttentionRows,   AttentionSplit,
                 AttentionMerge, ExpArray,  WidenArray,    RoundArray};
}

}  // namespace
}  // namespace baton::cpu
