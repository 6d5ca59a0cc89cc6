// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BASE_SERVICE_NOTIFIER_H_
#define BATON_COMMON_BASE_SERVICE_NOTIFIER_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/config.h"

namespace baton {

// Tells a supervisor how this process does: the protocol of sd_notify(3), one datagram a message to the socket that the
// supervisor names in NOTIFY_SOCKET. Without one, everything here does nothing. A message that the supervisor does not take
// at once is dropped: nobody waits for it. One thread.
class ServiceNotifier {
 public:
  explicit ServiceNotifier(const Environment& environment = ProcessEnvironment());
  ~ServiceNotifier();
  ServiceNotifier(const ServiceNotifier&) = delete;
  ServiceNotifier& operator=(const ServiceNotifier&) = delete;

  // How often to call Alive: half of what the supervisor's watchdog allows, at most 10 s; an hour where nobody listens.
  absl::Duration interval() const { return interval_; }

  // Sockets listen: whoever waits for this service may start. `status` is a line for people.
  void Started(absl::string_view status);
  // The process does its work. Only to be called after looking at what could be stuck: a watchdog restarts the process that
  // does not call this.
  void Alive(absl::string_view status);
  // Says what is wrong, without feeding the watchdog.
  void Stuck(absl::string_view status);
  // The process finishes what runs and starts anew under the same id: the watchdog lets it for up to 10 minutes. Started sets it back.
  void Restarting(absl::string_view status);
  // SIGTERM was taken.
  void Stopping(absl::string_view status);

 private:
  void Send(const std::string& message);

  std::string path_;  // A leading '@' is an abstract address.
  int fd_ = -1;
  int64_t watchdog_usec_ = 0;  // Of the supervisor; 0: none.
  absl::Duration interval_ = absl::Hours(1);
};

}  // namespace baton

#endif  // BATON_COMMON_BASE_SERVICE_NOTIFIER_H_
