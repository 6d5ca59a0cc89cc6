// SPDX-License-Identifier: Apache-2.0
// Linear layers: what becomes of the sums; included by one .cc per instruction set.

namespace baton::cpu {
namespace {

struct TilePair {
  int64_t first, second;  // second < 0: none
};

// Writes the sums of `num_rows` rows of one tile (or of a gate tile and its up tile). Args: QuantLinearArgs or FloatLinearArgs.
template <class Args>
void WriteTile(const Args& args, int64_t tile, int64_t row, int num_rows, const float (*sums)[16],
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

}  // namespace
}  // namespace baton::cpu
