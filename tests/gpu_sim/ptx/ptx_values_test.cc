// SPDX-License-Identifier: Apache-2.0
// Values: each instruction on hand-written PTX against results that were worked out from the PTX manual, not by this code.
#include <bit>
#include <cmath>
#include <limits>

#include "tests/gpu_sim/ptx/ptx_test_support.h"
#include "tests/gpu_sim/ptx/rounding.h"

namespace baton::ptx {
namespace {

// out = OP(a, b, c ...), on one lane, everything as bits of the register.
struct OpCase {
  const char* text;  // Instructions on %d0, %d1 ... (64 bits) or %r0, %r1 ... (32 bits), result in %r9 or %d9.
  uint64_t a = 0, b = 0, c = 0;
  uint64_t expected = 0;
};

class PtxOpTest : public testing::PtxTest {
 protected:
  // 32-bit operands in %r0..2, 64-bit ones in %d0..2, fp32 in %f0..2, 16 bits in %h0..2; the result is read from `result`.
  uint64_t Evaluate(const std::string& text, const std::string& result, uint64_t a, uint64_t b, uint64_t c) {
    uint64_t* const in = Buffer<uint64_t>(3);
    in[0] = a, in[1] = b, in[2] = c;
    uint64_t* const out = Buffer<uint64_t>(1, 0);
    std::string body;
    for (int i = 0; i < 3; ++i) {
      absl::StrAppend(&body, "ld.global.u64 %d", i, ", [%a0+", 8 * i, "];\ncvt.u32.u64 %r", i, ", %d", i, ";\nmov.b32 %f", i,
                      ", %r", i, ";\ncvt.u16.u64 %h", i, ", %d", i, ";\nmov.b64 %g", i, ", %d", i, ";\n");
    }
    const std::string store = result[1] == 'd' || result[1] == 'g' ? "u64" : result[1] == 'h' ? "u16" : "u32";
    const std::string text_of = testing::KernelText(2, body + text + "\nst.global." + store + " [%a1], " + result + ";");
    const LaunchReport report = Run(text_of, {}, in, out);
    EXPECT_TRUE(report.findings.empty()) << text << "\n" << report.ToString();
    return *out;
  }
  void Check(const std::string& result, const std::vector<OpCase>& cases) {
    for (const OpCase& c : cases) {
      const uint64_t got = Evaluate(c.text, result, c.a, c.b, c.c);
      EXPECT_EQ(got, c.expected) << c.text << " of " << absl::StrCat("0x", absl::Hex(c.a), ", 0x", absl::Hex(c.b), ", 0x", absl::Hex(c.c),
                                                                    ": 0x", absl::Hex(got), ", not 0x", absl::Hex(c.expected));
    }
  }
};

constexpr uint32_t Bits(float value) { return std::bit_cast<uint32_t>(value); }

TEST_F(PtxOpTest, IntegerArithmetic) {
  Check("%r9", {
      {"add.s32 %r9, %r0, %r1;", 0x7fffffff, 1, 0, 0x80000000},
      {"add.sat.s32 %r9, %r0, %r1;", 0x7fffffff, 1, 0, 0x7fffffff},
      {"sub.sat.s32 %r9, %r0, %r1;", 0x80000000, 1, 0, 0x80000000},
      {"mul.lo.u32 %r9, %r0, %r1;", 0x10001, 0x10001, 0, 0x20001},
      {"mul.hi.u32 %r9, %r0, %r1;", 0xffffffff, 0xffffffff, 0, 0xfffffffe},
      {"mul.hi.s32 %r9, %r0, %r1;", 0xffffffff, 2, 0, 0xffffffff},
      {"mad.lo.s32 %r9, %r0, %r1, %r2;", 7, 0xfffffffe, 3, 0xfffffff5},
      {"div.s32 %r9, %r0, %r1;", 0xfffffff9, 2, 0, 0xfffffffd},
      {"rem.s32 %r9, %r0, %r1;", 0xfffffff9, 2, 0, 0xffffffff},
      {"div.u32 %r9, %r0, %r1;", 0xfffffff9, 2, 0, 0x7ffffffc},
      {"min.s32 %r9, %r0, %r1;", 0xffffffff, 1, 0, 0xffffffff},
      {"min.u32 %r9, %r0, %r1;", 0xffffffff, 1, 0, 1},
      {"abs.s32 %r9, %r0;", 0xfffffffb, 0, 0, 5},
      {"dp4a.s32.s32 %r9, %r0, %r1, %r2;", 0x01ff02fe, 0x0203fe04, 10, static_cast<uint32_t>(2 - 3 - 4 - 8 + 10)},
      {"dp4a.u32.s32 %r9, %r0, %r1, %r2;", 0x000000ff, 0x000000ff, 0, static_cast<uint32_t>(-255)},
  });
  Check("%d9", {
      {"mul.wide.s32 %d9, %r0, %r1;", 0xffffffff, 4, 0, 0xfffffffffffffffc},
      {"mul.wide.u32 %d9, %r0, %r1;", 0xffffffff, 4, 0, 0x3fffffffc},
      {"mad.wide.s32 %d9, %r0, %r1, %d2;", 0xffffffff, 4, 100, 96},
      {"mul.hi.u64 %d9, %d0, %d1;", 1ull << 63, 6, 0, 3},
      {"neg.s64 %d9, %d0;", 5, 0, 0, static_cast<uint64_t>(-5)},
  });
}

TEST_F(PtxOpTest, Bits) {
  Check("%r9", {
      {"shl.b32 %r9, %r0, %r1;", 1, 31, 0, 0x80000000},
      {"shl.b32 %r9, %r0, %r1;", 1, 32, 0, 0},
      {"shr.s32 %r9, %r0, %r1;", 0x80000000, 40, 0, 0xffffffff},
      {"shr.u32 %r9, %r0, %r1;", 0x80000000, 31, 0, 1},
      {"shf.l.wrap.b32 %r9, %r0, %r1, %r2;", 0x89abcdef, 0x01234567, 8, 0x23456789},
      {"shf.r.wrap.b32 %r9, %r0, %r1, %r2;", 0x89abcdef, 0x01234567, 36, 0x789abcde},
      {"shf.r.clamp.b32 %r9, %r0, %r1, %r2;", 0x89abcdef, 0x01234567, 36, 0x01234567},
      {"bfe.u32 %r9, %r0, 4, 8;", 0xabcd, 0, 0, 0xbc},
      {"bfe.s32 %r9, %r0, 4, 8;", 0xabcd, 0, 0, 0xffffffbc},
      {"bfe.s32 %r9, %r0, 28, 8;", 0x80000000, 0, 0, 0xfffffff8},
      {"bfi.b32 %r9, %r0, %r1, 8, 4;", 0x5, 0xffffffff, 0, 0xfffff5ff},
      {"prmt.b32 %r9, %r0, %r1, 0x7531;", 0x33221100, 0x77665544, 0, 0x77553311},
      {"prmt.b32 %r9, %r0, %r1, 0x9180;", 0x33228000, 0x77665544, 0, 0xff800000},
      {"lop3.b32 %r9, %r0, %r1, %r2, 0x96;", 0xf0f0f0f0, 0xcccccccc, 0xaaaaaaaa, 0x96969696},
      {"lop3.b32 %r9, %r0, %r1, %r2, 0xca;", 0xff00ff00, 0x12345678, 0x9abcdef0, 0x12bc56f0},
      {"brev.b32 %r9, %r0;", 0x1, 0, 0, 0x80000000},
      {"clz.b32 %r9, %r0;", 0x00010000, 0, 0, 15},
      {"popc.b64 %r9, %d0;", 0xff000000000000ff, 0, 0, 16},
      {"bfind.u32 %r9, %r0;", 0, 0, 0, 0xffffffff},
      {"bfind.s32 %r9, %r0;", 0xfffffff0, 0, 0, 3},
      {"xor.b32 %r9, %r0, -1;", 5, 0, 0, 0xfffffffa},
      {"setp.ne.s32 %p1, %r2, 0; selp.b32 %r9, %r0, %r1, %p1;", 5, 6, 0, 6},
      {"setp.ne.s32 %p1, %r0, 0; selp.b32 %r9, %r0, %r1, %p1;", 5, 6, 0, 5},
      {"mov.b32 %r9, {%h0, %h1};", 0x1234, 0xabcd, 0, 0xabcd1234},
      {"mov.b32 {%h3, %h4}, %r0; mov.b32 %r9, {%h4, %h3};", 0x12345678, 0, 0, 0x56781234},
      {"mov.b64 {%r3, %r4}, %d0; add.u32 %r9, %r3, %r4;", 0x100000002, 0, 0, 3},
  });
}

TEST_F(PtxOpTest, Comparisons) {
  const uint32_t nan = 0x7fc00000;
  const auto truth = [](const char* relation) { return absl::StrCat("setp.", relation, " %p2|%p3, %f0, %f1; selp.u32 %r3, 1, 0, %p2; selp.u32 %r4, 2, 0, %p3; or.b32 %r9, %r3, %r4;"); };
  struct Case { const char* relation; uint32_t a, b; uint64_t expected; };
  for (const Case& c : std::vector<Case>{{"lt.f32", Bits(1), Bits(2), 1}, {"lt.f32", nan, Bits(2), 2}, {"ltu.f32", nan, Bits(2), 1},
                                         {"ne.f32", nan, nan, 2}, {"neu.f32", nan, nan, 1}, {"eq.f32", Bits(0.0f), Bits(-0.0f), 1},
                                         {"num.f32", nan, Bits(1), 2}, {"nan.f32", nan, Bits(1), 1}}) {
    EXPECT_EQ(Evaluate(truth(c.relation), "%r9", c.a, c.b, 0), c.expected) << c.relation;
  }
  Check("%r9", {
      {"setp.lt.s32 %p1, %r0, %r1; selp.u32 %r9, 1, 0, %p1;", 0xffffffff, 1, 0, 1},
      {"setp.lt.u32 %p1, %r0, %r1; selp.u32 %r9, 1, 0, %p1;", 0xffffffff, 1, 0, 0},
      {"setp.eq.s32 %p1, %r2, 7; setp.lt.and.s32 %p2, %r0, %r1, !%p1; selp.u32 %r9, 1, 0, %p2;", 1, 2, 7, 0},
      {"setp.lt.s16 %p1, %h0, %h1; selp.u32 %r9, 1, 0, %p1;", 0xffff, 1, 0, 1},
      {"setp.gt.s64 %p1, %d0, %d1; not.pred %p2, %p1; selp.u32 %r9, 1, 0, %p2;", 1ull << 63, 0, 0, 1},
  });
}

TEST_F(PtxOpTest, Floats) {
  const uint32_t nan = 0x7fc00000, tiny = 1;  // The least subnormal.
  Check("%r9", {
      {"add.f32 %f9, %f0, %f1; mov.b32 %r9, %f9;", Bits(1.5f), Bits(2.25f), 0, Bits(3.75f)},
      {"add.rz.f32 %f9, %f0, %f1; mov.b32 %r9, %f9;", Bits(1.0f), Bits(0x1.8p-24f), 0, Bits(1.0f)},
      {"add.rn.f32 %f9, %f0, %f1; mov.b32 %r9, %f9;", Bits(1.0f), Bits(0x1.8p-24f), 0, Bits(1.0f + 0x1p-23f)},
      {"add.rp.f32 %f9, %f0, %f1; mov.b32 %r9, %f9;", Bits(1.0f), Bits(0x1p-40f), 0, Bits(1.0f + 0x1p-23f)},
      {"add.rm.f32 %f9, %f0, %f1; mov.b32 %r9, %f9;", Bits(-1.0f), Bits(-0x1p-40f), 0, Bits(-1.0f - 0x1p-23f)},
      {"mul.rz.f32 %f9, %f0, %f1; mov.b32 %r9, %f9;", Bits(1.0f + 0x1p-23f), Bits(1.0f + 0x1p-23f), 0, Bits(1.0f + 0x1p-22f)},
      {"fma.rn.f32 %f9, %f0, %f1, %f2; mov.b32 %r9, %f9;", Bits(1.0f + 0x1p-23f), Bits(1.0f - 0x1p-23f), Bits(-1.0f), Bits(-0x1p-46f)},
      {"fma.rm.f32 %f9, %f0, %f1, %f2; mov.b32 %r9, %f9;", Bits(1.0f), Bits(2.7f), Bits(0x1p23f), Bits(0x1p23f + 2)},
      {"fma.rn.sat.f32 %f9, %f0, %f1, %f2; mov.b32 %r9, %f9;", Bits(2.0f), Bits(3.0f), Bits(1.0f), Bits(1.0f)},
      {"add.sat.f32 %f9, %f0, %f1; mov.b32 %r9, %f9;", nan, Bits(3.0f), 0, Bits(0.0f)},
      {"mul.ftz.f32 %f9, %f0, %f1; mov.b32 %r9, %f9;", Bits(0x1p-100f), Bits(0x1p-40f), 0, 0},
      {"mul.f32 %f9, %f0, %f1; mov.b32 %r9, %f9;", Bits(0x1p-100f), Bits(0x1p-40f), 0, Bits(0x1p-140f)},
      {"add.ftz.f32 %f9, %f0, %f1; mov.b32 %r9, %f9;", 0x80000000 | tiny, tiny, 0, 0},
      {"min.f32 %f9, %f0, %f1; mov.b32 %r9, %f9;", nan, Bits(3.0f), 0, Bits(3.0f)},
      {"max.f32 %f9, %f0, %f1; mov.b32 %r9, %f9;", Bits(-0.0f), Bits(0.0f), 0, Bits(0.0f)},
      {"div.rn.f32 %f9, %f0, %f1; mov.b32 %r9, %f9;", Bits(1.0f), Bits(3.0f), 0, 0x3eaaaaab},
      {"sqrt.rn.f32 %f9, %f0; mov.b32 %r9, %f9;", Bits(2.0f), 0, 0, 0x3fb504f3},
      {"rcp.rz.f32 %f9, %f0; mov.b32 %r9, %f9;", Bits(3.0f), 0, 0, 0x3eaaaaaa},
      {"ex2.approx.f32 %f9, %f0; mov.b32 %r9, %f9;", Bits(-3.0f), 0, 0, Bits(0.125f)},
      {"lg2.approx.f32 %f9, %f0; mov.b32 %r9, %f9;", Bits(8.0f), 0, 0, Bits(3.0f)},
      {"rsqrt.approx.f32 %f9, %f0; mov.b32 %r9, %f9;", Bits(16.0f), 0, 0, Bits(0.25f)},
      {"copysign.f32 %f9, %f0, %f1; mov.b32 %r9, %f9;", Bits(-1.0f), Bits(5.0f), 0, Bits(-5.0f)},
      {"mov.f32 %f9, 0f40490FDB; mov.b32 %r9, %f9;", 0, 0, 0, 0x40490fdb},
  });
  Check("%d9", {{"fma.rn.f64 %g3, %g0, %g1, %g2; mov.b64 %d9, %g3;", std::bit_cast<uint64_t>(3.0), std::bit_cast<uint64_t>(0.5),
                 std::bit_cast<uint64_t>(1.0), std::bit_cast<uint64_t>(2.5)}});
}

TEST_F(PtxOpTest, Halves) {
  Check("%h9", {
      {"add.f16 %h9, %h0, %h1;", 0x3c00, 0x1000, 0, 0x3c00},   // 1 + 2^-11: a tie, to even.
      {"add.f16 %h9, %h0, %h1;", 0x3c01, 0x1000, 0, 0x3c02},
      {"fma.rn.f16 %h9, %h0, %h1, %h2;", 0x3c01, 0x3c01, 0xbc02, 0x0010},  // (1 + 2^-10)^2 - (1 + 2^-9) = 2^-20.
      {"mul.bf16 %h9, %h0, %h1;", 0x4040, 0x4040, 0, 0x4110},
      {"neg.bf16 %h9, %h0;", 0x3f80, 0, 0, 0xbf80},
  });
  Check("%r9", {
      {"add.f16x2 %r9, %r0, %r1;", 0x3c004000, 0x3c003c00, 0, 0x40004200},
      {"fma.rn.bf16x2 %r9, %r0, %r1, %r2;", 0x3f804000, 0x40404040, 0x00003f80, 0x404040e0},
  });
}

TEST_F(PtxOpTest, Conversions) {
  Check("%r9", {
      {"cvt.rni.s32.f32 %r9, %f0;", Bits(2.5f), 0, 0, 2},
      {"cvt.rzi.s32.f32 %r9, %f0;", Bits(-2.7f), 0, 0, 0xfffffffe},
      {"cvt.rmi.s32.f32 %r9, %f0;", Bits(-2.1f), 0, 0, 0xfffffffd},
      {"cvt.rpi.s32.f32 %r9, %f0;", Bits(2.1f), 0, 0, 3},
      {"cvt.rzi.s32.f32 %r9, %f0;", Bits(1e20f), 0, 0, 0x7fffffff},
      {"cvt.rzi.u32.f32 %r9, %f0;", Bits(-5.0f), 0, 0, 0},
      {"cvt.rzi.s32.f32 %r9, %f0;", 0x7fc00000, 0, 0, 0},
      {"cvt.rn.f32.s32 %f9, %r0; mov.b32 %r9, %f9;", 16777217, 0, 0, Bits(16777216.0f)},
      {"cvt.rp.f32.s32 %f9, %r0; mov.b32 %r9, %f9;", 16777217, 0, 0, Bits(16777218.0f)},
      {"cvt.rn.f32.u64 %f9, %d0; mov.b32 %r9, %f9;", 0x8000008000000001, 0, 0, 0x5f000001},
      {"cvt.s32.s8 %r9, %r0;", 0x80, 0, 0, 0xffffff80},
      {"cvt.u32.u8 %r9, %r0;", 0x1ff, 0, 0, 0xff},
      {"cvt.sat.s8.s32 %r9, %r0;", 1000, 0, 0, 127},
      {"cvt.sat.u8.s32 %r9, %r0;", 0xffffff00, 0, 0, 0},
      {"cvt.sat.f32.f32 %f9, %f0; mov.b32 %r9, %f9;", Bits(1.5f), 0, 0, Bits(1.0f)},
      {"cvt.sat.f32.f32 %f9, %f0; mov.b32 %r9, %f9;", 0x7fc00000, 0, 0, 0},
      {"cvt.rmi.f32.f32 %f9, %f0; mov.b32 %r9, %f9;", Bits(-1.5f), 0, 0, Bits(-2.0f)},
      {"cvt.f32.f16 %f9, %h0; mov.b32 %r9, %f9;", 0x0001, 0, 0, Bits(0x1p-24f)},
      {"cvt.rn.bf16x2.f32 %r9, %f0, %f1;", Bits(1.0f), Bits(2.0f), 0, 0x3f804000},
      {"cvt.rz.f16x2.f32 %r9, %f0, %f1;", Bits(65536.0f), Bits(1.0f + 0x1.8p-10f), 0, 0x7bff3c01},
      {"cvt.u32.u64 %r9, %d0;", 0x123456789, 0, 0, 0x23456789},
  });
  Check("%h9", {
      {"cvt.rn.f16.f32 %h9, %f0;", Bits(65520.0f), 0, 0, 0x7c00},
      {"cvt.rz.f16.f32 %h9, %f0;", Bits(65520.0f), 0, 0, 0x7bff},
      {"cvt.rn.f16.f32 %h9, %f0;", Bits(0x1.8p-25f), 0, 0, 0x0001},
      {"cvt.rn.bf16.f32 %h9, %f0;", Bits(1.0f + 0x1p-8f), 0, 0, 0x3f80},
      {"cvt.rp.bf16.f32 %h9, %f0;", Bits(1.0f + 0x1p-20f), 0, 0, 0x3f81},
  });
  Check("%d9", {{"cvt.s64.s32 %d9, %d0;", 0x5fffffffe, 0, 0, ~1ull}, {"cvt.s64.s32 %d9, %r0;", 0xffffffff, 0, 0, ~0ull}, {"cvt.u64.u32 %d9, %r0;", 0xffffffff, 0, 0, 0xffffffff},
                {"cvt.rzi.s64.f32 %d9, %f0;", 0x7fc00000, 0, 0, 1ull << 63}});
}

TEST(RoundingTest, EveryModeAtTheEdges) {
  EXPECT_EQ(RoundTo(0x1.fffp15, kHalfFormat, Rounding::kNearest), std::numeric_limits<double>::infinity());
  EXPECT_EQ(RoundTo(-1e9, kHalfFormat, Rounding::kUp), -65504.0);
  EXPECT_EQ(RoundTo(0x1p-26, kHalfFormat, Rounding::kUp), 0x1p-24);
  EXPECT_EQ(RoundTo(0x1p-26, kHalfFormat, Rounding::kNearest), 0.0);
  EXPECT_TRUE(std::signbit(RoundTo(-0x1p-26, kHalfFormat, Rounding::kZero)));
  EXPECT_TRUE(std::isnan(RoundTo(std::nan(""), kHalfFormat, Rounding::kDown)));
}

}  // namespace
}  // namespace baton::ptx
