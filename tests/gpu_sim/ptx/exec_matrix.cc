// SPDX-License-Identifier: Apache-2.0
// mma.sync m16n8k8 and m16n8k16 of fp16 or bf16 into fp32, and ldmatrix. With g = lane / 4 and t = lane % 4, per the PTX ISA:
//   A [16, k]  register r holds row g (+ 8 for odd r), columns 2t and 2t + 1 (+ 8 for r >= 2)
//   B [k, 8]   register r holds rows 2t and 2t + 1 (+ 8 r), column g
//   C, D [16, 8]  register r holds row g (+ 8 for r >= 2), column 2t + r % 2
// Sums run over k in order, in fp32; a device adds in an order and with roundings of its own. And mma.sync m16n8k16 and m16n8k32 of bytes
// into 32-bit integers, which wrap:
//   A [16, k]  register r holds row g (+ 8 for odd r), columns 4t to 4t + 3 (+ 16 for r >= 2)
//   B [k, 8]   register r holds rows 4t to 4t + 3 (+ 16 r), column g
#include <cstring>

#include "tests/gpu_sim/ptx/access.h"
#include "tests/gpu_sim/ptx/lanes.h"
#include "tests/gpu_sim/ptx/opcode.h"

namespace baton::ptx {
namespace {

// All lanes take part, or none: .aligned.
bool AllThere(Warp& warp, const Instruction& i, uint32_t lanes) {
  if (lanes == kAllLanes) return true;
  warp.Report(FindingKind::kWarpSync, i, std::countr_zero(lanes), "not all lanes of the warp execute it together");
  warp.launch().aborted = true;
  return false;
}

template <typename T>
void MultiplyAdd(Warp& warp, const Instruction& i, uint32_t lanes) {
  if (!AllThere(warp, i, lanes)) return;
  const int depth = i.width;  // 8 or 16
  float a[16][16], b[16][8], c[16][8];
  for (int lane = 0; lane < kWarpSize; ++lane) {
    const int g = lane / 4, t = lane % 4;
    for (int r = 0; r < depth / 4; ++r) {
      const uint32_t pair = warp.Lanes<uint32_t>(i.slot(1, r))[lane];
      float* const at = &a[g + 8 * (r % 2)][2 * t + 8 * (r / 2)];
      at[0] = LaneTraits<T>::Load(pair & 0xffff);
      at[1] = LaneTraits<T>::Load(pair >> 16);
    }
    for (int r = 0; r < depth / 8; ++r) {
      const uint32_t pair = warp.Lanes<uint32_t>(i.slot(2, r))[lane];
      b[2 * t + 8 * r][g] = LaneTraits<T>::Load(pair & 0xffff);
      b[2 * t + 8 * r + 1][g] = LaneTraits<T>::Load(pair >> 16);
    }
    for (int r = 0; r < 4; ++r) c[g + 8 * (r / 2)][2 * t + r % 2] = warp.Lanes<float>(i.slot(3, r))[lane];
  }
  for (int row = 0; row < 16; ++row) {
    for (int k = 0; k < depth; ++k) {
      for (int column = 0; column < 8; ++column) c[row][column] += a[row][k] * b[k][column];
    }
  }
  for (int lane = 0; lane < kWarpSize; ++lane) {
    const int g = lane / 4, t = lane % 4;
    for (int r = 0; r < 4; ++r) warp.Lanes<float>(i.slot(0, r))[lane] = c[g + 8 * (r / 2)][2 * t + r % 2];
  }
}

template <typename A, typename B>
void MultiplyAddBytes(Warp& warp, const Instruction& i, uint32_t lanes) {
  if (!AllThere(warp, i, lanes)) return;
  const int depth = i.width;  // 16 or 32
  int a[16][32], b[32][8];
  uint32_t c[16][8];
  for (int lane = 0; lane < kWarpSize; ++lane) {
    const int g = lane / 4, t = lane % 4;
    for (int byte = 0; byte < 4; ++byte) {
      for (int r = 0; r < depth / 8; ++r) {
        a[g + 8 * (r % 2)][4 * t + byte + 16 * (r / 2)] = static_cast<A>(warp.Lanes<uint32_t>(i.slot(1, r))[lane] >> 8 * byte);
      }
      for (int r = 0; r < depth / 16; ++r) b[4 * t + byte + 16 * r][g] = static_cast<B>(warp.Lanes<uint32_t>(i.slot(2, r))[lane] >> 8 * byte);
    }
    for (int r = 0; r < 4; ++r) c[g + 8 * (r / 2)][2 * t + r % 2] = warp.Lanes<uint32_t>(i.slot(3, r))[lane];
  }
  for (int row = 0; row < 16; ++row) {
    for (int k = 0; k < depth; ++k) {
      for (int column = 0; column < 8; ++column) c[row][column] += static_cast<uint32_t>(a[row][k] * b[k][column]);
    }
  }
  for (int lane = 0; lane < kWarpSize; ++lane) {
    const int g = lane / 4, t = lane % 4;
    for (int r = 0; r < 4; ++r) warp.Lanes<uint32_t>(i.slot(0, r))[lane] = c[g + 8 * (r / 2)][2 * t + r % 2];
  }
}

// Lane 8m + r has the address of row r (16 bytes) of matrix m; lane l receives row l / 4, columns 2 (l % 4) and the next. Of the
// transposed matrix with mode 1.
void LoadMatrix(Warp& warp, const Instruction& i, uint32_t lanes) {
  if (!AllThere(warp, i, lanes)) return;
  uint64_t addresses[kWarpSize];
  Addresses(warp, i, 1, i.address_bytes, i.address_offset, addresses);
  uint16_t rows[4][8][8];
  for (int lane = 0; lane < 8 * i.width; ++lane) {
    const uint8_t* const row = Access(warp, i, Space::kShared, lane, addresses[lane], 16, AccessKind::kRead);
    if (row == nullptr) return;
    std::memcpy(rows[lane / 8][lane % 8], row, 16);
  }
  for (int matrix = 0; matrix < i.width; ++matrix) {
    uint32_t* const d = warp.Lanes<uint32_t>(i.slot(0, matrix));
    for (int lane = 0; lane < kWarpSize; ++lane) {
      const int row = lane / 4, column = 2 * (lane % 4);
      const uint32_t low = i.mode == 1 ? rows[matrix][column][row] : rows[matrix][row][column];
      const uint32_t high = i.mode == 1 ? rows[matrix][column + 1][row] : rows[matrix][row][column + 1];
      d[lane] = high << 16 | low;
    }
  }
  const uint32_t addressed = i.width == 4 ? kAllLanes : (1u << 8 * i.width) - 1;
  CountTraffic(warp, Space::kShared, addressed, addresses, 16);
}

}  // namespace

// Behind "mma.sync.aligned.m16n8k..": saturation is not interpreted.
static bool DecodeByteMatrix(int depth, Opcode& op, Instruction* i, OperandList* operands) {
  const Type a = op.TakeType(), b = op.TakeType(), c = op.TakeType();
  if ((a != Type::kS8 && a != Type::kU8) || (b != Type::kS8 && b != Type::kU8) || c != Type::kS32 || !op.Done()) return false;
  if (IsSigned(a)) i->handler = IsSigned(b) ? &MultiplyAddBytes<int8_t, int8_t> : &MultiplyAddBytes<int8_t, uint8_t>;
  else i->handler = IsSigned(b) ? &MultiplyAddBytes<uint8_t, int8_t> : &MultiplyAddBytes<uint8_t, uint8_t>;
  i->width = static_cast<uint8_t>(depth);
  *operands = depth == 16 ? "d4*4 s4*2 s4*1 s4*4" : "d4*4 s4*4 s4*2 s4*4";
  return true;
}

bool DecodeMatrix(Opcode op, Instruction* i, OperandList* operands) {
  if (op.Is({"mma"})) {
    if (!op.Take("sync") || !op.Take("aligned")) return false;
    const int shape = op.TakeOneOf({"m16n8k8", "m16n8k16", "m16n8k32"});
    if (shape < 0 || !op.Take("row") || !op.Take("col")) return false;
    const Type d = op.TakeType();
    if (d == Type::kS32) return shape > 0 && DecodeByteMatrix(shape == 1 ? 16 : 32, op, i, operands);
    if (shape == 2) return false;
    const Type a = op.TakeType(), b = op.TakeType(), c = op.TakeType();
    if (d != Type::kF32 || c != Type::kF32 || a != b || !op.Done()) return false;
    if (a != Type::kF16 && a != Type::kBf16) return false;
    i->handler = a == Type::kF16 ? &MultiplyAdd<F16> : &MultiplyAdd<BF16>;
    i->width = shape == 0 ? 8 : 16;
    *operands = shape == 0 ? "d4*4 s4*2 s4*1 s4*4" : "d4*4 s4*4 s4*2 s4*4";
    return true;
  }
  if (op.Is({"ldmatrix"})) {
    if (!op.Take("sync") || !op.Take("aligned") || !op.Take("m8n8")) return false;
    const int count = op.TakeOneOf({"x1", "x2", "x4"});
    i->mode = op.Take("trans") ? 1 : 0;
    if (count < 0 || op.TakeOneOf({"shared", "shared::cta"}) < 0 || op.TakeType() != Type::kB16 || !op.Done()) return false;
    i->handler = &LoadMatrix;
    i->width = static_cast<uint8_t>(1 << count);
    *operands = "d4*" + std::to_string(i->width) + " a";
    return true;
  }
  return false;
}

}  // namespace baton::ptx
