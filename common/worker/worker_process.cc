// SPDX-License-Identifier: Apache-2.0
#include "common/worker/worker_process.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/logging.h"
#include "common/base/service_notifier.h"
#include "common/http/status_server.h"
#include "common/rpc/rpc_tls.h"
#include "common/rpc/server.h"
#include "common/worker/advertised_address.h"
#include "common/worker/cache_announcement.h"
#include "common/worker/role_change.h"
#include "common/worker/router_directory.h"
#include "common/worker/router_registration.h"
#include "common/worker/text_service.h"

namespace baton {
namespace {

// For the engine thread to say what is cached, which it does at its next pause.
constexpr absl::Duration kCacheTimeout = absl::Milliseconds(100);

// With https:// where it needs that.
std::string ShownStatus(const StatusServer* server, const WorkerOptions& options) {
  return server == nullptr ? "" : absl::StrCat(options.status_tls == nullptr ? "" : "https://", server->address());
}

constexpr absl::Duration kDeviceCheckInterval = absl::Milliseconds(200);

int Fail(const absl::Status& status) {
  BATON_LOG(ERROR) << status.message();
  return 1;
}

internal::WorkerRole OtherRole(internal::WorkerRole role) { return role == internal::PREFILL ? internal::DECODE : internal::PREFILL; }

// What a router may say, and what it is told. `change_role`, and `signals`, outlive the registration.
RouterRegistration::Options RegistrationOptions(WorkerRuntime* runtime, ShutdownSignals* signals, std::atomic<bool>* change_role) {
  const WorkerOptions& options = runtime->options();
  RouterRegistration::Options registration = {.tls = options.cluster_tls, .api_key_file = options.api_key_file};
  // As a first SIGTERM, whoever says it how often: a second signal would end what runs.
  static std::atomic<bool> drained = false;
  registration.on_drain = [] {
    if (!drained.exchange(true)) kill(getpid(), SIGTERM);
  };
  registration.on_role = [role = options.role, signals, change_role](internal::WorkerRole wanted) {
    if (wanted == role) return;
    *change_role = true;
    signals->Wake();
  };
  if (options.engine.enable_prefix_cache) {
    registration.cached = [runtime] { return AskForCachedPrefixes(runtime->engine(), kCacheTimeout); };
  }
  return registration;
}

// Why a worker serves no longer.
enum class Ending {
  kSignal,
  kRole,    // A router wants it in the other role.
  kDevice,  // It computes nothing more: what ran has been told so, and a new process may find it well again.
};

Ending ServeUntilEnding(WorkerRuntime* runtime, ServiceNotifier& notifier, const std::string& address, ShutdownSignals* signals,
                        const std::atomic<bool>& change_role) {
  while (!signals->Wait(std::min(notifier.interval(), kDeviceCheckInterval))) {
    if (!runtime->DeviceStatus().ok()) return Ending::kDevice;
    if (change_role) return Ending::kRole;
    // A stuck engine thread does not feed the watchdog: the supervisor starts the process again.
    if (const absl::Status ready = runtime->Ready(); ready.ok()) {
      notifier.Alive(absl::StrCat("serves on ", address));
    } else {
      notifier.Stuck(ready.message());
    }
  }
  return Ending::kSignal;
}

void Announce(Ending ending, absl::Duration grace, ServiceNotifier& notifier) {
  if (ending == Ending::kDevice) return notifier.Stopping("the device has failed");
  const absl::string_view reason = ending == Ending::kRole ? "draining to change the role" : "draining";
  if (ending == Ending::kRole) {
    notifier.Restarting(reason);
  } else {
    notifier.Stopping(reason);
  }
  BATON_LOG(INFO) << reason << ", at most " << absl::FormatDuration(grace);
}

// How long a router may take to read the last words of its calls.
constexpr absl::Duration kStreamsEnd = absl::Seconds(1);

// Waits for the open calls, at most `grace`. Whether the process goes on in another role: a signal that comes while it changes is
// a first one, for the end of the process, and only the next one ends what runs.
bool FinishCalls(const WorkerServices& services, absl::Duration grace, ShutdownSignals* signals, bool change_role) {
  const MonotonicTime deadline = Clock::Real()->Now() + grace;
  while (services.num_open_calls() > 0 && Clock::Real()->Now() < deadline) {
    if (!signals->Wait(absl::Milliseconds(20))) continue;
    if (!std::exchange(change_role, false)) {
      BATON_LOG(WARNING) << "second signal: ending with " << services.num_open_calls() << " calls open";
      return false;
    }
    BATON_LOG(INFO) << "draining to end: a signal came";
  }
  return change_role;
}

}  // namespace

int RunWorkerProcess(WorkerRuntime* runtime, const WorkerServices& services, ShutdownSignals* signals) {
  const WorkerOptions& options = runtime->options();

  TextService text(options.model_path);
  std::vector<grpc::Service*> all_services = services.services;
  all_services.push_back(&text);
  auto server = RpcServer::Start({.address = options.listen, .tls = options.cluster_tls}, all_services);
  if (!server.ok()) return Fail(server.status());

  const auto certificate_expiry = options.cluster_tls == nullptr ? nullptr : ExportExpiry(options.cluster_tls->store(), runtime->metrics());
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
  internal::WorkerIdentity identity = runtime->Identity(reachable, ShownStatus(status_server.get(), options));
  identity.set_changes_role(WorkerProgram(OtherRole(options.role)).ok());
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
  std::atomic<bool> change_role = false;
  auto directory = std::make_unique<RouterDirectory>(options.routers, [&](const std::string& address) {
    return std::make_unique<RouterRegistration>(address, identity, load, RegistrationOptions(runtime, signals, &change_role));
  });
  directory_or_null = directory.get();
  BATON_LOG(INFO) << runtime->id() << " serves on " << identity.address();

  ServiceNotifier notifier;
  notifier.Started(absl::StrCat("serves on ", identity.address()));
  const Ending ending = ServeUntilEnding(runtime, notifier, identity.address(), signals, change_role);
  Announce(ending, options.grace, notifier);
  runtime->SetDraining();
  (*server)->SetServing(false);
  directory->ReportNow();
  const absl::Duration grace = ending == Ending::kDevice ? absl::ZeroDuration() : options.grace;
  const bool stays = FinishCalls(services, grace, signals, ending == Ending::kRole);
  directory.reset();
  if (services.finish_streams && ending != Ending::kDevice) services.finish_streams(kStreamsEnd);
  (*server)->Drain(absl::ZeroDuration());
  server->reset();
  status_server.reset();
  if (services.on_stop) services.on_stop();
  runtime->engine()->Stop();  // Before the services go, which its closures refer to.
  if (ending == Ending::kDevice) return Fail(runtime->DeviceStatus());
  if (!stays) return 0;
  runtime->tracer()->Stop();  // Nothing is destroyed where a program becomes another one.
  // A signal that came in between is the next program's: it is still pending there.
  return Fail(BecomeWorker(OtherRole(options.role), runtime->id()));
}

}  // namespace baton
