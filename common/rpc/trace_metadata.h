// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_RPC_TRACE_METADATA_H_
#define BATON_COMMON_RPC_TRACE_METADATA_H_

#include <optional>

#include "common/trace/trace_context.h"
#include "grpcpp/client_context.h"
#include "grpcpp/server_context.h"

namespace baton {

// The span that a call is made for, as its client said in the metadata.
std::optional<TraceContext> TraceContextOf(const grpc::ServerContextBase& context);

// Says so, before a call starts. Nothing where `trace` is no span.
void AddTraceContext(const TraceContext& trace, grpc::ClientContext* context);

}  // namespace baton

#endif  // BATON_COMMON_RPC_TRACE_METADATA_H_
