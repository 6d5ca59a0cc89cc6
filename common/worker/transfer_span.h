// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_WORKER_TRANSFER_SPAN_H_
#define BATON_COMMON_WORKER_TRANSFER_SPAN_H_

#include <cstdint>

#include "common/kv_transfer/transfer.h"
#include "common/trace/trace_context.h"

namespace baton {

// The span "kv.send" of one attempt at a transfer, in `trace`. Both ends know these numbers, so the KV link, whatever it is, needs
// not carry a context.
inline TraceContext TransferSpan(const TraceContext& trace, const TransferId& transfer, int attempt) {
  return SharedSpan(trace, {transfer.router_incarnation, transfer.stream, static_cast<uint64_t>(attempt)});
}

}  // namespace baton

#endif  // BATON_COMMON_WORKER_TRANSFER_SPAN_H_
