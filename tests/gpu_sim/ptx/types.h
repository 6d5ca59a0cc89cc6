// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_GPU_SIM_PTX_TYPES_H_
#define BATON_TESTS_GPU_SIM_PTX_TYPES_H_

#include <cstdint>
#include <string_view>

namespace baton::ptx {

inline constexpr int kWarpSize = 32;
inline constexpr uint32_t kAllLanes = 0xffffffffu;

enum class Type : uint8_t {
  kNone, kPred, kB8, kU8, kS8, kB16, kU16, kS16, kF16, kBf16, kB32, kU32, kS32, kF32, kF16x2, kBf16x2, kB64, kU64, kS64, kF64
};

enum class Space : uint8_t { kGeneric, kGlobal, kShared, kLocal, kParam, kConst };
enum class Rounding : uint8_t { kNearest, kZero, kDown, kUp, kNearestInteger, kZeroInteger, kDownInteger, kUpInteger };
// The second six are true for unordered operands as well.
enum class Compare : uint8_t { kEq, kNe, kLt, kLe, kGt, kGe, kEqu, kNeu, kLtu, kLeu, kGtu, kGeu, kNum, kNan };
enum class BoolOp : uint8_t { kNone, kAnd, kOr, kXor };
enum class Special : uint8_t {
  kTidX, kTidY, kTidZ, kNtidX, kNtidY, kNtidZ, kCtaidX, kCtaidY, kCtaidZ, kNctaidX, kNctaidY, kNctaidZ,
  kLaneid, kWarpid, kLanemaskEq, kLanemaskLt, kLanemaskLe, kLanemaskGt, kLanemaskGe
};

inline int SizeOf(Type type) {
  if (type >= Type::kB64) return 8;
  if (type >= Type::kB32) return 4;
  if (type >= Type::kB16) return 2;
  return 1;
}
inline int SlotBytes(Type type) { return SizeOf(type) == 8 ? 8 : 4; }
inline bool IsFloat(Type type) {
  return type == Type::kF16 || type == Type::kBf16 || type == Type::kF32 || type == Type::kF64 || type == Type::kF16x2 ||
         type == Type::kBf16x2;
}
inline bool IsSigned(Type type) {
  return type == Type::kS8 || type == Type::kS16 || type == Type::kS32 || type == Type::kS64;
}
inline bool IsInteger(Type type) { return type > Type::kPred && !IsFloat(type); }

// Generic addresses of shared and local memory: no allocation of this process lies there. 4 GiB each.
inline constexpr uint64_t kSharedWindow = 0xfffe000000000000u;
inline constexpr uint64_t kLocalWindow = 0xfffd000000000000u;

// "f32" and the like, without the dot; kNone for anything else.
inline Type TypeOf(std::string_view name) {
  struct Name { std::string_view text; Type type; };
  static constexpr Name kNames[] = {
      {"pred", Type::kPred}, {"b8", Type::kB8}, {"u8", Type::kU8}, {"s8", Type::kS8}, {"b16", Type::kB16},
      {"u16", Type::kU16}, {"s16", Type::kS16}, {"f16", Type::kF16}, {"bf16", Type::kBf16}, {"b32", Type::kB32},
      {"u32", Type::kU32}, {"s32", Type::kS32}, {"f32", Type::kF32}, {"f16x2", Type::kF16x2},
      {"bf16x2", Type::kBf16x2}, {"b64", Type::kB64}, {"u64", Type::kU64}, {"s64", Type::kS64}, {"f64", Type::kF64}};
  for (const Name& known : kNames) {
    if (known.text == name) return known.type;
  }
  return Type::kNone;
}

}  // namespace baton::ptx

#endif  // BATON_TESTS_GPU_SIM_PTX_TYPES_H_
