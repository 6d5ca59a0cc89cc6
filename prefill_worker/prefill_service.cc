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

PrefillService::~PrefillService() = default;

grpc::ServerBidiReactor<internal::PrefillRequest, internal::PrefillEvent>* PrefillService::Prefill(
    grpc::CallbackServerContext* context) {
  auto call = std::make_shared<PrefillCall>(this);
  return call->Open()->reactor();
}

std::shared_ptr<KvSender> PrefillService::SenderTo(const std::string& address) {
  std::vector<std::shared_ptr<KvSender>> closed;  // Destroyed after the lock: it joins a thread.
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
    auto oldest = senders_.begin();
    for (auto it = senders_.begin(); it != senders_.end(); ++it) {
      if (it->second.last_use < oldest->second.last_use) oldest = it;
    }
    closed.push_back(std::move(oldest->second.sender));
    senders_.erase(oldest);
  }
  return sender;
}

}  // namespace baton
