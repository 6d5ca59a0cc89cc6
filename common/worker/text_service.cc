// SPDX-License-Identifier: Apache-2.0
#include "common/worker/text_service.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/rpc/event_stream.h"
#include "common/text/text_files.h"

namespace baton {
namespace {

using Stream = ServerWriteStream<internal::TextPart>;

constexpr int kMaxCalls = 4;  // Each holds the files, some ten megabytes, until they are read.
constexpr size_t kPartBytes = 256 << 10;

void SendFiles(const std::vector<TextFile>& files, Stream* stream) {
  for (const TextFile& file : files) {
    size_t at = 0;
    do {
      internal::TextPart part;
      part.set_file(file.name);
      part.set_data(file.bytes.substr(at, kPartBytes));
      at += part.data().size();
      stream->SendLast(std::move(part));
    } while (at < file.bytes.size());
  }
}

}  // namespace

grpc::ServerWriteReactor<internal::TextPart>* TextService::Read(grpc::CallbackServerContext*, const internal::ReadTextRequest*) {
  auto stream = Stream::Create({.on_peer_closed = nullptr, .on_done = [this] { --num_open_; }});
  if (num_open_++ >= kMaxCalls) {
    stream->Finish(absl::ResourceExhaustedError(absl::StrCat(kMaxCalls, " routers read the model's text already")));
    return stream->reactor();
  }
  const absl::StatusOr<std::vector<TextFile>> files = ReadTextFiles(model_path_);
  if (files.ok()) SendFiles(*files, stream.get());
  stream->Finish(files.status());
  return stream->reactor();
}

}  // namespace baton
