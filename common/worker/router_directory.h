// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_WORKER_ROUTER_DIRECTORY_H_
#define BATON_COMMON_WORKER_ROUTER_DIRECTORY_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/base/thread.h"
#include "common/worker/router_registration.h"

namespace baton {

// The routers of one worker: a registration with every address that the entries of --router stand for. An entry is an
// address, or a name with one address for each router (a headless service); names are looked up again every few seconds, so
// routers may come and go. Where a name cannot be looked up, what it stood for stays.
class RouterDirectory {
 public:
  // The addresses, as HOST:PORT, that an entry stands for now.
  using Lookup = std::function<absl::StatusOr<std::vector<std::string>>(const std::string& entry)>;
  using Open = std::function<std::unique_ptr<RouterRegistration>(const std::string& address)>;

  // `open` makes the registration with one address. Looks up at once; owns a thread where an entry is a name.
  RouterDirectory(std::vector<std::string> entries, Open open, Lookup lookup = LookUpRouters);
  // Closes all registrations.
  ~RouterDirectory();

  // Looks up now. The thread does this every kRefresh.
  void Refresh();
  // Sends load reports now.
  void ReportNow();
  // How many routers this worker's credits are divided among: those that it is registered with, at least 1.
  int num_registered() const;
  std::vector<std::string> addresses() const;

  static constexpr absl::Duration kRefresh = absl::Seconds(5);

  // By the system's resolver: the IPv4 addresses of a name, or its IPv6 addresses where it has no others (a router that has
  // both must not be taken for two). Blocks as long as the resolver does.
  //   INVALID_ARGUMENT  not HOST:PORT.
  //   UNAVAILABLE       the name has no address.
  static absl::StatusOr<std::vector<std::string>> LookUpRouters(const std::string& entry);

 private:
  const std::vector<std::string> entries_;
  const Open open_;
  const Lookup lookup_;
  Mutex refresh_mutex_;  // One Refresh at a time; before mutex_.
  std::map<std::string, std::vector<std::string>> known_ ABSL_GUARDED_BY(refresh_mutex_);  // Entry to its addresses.
  mutable Mutex mutex_;
  CondVar wake_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<std::string, std::shared_ptr<RouterRegistration>> registrations_ ABSL_GUARDED_BY(mutex_);
  Thread thread_;
};

}  // namespace baton

#endif  // BATON_COMMON_WORKER_ROUTER_DIRECTORY_H_
