// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu_sim/ptx/access.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace baton::ptx {
namespace {

constexpr uint64_t kWindowBytes = uint64_t{1} << 32;

// Checks each two-byte cell of the access.
void CheckRaces(Warp& warp, const Instruction& i, bool shared, int lane, uint64_t address, int bytes, AccessKind kind) {
  LaunchState& launch = warp.launch();
  const Actor actor = warp.ActorOf(lane);
  for (int done = 0; done < bytes;) {
    const uint64_t at = address + static_cast<uint64_t>(done);
    const int here = std::min(2 - static_cast<int>(at & 1), bytes - done);
    const auto mask = static_cast<uint8_t>(((1 << here) - 1) << (at & 1));
    RaceCell* const cell = shared ? &launch.shared.cells[at / 2] : launch.global_shadow.Cell(at);
    if (cell == nullptr) return;
    const RaceRules& rules = shared ? launch.shared_rules : launch.global_rules;
    if (const std::optional<Conflict> conflict = rules.Check(cell, actor, mask, kind)) {
      warp.Report(shared ? FindingKind::kSharedRace : FindingKind::kGlobalRace, i, lane,
                  absl::StrCat(kind == AccessKind::kRead || kind == AccessKind::kAtomicRead ? "reads" : "writes", shared ? " shared byte " : " address 0x",
                               shared ? absl::StrCat(at) : absl::StrCat(absl::Hex(at)), " which thread ",
                               conflict->thread % launch.threads_per_block, " of block number ",
                               conflict->thread / launch.threads_per_block, conflict->it_wrote ? " wrote" : " read",
                               " without a barrier between"));
    }
    done += here;
  }
}

uint8_t* AccessShared(Warp& warp, const Instruction& i, int lane, uint64_t address, int bytes, AccessKind kind) {
  LaunchState& launch = warp.launch();
  SharedMemory& shared = launch.shared;
  if (address + static_cast<uint64_t>(bytes) > shared.bytes.size()) {
    warp.Report(FindingKind::kOutOfBounds, i, lane,
                absl::StrCat("shared bytes ", address, " to ", address + static_cast<uint64_t>(bytes), " of ", shared.bytes.size()));
    return nullptr;
  }
  const bool reads = kind != AccessKind::kWrite && kind != AccessKind::kAtomicWrite;
  if (reads && std::memchr(&shared.written[address], 0, static_cast<size_t>(bytes)) != nullptr) {
    warp.Report(FindingKind::kUninitializedShared, i, lane, absl::StrCat("shared byte ", address, ", ", bytes, " bytes"));
  }
  if (kind != AccessKind::kRead && kind != AccessKind::kAtomicRead) std::memset(&shared.written[address], 1, static_cast<size_t>(bytes));
  if (launch.options->check_races) CheckRaces(warp, i, true, lane, address, bytes, kind);
  return &shared.bytes[address];
}

uint8_t* AccessGlobal(Warp& warp, const Instruction& i, int lane, uint64_t address, int bytes, AccessKind kind) {
  LaunchState& launch = warp.launch();
  const MemoryRange*& last = launch.last_range;
  const auto size = static_cast<uint64_t>(bytes);
  if (last == nullptr || address < last->begin || address >= last->end || size > last->end - address) {
    const MemoryRange* const found = launch.ranges.Find(address, size);
    if (found == nullptr) {
      const MemoryRange* const near = launch.ranges.Before(address);
      std::string where = "outside of every allocation";
      if (near != nullptr) absl::StrAppend(&where, "; the last before it has ", near->end - near->begin, " bytes, this begins at ", address - near->begin);
      warp.Report(FindingKind::kOutOfBounds, i, lane, absl::StrCat("address 0x", absl::Hex(address), ", ", bytes, " bytes: ", where));
      return nullptr;
    }
    last = found;
  }
  if (launch.options->check_races) CheckRaces(warp, i, false, lane, address, bytes, kind);
  return reinterpret_cast<uint8_t*>(address);
}

// Distinct values of at most 32.
size_t Distinct(uint64_t* values, size_t count) {
  std::sort(values, values + count);
  return static_cast<size_t>(std::unique(values, values + count) - values);
}

void CountSectors(Counters* counters, uint32_t lanes, const uint64_t (&addresses)[kWarpSize], int bytes) {
  uint64_t sectors[2 * kWarpSize], distinct[kWarpSize];
  size_t num_sectors = 0, num = 0;
  for (; lanes != 0; lanes &= lanes - 1) {
    const uint64_t address = addresses[std::countr_zero(lanes)];
    distinct[num++] = address;
    sectors[num_sectors++] = address / 32;
    if ((address + static_cast<uint64_t>(bytes) - 1) / 32 != address / 32) sectors[num_sectors++] = address / 32 + 1;
  }
  ++counters->global_requests;
  counters->sectors += Distinct(sectors, num_sectors);
  counters->ideal_sectors += (Distinct(distinct, num) * static_cast<size_t>(bytes) + 31) / 32;
}

// 8-byte accesses go half a warp, 16-byte accesses a quarter of a warp at a time; lanes that read the same word share it.
void CountWavefronts(Counters* counters, uint32_t lanes, const uint64_t (&addresses)[kWarpSize], int bytes) {
  const int passes = bytes <= 4 ? 1 : bytes / 4;
  const int per_pass = kWarpSize / passes;
  size_t distinct_words = 0;
  for (int pass = 0; pass < passes; ++pass) {
    uint64_t words[kWarpSize];
    size_t num = 0;
    for (int lane = pass * per_pass; lane < (pass + 1) * per_pass; ++lane) {
      if ((lanes >> lane & 1) == 0) continue;
      for (int word = 0; word < passes; ++word) words[num++] = addresses[lane] / 4 + static_cast<uint64_t>(word);
    }
    num = Distinct(words, num);
    uint8_t banks[32] = {};
    int most = 0;
    for (size_t n = 0; n < num; ++n) most = std::max<int>(most, ++banks[words[n] % 32]);
    counters->wavefronts += static_cast<uint64_t>(most);
    distinct_words += num;
  }
  counters->ideal_wavefronts += (distinct_words + 31) / 32;
}

}  // namespace

void Addresses(Warp& warp, const Instruction& i, int operand, int bytes, int64_t offset, uint64_t (&out)[kWarpSize]) {
  const uint32_t slot = i.slot(operand);
  if (bytes == 4) {
    const uint32_t* const base = warp.Lanes<uint32_t>(slot);
    for (int lane = 0; lane < kWarpSize; ++lane) out[lane] = static_cast<uint32_t>(base[lane] + static_cast<uint32_t>(offset));
  } else {
    const uint64_t* const base = warp.Lanes<uint64_t>(slot);
    for (int lane = 0; lane < kWarpSize; ++lane) out[lane] = base[lane] + static_cast<uint64_t>(offset);
  }
}

uint8_t* Access(Warp& warp, const Instruction& i, Space space, int lane, uint64_t address, int bytes, AccessKind kind) {
  if (address % static_cast<uint64_t>(bytes) != 0) {
    warp.Report(FindingKind::kMisaligned, i, lane, absl::StrCat("address 0x", absl::Hex(address), " for ", bytes, " bytes"));
    return nullptr;
  }
  if (space == Space::kGeneric) {
    if (address >= kSharedWindow && address < kSharedWindow + kWindowBytes) {
      space = Space::kShared;
      address -= kSharedWindow;
    } else if (address >= kLocalWindow && address < kLocalWindow + kWindowBytes) {
      space = Space::kLocal;
      address -= kLocalWindow;
    }
  }
  if (space == Space::kShared) return AccessShared(warp, i, lane, address, bytes, kind);
  if (space != Space::kLocal && space != Space::kParam) return AccessGlobal(warp, i, lane, address, bytes, kind);
  const Kernel& kernel = *warp.launch().kernel;
  const uint32_t size = space == Space::kLocal ? kernel.local_bytes : kernel.parameter_bytes;
  if (address + static_cast<uint64_t>(bytes) > size || (space == Space::kParam && kind != AccessKind::kRead && kind != AccessKind::kAtomicRead)) {
    warp.Report(FindingKind::kOutOfBounds, i, lane,
                absl::StrCat(space == Space::kLocal ? "local" : "parameter", " byte ", address, " of ", size));
    return nullptr;
  }
  if (space == Space::kLocal) return warp.LocalMemory(lane) + address;
  return const_cast<uint8_t*>(warp.launch().parameters) + address;
}

void CountTraffic(Warp& warp, Space space, uint32_t lanes, const uint64_t (&addresses)[kWarpSize], int bytes) {
  if (space == Space::kGeneric) {
    const uint64_t first = addresses[std::countr_zero(lanes)];
    space = first >= kSharedWindow ? Space::kShared : first >= kLocalWindow ? Space::kLocal : Space::kGlobal;
  }
  if (space == Space::kGlobal) CountSectors(&warp.launch().report.counters, lanes, addresses, bytes);
  else if (space == Space::kShared) CountWavefronts(&warp.launch().report.counters, lanes, addresses, bytes);
}

}  // namespace baton::ptx
