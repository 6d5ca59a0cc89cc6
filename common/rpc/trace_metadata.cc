// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/trace_metadata.h"

#include "absl/strings/string_view.h"

namespace baton {

std::optional<TraceContext> TraceContextOf(const grpc::ServerContextBase& context) {
  const auto find = [&metadata = context.client_metadata()](const char* key) {
    const auto found = metadata.find(key);
    return found == metadata.end() ? absl::string_view() : absl::string_view(found->second.data(), found->second.size());
  };
  return ParseTraceContext(find(kTraceparentHeader), find(kTracestateHeader));
}

void AddTraceContext(const TraceContext& trace, grpc::ClientContext* context) {
  if (!trace.valid()) return;
  context->AddMetadata(kTraceparentHeader, FormatTraceparent(trace));
  if (!trace.state.empty()) context->AddMetadata(kTracestateHeader, trace.state);
}

}  // namespace baton
