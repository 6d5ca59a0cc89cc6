// SPDX-License-Identifier: Apache-2.0
#include "common/worker/worker_process.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/logging.h"
#include "common/base/service_notifier.h"
#include "common/http/status_server.h"
#include "common/rpc/server.h"
#include "common/worker/advertised_address.h"
#include "common/worker/router_directory.h"
#include "common/worker/router_registration.h"

namespace baton {
namespace {

// With https:// where it needs that.
std::string ShownStatus(const StatusServer* server, const WorkerOptions& options) {
  return server == nullptr ? "" : absl::StrCat(options.status_tls == nullptr ? "" : "https://", server->address());
}

constexpr absl::Duration kDeviceCheckInterval = absl::Milliseconds(200);

int Fail(const absl::Status& status) {
  BATON_LOG(ERROR) << status.message();
  return 1;
}

}  // namespace

int RunWorkerProcess(WorkerRuntime* runtime, const WorkerServices& services, ShutdownSignals* signals) {
  const WorkerOptions& options = runtime->options();

  auto server = RpcServer::Start({.address = options.listen, .tls = options.cluster_tls}, services.services);
  if (!server.ok()) return Fail(server.status());

  std::unique_ptr<StatusServer> status_server;
  if (!options.status.empty()) {
    auto started = StatusServer::Start({.address = options.status, .tls = options.status_tls, .metrics = runtime->metrics(),
                                        .ready = [runtime] { return runtime->Ready(); }});
    if (!started.ok()) return Fail(started.status());
    status_server = *std::move(started);
  }

  std::string reachable = options.advertise;
  if (reachable.empty()) {
    auto found = AdvertisedAddress((*server)->address(), options.routers);
    if (!found.ok()) return Fail(found.status());
    reachable = *std::move(found);
  }
  const internal::WorkerIdentity identity = runtime->Identity(reachable, ShownStatus(status_server.get(), options));
  if (services.on_address) {
    if (absl::Status status = services.on_address(identity.address()); !status.ok()) return Fail(status);
  }
  // Registrations may ask before there is a directory, and while it is being made.
  std::atomic<RouterDirectory*> directory_or_null = nullptr;
  const auto load = [runtime, &directory_or_null, add_load = services.add_load] {
    const RouterDirectory* directory = directory_or_null;
    internal::WorkerLoad load = runtime->Load(directory == nullptr ? 1 : directory->num_registered());
    if (add_load) add_load(&load);
    return load;
  };
  // As a first SIGTERM, whoever says it how often: a second signal would end what runs.
  const auto on_drain = [drained = std::make_shared<std::atomic<bool>>(false)] {
    if (!drained->exchange(true)) kill(getpid(), SIGTERM);
  };
  auto directory = std::make_unique<RouterDirectory>(options.routers, [&](const std::string& address) {
    return std::make_unique<RouterRegistration>(
        address, identity, load,
        RouterRegistration::Options{.tls = options.cluster_tls, .api_key_file = options.api_key_file, .on_drain = on_drain});
  });
  directory_or_null = directory.get();
  BATON_LOG(INFO) << runtime->id() << " serves on " << identity.address();

  ServiceNotifier notifier;
  notifier.Started(absl::StrCat("serves on ", identity.address()));
  while (!signals->Wait(std::min(notifier.interval(), kDeviceCheckInterval)) && runtime->DeviceStatus().ok()) {
    // A stuck engine thread does not feed the watchdog: the supervisor starts the process again.
    if (const absl::Status ready = runtime->Ready(); ready.ok()) {
      notifier.Alive(absl::StrCat("serves on ", identity.address()));
    } else {
      notifier.Stuck(ready.message());
    }
  }
  // A device that failed computes nothing more: what ran has been told so, and a new process may find it well again.
  const absl::Status device = runtime->DeviceStatus();
  const absl::Duration grace = device.ok() ? options.grace : absl::ZeroDuration();
  notifier.Stopping(device.ok() ? "draining" : "the device has failed");
  if (device.ok()) BATON_LOG(INFO) << "draining, at most " << absl::FormatDuration(grace);
  runtime->SetDraining();
  (*server)->SetServing(false);
  directory->ReportNow();
  const MonotonicTime deadline = Clock::Real()->Now() + grace;
  while (services.num_open_calls() > 0 && Clock::Real()->Now() < deadline) {
    if (signals->Wait(absl::Milliseconds(20))) {
      BATON_LOG(WARNING) << "second signal: ending with " << services.num_open_calls() << " calls open";
      break;
    }
  }
  directory.reset();
  (*server)->Drain(absl::ZeroDuration());
  server->reset();
  if (services.on_stop) services.on_stop();
  runtime->engine()->Stop();  // Before the services go, which its closures refer to.
  return device.ok() ? 0 : Fail(device);
}

}  // namespace baton
