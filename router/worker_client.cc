// SPDX-License-Identifier: Apache-2.0
#include "router/worker_client.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/rpc/channel.h"
#include "common/rpc/trace_metadata.h"

namespace baton {
namespace {

const StreamLimits kCallLimits = {.max_queued_messages = 64, .max_queued_bytes = 64 << 20};

// Tokens of several steps are one event for a router that is behind.
bool MergeTokens(internal::DecodeEvent& before, internal::DecodeEvent& next) {
  if (!before.has_tokens() || !next.has_tokens()) return false;
  before.mutable_tokens()->MergeFrom(next.tokens());
  return true;
}

internal::CallOpening OpeningFor(const TraceContext& trace) {
  internal::CallOpening opening;
  if (!trace.valid()) return opening;
  opening.set_traceparent(FormatTraceparent(trace));
  opening.set_tracestate(trace.state);
  return opening;
}

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
    if (worker->identity.multiplexes()) {
      client->decode_calls = std::make_unique<DecodeCalls>(
          absl::StrCat("worker ", worker->ref.id),
          [stub = client->decode.get()](DecodeCalls::Stream* stream) { stub->async()->DecodeMany(stream->context(), stream->reactor()); },
          MergeTokens, kCallLimits);
    }
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
  if (client->decode_calls != nullptr) return client->decode_calls->Open(OpeningFor(trace), std::move(callbacks));
  auto stream = ClientEventStream<internal::DecodeRequest, internal::DecodeEvent>::Create(std::move(callbacks), kCallLimits);
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
  auto stream = ClientEventStream<internal::PrefillRequest, internal::PrefillEvent>::Create(std::move(callbacks), kCallLimits);
  AddTraceContext(trace, stream->context());
  stream->context()->set_initial_metadata_corked(true);
  client->prefill->async()->Prefill(stream->context(), stream->reactor());
  stream->Start();
  return stream;
}

}  // namespace baton
