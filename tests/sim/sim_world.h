// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_SIM_SIM_WORLD_H_
#define BATON_TESTS_SIM_SIM_WORLD_H_

#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/kv/kv_pool.h"

namespace baton::testing {

// Rules of tests/protocol that a simulation can break on purpose, by the names they have there; and some of its own.
enum class Fault {
  kNone,
  kAddressInLanding,    // A one-sided writer does not ask.
  kWriterByAddress,     // The writer is whoever has the address now.
  kClosedLinkIsGone,    // A closed link ends a one-sided writer.
  kUnpinnedApply,       // Nobody asks whether a frame is being copied.
  kCapByFreeing,        // Past the cap, quarantined blocks are freed.
  kAckBeforeLastCopy,   // Aborted is said before the last copy.
  kNoFencing,           // Frames go to the current attempt, whatever they name.
  kReuseWithoutAck,     // A new attempt keeps the blocks.
  kFreeOnCancel,        // Stop frees what is still being written.
  kPoolSurvivesRestart,
  kRestartAfterLanded,  // An attempt after Landed lands again.
  kNoAlreadyLanded,     // It is not answered.
  kNoVerify,            // A manifest that does not verify is taken.
  kCacheUnverified,     // Blocks of a landing that was left are cached.
  kStopUnanswered,
  kAckIgnored,
  kDoubleFree,          // Aborted also frees the landing's blocks.
  kCreditIsPromise,     // A new attempt that finds no blocks is not refused.
  kLostRelease,         // A quarantine that ends does not give its blocks back.
  kForgottenJob,        // The sender's on_done is lost.
};
inline constexpr Fault kFirstFault = Fault::kAddressInLanding, kLastFault = Fault::kForgottenJob;
const char* FaultName(Fault fault);

// What all parts of a simulation share: chance, time, and the first rule that was broken.
class SimWorld {
 public:
  SimWorld(uint64_t seed, Fault fault) : fault(fault), rng_(seed) {}

  int Pick(int below) { return static_cast<int>(rng_() % static_cast<uint64_t>(below)); }
  // Only while trouble is on.
  bool Trouble(int one_in) { return trouble && Pick(one_in) == 0; }
  void Violate(std::string what) {
    if (violation_.empty()) violation_ = std::move(what);
  }
  const std::string& violation() const { return violation_; }
  // What happened, for whoever looks into a failure: kept only with `tracing`.
  void Note(const std::string& what) {
    if (tracing) trace += what + "\n";
  }

  const Fault fault;
  ManualClock clock;
  bool trouble = true;
  bool tracing = false;
  std::string trace;

 private:
  std::mt19937_64 rng_;
  std::string violation_;
};

// ---- What KV should look like: every byte is a function of its place and of all tokens up to its own.

KvLayout SimLayout();
std::unique_ptr<KvPool> MakeSimPool(int num_blocks);
// One number per token, of it and all before it.
std::vector<uint64_t> TokenChain(std::span<const int32_t> tokens);
// Writes tokens [begin, end) of one layer into `blocks` (position order from token 0).
void FillTokens(KvPool* pool, std::span<const int32_t> blocks, std::span<const uint64_t> chain, int layer, int begin, int end);
// Whether tokens [0, end) lie there in every layer; else the first place where they do not.
bool HoldsTokens(const KvPool& pool, std::span<const int32_t> blocks, std::span<const uint64_t> chain, int end,
                 std::string* where);
void Scribble(KvPool* pool, int32_t block);

}  // namespace baton::testing

#endif  // BATON_TESTS_SIM_SIM_WORLD_H_
