// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "absl/time/time.h"
#include "baton/internal/registry.grpc.pb.h"
#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/base/logging.h"
#include "common/base/secret_file.h"
#include "common/base/status_macros.h"
#include "common/rpc/channel.h"
#include "common/rpc/event_stream.h"
#include "common/worker/cache_announcement.h"
#include "common/worker/reconnect_policy.h"
#include "common/worker/router_registration.h"

namespace baton {
namespace {

using Stream = ClientEventStream<internal::WorkerReport, internal::RouterReply>;

constexpr absl::Duration kDefaultHeartbeat = absl::Milliseconds(500);

}  // namespace

struct RouterRegistration::Session {
  std::shared_ptr<Stream> stream;
  absl::Duration heartbeat = kDefaultHeartbeat;  // Guarded by the registration's mutex, as is the rest.
  bool welcomed = false;
  bool over = false;
  absl::Status status;
};

RouterRegistration::RouterRegistration(std::string router_address, internal::WorkerIdentity identity, LoadProvider load,
                                       Options options)
    : address_(std::move(router_address)),
      identity_(std::move(identity)),
      load_(std::move(load)),
      options_(std::move(options)),
      thread_("register", [this] { Run(); }) {}

RouterRegistration::~RouterRegistration() {
  {
    MutexLock lock(&mutex_);
    stop_ = true;
    wake_.NotifyAll();
  }
  thread_.Join();
}

void RouterRegistration::ReportNow() {
  MutexLock lock(&mutex_);
  report_now_ = true;
  wake_.NotifyAll();
}

bool RouterRegistration::registered() const {
  MutexLock lock(&mutex_);
  return registered_;
}

void RouterRegistration::Run() {
  ReconnectPolicy policy;
  while (true) {
    const MonotonicTime begun = Clock::Real()->Now();
    RunSession();
    MutexLock lock(&mutex_);
    if (stop_) return;
    const bool accepted = session_ != nullptr && session_->welcomed;
    const absl::Status& status = session_->status;
    const ReconnectPolicy::Decision decision = policy.OnSessionEnd(accepted, absl::IsUnavailable(status), begun, Clock::Real()->Now(),
                                                                   static_cast<double>(RandomUint64() % 1000) / 1000.0);
    if (accepted) {  // It drains or restarts; so may we, a moment later.
      BATON_LOG(INFO) << "router " << address_ << " closed the registration; registering again";
    } else if (decision.warn) {
      BATON_LOG(WARNING) << "router " << address_ << " cannot be reached: " << status.message() << "; trying again";
    }
    const MonotonicTime until = Clock::Real()->Now() + decision.pause;
    while (!stop_ && Clock::Real()->Now() < until) wake_.WaitFor(&mutex_, until - Clock::Real()->Now());
  }
}

absl::Status RouterRegistration::AddKey(Session& session) const {
  if (options_.api_key_file.empty()) return absl::OkStatus();
  BATON_ASSIGN_OR_RETURN(const std::string key, ReadSecretFile("--api-key-file", options_.api_key_file));
  session.stream->context()->AddMetadata("authorization", "Bearer " + key);
  return absl::OkStatus();
}

void RouterRegistration::RunSession() {
  auto session = std::make_shared<Session>();
  const auto channel = CreateChannel(address_, options_.tls);
  const auto stub = internal::Registry::NewStub(channel);
  session->stream = Stream::Create({
      .on_message =
          [this, session](internal::RouterReply&& reply) {
            if (reply.role() != internal::ROLE_UNSPECIFIED) {
              BATON_LOG(INFO) << "router " << reply.router_id() << " says to become a "
                              << (reply.role() == internal::PREFILL ? "prefill" : "decode") << " worker";
              return options_.on_role(reply.role());
            }
            if (reply.drain()) {
              BATON_LOG(INFO) << "router " << reply.router_id() << " says to drain";
              return options_.on_drain();
            }
            MutexLock lock(&mutex_);
            if (!session->welcomed) BATON_LOG(INFO) << "registered with router " << reply.router_id() << " at " << address_;
            session->welcomed = true;
            registered_ = true;
            if (reply.heartbeat_ms() > 0) {
              session->heartbeat = absl::Milliseconds(std::clamp(reply.heartbeat_ms(), 10, 10000));
            }
          },
      .on_done =
          [this, session](absl::Status status) {
            MutexLock lock(&mutex_);
            session->over = true;
            session->status = std::move(status);
            wake_.NotifyAll();
          },
  });
  if (const absl::Status status = AddKey(*session); !status.ok()) {  // The router says what follows from it.
    BATON_LOG(WARNING) << "no key for router " << address_ << ": " << status.message();
  }
  stub->async()->Register(session->stream->context(), session->stream->reactor());
  session->stream->Start();
  internal::WorkerReport hello;
  *hello.mutable_identity() = identity_;
  session->stream->SendLast(std::move(hello));
  CacheAnnouncement announcement;
  while (true) {
    internal::WorkerReport report;
    *report.mutable_load() = load_();
    // A router that does not read is as good as gone; its stream ends by keepalive.
    session->stream->Send(std::move(report));
    if (auto cached = options_.cached ? options_.cached() : std::nullopt) {
      if (std::optional<internal::CacheUpdate> update = announcement.Next(*std::move(cached))) {
        internal::WorkerReport news;
        *news.mutable_cache() = *std::move(update);
        // What was not sent leaves a gap: from the beginning again.
        if (!session->stream->Send(std::move(news))) announcement = CacheAnnouncement();
      }
    }
    MutexLock lock(&mutex_);
    session_ = session;
    const MonotonicTime next = Clock::Real()->Now() + session->heartbeat;
    while (!stop_ && !session->over && !report_now_ && Clock::Real()->Now() < next) {
      wake_.WaitFor(&mutex_, next - Clock::Real()->Now());
    }
    report_now_ = false;
    if (stop_ || session->over) break;
  }
  session->stream->CloseSending();
  MutexLock lock(&mutex_);
  const MonotonicTime deadline = Clock::Real()->Now() + absl::Seconds(1);
  while (!session->over) {
    if (Clock::Real()->Now() >= deadline) session->stream->Cancel();
    wake_.WaitFor(&mutex_, absl::Milliseconds(50));
  }
  registered_ = false;
}

}  // namespace baton
