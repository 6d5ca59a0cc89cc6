// SPDX-License-Identifier: Apache-2.0
// fp32 and fp64 arithmetic. Compiled with -frounding-math: directed roundings are the processor's.
#include <cfenv>
#include <cmath>

#include "tests/gpu_sim/ptx/lanes.h"
#include "tests/gpu_sim/ptx/opcode.h"
#include "tests/gpu_sim/ptx/rounding.h"

namespace baton::ptx {
namespace {

template <typename T> T Add(T a, T b) { return a + b; }
template <typename T> T Sub(T a, T b) { return a - b; }
template <typename T> T Mul(T a, T b) { return a * b; }
template <typename T> T Div(T a, T b) { return a / b; }
template <typename T> T Fma(T a, T b, T c) { return std::fma(a, b, c); }
template <typename T> T Neg(T a) { return -a; }
template <typename T> T Abs(T a) { return std::abs(a); }
template <typename T> T Sqrt(T a) { return std::sqrt(a); }
// A NaN gives way to a number, and -0 is less than +0.
template <typename T> T Min(T a, T b) {
  if (std::isnan(a)) return b;
  if (a == b) return std::signbit(a) ? a : b;
  return b < a ? b : a;
}
template <typename T> T Max(T a, T b) {
  if (std::isnan(a)) return b;
  if (a == b) return std::signbit(a) ? b : a;
  return b > a ? b : a;
}
template <typename T> T MinNan(T a, T b) { return std::isnan(a) || std::isnan(b) ? a + b : Min<T>(a, b); }
template <typename T> T MaxNan(T a, T b) { return std::isnan(a) || std::isnan(b) ? a + b : Max<T>(a, b); }
template <typename T> T CopySign(T sign, T magnitude) { return std::copysign(magnitude, sign); }
// Approximations are the exact value rounded: a device is within a few units in the last place of it.
float Reciprocal(float a) { return 1.0f / a; }
float ReciprocalSqrt(float a) { return 1.0f / std::sqrt(a); }
float Exp2(float a) { return std::exp2(a); }
float Log2(float a) { return std::log2(a); }
float Sin(float a) { return std::sin(a); }
float Cos(float a) { return std::cos(a); }
float Tanh(float a) { return std::tanh(a); }

class ScopedRounding {
 public:
  explicit ScopedRounding(Rounding rounding) {
    static constexpr int kModes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
    if (rounding != Rounding::kNearest) std::fesetround(kModes[static_cast<int>(rounding)]);
  }
  ~ScopedRounding() { std::fesetround(FE_TONEAREST); }
};

// With .ftz, .sat or a directed rounding. Operands and results stay in memory between the changes of the mode.
template <auto Op, int kOperands>
void Careful(Warp& warp, const Instruction& i, uint32_t lanes) {
  const ScopedRounding scoped(i.rounding);
  float* const d = warp.Lanes<float>(i.slot(0));
  for (; lanes != 0; lanes &= lanes - 1) {
    const int lane = std::countr_zero(lanes);
    float in[3] = {};
    for (int n = 0; n < kOperands; ++n) {
      in[n] = warp.Lanes<float>(i.slot(n + 1))[lane];
      if (i.flush && IsSubnormal(in[n])) in[n] = std::copysign(0.0f, in[n]);
    }
    float result;
    if constexpr (kOperands == 1) result = Op(in[0]);
    else if constexpr (kOperands == 2) result = Op(in[0], in[1]);
    else result = Op(in[0], in[1], in[2]);
    if (i.flush && IsSubnormal(result)) result = std::copysign(0.0f, result);
    if (i.saturate) result = static_cast<float>(Saturate(result));
    d[lane] = result;
  }
}

// fma.rn.f32 is what kernels are made of; without the instruction it is a call a lane.
__attribute__((target("fma,avx2"))) void FmaVector(Warp& warp, const Instruction& i, uint32_t lanes) {
  float* const d = warp.Lanes<float>(i.slot(0));
  const float* const a = warp.Lanes<float>(i.slot(1));
  const float* const b = warp.Lanes<float>(i.slot(2));
  const float* const c = warp.Lanes<float>(i.slot(3));
  if (lanes == kAllLanes) {
    for (int lane = 0; lane < kWarpSize; ++lane) d[lane] = __builtin_fmaf(a[lane], b[lane], c[lane]);
    return;
  }
  for (; lanes != 0; lanes &= lanes - 1) {
    const int lane = std::countr_zero(lanes);
    d[lane] = __builtin_fmaf(a[lane], b[lane], c[lane]);
  }
}

Handler PlainFma() {
  static const bool has_fma = __builtin_cpu_supports("fma") && __builtin_cpu_supports("avx2");
  return has_fma ? &FmaVector : &Ternary<float, Fma<float>>;
}

struct Forms {
  Handler plain = nullptr;
  Handler careful = nullptr;
  int operands = 2;
};
#define BATON_F32(shape, op, n) Forms{&shape<float, op>, &Careful<op, n>, n}

Forms FloatForms(const Opcode& op, bool nan) {
  if (op.Is({"add"})) return BATON_F32(Binary, Add<float>, 2);
  if (op.Is({"sub"})) return BATON_F32(Binary, Sub<float>, 2);
  if (op.Is({"mul"})) return BATON_F32(Binary, Mul<float>, 2);
  if (op.Is({"div"})) return BATON_F32(Binary, Div<float>, 2);
  if (op.Is({"min"})) return nan ? BATON_F32(Binary, MinNan<float>, 2) : BATON_F32(Binary, Min<float>, 2);
  if (op.Is({"max"})) return nan ? BATON_F32(Binary, MaxNan<float>, 2) : BATON_F32(Binary, Max<float>, 2);
  if (op.Is({"copysign"})) return BATON_F32(Binary, CopySign<float>, 2);
  if (op.Is({"fma", "mad"})) return Forms{PlainFma(), &Careful<Fma<float>, 3>, 3};
  if (op.Is({"neg"})) return BATON_F32(Unary, Neg<float>, 1);
  if (op.Is({"abs"})) return BATON_F32(Unary, Abs<float>, 1);
  if (op.Is({"sqrt"})) return BATON_F32(Unary, Sqrt<float>, 1);
  if (op.Is({"rcp"})) return BATON_F32(Unary, Reciprocal, 1);
  if (op.Is({"rsqrt"})) return BATON_F32(Unary, ReciprocalSqrt, 1);
  if (op.Is({"ex2"})) return BATON_F32(Unary, Exp2, 1);
  if (op.Is({"lg2"})) return BATON_F32(Unary, Log2, 1);
  if (op.Is({"sin"})) return BATON_F32(Unary, Sin, 1);
  if (op.Is({"cos"})) return BATON_F32(Unary, Cos, 1);
  if (op.Is({"tanh"})) return BATON_F32(Unary, Tanh, 1);
  return {};
}

Forms DoubleForms(const Opcode& op) {
  if (op.Is({"add"})) return {&Binary<double, Add<double>>, nullptr, 2};
  if (op.Is({"sub"})) return {&Binary<double, Sub<double>>, nullptr, 2};
  if (op.Is({"mul"})) return {&Binary<double, Mul<double>>, nullptr, 2};
  if (op.Is({"div"})) return {&Binary<double, Div<double>>, nullptr, 2};
  if (op.Is({"min"})) return {&Binary<double, Min<double>>, nullptr, 2};
  if (op.Is({"max"})) return {&Binary<double, Max<double>>, nullptr, 2};
  if (op.Is({"fma", "mad"})) return {&Ternary<double, Fma<double>>, nullptr, 3};
  if (op.Is({"neg"})) return {&Unary<double, Neg<double>>, nullptr, 1};
  if (op.Is({"abs"})) return {&Unary<double, Abs<double>>, nullptr, 1};
  if (op.Is({"sqrt"})) return {&Unary<double, Sqrt<double>>, nullptr, 1};
  return {};
}

}  // namespace

bool DecodeFloat(Opcode op, Instruction* i, OperandList* operands) {
  const bool approximate = op.TakeOneOf({"approx", "full"}) >= 0;
  if (!op.TakeRounding(i) && !approximate && op.Is({"div", "sqrt", "rcp", "fma", "mad"})) return false;
  i->flush = op.Take("ftz");
  i->saturate = op.Take("sat");
  const bool nan = op.Take("NaN");
  i->type = op.TakeType();
  if (!op.Done() || (i->type != Type::kF32 && i->type != Type::kF64)) return false;
  if (nan && !op.Is({"min", "max"})) return false;
  if (op.Is({"rsqrt", "ex2", "lg2", "sin", "cos", "tanh"}) != approximate && !op.Is({"div", "sqrt", "rcp"})) return false;
  const bool wide = i->type == Type::kF64;
  const Forms forms = wide ? DoubleForms(op) : FloatForms(op, nan);
  const bool plain = !i->flush && !i->saturate && i->rounding == Rounding::kNearest;
  i->handler = plain ? forms.plain : forms.careful;
  const std::string n = wide ? "8" : "4";
  *operands = "d" + n;
  for (int operand = 0; operand < forms.operands; ++operand) *operands += " s" + n;
  return i->handler != nullptr;
}

}  // namespace baton::ptx
