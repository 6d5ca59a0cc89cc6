// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_ROUTER_GENERATION_SERVICE_H_
#define BATON_ROUTER_GENERATION_SERVICE_H_

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "baton/v1/generation.grpc.pb.h"
#include "router/router_core.h"

namespace baton {

// baton.v1.Generation. Generate takes its request as bytes: protobuf would answer text that is no UTF-8 with a status that
// says nothing.
class GenerationService
    : public v1::Generation::WithRawCallbackMethod_Generate<
          v1::Generation::WithCallbackMethod_ListModels<v1::Generation::WithCallbackMethod_GetCluster<
              v1::Generation::WithCallbackMethod_DrainWorker<v1::Generation::Service>>>> {
 public:
  // `core` outlives it.
  explicit GenerationService(RouterCore* core) : core_(core) {}

  grpc::ServerWriteReactor<grpc::ByteBuffer>* Generate(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request) override;
  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context, const v1::ListModelsRequest* request,
                                       v1::ListModelsResponse* response) override;
  grpc::ServerUnaryReactor* GetCluster(grpc::CallbackServerContext* context, const v1::GetClusterRequest* request,
                                       v1::GetClusterResponse* response) override;

  grpc::ServerUnaryReactor* DrainWorker(grpc::CallbackServerContext* context, const v1::DrainWorkerRequest* request,
                                        v1::DrainWorkerResponse* response) override;

  // Waits until every Generate call has reached its client, status included. False when the time is up. Any thread.
  bool WaitUntilWritten(absl::Duration timeout);

 private:
  void NoteStream(int change);

  RouterCore* const core_;
  Mutex streams_mutex_;
  CondVar streams_changed_;
  int num_streams_ ABSL_GUARDED_BY(streams_mutex_) = 0;
};

}  // namespace baton

#endif  // BATON_ROUTER_GENERATION_SERVICE_H_
