// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/sim_world.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/backend/create_backend.h"
#include "common/base/logging.h"

namespace baton::testing {
namespace {

uint64_t Mix(uint64_t x) {  // SplitMix64's.
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Tokens [begin, begin + count) of a layer, in wire form: all elements of a token are one 16-bit value's.
std::vector<uint8_t> Wire(std::span<const uint64_t> chain, int layer, int begin, int count) {
  const KvLayout layout = SimLayout();
  const int width = layout.num_kv_heads * layout.head_dim;
  std::vector<uint8_t> bytes(static_cast<size_t>(count) * layout.token_layer_bytes());
  auto* out = reinterpret_cast<uint16_t*>(bytes.data());
  const auto value = [&](int token, int which) {
    return static_cast<uint16_t>(Mix(chain[static_cast<size_t>(begin + token)] + static_cast<uint64_t>(layer * 2 + which)));
  };
  for (int i = 0; i < width; ++i) {
    for (int token = 0; token < count; ++token) *out++ = value(token, 0);
  }
  for (int token = 0; token < count; ++token) {
    for (int i = 0; i < width; ++i) *out++ = value(token, 1);
  }
  return bytes;
}

}  // namespace

const char* FaultName(Fault fault) {
  switch (fault) {
    case Fault::kNone: return "none";
    case Fault::kAddressInLanding: return "address_in_landing";
    case Fault::kWriterByAddress: return "writer_by_address";
    case Fault::kClosedLinkIsGone: return "closed_link_is_gone";
    case Fault::kUnpinnedApply: return "unpinned_apply";
    case Fault::kCapByFreeing: return "cap_by_freeing";
    case Fault::kAckBeforeLastCopy: return "ack_before_last_copy";
    case Fault::kNoFencing: return "no_fencing";
    case Fault::kReuseWithoutAck: return "reuse_without_ack";
    case Fault::kFreeOnCancel: return "free_on_cancel";
    case Fault::kPoolSurvivesRestart: return "pool_survives_restart";
    case Fault::kRestartAfterLanded: return "restart_after_landed";
    case Fault::kNoAlreadyLanded: return "no_already_landed";
    case Fault::kNoVerify: return "no_verify";
    case Fault::kCacheUnverified: return "cache_unverified";
    case Fault::kStopUnanswered: return "stop_unanswered";
    case Fault::kAckIgnored: return "ack_ignored";
    case Fault::kDoubleFree: return "double_free";
    case Fault::kCreditIsPromise: return "credit_is_promise";
    case Fault::kLostRelease: return "lost_release";
    case Fault::kForgottenJob: return "forgotten_job";
  }
  return "?";
}

KvLayout SimLayout() {
  return {.num_layers = 2, .num_kv_heads = 1, .head_dim = 4, .block_size = 16, .dtype = KvDtype::kF16};
}

std::unique_ptr<KvPool> MakeSimPool(int num_blocks) {
  static Backend* const backend = CreateBackend("reference")->release();
  auto pool = KvPool::Create(SimLayout(), num_blocks, backend);
  BATON_CHECK(pool.ok()) << pool.status();
  return *std::move(pool);
}

std::vector<uint64_t> TokenChain(std::span<const int32_t> tokens) {
  std::vector<uint64_t> chain;
  uint64_t hash = 1;
  for (const int32_t token : tokens) chain.push_back(hash = Mix(hash ^ (static_cast<uint64_t>(token) << 20)));
  return chain;
}

void FillTokens(KvPool* pool, std::span<const int32_t> blocks, std::span<const uint64_t> chain, int layer, int begin, int end) {
  const int block_size = pool->layout().block_size;
  while (begin < end) {
    const int offset = begin % block_size, count = std::min(block_size - offset, end - begin);
    pool->WriteTokens(layer, blocks[static_cast<size_t>(begin / block_size)], offset, count, Wire(chain, layer, begin, count));
    begin += count;
  }
}

bool HoldsTokens(const KvPool& pool, std::span<const int32_t> blocks, std::span<const uint64_t> chain, int end,
                 std::string* where) {
  const int block_size = pool.layout().block_size;
  for (int layer = 0; layer < pool.layout().num_layers; ++layer) {
    for (int begin = 0; begin < end; begin += block_size) {
      const int count = std::min(block_size, end - begin);
      const std::vector<uint8_t> want = Wire(chain, layer, begin, count);
      std::vector<uint8_t> got(want.size());
      pool.ReadTokens(layer, blocks[static_cast<size_t>(begin / block_size)], 0, count, got);
      if (got == want) continue;
      *where = absl::StrCat("layer ", layer, ", tokens ", begin, " to ", begin + count, ", block ",
                            blocks[static_cast<size_t>(begin / block_size)]);
      return false;
    }
  }
  return true;
}

void Scribble(KvPool* pool, int32_t block) {
  for (int layer = 0; layer < pool->layout().num_layers; ++layer) {
    const std::span<uint8_t> cell = pool->Cell(layer, block);
    std::fill(cell.begin(), cell.end(), uint8_t{0xa5});
  }
}

}  // namespace baton::testing
