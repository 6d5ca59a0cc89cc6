// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_SUPPORT_FAULTY_KV_LINK_H_
#define BATON_TESTS_SUPPORT_FAULTY_KV_LINK_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/kv_transfer/kv_link.h"

namespace baton::testing {

// What goes wrong on a link. Frames are counted from 0 over the life of the link.
struct LinkFaults {
  absl::Duration delay;                    // Before each frame.
  int64_t bytes_per_second = 0;            // 0: as fast as it goes.
  bool reorder = false;                    // Neighbouring frames change places.
  std::optional<int> duplicate_frame;      // Comes twice.
  std::optional<int> drop_frame;           // Does not come.
  std::optional<int> truncate_frame;       // Its second half does not come.
  std::optional<int> flip_frame;           // One bit of its payload is another: bit flip_bit, counted modulo its size.
  uint64_t flip_bit = 0;
  // Called for each frame and each manifest: may change anything of it.
  std::function<void(FrameHeader*, std::vector<uint8_t>*)> change_frame;
  std::function<void(Manifest*)> change_manifest;
  std::optional<int64_t> stall_after_bytes;  // Then nothing is taken any more.
  absl::Duration stall_timeout = absl::Milliseconds(100);  // As the link under it has.
  std::optional<int64_t> cut_after_bytes;  // Then the connection breaks.
};

// A link over another one, of any kind, that does to the frames what `faults` says.
class FaultyKvLink final : public KvLink {
 public:
  FaultyKvLink(std::unique_ptr<KvLink> inner, const LinkFaults& faults) : inner_(std::move(inner)), faults_(faults) {}

  TransportKind kind() const override { return inner_->kind(); }
  absl::StatusOr<LinkHello> Open(const LinkHello& self, absl::Duration timeout) override { return inner_->Open(self, timeout); }
  bool alive() const override { return !cut_ && inner_->alive(); }
  absl::Status SendOpen(const TransferId& transfer, int attempt, const WriteToken& token) override;
  absl::Status SendFrame(const OutgoingFrame& frame, const Interrupted& interrupted) override;
  absl::Status Flush(const Interrupted& interrupted) override;
  absl::Status SendManifest(const TransferId& transfer, int attempt, const Manifest& manifest,
                            const Interrupted& interrupted) override;
  void SendAborted(const TransferId& transfer, int attempt) override;
  void Settle() override;
  void Close(absl::Duration flush_timeout) override;

 private:
  struct Held {
    OutgoingFrame frame;
    std::vector<uint8_t> bytes;
    std::optional<LinkGrant> grant;
  };
  absl::Status Wait(absl::Duration time, const Interrupted& interrupted);
  absl::Status SendBytes(const OutgoingFrame& frame, std::span<const uint8_t> bytes, const Interrupted& interrupted);
  absl::Status SendHeld(const Interrupted& interrupted);
  absl::Status Cut();

  const std::unique_ptr<KvLink> inner_;
  const LinkFaults faults_;
  int num_frames_ = 0;
  int64_t num_bytes_ = 0;
  bool cut_ = false;
  std::optional<Held> held_;
};

}  // namespace baton::testing

#endif  // BATON_TESTS_SUPPORT_FAULTY_KV_LINK_H_
