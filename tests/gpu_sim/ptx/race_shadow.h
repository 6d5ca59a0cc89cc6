// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_GPU_SIM_PTX_RACE_SHADOW_H_
#define BATON_TESTS_GPU_SIM_PTX_RACE_SHADOW_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>

namespace baton::ptx {

// Who accesses memory and when. Epochs order: bar.sync begins a new block epoch, bar.warp.sync a new warp epoch of the lanes
// that it names. Nothing else orders: neither lockstep nor a shuffle does.
struct Actor {
  uint32_t thread = 0;       // In the grid.
  uint32_t block_epoch = 0;  // From 1; grows over the whole launch.
  uint32_t warp_epoch = 0;
};

// kAtomic reads and writes; the last two are a volatile or ordered load and store. Atomic ones do not race with each other.
enum class AccessKind : uint8_t { kRead, kWrite, kAtomic, kAtomicRead, kAtomicWrite };

struct Conflict {
  uint32_t thread;    // The other one.
  bool it_wrote;
};

// What a race check remembers of two bytes: the last writer and two readers. Single-byte accesses conflict where they touch the
// same byte; writers of different bytes of one cell push each other out, which may hide a race and invents none.
struct RaceCell {
  struct Access {
    Actor actor;
    uint8_t bytes = 0;  // Bit per byte.
    bool atomic = false;
  };
  Access writer;
  Access reader[2];
};

// `cross_block`: whether threads of different blocks conflict (global memory) or cannot meet (shared memory).
class RaceRules {
 public:
  RaceRules(uint32_t threads_per_block, bool cross_block) : threads_per_block_(threads_per_block), cross_block_(cross_block) {}

  // Checks an access to `bytes` of the cell against what it remembers, then remembers it.
  std::optional<Conflict> Check(RaceCell* cell, const Actor& now, uint8_t bytes, AccessKind kind) const {
    std::optional<Conflict> found;
    const bool atomic = kind >= AccessKind::kAtomic;
    if ((cell->writer.bytes & bytes) != 0 && !(atomic && cell->writer.atomic) && Concurrent(cell->writer.actor, now)) {
      found = Conflict{cell->writer.actor.thread, true};
    }
    if (kind == AccessKind::kRead || kind == AccessKind::kAtomicRead) {
      RaceCell::Access* slot = &cell->reader[1];
      if (cell->reader[0].actor.thread == now.thread || !Concurrent(cell->reader[0].actor, now)) slot = &cell->reader[0];
      else if (cell->reader[1].actor.thread != now.thread && Concurrent(cell->reader[1].actor, now)) return found;
      *slot = {now, bytes, atomic};
      return found;
    }
    for (const RaceCell::Access& reader : cell->reader) {
      if ((reader.bytes & bytes) != 0 && !(atomic && reader.atomic) && Concurrent(reader.actor, now)) found = Conflict{reader.actor.thread, false};
    }
    cell->writer = {now, bytes, atomic};
    return found;
  }

 private:
  bool Concurrent(const Actor& old, const Actor& now) const {
    if (old.block_epoch == 0 || old.thread == now.thread) return false;
    if (old.thread / threads_per_block_ != now.thread / threads_per_block_) return cross_block_;
    if (old.block_epoch != now.block_epoch) return false;
    const bool same_warp = old.thread % threads_per_block_ / 32 == now.thread % threads_per_block_ / 32;
    return !same_warp || old.warp_epoch >= now.warp_epoch;
  }

  uint32_t threads_per_block_;
  bool cross_block_;
};

// Cells of the global memory that a launch touches, up to a limit.
class GlobalShadow {
 public:
  explicit GlobalShadow(size_t max_pages) : max_pages_(max_pages) {}

  // Of the two bytes at `address`; null: over the limit, and from here on nothing is checked.
  RaceCell* Cell(uint64_t address) {
    const uint64_t page = address / kPageBytes;
    if (page != last_page_) {
      std::unique_ptr<RaceCell[]>& cells = pages_[page];
      if (cells == nullptr) {
        if (full_ || pages_.size() > max_pages_) {
          full_ = true;
          return nullptr;
        }
        cells = std::make_unique<RaceCell[]>(kPageBytes / 2);
      }
      last_page_ = page;
      last_cells_ = cells.get();
    }
    return last_cells_ + address % kPageBytes / 2;
  }
  bool full() const { return full_; }

 private:
  static constexpr uint64_t kPageBytes = 1024;
  size_t max_pages_;
  bool full_ = false;
  uint64_t last_page_ = ~uint64_t{0};
  RaceCell* last_cells_ = nullptr;
  std::unordered_map<uint64_t, std::unique_ptr<RaceCell[]>> pages_;
};

}  // namespace baton::ptx

#endif  // BATON_TESTS_GPU_SIM_PTX_RACE_SHADOW_H_
