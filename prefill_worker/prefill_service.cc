// SPDX-License-Identifier: Apache-2.0
#include "prefill_worker/prefill_service.h"

#include <utility>

#include "common/kv_transfer/grpc/grpc_kv_sender.h"
#include "prefill_worker/prefill_call_service.h"

namespace baton {
namespace {

// Decode workers that one prefill worker keeps a link to. A link is a connection and a thread.
constexpr size_t kMaxLinks = 64;

}  // namespace

PrefillService::PrefillService(WorkerRuntime* runtime) : runtime_(runtime) {}

PrefillService::~PrefillService() { StopSenders(); }

grpc::ServerBidiReactor<internal::PrefillRequest, internal::PrefillEvent>* PrefillService::Prefill(
    grpc::CallbackServerContext* context) {
  auto call = std::make_shared<PrefillCall>(this);
  return call->Open()->reactor();
}

void PrefillService::StopSenders() {
  std::map<std::string, SenderEntry> senders;
  {
    MutexLock lock(&mutex_);
    senders.swap(senders_);
    closer_.Join();
  }
  for (const auto& [address, entry] : senders) entry.sender->Stop();
}

std::shared_ptr<KvSender> PrefillService::SenderTo(const std::string& address) {
  MutexLock lock(&mutex_);
  SenderEntry& entry = senders_[address];
  entry.last_use = ++use_counter_;
  if (entry.sender == nullptr) {
    GrpcKvSenderOptions options;
    options.worker = runtime_->id();
    options.incarnation = runtime_->incarnation();
    options.compatibility = runtime_->compatibility();
    options.address = address;
    options.transfer_timeout = runtime_->options().transfer_timeout;
    entry.sender = std::make_shared<GrpcKvSender>(options, runtime_->pool());
  }
  std::shared_ptr<KvSender> sender = entry.sender;
  while (senders_.size() > kMaxLinks) {
    auto oldest = senders_.end();
    for (auto it = senders_.begin(); it != senders_.end(); ++it) {
      if (it->second.sender.use_count() > 1) continue;  // A call's, or the one just found.
      if (oldest == senders_.end() || it->second.last_use < oldest->second.last_use) oldest = it;
    }
    if (oldest == senders_.end()) break;
    closer_ = Thread("kv-close", [old = std::move(oldest->second.sender)] { old->Stop(); });
    senders_.erase(oldest);
  }
  return sender;
}

}  // namespace baton
