// SPDX-License-Identifier: Apache-2.0
#include "common/worker/worker_process.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/logging.h"
#include "common/base/service_notifier.h"
#include "common/http/status_server.h"
#include "common/rpc/server.h"
#include "common/worker/router_registration.h"

namespace baton {
namespace {

int Fail(const absl::Status& status) {
  BATON_LOG(ERROR) << status.message();
  return 1;
}

}  // namespace

int RunWorkerProcess(WorkerRuntime* runtime, const WorkerServices& services, ShutdownSignals* signals) {
  const WorkerOptions& options = runtime->options();

  auto server = RpcServer::Start({.address = options.listen}, services.services);
  if (!server.ok()) return Fail(server.status());

  std::unique_ptr<StatusServer> status_server;
  if (!options.status.empty()) {
    auto started = StatusServer::Start({.address = options.status, .metrics = runtime->metrics(),
                                        .ready = [runtime] { return runtime->Ready(); }});
    if (!started.ok()) return Fail(started.status());
    status_server = *std::move(started);
  }

  const internal::WorkerIdentity identity =
      runtime->Identity((*server)->address(), status_server == nullptr ? "" : status_server->address());
  if (services.on_address) services.on_address(identity.address());
  const int num_routers = static_cast<int>(options.routers.size());
  std::vector<std::unique_ptr<RouterRegistration>> registrations;
  for (const std::string& router : options.routers) {
    registrations.push_back(std::make_unique<RouterRegistration>(
        router, identity, [runtime, num_routers] { return runtime->Load(num_routers); }));
  }
  BATON_LOG(INFO) << runtime->id() << " serves on " << identity.address();

  ServiceNotifier notifier;
  notifier.Started(absl::StrCat("serves on ", identity.address()));
  while (!signals->Wait(notifier.interval())) {
    // A stuck engine thread does not feed the watchdog: the supervisor starts the process again.
    if (const absl::Status ready = runtime->Ready(); ready.ok()) {
      notifier.Alive(absl::StrCat("serves on ", identity.address()));
    } else {
      notifier.Stuck(ready.message());
    }
  }
  notifier.Stopping("draining");
  BATON_LOG(INFO) << "draining, at most " << absl::FormatDuration(options.grace);
  runtime->SetDraining();
  (*server)->SetServing(false);
  for (const auto& registration : registrations) registration->ReportNow();
  const MonotonicTime deadline = Clock::Real()->Now() + options.grace;
  while (services.num_open_calls() > 0 && Clock::Real()->Now() < deadline) {
    if (signals->Wait(absl::Milliseconds(20))) {
      BATON_LOG(WARNING) << "second signal: ending with " << services.num_open_calls() << " calls open";
      break;
    }
  }
  registrations.clear();
  (*server)->Drain(absl::ZeroDuration());
  server->reset();
  if (services.on_stop) services.on_stop();
  runtime->engine()->Stop();  // Before the services go, which its closures refer to.
  return 0;
}

}  // namespace baton
