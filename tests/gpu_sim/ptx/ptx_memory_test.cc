// SPDX-License-Identifier: Apache-2.0
// Memory, warps and matrices: vector accesses, spaces, atomics, shuffles, cp.async, mma; and what the counters count.
#include <cmath>
#include <limits>

#include "common/base/half.h"
#include "tests/gpu_sim/ptx/ptx_test_support.h"

namespace baton::ptx {
namespace {

using testing::KernelText;

class PtxMemoryTest : public testing::PtxTest {};

// out[tid] = in[tid] for `type`, addresses `stride` bytes apart.
std::string CopyText(const std::string& type, const std::string& registers, int stride) {
  return KernelText(2, absl::StrCat("mul.wide.u32 %d0, %tid, ", stride, "; add.s64 %d1, %a0, %d0; add.s64 %d2, %a1, %d0;\nld.global.", type, " ",
                                    registers, ", [%d1]; st.global.", type, " [%d2], ", registers, ";"));
}

TEST_F(PtxMemoryTest, VectorAccessesAndTheirSectors) {
  struct Case { const char* type; const char* registers; int bytes; };
  for (const Case& c : std::vector<Case>{{"u8", "%r1", 1}, {"b16", "%h1", 2}, {"f32", "%f1", 4}, {"v2.f32", "{%f1,%f2}", 8},
                                         {"v4.u32", "{%r1,%r2,%r3,%r4}", 16}, {"v4.b16", "{%h1,%h2,%h3,%h4}", 8}, {"u64", "%d5", 8}}) {
    uint8_t* const in = Buffer<uint8_t>(32 * 16);
    uint8_t* const out = Buffer<uint8_t>(32 * 16, 0);
    for (int i = 0; i < 32 * 16; ++i) in[i] = static_cast<uint8_t>(i * 7);
    const LaunchReport report = RunWarp(CopyText(c.type, c.registers, c.bytes), in, out);
    EXPECT_TRUE(report.findings.empty()) << report.ToString();
    for (int i = 0; i < 32 * c.bytes; ++i) ASSERT_EQ(out[i], in[i]) << c.type << " byte " << i;
    EXPECT_EQ(report.counters.global_requests, 2u);
    EXPECT_EQ(report.counters.ideal_sectors, 2u * c.bytes) << c.type;
    EXPECT_EQ(report.counters.sectors, 2u * c.bytes) << c.type;
  }
}

TEST_F(PtxMemoryTest, StridedAccessesTakeMoreSectors) {
  uint8_t* const in = Buffer<uint8_t>(32 * 64);
  uint8_t* const out = Buffer<uint8_t>(32 * 64);
  const LaunchReport report = RunWarp(CopyText("b16", "%h1", 64), in, out);
  EXPECT_EQ(report.counters.sectors, 64u);
  EXPECT_EQ(report.counters.ideal_sectors, 4u);
}

TEST_F(PtxMemoryTest, SignsAndWideRegisters) {
  int8_t* const in = Buffer<int8_t>(32, -3);
  int64_t* const out = Buffer<int64_t>(3, 0);
  const std::string text = KernelText(2, "ld.global.s8 %d1, [%a0]; st.global.u64 [%a1], %d1; ld.global.u8 %d2, [%a0]; st.global.u64 [%a1+8], %d2;"
                                         "ld.global.s8 %r1, [%a0]; cvt.s64.s32 %d3, %r1; st.global.u64 [%a1+16], %d3;");
  EXPECT_TRUE(Run(text, {}, in, out).findings.empty());
  EXPECT_EQ(out[0], -3);
  EXPECT_EQ(out[1], 253);
  EXPECT_EQ(out[2], -3);
}

TEST_F(PtxMemoryTest, BankConflicts) {
  // Column access of a 32 x 32 tile of words: every lane in the same bank; with one word of padding in all different ones.
  for (const auto& [row_bytes, wavefronts] : {std::pair(128, 32u), {132, 1u}, {0, 1u}}) {
    float* const out = Buffer<float>(32);
    const std::string text = KernelText(1, absl::StrCat("mov.u32 %r1, tile; mul.lo.u32 %r2, %tid, ", row_bytes, "; add.u32 %r3, %r1, %r2; setp.ne.u32 %p1, %tid, 0;\n",
                                                        row_bytes == 0 ? "@!%p1 " : "", "st.shared.u32 [%r3], %tid; bar.sync 0; ld.shared.u32 %r4, [%r3];"
                                                        "mul.wide.u32 %d1, %tid, 4; add.s64 %d2, %a0, %d1; st.global.u32 [%d2], %r4;"),
                                        ".extern .shared .align 16 .b8 tile[];");
    const LaunchReport report = Run(text, {.grid = {}, .block = {32, 1, 1}, .dynamic_shared_bytes = 33 * 132}, out);
    EXPECT_TRUE(report.findings.empty()) << report.ToString();
    EXPECT_EQ(report.counters.wavefronts, row_bytes == 0 ? 2u : 2 * wavefronts) << row_bytes;
    EXPECT_EQ(report.counters.ideal_wavefronts, 2u);
  }
}

TEST_F(PtxMemoryTest, ConstantsAndModuleVariables) {
  uint32_t* const out = Buffer<uint32_t>(32);
  const std::string text = KernelText(1, "mul.wide.u32 %d1, %tid, 4; mov.u64 %d2, table; add.s64 %d3, %d2, %d1; ld.const.u32 %r1, [%d3];"
                                         "ld.global.u32 %r2, [scale+4]; mul.lo.u32 %r1, %r1, %r2; add.s64 %d4, %a0, %d1; st.global.u32 [%d4], %r1;",
                                      ".const .align 4 .u32 table[4] = {10, 20, 0x1e, 40}; .global .align 4 .u32 scale[2] = {1, 3};");
  const LaunchReport report = Run(text, {.grid = {}, .block = {4, 1, 1}}, out);
  EXPECT_TRUE(report.findings.empty()) << report.ToString();
  EXPECT_EQ(std::vector<uint32_t>(out, out + 4), (std::vector<uint32_t>{30, 60, 90, 120}));
}

TEST_F(PtxMemoryTest, LocalMemoryIsEachThreadsOwn) {
  uint32_t* const out = Buffer<uint32_t>(32);
  const std::string text = KernelText(1, ".local .align 8 .b8 depot[16]; .reg .b64 %SP; .reg .b64 %SPL; mov.u64 %SPL, depot; cvta.local.u64 %SP, %SPL;"
                                         "st.local.u32 [%SPL+4], %tid; st.u32 [%SP+8], 5; ld.u32 %r1, [%SP+4]; ld.local.u32 %r2, [%SPL+8]; add.u32 %r1, %r1, %r2;"
                                         "mul.wide.u32 %d1, %tid, 4; add.s64 %d2, %a0, %d1; st.global.u32 [%d2], %r1;");
  EXPECT_TRUE(RunWarp(text, out).findings.empty());
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(out[i], i + 5);
}

TEST_F(PtxMemoryTest, AtomicsOfAllBlocks) {
  uint32_t* const words = Buffer<uint32_t>(6, 0);
  float* const sum = Buffer<float>(1, 0);
  words[2] = 1000;
  const std::string text = KernelText(2, "mov.u32 %r1, %ctaid.x; mad.lo.u32 %r2, %r1, 64, %tid;\n"
                                         "red.global.add.u32 [%a0], 1; atom.global.max.u32 %r3, [%a0+4], %r2; atom.global.min.s32 %r4, [%a0+8], %r2;"
                                         "atom.global.cas.b32 %r5, [%a0+12], 0, 7; atom.global.inc.u32 %r6, [%a0+16], 9; atom.global.exch.b32 %r7, [%a0+20], 3;"
                                         "red.global.add.f32 [%a1], 0f3F000000;");
  const LaunchReport report = Run(text, {.grid = {3, 1, 1}, .block = {64, 1, 1}}, words, sum);
  EXPECT_TRUE(report.findings.empty()) << report.ToString();
  EXPECT_EQ(std::vector<uint32_t>(words, words + 6), (std::vector<uint32_t>{192, 191, 0, 7, 2, 3}));
  EXPECT_EQ(*sum, 96.0f);
}

TEST_F(PtxMemoryTest, ShufflesAndVotes) {
  uint32_t* const out = Buffer<uint32_t>(5 * 32);
  const std::string store = "mul.wide.u32 %d1, %tid, 4; add.s64 %d2, %a0, %d1;";
  const std::string text = KernelText(1, store +
      "shfl.sync.bfly.b32 %r1, %tid, 16, 31, -1; st.global.u32 [%d2], %r1;"
      "shfl.sync.up.b32 %r2|%p1, %tid, 3, 0, -1; selp.u32 %r3, 100, 0, %p1; add.u32 %r3, %r3, %r2; st.global.u32 [%d2+128], %r3;"
      "shfl.sync.down.b32 %r4, %tid, 1, 6175, -1; st.global.u32 [%d2+256], %r4;"  // Segments of 8: c = 0x181f.
      "setp.gt.u32 %p2, %tid, 27; vote.sync.ballot.b32 %r5, %p2, -1; st.global.u32 [%d2+384], %r5;"
      "redux.sync.add.s32 %r6, %tid, -1; vote.sync.any.pred %p3, %p2, -1; @%p3 add.u32 %r6, %r6, 1; st.global.u32 [%d2+512], %r6;");
  const LaunchReport report = RunWarp(text, out);
  EXPECT_TRUE(report.findings.empty()) << report.ToString();
  for (uint32_t i = 0; i < 32; ++i) {
    EXPECT_EQ(out[i], i ^ 16);
    EXPECT_EQ(out[32 + i], i >= 3 ? i - 3 + 100 : i);
    EXPECT_EQ(out[64 + i], i % 8 == 7 ? i : i + 1);
    EXPECT_EQ(out[96 + i], 0xf0000000u);
    EXPECT_EQ(out[128 + i], 496u + 1);
  }
}

TEST_F(PtxMemoryTest, AsyncCopiesArriveWhenWaitedFor) {
  uint32_t* const in = Buffer<uint32_t>(32 * 4);
  uint32_t* const out = Buffer<uint32_t>(32 * 4);
  for (uint32_t i = 0; i < 128; ++i) in[i] = i + 1;
  const std::string text = KernelText(2, ".shared .align 16 .b8 buffer[512]; mov.u32 %r1, buffer; mad.lo.u32 %r2, %tid, 16, %r1; mul.wide.u32 %d1, %tid, 16;"
                                         "add.s64 %d2, %a0, %d1; add.s64 %d3, %a1, %d1; setp.lt.u32 %p1, %tid, 16; selp.u32 %r3, 16, 4, %p1;"
                                         "cp.async.cg.shared.global [%r2], [%d2], 16, %r3; cp.async.commit_group; cp.async.wait_group 0;"
                                         "ld.shared.v4.u32 {%r4,%r5,%r6,%r7}, [%r2]; st.global.v4.u32 [%d3], {%r4,%r5,%r6,%r7};");
  const LaunchReport report = RunWarp(text, in, out);
  EXPECT_TRUE(report.findings.empty()) << report.ToString();
  for (uint32_t i = 0; i < 128; ++i) EXPECT_EQ(out[i], i < 64 || i % 4 == 0 ? i + 1 : 0) << i;
}

// D = A B + C for both types and depths, with the operands put into registers by the layout of the PTX manual's figures.
TEST_F(PtxMemoryTest, MatrixMultiply) {
  for (const bool bf16 : {false, true}) {
    for (const int depth : {8, 16}) {
      const auto store = [&](float value) { return bf16 ? FloatToBFloat16(value) : FloatToHalf(value); };
      const auto a = [](int row, int k) { return static_cast<float>((row * 5 + k * 3) % 11 - 5); };
      const auto b = [](int k, int column) { return static_cast<float>((k * 7 + column) % 13 - 6) * 0.5f; };
      uint32_t* const in = Buffer<uint32_t>(32 * 6);
      float* const out = Buffer<float>(32 * 4, std::numeric_limits<float>::quiet_NaN());
      for (int lane = 0; lane < 32; ++lane) {
        const int group = lane >> 2, in_group = lane & 3;
        for (int i = 0; i < depth / 2; ++i) {  // a_i: the manual's numbering of single elements.
          const int row = (i % 4 < 2) ? group : group + 8;
          const int k = in_group * 2 + (i & 1) + (i >= 4 ? 8 : 0);
          in[lane * 6 + i / 2] |= static_cast<uint32_t>(store(a(row, k))) << 16 * (i & 1);
        }
        for (int i = 0; i < depth / 4; ++i) {
          const int k = in_group * 2 + (i & 1) + (i >= 2 ? 8 : 0);
          in[lane * 6 + 4 + i / 2] |= static_cast<uint32_t>(store(b(k, group))) << 16 * (i & 1);
        }
      }
      const std::string type = bf16 ? "bf16" : "f16";
      const std::string text = KernelText(2, "mul.wide.u32 %d1, %tid, 24; add.s64 %d2, %a0, %d1; mul.wide.u32 %d3, %tid, 16; add.s64 %d4, %a1, %d3;"
          "ld.global.u32 %r1, [%d2]; ld.global.u32 %r2, [%d2+4]; ld.global.u32 %r3, [%d2+8]; ld.global.u32 %r4, [%d2+12]; ld.global.u32 %r5, [%d2+16]; ld.global.u32 %r6, [%d2+20];"
          "mov.f32 %f1, 0f41200000; mov.f32 %f2, %f1; mov.f32 %f3, %f1; mov.f32 %f4, %f1;\nmma.sync.aligned.m16n8k" + std::to_string(depth) + ".row.col.f32." + type + "." + type +
          ".f32 {%f1,%f2,%f3,%f4}, " + (depth == 16 ? "{%r1,%r2,%r3,%r4}, {%r5,%r6}" : "{%r1,%r2}, {%r5}") + ", {%f1,%f2,%f3,%f4};\nst.global.v4.f32 [%d4], {%f1,%f2,%f3,%f4};");
      const LaunchReport report = RunWarp(text, in, out);
      EXPECT_TRUE(report.findings.empty()) << report.ToString();
      for (int lane = 0; lane < 32; ++lane) {
        for (int i = 0; i < 4; ++i) {
          const int row = (lane >> 2) + (i < 2 ? 0 : 8), column = (lane & 3) * 2 + (i & 1);
          float expected = 10;
          for (int k = 0; k < depth; ++k) expected += a(row, k) * b(k, column);
          EXPECT_EQ(out[lane * 4 + i], expected) << type << " k" << depth << " row " << row << " column " << column;
        }
      }
    }
  }
}

// Fragments of bytes as the PTX manual has them, element by element; products of the extremes, and a sum that wraps.
TEST_F(PtxMemoryTest, MatrixMultiplyOfBytes) {
  for (const int depth : {16, 32}) {
    for (const bool a_signed : {true, false}) {
      for (const bool b_signed : {true, false}) {
        const auto a = [](int row, int k) { return static_cast<uint8_t>(row == 3 ? 0x80 : 37 * row + 11 * k + row * k); };
        const auto b = [](int k, int column) { return static_cast<uint8_t>(column == 5 ? 0x80 : 91 * column + 29 * k); };
        const auto value = [](uint8_t byte, bool is_signed) { return is_signed ? static_cast<int8_t>(byte) : int{byte}; };
        uint32_t* const in = Buffer<uint32_t>(32 * 6);
        int32_t* const out = Buffer<int32_t>(32 * 4);
        for (int lane = 0; lane < 32; ++lane) {
          const int group = lane >> 2, in_group = lane & 3;
          for (int i = 0; i < depth / 2; ++i) {
            const int row = i < 4 || (i >= 8 && i < 12) ? group : group + 8, k = in_group * 4 + (i & 3) + (i >= 8 ? 16 : 0);
            in[lane * 6 + i / 4] |= static_cast<uint32_t>(a(row, k)) << 8 * (i & 3);
          }
          for (int i = 0; i < depth / 4; ++i) {
            const int k = in_group * 4 + (i & 3) + (i >= 4 ? 16 : 0);
            in[lane * 6 + 4 + i / 4] |= static_cast<uint32_t>(b(k, group)) << 8 * (i & 3);
          }
        }
        const std::string types = std::string(a_signed ? ".s8" : ".u8") + (b_signed ? ".s8" : ".u8");
        const std::string text = KernelText(2, "mul.wide.u32 %d1, %tid, 24; add.s64 %d2, %a0, %d1; mul.wide.u32 %d3, %tid, 16; add.s64 %d4, %a1, %d3;"
            "ld.global.u32 %r1, [%d2]; ld.global.u32 %r2, [%d2+4]; ld.global.u32 %r3, [%d2+8]; ld.global.u32 %r4, [%d2+12]; ld.global.u32 %r5, [%d2+16]; ld.global.u32 %r6, [%d2+20];"
            "mov.u32 %r11, 0x7fffffff; mov.u32 %r12, %r11; mov.u32 %r13, %r11; mov.u32 %r14, %r11;\nmma.sync.aligned.m16n8k" + std::to_string(depth) + ".row.col.s32" + types +
            ".s32 {%r11,%r12,%r13,%r14}, " + (depth == 32 ? "{%r1,%r2,%r3,%r4}, {%r5,%r6}" : "{%r1,%r2}, {%r5}") +
            ", {%r11,%r12,%r13,%r14};\nst.global.v4.u32 [%d4], {%r11,%r12,%r13,%r14};");
        const LaunchReport report = RunWarp(text, in, out);
        EXPECT_TRUE(report.findings.empty()) << report.ToString();
        for (int lane = 0; lane < 32; ++lane) {
          for (int i = 0; i < 4; ++i) {
            const int row = (lane >> 2) + (i < 2 ? 0 : 8), column = (lane & 3) * 2 + (i & 1);
            int64_t expected = 0x7fffffff;
            for (int k = 0; k < depth; ++k) expected += value(a(row, k), a_signed) * value(b(k, column), b_signed);
            EXPECT_EQ(out[lane * 4 + i], static_cast<int32_t>(expected)) << types << " k" << depth << " row " << row << " column " << column;
          }
        }
      }
    }
  }
}

TEST_F(PtxMemoryTest, LoadMatrixPlainAndTransposed) {
  uint32_t* const out = Buffer<uint32_t>(32 * 8);
  // Element (r, c) of matrix m is 256 m + 16 r + c; written by 32 threads, a row of 16 bytes each.
  std::string body = ".shared .align 16 .b8 tile[512]; mov.u32 %r1, tile; mad.lo.u32 %r2, %tid, 16, %r1; shr.u32 %r3, %tid, 3; and.b32 %r4, %tid, 7;"
                     "shl.b32 %r5, %r3, 8; shl.b32 %r6, %r4, 4; add.u32 %r7, %r5, %r6;";
  for (int c = 0; c < 8; ++c) absl::StrAppend(&body, "add.u32 %r8, %r7, ", c, "; st.shared.u16 [%r2+", 2 * c, "], %r8;");
  body += "bar.sync 0; mul.wide.u32 %d1, %tid, 32; add.s64 %d2, %a0, %d1;"
          "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10,%r11,%r12,%r13}, [%r2]; st.global.u32 [%d2], %r10; st.global.u32 [%d2+4], %r11; st.global.u32 [%d2+8], %r12; st.global.u32 [%d2+12], %r13;"
          "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r10,%r11,%r12,%r13}, [%r2]; st.global.u32 [%d2+16], %r10; st.global.u32 [%d2+20], %r11; st.global.u32 [%d2+24], %r12; st.global.u32 [%d2+28], %r13;";
  const LaunchReport report = RunWarp(KernelText(1, body), out);
  EXPECT_TRUE(report.findings.empty()) << report.ToString();
  for (uint32_t lane = 0; lane < 32; ++lane) {
    for (uint32_t m = 0; m < 4; ++m) {
      const uint32_t row = lane / 4, column = lane % 4 * 2;
      EXPECT_EQ(out[lane * 8 + m], (256 * m + 16 * row + column) | (256 * m + 16 * row + column + 1) << 16);
      EXPECT_EQ(out[lane * 8 + 4 + m], (256 * m + 16 * column + row) | (256 * m + 16 * (column + 1) + row) << 16);
    }
  }
}

}  // namespace
}  // namespace baton::ptx
