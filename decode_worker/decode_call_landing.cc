// SPDX-License-Identifier: Apache-2.0
// What the router hears of a landing, and the history that a prefill worker hears of through it.
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/token_hash.h"
#include "common/kv_transfer/grpc/wire.h"
#include "common/rpc/status_conversion.h"
#include "decode_worker/decode_call_service.h"

namespace baton {

void DecodeCall::SendLanding(int attempt) {
  internal::DecodeEvent event;
  internal::LandingEvent* landing = event.mutable_landing();
  landing->set_attempt(attempt);
  landing->set_incarnation(runtime_->incarnation());
  landing->set_first_missing_token(landing_.num_cached_tokens);
  landing->set_sends_history(true);
  landing->set_write_token(zone_->token().bytes());
  for (const TransportOffer& offer : service_->OffersWithout(corrupt_)) {
    landing->add_transports(TransportName(offer.kind));
    if (offer.kind == TransportKind::kGrpc) landing->set_kv_address(offer.address);
    *landing->add_kv_endpoints() = ToProto(offer);
  }
  stream_->SendLast(std::move(event));
}

void DecodeCall::SendLanded(int attempt) {
  trace_.Landed(attempt);
  internal::DecodeEvent event;
  internal::LandedEvent* landed = event.mutable_landed();
  landed->set_attempt(attempt);
  landed->set_cached_tokens(landing_.num_cached_tokens);
  landed->set_kv_bytes(stats_.payload_bytes);
  landed->set_transport(transport_);
  landed->set_receive_ms(stats_.receive_ms);
  landed->set_local_prefill_ms(local_prefill_ms_);
  landed->set_prefill_numerics(stats_.numerics);
  landed->set_knows_formats(true);
  landed->set_knows_prompt_logprobs(true);
  stream_->SendLast(std::move(event));
}

// ---- The history.

absl::Status DecodeCall::CheckSendHistory(const internal::SendHistory& request) const {
  if (handoff_.state() != DecodeHandoff::State::kLanding || request.attempt() != handoff_.attempt()) {
    return absl::AbortedError(absl::StrCat("attempt ", request.attempt(), " is not landing"));
  }
  if (request.first_token() < 0 || request.first_token() >= request.num_tokens() || request.num_tokens() > landing_.num_cached_tokens) {
    return absl::InvalidArgumentError(absl::StrCat("history of tokens ", request.first_token(), " to ", request.num_tokens(),
                                                   " is outside the cached 0 to ", landing_.num_cached_tokens));
  }
  return absl::OkStatus();
}

// The landing's hit is whole blocks that were computed here or verified, with references of its own.
void DecodeCall::SendHistory(EngineCore& core, const internal::SendHistory& request) {
  auto self = shared_from_this();
  const auto on_failed = [self, attempt = request.attempt()](const absl::Status& status) {
    if (self->over_) return;
    internal::DecodeEvent event;
    event.mutable_history_failed()->set_attempt(attempt);
    *event.mutable_history_failed()->mutable_error() = ToErrorProto(status);
    self->stream_->SendLast(std::move(event));
  };
  if (const absl::Status status = CheckSendHistory(request); !status.ok()) return on_failed(status);
  const int block_size = runtime_->pool()->layout().block_size;
  HistorySender::Job job;
  job.transfer = transfer_;
  job.attempt = request.attempt();
  job.peer = {request.worker(), request.incarnation(), OffersFromProto(request.kv_endpoints())};
  job.blocks.assign(landing_.blocks.begin(), landing_.blocks.begin() + (request.num_tokens() + block_size - 1) / block_size);
  job.first_token = request.first_token();
  job.num_tokens = request.num_tokens();
  job.token = WriteToken(request.write_token());
  job.held_in = service_->held_in_;
  job.token_hash = HashTokens(std::span(cached_tokens_).first(static_cast<size_t>(request.num_tokens()))).low;
  job.on_failed = on_failed;
  history_.Send(core, std::move(job));
}

}  // namespace baton
