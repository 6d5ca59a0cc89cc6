// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_WORKER_TEXT_SERVICE_H_
#define BATON_COMMON_WORKER_TEXT_SERVICE_H_

#include <atomic>
#include <string>
#include <utility>

#include "baton/internal/text.grpc.pb.h"

namespace baton {

// Tells routers without a model what this worker's files say of text. The files are read at each call, a few at once at most.
class TextService final : public internal::ModelText::CallbackService {
 public:
  explicit TextService(std::string model_path) : model_path_(std::move(model_path)) {}

  //   RESOURCE_EXHAUSTED  as many calls as it serves at once are open.
  //   Codes of ReadTextFiles.
  grpc::ServerWriteReactor<internal::TextPart>* Read(grpc::CallbackServerContext* context,
                                                     const internal::ReadTextRequest* request) override;

 private:
  const std::string model_path_;
  std::atomic<int> num_open_{0};
};

}  // namespace baton

#endif  // BATON_COMMON_WORKER_TEXT_SERVICE_H_
