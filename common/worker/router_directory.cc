// SPDX-License-Identifier: Apache-2.0
#include "common/worker/router_directory.h"

#include <arpa/inet.h>
#include <netdb.h>

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/host_port.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

bool IsAddress(const std::string& entry) {
  const auto host_port = ParseHostPort(entry);
  if (!host_port.ok()) return true;  // Nothing to look up; connecting to it says what is wrong.
  in6_addr address;
  return inet_pton(AF_INET, host_port->host.c_str(), &address) == 1 || inet_pton(AF_INET6, host_port->host.c_str(), &address) == 1;
}

}  // namespace

RouterDirectory::RouterDirectory(std::vector<std::string> entries, Open open, Lookup lookup)
    : entries_(std::move(entries)), open_(std::move(open)), lookup_(std::move(lookup)) {
  Refresh();
  if (std::all_of(entries_.begin(), entries_.end(), IsAddress)) return;
  thread_ = Thread("routers", [this] {
    while (true) {
      {
        MutexLock lock(&mutex_);
        const MonotonicTime until = Clock::Real()->Now() + kRefresh;
        while (!stop_ && Clock::Real()->Now() < until) wake_.WaitFor(&mutex_, until - Clock::Real()->Now());
        if (stop_) return;
      }
      Refresh();
    }
  });
}

RouterDirectory::~RouterDirectory() {
  {
    MutexLock lock(&mutex_);
    stop_ = true;
    wake_.NotifyAll();
  }
  thread_.Join();
  // Out of the map first: while they end, registrations still ask for num_registered.
  std::map<std::string, std::shared_ptr<RouterRegistration>> closing;
  MutexLock lock(&mutex_);
  closing.swap(registrations_);
}

void RouterDirectory::Refresh() {
  MutexLock refresh_lock(&refresh_mutex_);
  std::set<std::string> wanted;
  for (const std::string& entry : entries_) {
    std::vector<std::string>& known = known_[entry];
    if (IsAddress(entry)) {
      known = {entry};
    } else if (auto found = lookup_(entry); found.ok()) {
      known = *std::move(found);
    } else if (known.empty()) {
      BATON_LOG(WARNING) << "--router " << entry << ": " << found.status().message() << "; looking again";
    }
    wanted.insert(known.begin(), known.end());
  }
  // Opened and closed without the lock: a registration's thread asks for num_registered, and closing joins it.
  std::vector<std::shared_ptr<RouterRegistration>> gone;
  {
    MutexLock lock(&mutex_);
    for (auto it = registrations_.begin(); it != registrations_.end();) {
      if (wanted.count(it->first) > 0) {
        wanted.erase(it->first);
        ++it;
      } else {
        BATON_LOG(INFO) << "router " << it->first << " is gone from its name";
        gone.push_back(std::move(it->second));
        it = registrations_.erase(it);
      }
    }
  }
  for (const std::string& address : wanted) {
    std::shared_ptr<RouterRegistration> registration = open_(address);
    MutexLock lock(&mutex_);
    registrations_[address] = std::move(registration);
  }
}

void RouterDirectory::ReportNow() {
  MutexLock lock(&mutex_);
  for (const auto& [address, registration] : registrations_) registration->ReportNow();
}

int RouterDirectory::num_registered() const {
  MutexLock lock(&mutex_);
  const auto count = std::count_if(registrations_.begin(), registrations_.end(), [](const auto& r) { return r.second->registered(); });
  return std::max(1, static_cast<int>(count));
}

std::vector<std::string> RouterDirectory::addresses() const {
  MutexLock lock(&mutex_);
  std::vector<std::string> addresses;
  for (const auto& [address, registration] : registrations_) addresses.push_back(address);
  return addresses;
}

absl::StatusOr<std::vector<std::string>> RouterDirectory::LookUpRouters(const std::string& entry) {
  BATON_ASSIGN_OR_RETURN(const HostPort host_port, ParseHostPort(entry));
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host_port.host.c_str(), nullptr, &hints, &found);
  if (error != 0) return absl::UnavailableError(absl::StrCat("no address for ", host_port.host, ": ", gai_strerror(error)));
  std::set<std::string> v4, v6;
  for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
    char text[NI_MAXHOST];
    if (getnameinfo(info->ai_addr, info->ai_addrlen, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) continue;
    (info->ai_family == AF_INET ? v4 : v6).insert(FormatHostPort(text, host_port.port));
  }
  freeaddrinfo(found);
  const std::set<std::string>& chosen = v4.empty() ? v6 : v4;
  if (chosen.empty()) return absl::UnavailableError(absl::StrCat("no address for ", host_port.host));
  return std::vector<std::string>(chosen.begin(), chosen.end());
}

}  // namespace baton
