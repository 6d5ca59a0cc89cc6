// SPDX-License-Identifier: Apache-2.0
#include "router/worker_client.h"

#include <utility>

#include "common/rpc/channel.h"
#include "common/rpc/trace_metadata.h"

namespace baton {
namespace {

const StreamLimits kCallLimits = {.max_queued_messages = 64, .max_queued_bytes = 64 << 20};

}  // namespace

void WorkerClients::SetView(const ClusterView& view) {
  std::map<WorkerRef, std::shared_ptr<Client>> dropped;  // Closed without the lock.
  MutexLock lock(&mutex_);
  dropped.swap(clients_);
  for (const auto& worker : view.workers) {
    auto known = dropped.find(worker->ref);
    if (known != dropped.end()) {
      clients_.insert(dropped.extract(known));
      continue;
    }
    auto client = std::make_shared<Client>();
    client->channel = CreateChannel(worker->identity.address(), tls_);
    client->channel->GetState(/*try_to_connect=*/true);
    client->decode = internal::DecodeWorker::NewStub(client->channel);
    client->prefill = internal::PrefillWorker::NewStub(client->channel);
    clients_.emplace(worker->ref, std::move(client));
  }
}

std::shared_ptr<WorkerClients::Client> WorkerClients::Find(const WorkerRef& worker) {
  MutexLock lock(&mutex_);
  auto it = clients_.find(worker);
  return it == clients_.end() ? nullptr : it->second;
}

std::shared_ptr<DecodeStream> WorkerClients::OpenDecode(const WorkerRef& worker, const TraceContext& trace,
                                                        DecodeStream::Callbacks callbacks) {
  std::shared_ptr<Client> client = Find(worker);
  if (client == nullptr) return nullptr;
  auto stream = DecodeStream::Create(std::move(callbacks), kCallLimits);
  AddTraceContext(trace, stream->context());
  stream->context()->set_initial_metadata_corked(true);  // It goes with the first message, which follows at once.
  client->decode->async()->Decode(stream->context(), stream->reactor());
  stream->Start();
  return stream;
}

std::shared_ptr<PrefillStream> WorkerClients::OpenPrefill(const WorkerRef& worker, const TraceContext& trace,
                                                          PrefillStream::Callbacks callbacks) {
  std::shared_ptr<Client> client = Find(worker);
  if (client == nullptr) return nullptr;
  auto stream = PrefillStream::Create(std::move(callbacks), kCallLimits);
  AddTraceContext(trace, stream->context());
  stream->context()->set_initial_metadata_corked(true);
  client->prefill->async()->Prefill(stream->context(), stream->reactor());
  stream->Start();
  return stream;
}

}  // namespace baton
