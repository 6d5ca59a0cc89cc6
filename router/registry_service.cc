// SPDX-License-Identifier: Apache-2.0
#include "router/registry_service.h"

#include <memory>
#include <utility>

#include "common/base/logging.h"
#include "common/rpc/event_stream.h"

namespace baton {
namespace {

using Stream = ServerEventStream<internal::WorkerReport, internal::RouterReply>;

// One worker's stream. Its messages come one at a time; the end may come between any two.
struct Session {
  std::weak_ptr<Stream> stream;
  Mutex mutex;
  uint64_t id ABSL_GUARDED_BY(mutex) = 0;
  bool over ABSL_GUARDED_BY(mutex) = false;
  std::string worker;
};

void End(WorkerRegistry* registry, Session& session) {
  uint64_t id = 0;
  {
    MutexLock lock(&session.mutex);
    session.over = true;
    id = std::exchange(session.id, 0);
  }
  if (id == 0) return;
  registry->Disconnect(id);
  BATON_LOG(INFO) << "worker " << session.worker << " left";
}

}  // namespace

grpc::ServerBidiReactor<internal::WorkerReport, internal::RouterReply>* RegistryService::Register(
    grpc::CallbackServerContext* context) {
  const auto found = context->client_metadata().find("authorization");
  const absl::Status allowed =
      core_->CheckKey(found == context->client_metadata().end() ? absl::string_view()
                                                                : absl::string_view(found->second.data(), found->second.size()),
                      KeyRole::kWorker)
          .status();
  auto session = std::make_shared<Session>();
  auto finish = [session](const absl::Status& status) {
    if (auto stream = session->stream.lock()) stream->Finish(status);
  };
  auto on_message = [this, session, finish, allowed](internal::WorkerReport&& report) {
    uint64_t id = 0;
    {
      MutexLock lock(&session->mutex);
      if (session->over) return;
      id = session->id;
    }
    const MonotonicTime now = Clock::Real()->Now();
    if (id != 0) {
      if (report.has_cache()) registry_->ReportCache(id, report.cache());
      if (report.has_load() && !registry_->Report(id, report.load(), now)) {
        finish(absl::AbortedError("another run of this worker has registered"));
      }
      return;
    }
    if (!allowed.ok()) {
      BATON_LOG(WARNING) << "a worker at " << report.identity().address() << " is refused: " << allowed.message();
      return finish(allowed);
    }
    if (!report.has_identity()) return finish(absl::InvalidArgumentError("the first report must be the worker's identity"));
    const absl::StatusOr<uint64_t> connected = registry_->Connect(report.identity(), now, [this, session](internal::WorkerRole next) {
      internal::RouterReply reply;
      reply.set_router_id(router_id_);
      reply.set_incarnation(incarnation_);
      reply.set_drain(next == internal::ROLE_UNSPECIFIED);
      reply.set_role(next);
      if (auto stream = session->stream.lock()) stream->Send(std::move(reply));
    });
    if (!connected.ok()) {
      BATON_LOG(WARNING) << "worker " << report.identity().id() << " refused: " << connected.status().message();
      return finish(connected.status());
    }
    bool over = false;
    {
      MutexLock lock(&session->mutex);
      session->worker = report.identity().id();
      session->id = *connected;
      over = session->over;
    }
    if (over) return registry_->Disconnect(*connected);
    BATON_LOG(INFO) << RoleName(report.identity().role()) << " worker " << report.identity().id() << " at "
                    << report.identity().address() << " registered";
    internal::RouterReply reply;
    reply.set_router_id(router_id_);
    reply.set_incarnation(incarnation_);
    reply.set_heartbeat_ms(static_cast<int32_t>(absl::ToInt64Milliseconds(registry_->options().heartbeat)));
    if (auto stream = session->stream.lock()) stream->Send(std::move(reply));
  };
  auto on_peer_closed = [this, session, finish] {
    End(registry_, *session);
    finish(absl::OkStatus());
  };
  // Callbacks come only after the reactor is returned.
  auto stream = Stream::Create({.on_message = std::move(on_message),
                                .on_peer_closed = std::move(on_peer_closed),
                                .on_done = [this, session] { End(registry_, *session); }});
  session->stream = stream;
  return stream->reactor();
}

}  // namespace baton
