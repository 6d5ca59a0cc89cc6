// SPDX-License-Identifier: Apache-2.0
// What the interpreter reports: each check with a planted mistake that it finds, and beside it the correct form in which it finds
// nothing. Divergence and barriers; what the loader refuses.
#include "gmock/gmock.h"
#include "tests/gpu_sim/ptx/ptx_test_support.h"
#include "tests/support/status_matchers.h"

namespace baton::ptx {
namespace {

using ::baton::testing::StatusIs;
using testing::KernelText;
using ::testing::AllOf;
using ::testing::HasSubstr;

class PtxChecksTest : public testing::PtxTest {
 protected:
  // One finding of `kind` with `barrier` left out, none with it.
  void ExpectBarrierMatters(FindingKind kind, const std::string& before, const std::string& barrier, const std::string& after, uint32_t threads) {
    uint32_t* const out = Buffer<uint32_t>(threads);
    const std::string declared = ".shared .align 4 .b8 words[4096]; mov.u32 %r1, words; mad.lo.u32 %r2, %tid, 4, %r1; mul.wide.u32 %d1, %tid, 4; add.s64 %d2, %a0, %d1;\n";
    for (const bool reverse : {false, true}) {
      options_.reverse_warps = reverse;
      const LaunchReport right = Run(KernelText(1, declared + before + "\n" + barrier + "\n" + after), {.grid = {2, 1, 1}, .block = {threads, 1, 1}}, out);
      // The second block writes what the first one wrote: its races are not the subject.
      EXPECT_EQ(CountOf(right, kind), 0) << right.ToString();
      const LaunchReport wrong = Run(KernelText(1, declared + before + "\n" + after), {.grid = {1, 1, 1}, .block = {threads, 1, 1}}, out);
      EXPECT_GE(CountOf(wrong, kind), 1) << wrong.ToString();  // At the read, the write, or both.
    }
  }
};

TEST_F(PtxChecksTest, ReadAfterWriteWithoutBarrier) {
  ExpectBarrierMatters(FindingKind::kSharedRace, "st.shared.u32 [%r2], %tid;", "bar.sync 0;",
                       "xor.b32 %r3, %tid, 33; mad.lo.u32 %r4, %r3, 4, %r1; ld.shared.u32 %r5, [%r4];", 64);
}

TEST_F(PtxChecksTest, WriteAfterReadWithoutBarrier) {
  ExpectBarrierMatters(FindingKind::kSharedRace,
                       "st.shared.u32 [%r2], %tid; bar.sync 0; xor.b32 %r3, %tid, 33; mad.lo.u32 %r4, %r3, 4, %r1; ld.shared.u32 %r5, [%r4];",
                       "bar.sync 0;", "st.shared.u32 [%r2], %r5;", 64);
}

// Within a warp neither lockstep nor a shuffle orders memory; bar.warp.sync does.
TEST_F(PtxChecksTest, WithinAWarpOnlyWarpSyncOrders) {
  const std::string after = "xor.b32 %r3, %tid, 1; mad.lo.u32 %r4, %r3, 4, %r1; ld.shared.u32 %r5, [%r4];";
  ExpectBarrierMatters(FindingKind::kSharedRace, "st.shared.u32 [%r2], %tid;", "bar.warp.sync -1;", after, 32);
  uint32_t* const out = Buffer<uint32_t>(32);
  const LaunchReport shuffled = RunWarp(KernelText(1, ".shared .align 4 .b8 words[4096]; mov.u32 %r1, words; mad.lo.u32 %r2, %tid, 4, %r1; st.shared.u32 [%r2], %tid;"
                                                      "shfl.sync.bfly.b32 %r6, %tid, 1, 31, -1;\n" + after), out);
  ExpectOnly(shuffled, FindingKind::kSharedRace);
  EXPECT_THAT(shuffled.findings[0].message, AllOf(HasSubstr("k line 12"), HasSubstr("block (0,0,0) thread 0"), HasSubstr("thread 1"), HasSubstr("wrote")));
}

TEST_F(PtxChecksTest, NeighbouringHalvesOfAWordAreNoRace) {
  const LaunchReport report = RunWarp(KernelText(0, ".shared .align 4 .b8 words[64]; mov.u32 %r1, words; mad.lo.u32 %r2, %tid, 2, %r1; cvt.u16.u32 %h1, %tid; st.shared.u16 [%r2], %h1;"));
  EXPECT_TRUE(report.findings.empty()) << report.ToString();
}

TEST_F(PtxChecksTest, BlocksThatWriteTheSameWordRace) {
  uint32_t* const out = Buffer<uint32_t>(64, 0);
  const std::string index = "mov.u32 %r1, %ctaid.x; mul.lo.u32 %r2, %r1, ";
  const std::string write = "; add.u32 %r3, %r2, %tid; mul.wide.u32 %d1, %r3, 4; add.s64 %d2, %a0, %d1; st.global.u32 [%d2], %r3;";
  const LaunchShape shape{.grid = {2, 1, 1}, .block = {32, 1, 1}};
  const LaunchReport wrong = Run(KernelText(1, index + "31" + write), shape, out);
  ExpectOnly(wrong, FindingKind::kGlobalRace);
  EXPECT_THAT(wrong.findings[0].message, AllOf(HasSubstr("block (1,0,0) thread 0"), HasSubstr("thread 31 of block number 0 wrote")));
  EXPECT_TRUE(Run(KernelText(1, index + "32" + write), shape, out).findings.empty());
  // A sum without an atomic.
  const LaunchReport sum = Run(KernelText(1, "ld.global.u32 %r1, [%a0]; add.u32 %r1, %r1, 1; st.global.u32 [%a0], %r1;"), shape, out);
  EXPECT_GE(CountOf(sum, FindingKind::kGlobalRace), 1) << sum.ToString();
  options_.check_races = false;
  EXPECT_TRUE(Run(KernelText(1, index + "31" + write), shape, out).findings.empty());
}

TEST_F(PtxChecksTest, SharedMemoryReadBeforeItIsWritten) {
  uint32_t* const out = Buffer<uint32_t>(32);
  const auto text = [](int offset) {
    return KernelText(1, absl::StrCat(".shared .align 4 .b8 words[128]; mov.u32 %r1, words; setp.eq.u32 %p1, %tid, 5; @%p1 st.shared.u32 [%r1+20], 1; bar.sync 0; ld.shared.u32 %r2, [%r1+", offset, "];"));
  };
  EXPECT_TRUE(RunWarp(text(20), out).findings.empty());
  ExpectOnly(RunWarp(text(24), out), FindingKind::kUninitializedShared);
}

// Also where all write the same value: which one stays is nobody's promise.
TEST_F(PtxChecksTest, TwoThreadsThatWriteOnePlaceRace) {
  ExpectOnly(RunWarp(KernelText(0, ".shared .align 4 .b8 word[4]; mov.u32 %r1, word; st.shared.u32 [%r1], 1;")), FindingKind::kSharedRace);
}

TEST_F(PtxChecksTest, OutOfBoundsEndsTheLaunch) {
  uint32_t* const out = Buffer<uint32_t>(32, 7);
  const std::string index = "add.u32 %r1, %tid, 1; mul.wide.u32 %d1, %r1, 4; add.s64 %d2, %a0, %d1; ";
  const LaunchReport store = RunWarp(KernelText(1, index + "st.global.u32 [%d2], %r1;"), out);
  ExpectOnly(store, FindingKind::kOutOfBounds);
  EXPECT_TRUE(store.aborted);
  EXPECT_THAT(store.findings[0].message, AllOf(HasSubstr("thread 31"), HasSubstr("has 128 bytes, this begins at 128")));
  ExpectOnly(RunWarp(KernelText(1, index + "ld.global.u32 %r2, [%d2];"), out), FindingKind::kOutOfBounds);
  ExpectOnly(RunWarp(KernelText(0, "mov.u64 %d1, 0; ld.global.u32 %r2, [%d1];")), FindingKind::kOutOfBounds);
  ExpectOnly(RunWarp(KernelText(0, "mad.lo.u32 %r1, %tid, 4, s; st.shared.u32 [%r1+4], %tid;", ".extern .shared .align 16 .b8 s[];")), FindingKind::kOutOfBounds);
  const LaunchReport enough = Run(KernelText(0, "mad.lo.u32 %r1, %tid, 4, s; st.shared.u32 [%r1+4], %tid;", ".extern .shared .align 16 .b8 s[];"),
                                  {.grid = {}, .block = {32, 1, 1}, .dynamic_shared_bytes = 132});
  EXPECT_TRUE(enough.findings.empty()) << enough.ToString();
}

TEST_F(PtxChecksTest, MisalignedVectors) {
  uint32_t* const in = Buffer<uint32_t>(64, 7);
  const auto load = [](int offset) { return KernelText(1, absl::StrCat("ld.global.v2.u32 {%r1,%r2}, [%a0+", offset, "];")); };
  ExpectOnly(RunWarp(load(4), in), FindingKind::kMisaligned);
  EXPECT_TRUE(RunWarp(load(8), in).findings.empty());
}

TEST_F(PtxChecksTest, AsyncCopyReadTooEarlyOrOverwrittenTooEarly) {
  uint32_t* const in = Buffer<uint32_t>(128, 7);
  const auto text = [](const std::string& wait, const std::string& between) {
    return KernelText(1, ".shared .align 16 .b8 b[512]; mov.u32 %r1, b; mad.lo.u32 %r2, %tid, 16, %r1; mul.wide.u32 %d1, %tid, 16; add.s64 %d2, %a0, %d1;"
                         "cp.async.cg.shared.global [%r2], [%d2], 16; cp.async.commit_group;" + wait +
                         "xor.b32 %r3, %tid, 1; mad.lo.u32 %r4, %r3, 16, %r1;" + between + " ld.shared.u32 %r5, [%r4];");
  };
  EXPECT_TRUE(RunWarp(text("cp.async.wait_group 0;", "bar.sync 0;"), in).findings.empty());
  ExpectOnly(RunWarp(text("cp.async.wait_group 1;", "bar.sync 0;"), in), FindingKind::kUninitializedShared);
  ExpectOnly(RunWarp(text("cp.async.wait_group 0;", ""), in), FindingKind::kSharedRace);
  // A second copy into the buffer while others may still read the first.
  const std::string again = " cp.async.cg.shared.global [%r2], [%d2], 16; cp.async.wait_all;";
  std::string wrong = text("cp.async.wait_group 0;", "bar.sync 0;"), right = wrong;
  wrong.insert(wrong.rfind("\nret"), again);
  right.insert(right.rfind("\nret"), " bar.sync 0;" + again);
  ExpectOnly(RunWarp(wrong, in), FindingKind::kSharedRace);
  EXPECT_TRUE(RunWarp(right, in).findings.empty());
}

TEST_F(PtxChecksTest, DivergedLanesComeTogether) {
  uint32_t* const out = Buffer<uint32_t>(64, 0);
  // Loops of different lengths: lane l adds l + 1 ones.
  const std::string text = KernelText(1, "mov.u32 %r1, 0; mov.u32 %r2, 0;\n$loop:\nadd.u32 %r1, %r1, 1; add.u32 %r2, %r2, 1; setp.le.u32 %p1, %r2, %tid; @%p1 bra $loop;\n"
                                         "setp.lt.u32 %p2, %tid, 16; @%p2 bra $low;\nadd.u32 %r1, %r1, 1000; bra.uni $join;\n$low:\nadd.u32 %r1, %r1, 2000;\n$join:\n"
                                         "vote.sync.ballot.b32 %r3, %p2, -1; mul.wide.u32 %d1, %tid, 4; add.s64 %d2, %a0, %d1; st.global.u32 [%d2], %r1; st.global.u32 [%d2+128], %r3;");
  const LaunchReport report = RunWarp(text, out);
  EXPECT_TRUE(report.findings.empty()) << report.ToString();
  for (uint32_t lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(out[lane], lane + 1 + (lane < 16 ? 2000 : 1000));
    EXPECT_EQ(out[32 + lane], 0xffffu);
  }
  EXPECT_EQ(report.counters.divergent_branches, 32u);
}

TEST_F(PtxChecksTest, ExitedThreadsNeedNotArriveAtABarrier) {
  const LaunchReport report = Run(KernelText(0, "setp.gt.u32 %p1, %tid, 39; @%p1 ret; bar.sync 0; bar.sync 0;"), {.grid = {}, .block = {96, 1, 1}});
  EXPECT_TRUE(report.findings.empty()) << report.ToString();
}

TEST_F(PtxChecksTest, BarrierThatSomeNeverReachIsADeadlock) {
  // Warp 1 waits at a bar.warp.sync for lane 0, which waits at the barrier.
  const LaunchReport report = Run(KernelText(0, "and.b32 %r1, %tid, 31; setp.eq.u32 %p1, %r1, 0; @%p1 bra $block;\nbar.warp.sync -1; ret;\n$block:\nbar.sync 0;"),
                                  {.grid = {}, .block = {64, 1, 1}});
  ExpectOnly(report, FindingKind::kDeadlock);
  EXPECT_TRUE(report.aborted);
  EXPECT_THAT(report.findings[0].message, AllOf(HasSubstr("warp 1 lanes 0x1 wait at bar.sync in line"), HasSubstr("0xfffffffe wait for lanes of their mask")));
}

TEST_F(PtxChecksTest, WarpsAtBarriersOfDifferentNumbersWaitForEver) {
  const auto text = [](int second) { return KernelText(0, absl::StrCat("setp.lt.u32 %p1, %tid, 32; @%p1 bra $low;\nbar.sync ", second, "; ret;\n$low:\nbar.sync 1;")); };
  ExpectOnly(Run(text(2), {.grid = {}, .block = {64, 1, 1}}), FindingKind::kDeadlock);
  EXPECT_TRUE(Run(text(1), {.grid = {}, .block = {64, 1, 1}}).findings.empty());
}

TEST_F(PtxChecksTest, DifferentBarriersOfOneWarp) {
  const LaunchReport report = RunWarp(KernelText(0, "setp.lt.u32 %p1, %tid, 16; @%p1 bra $low;\nbar.sync 0; ret;\n$low:\nbar.sync 0;"));
  ExpectOnly(report, FindingKind::kBarrier);
}

TEST_F(PtxChecksTest, ShufflesOfLanesThatAreNotThere) {
  ExpectOnly(RunWarp(KernelText(0, "setp.gt.u32 %p1, %tid, 15; @%p1 ret; shfl.sync.bfly.b32 %r1, %tid, 16, 31, -1;")), FindingKind::kWarpSync);
  ExpectOnly(RunWarp(KernelText(0, "shfl.sync.bfly.b32 %r1, %tid, 1, 31, 0xffff;")), FindingKind::kWarpSync);
  // Two halves with a mask each, and lanes that arrive by different ways.
  EXPECT_TRUE(RunWarp(KernelText(0, "setp.lt.u32 %p1, %tid, 16; selp.b32 %r2, 0xffff, 0xffff0000, %p1; shfl.sync.bfly.b32 %r1, %tid, 1, 31, %r2;")).findings.empty());
  ExpectOnly(RunWarp(KernelText(0, "setp.gt.u32 %p1, %tid, 15; @%p1 bra $end; mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2}, {%r3}, {%f1,%f2,%f3,%f4};\n$end:\n")), FindingKind::kWarpSync);
}

TEST_F(PtxChecksTest, EndlessLoopsAndTraps) {
  options_.max_instructions = 100000;
  ExpectOnly(RunWarp(KernelText(0, "$loop:\nbra.uni $loop;")), FindingKind::kTooLong);
  ExpectOnly(RunWarp(KernelText(0, "trap;")), FindingKind::kTrap);
}

// A warp that spins on what a later warp of the block writes gets there: every warp has its turn.
TEST_F(PtxChecksTest, SpinningOnAnotherWarpEnds) {
  uint32_t* const flag = Buffer<uint32_t>(1, 0);
  const LaunchReport report = Run(KernelText(1, "setp.lt.u32 %p1, %tid, 32; @%p1 bra $spin;\nst.volatile.global.u32 [%a0], 1; ret;\n$spin:\nld.volatile.global.u32 %r1, [%a0]; setp.eq.u32 %p2, %r1, 0; @%p2 bra $spin;"),
                                  {.grid = {}, .block = {64, 1, 1}}, flag);
  EXPECT_TRUE(report.findings.empty()) << report.ToString();
}

TEST_F(PtxChecksTest, ShapesThatNoDeviceTakes) {
  auto module = LoadModule(KernelText(0, ""));
  ASSERT_TRUE(module.ok()) << module.status();
  const auto refused = [&](const LaunchShape& shape, size_t bytes, const char* message) {
    EXPECT_THAT(Launch(**module, *(*module)->Find("k"), shape, std::vector<uint8_t>(bytes), memory_).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
  };
  refused({.grid = {}, .block = {1025, 1, 1}}, 0, "block of 1025 x 1 x 1 threads; at most 1024");
  refused({.grid = {0, 1, 1}, .block = {}}, 0, "grid of 0 x 1 x 1 blocks");
  refused({.grid = {1, 65536, 1}, .block = {}}, 0, "at most 2^31-1 x 65535");
  refused({.grid = {}, .block = {}, .dynamic_shared_bytes = 227 * 1024 + 1}, 0, "232449 bytes of shared memory; at most 232448");
  refused({}, 8, "8 bytes of parameters; it has 0");
}

TEST(PtxLoadTest, RefusesWhatItDoesNotExecute) {
  const auto refused = [](const std::string& text, const char* message) {
    EXPECT_THAT(LoadModule(text).status(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message))) << text;
  };
  // Line 10 is the first of the body.
  refused(KernelText(0, "wgmma.fence.sync.aligned;"), "ptx line 10: wgmma.fence.sync.aligned: this opcode is not interpreted");
  refused(KernelText(0, "add.cc.u32 %r1, %r1, 1;"), "line 10: add.cc.u32: this opcode");
  refused(KernelText(0, "fma.rn.relu.f16 %h1, %h1, %h1, %h1;"), "fma.rn.relu.f16: this opcode");
  refused(KernelText(0, "cvt.f16.f32 %h1, %f1;"), "cvt.f16.f32: this opcode");
  refused(KernelText(0, "add.u32 %r1, %r1;"), "line 10: add.u32: operand 3 is missing");
  refused(KernelText(0, "add.u32 %r1, %r1, 1, 2;"), "4 operands, but this form takes 3");
  refused(KernelText(0, "add.u32 %r1, %d1, 1;"), "operand 2: %d1 has 8 bytes a lane, not 4");
  refused(KernelText(0, "add.u32 %r1, %r99, 1;"), "%r99 is not declared");
  refused(KernelText(0, "add.u32 5, %r1, 1;"), "operand 1: must be a register");
  refused(KernelText(0, "@%r1 add.u32 %r1, %r1, 1;"), "guard %r1 is no predicate");
  refused(KernelText(0, "bra $nowhere;"), "line 10: no label $nowhere");
  refused(KernelText(0, "$a:\n$a:\n"), "line 11: label $a is there twice");
  refused(KernelText(0, "ld.global.v2.u32 {%r1,%r2,%r3}, [%d1];"), "operand 1: must have 2 elements");
  refused(KernelText(0, "add.u32 %r1, %r1, 1"), "expected");
  refused(".version 8.0\n.visible .func f() {}", "'.func' is not interpreted at this place");
  refused(".entry k() {", "has no end");
  refused(".entry k() { add.u32 ^ }", "no token begins with '^'");
  refused("/* ", "comment without end");
}

TEST(PtxLoadTest, ScopesHideRegisters) {
  auto module = LoadModule(KernelText(0, "mov.u32 %r1, 1;\n{ .reg .b64 %r1; mov.u64 %r1, 2; }\nmov.u32 %r2, %r1; // comment\n/* two\nlines */ mov.u32 %r3, -1;"));
  EXPECT_TRUE(module.ok()) << module.status();
}

}  // namespace
}  // namespace baton::ptx
