// SPDX-License-Identifier: Apache-2.0
#include "router/generation_service.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "common/rpc/event_stream.h"
#include "common/rpc/monotonic_deadline.h"
#include "common/rpc/trace_metadata.h"
#include "google/protobuf/unknown_field_set.h"
#include "router/generation.h"
#include "router/request_log.h"
#include "router/status_details.h"
#include "router/worker_status.h"

namespace baton {
namespace {

using Stream = ServerWriteStream<grpc::ByteBuffer>;
// A client that leaves this much unread is cut. One that is behind gets its tokens several at a time: the deltas of a response are
// a list.
const StreamLimits kClientLimits = {.max_queued_messages = 65536, .max_queued_bytes = 1 << 20, .merges = true};

// The text fields of GenerateRequest whose bytes are not UTF-8, by their numbers on the wire.
absl::Status ExplainMalformed(const std::string& bytes) {
  google::protobuf::UnknownFieldSet fields;
  if (!fields.ParseFromString(bytes)) return absl::InvalidArgumentError("request is no GenerateRequest");
  const struct {
    int number;
    const char* name;
  } texts[] = {{1, "model"}, {2, "prompt"}, {8, "stop"}, {13, "request_id"}, {14, "cache_salt"}};
  for (int i = 0; i < fields.field_count(); ++i) {
    const auto& field = fields.field(i);
    if (field.type() != google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED) continue;
    for (const auto& text : texts) {
      const size_t valid = ValidUtf8Prefix(field.length_delimited());
      if (field.number() != text.number || valid == field.length_delimited().size()) continue;
      return InvalidField(text.name, absl::StrCat("is not valid UTF-8 at byte ", valid));
    }
    if (field.number() == 3) return InvalidField("messages", "are malformed, or not valid UTF-8");
  }
  return absl::InvalidArgumentError("request is no GenerateRequest");
}

absl::StatusOr<v1::GenerateRequest> ParseRequest(const grpc::ByteBuffer& buffer) {
  v1::GenerateRequest request;
  grpc::ByteBuffer copy = buffer;  // By reference; parsing consumes it.
  if (grpc::SerializationTraits<v1::GenerateRequest>::Deserialize(&copy, &request).ok()) return request;
  std::vector<grpc::Slice> slices;
  std::string bytes;
  if (buffer.Dump(&slices).ok()) {
    for (const grpc::Slice& slice : slices) bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return ExplainMalformed(bytes);
}

absl::StatusOr<v1::GenerateRequest> CheckedRequest(const grpc::ByteBuffer& buffer, size_t max_bytes) {
  if (buffer.Length() <= max_bytes) return ParseRequest(buffer);
  return absl::InvalidArgumentError(absl::StrCat("request of ", buffer.Length(), " bytes is over the limit of ", max_bytes,
                                                 " bytes (--max-request-bytes)"));
}

// One client's call. The context may be used until on_done.
struct Call {
  Mutex mutex;
  grpc::CallbackServerContext* context ABSL_GUARDED_BY(mutex) = nullptr;
  std::shared_ptr<Generation> generation ABSL_GUARDED_BY(mutex);

  void Cancel(const absl::Status& why) {
    std::shared_ptr<Generation> running;
    {
      MutexLock lock(&mutex);
      running = generation;
    }
    if (running != nullptr) running->Cancel(why);
  }
};

std::string Authorization(const grpc::CallbackServerContext& context) {
  const auto found = context.client_metadata().find("authorization");
  return found == context.client_metadata().end() ? "" : std::string(found->second.data(), found->second.size());
}

// gRPC ends the call then by itself.
MonotonicTime DeadlineOf(const grpc::CallbackServerContext& context) { return Clock::Real()->Now() + TimeLeft(context.raw_deadline()); }

grpc::ByteBuffer Serialized(const v1::GenerateResponse& response) {
  grpc::ByteBuffer bytes;
  bool own = false;
  (void)grpc::SerializationTraits<v1::GenerateResponse>::Serialize(response, &bytes, &own);
  return bytes;
}

void Finish(Call& call, Stream& stream, const absl::Status& status, const std::optional<v1::GenerateResponse>& last = std::nullopt) {
  {
    MutexLock lock(&call.mutex);
    const auto after = RetryAfter(status);
    if (after && call.context != nullptr) {
      call.context->AddTrailingMetadata("retry-after-ms", absl::StrCat(absl::ToInt64Milliseconds(*after)));
    }
  }
  last ? stream.FinishWith(Serialized(*last), status) : stream.Finish(status);
}

}  // namespace

void GenerationService::NoteStream(int change) {
  MutexLock lock(&streams_mutex_);
  num_streams_ += change;
  if (num_streams_ == 0) streams_changed_.NotifyAll();
}

bool GenerationService::WaitUntilWritten(absl::Duration timeout) {
  const MonotonicTime deadline = Clock::Real()->Now() + timeout;
  MutexLock lock(&streams_mutex_);
  while (num_streams_ > 0 && Clock::Real()->Now() < deadline) {
    streams_changed_.WaitFor(&streams_mutex_, deadline - Clock::Real()->Now());
  }
  return num_streams_ == 0;
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* GenerationService::Generate(grpc::CallbackServerContext* context,
                                                                        const grpc::ByteBuffer* buffer) {
  auto call = std::make_shared<Call>();
  {
    MutexLock lock(&call->mutex);
    call->context = context;
  }
  NoteStream(+1);
  auto stream = Stream::Create({.on_peer_closed = [call] { call->Cancel(absl::CancelledError("client went away")); },
                                .on_done =
                                    [this, call] {
                                      {
                                        MutexLock lock(&call->mutex);
                                        call->context = nullptr;
                                      }
                                      NoteStream(-1);
                                    }},
                               kClientLimits);
  const absl::StatusOr<std::shared_ptr<KeyAccount>> key = core_->FindKey(Authorization(*context), KeyRole::kClient);
  Generation::Origin origin{.key_name = "", .key_use = nullptr, .held = nullptr, .trace = TraceContextOf(*context), .deadline = DeadlineOf(*context)};
  const auto read = [&]() -> absl::StatusOr<v1::GenerateRequest> {
    if (!key.ok()) return key.status();
    if (*key != nullptr) {
      origin.key_name = (*key)->name();
      BATON_ASSIGN_OR_RETURN(origin.key_use, KeyUse::Begin(*key, Clock::Real()));
    }
    return CheckedRequest(*buffer, core_->options.max_request_bytes);
  };
  absl::StatusOr<v1::GenerateRequest> request = read();
  if (!request.ok()) {
    origin.key_use = nullptr;
    core_->metrics.CountFinished(CodeName(request.status().code()));
    if (key.ok()) LogRefusedRequest(NewRequestId(), origin.key_name, request.status());
    Finish(*call, *stream, request.status());
    return stream->reactor();
  }
  std::weak_ptr<Call> weak = call;
  Generation::Sink sink{
      .on_response =
          [stream, weak](v1::GenerateResponse&& response) {
            if (stream->Send(Serialized(response))) return;
            if (auto live = weak.lock()) live->Cancel(absl::ResourceExhaustedError("client reads too slowly"));
          },
      .on_end = [stream, call](const absl::Status& status, std::optional<v1::GenerateResponse>&& last) { Finish(*call, *stream, status, last); }};
  auto generation = Generation::Start(core_, *std::move(request), std::move(sink), std::move(origin));
  {
    MutexLock lock(&call->mutex);
    call->generation = std::move(generation);
  }
  return stream->reactor();
}

grpc::ServerUnaryReactor* GenerationService::ListModels(grpc::CallbackServerContext* context, const v1::ListModelsRequest*,
                                                        v1::ListModelsResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (const auto key = core_->CheckKey(Authorization(*context), KeyRole::kClient); !key.ok()) {
    reactor->Finish(ToGrpcStatus(key.status()));
    return reactor;
  }
  if (const absl::Status status = core_->ModelStatus(); !status.ok()) {
    reactor->Finish(ToGrpcStatus(status));
    return reactor;
  }
  v1::Model* model = response->add_models();
  model->set_id(core_->model.name);
  const auto view = core_->registry.View();
  if (const WorkerInfo* worker = view->Representative()) {
    model->set_fingerprint(worker->identity.model_fingerprint());
    model->set_context_length(view->context_length());
    model->set_vocab_size(view->vocab_size);
  }
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerUnaryReactor* GenerationService::GetCluster(grpc::CallbackServerContext* context, const v1::GetClusterRequest*,
                                                        v1::GetClusterResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (const auto key = core_->CheckKey(Authorization(*context), KeyRole::kClient); !key.ok()) {
    reactor->Finish(ToGrpcStatus(key.status()));
    return reactor;
  }
  const auto view = core_->registry.View();
  for (const auto& info : view->workers) *response->add_workers() = WorkerStatus(*info, *view);
  v1::Router* router = response->mutable_router();
  router->set_id(core_->router_id);
  router->set_queued(static_cast<int32_t>(core_->metrics.waiting->value()));
  router->set_running(static_cast<int32_t>(core_->metrics.running->value()));
  const absl::Status ready = core_->Ready();
  router->set_ready(ready.ok());
  router->set_reason(std::string(ready.message()));
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerUnaryReactor* GenerationService::DrainWorker(grpc::CallbackServerContext* context, const v1::DrainWorkerRequest* request,
                                                         v1::DrainWorkerResponse*) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  absl::StatusOr<std::string> key = core_->CheckKey(Authorization(*context), KeyRole::kAdmin);
  const absl::Status status = key.ok() ? core_->registry.Drain(request->worker()) : key.status();
  if (status.ok()) BATON_LOG(INFO) << "worker " << request->worker() << " is told to drain" << (key->empty() ? "" : ", key=") << *key;
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

}  // namespace baton
