// SPDX-License-Identifier: Apache-2.0
#include "common/engine/compute_turns.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

// How long a statement holds that is not renewed: longer than a step or a unit takes, short enough that a death is no stall.
constexpr absl::Duration kStepBackstop = absl::Milliseconds(300);
constexpr absl::Duration kWantBackstop = absl::Milliseconds(100);

int64_t Ns(MonotonicTime time) { return absl::ToInt64Nanoseconds(time); }

// A time too far ahead is of another clock (a container with its own), or of nobody who follows these rules.
bool Holds(const std::atomic<int64_t>& until, MonotonicTime now) {
  const int64_t at = until.load(std::memory_order_acquire), ns = Ns(now);
  return at > ns && at - ns <= Ns(absl::Seconds(10));
}

bool IsTaken(const TurnSlot& slot) {
  const int64_t owner = slot.pid.load();
  return owner != 0 && (kill(static_cast<pid_t>(owner), 0) == 0 || errno != ESRCH);
}

absl::StatusOr<std::string> SharedName(const std::string& name) {
  if (name.empty() || name.size() > 200 || name.find('/') != std::string::npos || name.find('\0') != std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat("compute group '", name, "' is no file name of 1 to 200 bytes"));
  }
  return absl::StrCat("/baton-turns.", getuid(), ".", name);
}

absl::Status SharedMemoryError(const std::string& name, const char* doing) {
  return absl::ResourceExhaustedError(absl::StrCat("compute group ", name, ": cannot ", doing, ": ", std::strerror(errno)));
}

}  // namespace

struct ComputeTurns::Mapping {
  void* memory = nullptr;
  std::string name;
  ~Mapping() { munmap(memory, sizeof(TurnTable)); }
};

ComputeTurns::ComputeTurns(TurnTable* table, TurnSlot* own) : table_(table), own_(own) {}

absl::StatusOr<std::unique_ptr<ComputeTurns>> ComputeTurns::Join(const std::string& name) {
  BATON_ASSIGN_OR_RETURN(const std::string shared, SharedName(name));
  const int fd = shm_open(shared.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return SharedMemoryError(name, "open shared memory");
  // New memory is all zeros, which is an empty table; the same size again changes nothing.
  struct stat info;
  const bool sized = fstat(fd, &info) == 0 && (info.st_size >= static_cast<off_t>(sizeof(TurnTable)) ||
                                               ftruncate(fd, sizeof(TurnTable)) == 0);
  void* memory = sized ? mmap(nullptr, sizeof(TurnTable), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
  close(fd);
  if (memory == MAP_FAILED) return SharedMemoryError(name, "map shared memory");
  auto mapping = std::make_unique<Mapping>();
  mapping->memory = memory;
  mapping->name = shared;
  BATON_ASSIGN_OR_RETURN(auto turns, JoinTable(static_cast<TurnTable*>(memory)));
  turns->mapping_ = std::move(mapping);
  return turns;
}

absl::StatusOr<std::unique_ptr<ComputeTurns>> ComputeTurns::JoinTable(TurnTable* table) {
  BATON_ASSIGN_OR_RETURN(TurnSlot* const own, TakeSlot(table));
  return std::unique_ptr<ComputeTurns>(new ComputeTurns(table, own));
}

absl::StatusOr<TurnSlot*> ComputeTurns::TakeSlot(TurnTable* table) {
  for (TurnSlot& slot : table->slots) {
    int64_t owner = slot.pid.load();
    if (!IsTaken(slot) && slot.pid.compare_exchange_strong(owner, getpid())) {
      for (auto* time : {&slot.busy_until, &slot.window_until, &slot.wants_until, &slot.waits_since}) time->store(0);
      return &slot;
    }
  }
  return absl::ResourceExhaustedError(absl::StrCat("all ", TurnTable::kNumSlots, " places of the compute group are taken"));
}

ComputeTurns::~ComputeTurns() {
  own_->busy_until.store(0);
  own_->wants_until.store(0);
  own_->pid.store(0);
  NotifyChange();
  const bool last = std::ranges::none_of(table_->slots, [](const TurnSlot& slot) { return IsTaken(slot); });
  if (mapping_ != nullptr && last) shm_unlink(mapping_->name.c_str());
}

void ComputeTurns::BeginStep(MonotonicTime now) {
  own_->window_until.store(0, std::memory_order_release);
  own_->busy_until.store(Ns(now + kStepBackstop), std::memory_order_release);
}

void ComputeTurns::EndStep(MonotonicTime now, absl::Duration window, bool more) {
  const bool wanted = std::ranges::any_of(table_->slots, [&](const TurnSlot& slot) { return Holds(slot.wants_until, now); });
  const absl::Duration open = wanted ? window : absl::ZeroDuration();
  own_->window_until.store(Ns(now + open), std::memory_order_release);
  own_->busy_until.store(more ? Ns(now + open + kStepBackstop) : 0, std::memory_order_release);
  if (wanted) NotifyChange();
}

bool ComputeTurns::StepMayBegin(MonotonicTime now) const {
  if (!Holds(own_->window_until, now)) return true;
  return std::ranges::none_of(table_->slots, [&](const TurnSlot& slot) { return Holds(slot.wants_until, now); });
}

absl::Duration ComputeTurns::OldestWait(MonotonicTime now) const {
  int64_t oldest = Ns(now);
  for (const TurnSlot& slot : table_->slots) {
    if (Holds(slot.wants_until, now)) oldest = std::min(oldest, slot.waits_since.load(std::memory_order_acquire));
  }
  return absl::Nanoseconds(Ns(now) - oldest);
}

void ComputeTurns::Want(MonotonicTime now, MonotonicTime arrived) {
  own_->waits_since.store(Ns(arrived), std::memory_order_release);
  own_->wants_until.store(Ns(now + kWantBackstop), std::memory_order_release);
}

void ComputeTurns::WantNothing() {
  if (own_->wants_until.exchange(0, std::memory_order_acq_rel) != 0) NotifyChange();
}

bool ComputeTurns::UnitMayBegin(MonotonicTime now) const {
  // Half of a unit may reach over the window's end: as often too early as too late.
  return std::ranges::none_of(table_->slots, [&](const TurnSlot& slot) {
    return Holds(slot.busy_until, now) && !Holds(slot.window_until, now + unit_ / 2);
  });
}

void ComputeTurns::NoteUnit(absl::Duration took) {
  // A unit that was held up says nothing of what it costs.
  const absl::Duration bounded = std::min(took, absl::Milliseconds(20));
  unit_ = unit_ == absl::ZeroDuration() ? bounded : unit_ * 0.9 + bounded * 0.1;
}

void ComputeTurns::Wait(absl::Duration at_most) const {
  const uint32_t seen = table_->changes.load(std::memory_order_acquire);
  const timespec timeout = absl::ToTimespec(std::max(at_most, absl::ZeroDuration()));
  syscall(SYS_futex, &table_->changes, FUTEX_WAIT, seen, &timeout, nullptr, 0);
}

void ComputeTurns::NotifyChange() {
  table_->changes.fetch_add(1, std::memory_order_acq_rel);
  syscall(SYS_futex, &table_->changes, FUTEX_WAKE, std::numeric_limits<int>::max(), nullptr, nullptr, 0);
}

}  // namespace baton
