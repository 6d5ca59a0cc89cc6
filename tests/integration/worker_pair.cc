// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/worker_pair.h"

#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "common/base/logging.h"
#include "common/rpc/channel.h"

namespace baton::testing {
namespace {

std::unique_ptr<WorkerRuntime> MakeRuntime(const WorkerOptions& options) {
  auto runtime = WorkerRuntime::Create(options);
  BATON_CHECK(runtime.ok()) << runtime.status();
  return *std::move(runtime);
}

std::unique_ptr<RpcServer> StartServer(const std::vector<grpc::Service*>& services) {
  auto server = RpcServer::Start({}, services);
  BATON_CHECK(server.ok()) << server.status();
  return *std::move(server);
}

template <class Service>
std::vector<grpc::Service*> WithLinks(Service* service) {
  if (service->kv_link_service() == nullptr) return {service};
  return {service, service->kv_link_service()};
}

}  // namespace

TestPrefillWorker::TestPrefillWorker(const WorkerOptions& options)
    : runtime(MakeRuntime(options)),
      service(std::make_unique<PrefillService>(runtime.get())),
      server(StartServer(WithLinks(service.get()))) {
  service->StartReceivers(server->address());
}

TestPrefillWorker::~TestPrefillWorker() {
  server.reset();
  service->StopLinks();
  runtime->engine()->Stop();
}

TestDecodeWorker::TestDecodeWorker(const WorkerOptions& options)
    : runtime(MakeRuntime(options)),
      service(std::make_unique<DecodeService>(runtime.get())),
      server(StartServer(WithLinks(service.get()))) {
  const absl::Status started = service->StartReceivers(server->address());
  BATON_CHECK(started.ok()) << started;
}

TestDecodeWorker::~TestDecodeWorker() {
  server.reset();
  service->StopReceivers();
  runtime->engine()->Stop();
}

std::unique_ptr<DecodeStream> OpenDecode(const std::string& address) {
  auto stream = std::make_unique<DecodeStream>();
  const auto stub = internal::DecodeWorker::NewStub(CreateChannel(address));
  stub->async()->Decode(stream->stream()->context(), stream->stream()->reactor());
  stream->stream()->Start();
  return stream;
}

std::unique_ptr<PrefillStream> OpenPrefill(const std::string& address) {
  auto stream = std::make_unique<PrefillStream>();
  const auto stub = internal::PrefillWorker::NewStub(CreateChannel(address));
  stub->async()->Prefill(stream->stream()->context(), stream->stream()->reactor());
  stream->stream()->Start();
  return stream;
}

internal::DecodeRequest MakeStart(const WorkerRuntime& runtime, uint64_t stream, const std::vector<int32_t>& tokens,
                                  int max_tokens, bool local) {
  internal::DecodeRequest request;
  internal::DecodeStart* start = request.mutable_start();
  start->mutable_transfer()->set_router_incarnation(1);
  start->mutable_transfer()->set_stream(stream);
  for (const int32_t token : tokens) start->add_tokens(token);
  start->set_num_prompt_tokens(static_cast<int>(tokens.size()));
  internal::SamplingSpec* sampling = start->mutable_sampling();
  sampling->set_top_p(1);
  sampling->set_repetition_penalty(1);
  sampling->set_num_logprobs(-1);
  sampling->set_max_tokens(max_tokens);
  sampling->set_ignore_eos(true);
  start->set_model_fingerprint(runtime.model().fingerprint());
  start->set_num_choices(1);
  start->set_prefill_locally(local);
  return request;
}

internal::PrefillRequest MakePrefill(const internal::DecodeRequest& start, const internal::LandingEvent& landing, bool with_history) {
  internal::PrefillRequest request;
  internal::PrefillStart* prefill = request.mutable_start();
  *prefill->mutable_transfer() = start.start().transfer();
  prefill->set_attempt(landing.attempt());
  *prefill->mutable_tokens() = start.start().tokens();
  prefill->set_first_missing_token(landing.first_missing_token());
  prefill->set_kv_address(landing.kv_address());
  *prefill->mutable_kv_endpoints() = landing.kv_endpoints();
  prefill->set_decode_incarnation(landing.incarnation());
  prefill->set_model_fingerprint(start.start().model_fingerprint());
  prefill->set_sends_history(with_history && landing.sends_history());
  return request;
}

internal::DecodeRequest MakeSendHistory(int attempt, const internal::WantsHistory& wants) {
  internal::DecodeRequest request;
  internal::SendHistory* send = request.mutable_send_history();
  send->set_attempt(attempt);
  send->set_first_token(wants.first_token());
  send->set_num_tokens(wants.num_tokens());
  send->set_worker(wants.worker());
  send->set_incarnation(wants.incarnation());
  *send->mutable_kv_endpoints() = wants.kv_endpoints();
  return request;
}

std::optional<internal::PrefillEvent> PrefillResult(PrefillStream* prefill, DecodeStream* decode, int attempt) {
  auto event = prefill->Next();
  if (!event.has_value() || !event->has_history()) return event;
  decode->Send(MakeSendHistory(attempt, event->history()));
  return prefill->Next();
}

std::optional<std::vector<int32_t>> ReadTokens(DecodeStream* stream) {
  std::vector<int32_t> ids;
  while (auto event = stream->Next()) {
    for (const internal::GeneratedToken& token : event->tokens().tokens()) {
      if (token.index() != static_cast<int>(ids.size())) return std::nullopt;
      ids.push_back(token.token_id());
      if (token.finish_reason() != internal::NOT_FINISHED) return ids;
    }
  }
  return std::nullopt;
}

double Metric(WorkerRuntime& runtime, absl::string_view name, absl::string_view labels) {
  double sum = 0;
  for (absl::string_view line : absl::StrSplit(runtime.metrics()->RenderPrometheus(), '\n')) {
    double value = 0;
    if (!absl::StartsWith(line, name) || !absl::StrContains(line, labels)) continue;
    if (line[name.size()] != '{' && line[name.size()] != ' ') continue;
    if (absl::SimpleAtod(line.substr(line.rfind(' ') + 1), &value)) sum += value;
  }
  return sum;
}

bool Eventually(const std::function<bool()>& done) {
  for (int i = 0; i < 4000; ++i) {
    if (done()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

}  // namespace baton::testing
