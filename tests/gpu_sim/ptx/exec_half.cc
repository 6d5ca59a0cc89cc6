// SPDX-License-Identifier: Apache-2.0
// fp16 and bf16 arithmetic, one value or two a register. Sums and products of two halves are rounded once: fp32 holds more than
// twice their digits. A fused multiply-add goes through double.
#include <cmath>

#include "tests/gpu_sim/ptx/lanes.h"
#include "tests/gpu_sim/ptx/opcode.h"
#include "tests/gpu_sim/ptx/rounding.h"

namespace baton::ptx {
namespace {

template <typename T> float Add(float a, float b) { return a + b; }
template <typename T> float Sub(float a, float b) { return a - b; }
template <typename T> float Mul(float a, float b) { return a * b; }
template <typename T> float Neg(float a) { return -a; }
template <typename T> float Abs(float a) { return std::abs(a); }
template <typename T> float Min(float a, float b) { return std::fmin(a, b); }
template <typename T> float Max(float a, float b) { return std::fmax(a, b); }
template <typename T> float Fma(float a, float b, float c) {
  const FloatFormat& format = std::is_same_v<T, F16> ? kHalfFormat : kBFloat16Format;
  return static_cast<float>(RoundTo(std::fma(double{a}, double{b}, double{c}), format, Rounding::kNearest));
}

// The same for both halves of a register.
template <typename T, auto Op, int kOperands>
void Pairs(Warp& warp, const Instruction& i, uint32_t lanes) {
  ForLanes(lanes, [&](int l) {
    uint32_t result = 0;
    for (int half = 0; half < 2; ++half) {
      float in[3] = {};
      for (int n = 0; n < kOperands; ++n) in[n] = LaneTraits<T>::Load(warp.Lanes<uint32_t>(i.slot(n + 1))[l] >> 16 * half);
      float value;
      if constexpr (kOperands == 1) value = Op(in[0]);
      else if constexpr (kOperands == 2) value = Op(in[0], in[1]);
      else value = Op(in[0], in[1], in[2]);
      result |= LaneTraits<T>::Store(value) << 16 * half;
    }
    warp.Lanes<uint32_t>(i.slot(0))[l] = result;
  });
}

template <typename T>
bool Choose(const Opcode& op, bool pairs, Instruction* i, OperandList* operands) {
  int n = 2;
  if (op.Is({"add"})) i->handler = pairs ? &Pairs<T, Add<T>, 2> : &Binary<T, Add<T>>;
  else if (op.Is({"sub"})) i->handler = pairs ? &Pairs<T, Sub<T>, 2> : &Binary<T, Sub<T>>;
  else if (op.Is({"mul"})) i->handler = pairs ? &Pairs<T, Mul<T>, 2> : &Binary<T, Mul<T>>;
  else if (op.Is({"min"})) i->handler = pairs ? &Pairs<T, Min<T>, 2> : &Binary<T, Min<T>>;
  else if (op.Is({"max"})) i->handler = pairs ? &Pairs<T, Max<T>, 2> : &Binary<T, Max<T>>;
  else if (op.Is({"fma"})) n = 3, i->handler = pairs ? &Pairs<T, Fma<T>, 3> : &Ternary<T, Fma<T>>;
  else if (op.Is({"neg"})) n = 1, i->handler = pairs ? &Pairs<T, Neg<T>, 1> : &Unary<T, Neg<T>>;
  else if (op.Is({"abs"})) n = 1, i->handler = pairs ? &Pairs<T, Abs<T>, 1> : &Unary<T, Abs<T>>;
  else return false;
  *operands = "d4";
  for (int operand = 0; operand < n; ++operand) *operands += " s4";
  return true;
}

}  // namespace

bool DecodeHalf(Opcode op, Instruction* i, OperandList* operands) {
  if (op.TakeRounding(i) && i->rounding != Rounding::kNearest) return false;
  i->type = op.TakeType();
  if (!op.Done()) return false;
  switch (i->type) {
    case Type::kF16: return Choose<F16>(op, false, i, operands);
    case Type::kF16x2: return Choose<F16>(op, true, i, operands);
    case Type::kBf16: return Choose<BF16>(op, false, i, operands);
    case Type::kBf16x2: return Choose<BF16>(op, true, i, operands);
    default: return false;
  }
}

}  // namespace baton::ptx
