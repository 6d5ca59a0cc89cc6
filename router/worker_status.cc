// SPDX-License-Identifier: Apache-2.0
#include "router/worker_status.h"

#include <string>

namespace baton {
namespace {

v1::MachinePeaks Peaks(const internal::MachinePeaks& peaks) {
  v1::MachinePeaks out;
  out.set_int8_ops(peaks.int8_ops());
  out.set_bf16_flops(peaks.bf16_flops());
  out.set_fp32_flops(peaks.fp32_flops());
  out.set_read_bytes(peaks.read_bytes());
  out.set_matmul_ops(peaks.matmul_ops());
  out.set_matmul_format(peaks.matmul_format());
  return out;
}

v1::PhasePerformance Performance(const internal::PhasePerformance& phase) {
  v1::PhasePerformance out;
  out.set_tokens_per_second(phase.tokens_per_second());
  out.set_share_of_peak(phase.share_of_peak());
  out.set_ops_per_pass(phase.ops_per_pass());
  out.set_bytes_per_pass(phase.bytes_per_pass());
  out.set_tokens_per_pass(phase.tokens_per_pass());
  out.set_passes(phase.passes());
  out.set_query_key_pairs(phase.query_key_pairs());
  return out;
}

// To every decode worker of the group: what the worker says it used, or what it would use.
void AddLinks(const WorkerInfo& prefill, const ClusterView& view, v1::Worker* out) {
  for (const auto& decode : view.workers) {
    if (!decode->is_decode() || decode->group() != prefill.group()) continue;
    v1::KvLink* link = out->add_links();
    link->set_worker(decode->identity.id());
    link->set_transport(BestTransport(prefill, *decode));
    for (const internal::KvLinkState& used : prefill.load.kv_links()) {
      if (used.worker() != decode->identity.id()) continue;
      link->set_transport(used.transport());
      link->set_reason(used.fallback());
    }
  }
}

}  // namespace

v1::Worker WorkerStatus(const WorkerInfo& info, const ClusterView& view) {
  const internal::WorkerIdentity& identity = info.identity;
  const internal::WorkerLoad& load = info.load;
  v1::Worker worker;
  worker.set_id(identity.id());
  worker.set_role(std::string(RoleName(identity.role())));
  worker.set_address(identity.address());
  worker.set_status(identity.status_address());
  worker.set_ready(info.ready());
  worker.set_reason(info.reason);
  worker.set_model(identity.model());
  worker.set_fingerprint(identity.model_fingerprint());
  worker.set_numerics(identity.numerics());
  worker.set_kv_layout(identity.kv_layout());
  worker.mutable_blocks()->set_total(load.blocks_total());
  worker.mutable_blocks()->set_free(load.blocks_free());
  worker.mutable_blocks()->set_cached(load.blocks_cached());
  worker.mutable_blocks()->set_quarantined(load.blocks_quarantined());
  worker.mutable_blocks()->set_used(load.blocks_used());
  worker.set_running(load.running());
  worker.set_waiting(load.waiting());
  *worker.mutable_transports() = identity.transports();
  worker.set_context_length(identity.context_length());
  if (info.is_prefill()) AddLinks(info, view, &worker);
  if (identity.has_peaks()) *worker.mutable_peaks() = Peaks(identity.peaks());
  if (load.has_prefill()) *worker.mutable_prefill() = Performance(load.prefill());
  if (load.has_decode()) *worker.mutable_decode() = Performance(load.decode());
  return worker;
}

}  // namespace baton
