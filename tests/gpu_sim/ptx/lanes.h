// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_GPU_SIM_PTX_LANES_H_
#define BATON_TESTS_GPU_SIM_PTX_LANES_H_

#include <bit>
#include <cstdint>
#include <type_traits>

#include "common/base/half.h"
#include "tests/gpu_sim/ptx/warp.h"

namespace baton::ptx {

// Calls f(lane) for each of `lanes`. With all of them it is a plain loop, which the compiler turns into vector instructions.
template <typename F>
inline void ForLanes(uint32_t lanes, const F& f) {
  if (lanes == kAllLanes) {
    for (int lane = 0; lane < kWarpSize; ++lane) f(lane);
  } else {
    for (; lanes != 0; lanes &= lanes - 1) f(std::countr_zero(lanes));
  }
}

// fp16 and bf16 values are computed as float.
struct F16 {};
struct BF16 {};

// How a type lies in a slot, and what its arithmetic is done in.
template <typename T>
struct LaneTraits {
  using Slot = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
  using Value = T;
  static T Load(Slot bits) {
    if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) return std::bit_cast<T>(bits);
    else return static_cast<T>(bits);
  }
  static Slot Store(T value) {
    if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) return std::bit_cast<Slot>(value);
    else return static_cast<Slot>(static_cast<std::make_unsigned_t<T>>(value));
  }
};
template <>
struct LaneTraits<F16> {
  using Slot = uint32_t;
  using Value = float;
  static float Load(uint32_t bits) { return HalfToFloat(static_cast<uint16_t>(bits)); }
  static uint32_t Store(float value) { return FloatToHalf(value); }
};
template <>
struct LaneTraits<BF16> {
  using Slot = uint32_t;
  using Value = float;
  static float Load(uint32_t bits) { return BFloat16ToFloat(static_cast<uint16_t>(bits)); }
  static uint32_t Store(float value) { return FloatToBFloat16(value); }
};

template <typename T>
using SlotOf = typename LaneTraits<T>::Slot;
template <typename T>
using ValueOf = typename LaneTraits<T>::Value;

// d = Op(a), d = Op(a, b), d = Op(a, b, c)
template <typename T, auto Op>
void Unary(Warp& warp, const Instruction& i, uint32_t lanes) {
  SlotOf<T>* const d = warp.Lanes<SlotOf<T>>(i.slot(0));
  const SlotOf<T>* const a = warp.Lanes<SlotOf<T>>(i.slot(1));
  ForLanes(lanes, [=](int l) { d[l] = LaneTraits<T>::Store(Op(LaneTraits<T>::Load(a[l]))); });
}
template <typename T, auto Op>
void Binary(Warp& warp, const Instruction& i, uint32_t lanes) {
  SlotOf<T>* const d = warp.Lanes<SlotOf<T>>(i.slot(0));
  const SlotOf<T>* const a = warp.Lanes<SlotOf<T>>(i.slot(1));
  const SlotOf<T>* const b = warp.Lanes<SlotOf<T>>(i.slot(2));
  ForLanes(lanes, [=](int l) { d[l] = LaneTraits<T>::Store(Op(LaneTraits<T>::Load(a[l]), LaneTraits<T>::Load(b[l]))); });
}
template <typename T, auto Op>
void Ternary(Warp& warp, const Instruction& i, uint32_t lanes) {
  SlotOf<T>* const d = warp.Lanes<SlotOf<T>>(i.slot(0));
  const SlotOf<T>* const a = warp.Lanes<SlotOf<T>>(i.slot(1));
  const SlotOf<T>* const b = warp.Lanes<SlotOf<T>>(i.slot(2));
  const SlotOf<T>* const c = warp.Lanes<SlotOf<T>>(i.slot(3));
  ForLanes(lanes, [=](int l) {
    d[l] = LaneTraits<T>::Store(Op(LaneTraits<T>::Load(a[l]), LaneTraits<T>::Load(b[l]), LaneTraits<T>::Load(c[l])));
  });
}

}  // namespace baton::ptx

#endif  // BATON_TESTS_GPU_SIM_PTX_LANES_H_
