// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_DEPLOY_BENCH_KV_RAW_GRPC_SERVICE_H_
#define BATON_DEPLOY_BENCH_KV_RAW_GRPC_SERVICE_H_

#include <memory>

#include "deploy/bench_kv/kv_bench_rig.h"

namespace baton::bench {

// Bytes over one gRPC stream to this machine: messages of 1 MiB that are neither made nor looked at.
absl::StatusOr<std::unique_ptr<RawWay>> MakeRawGrpc();

}  // namespace baton::bench

#endif  // BATON_DEPLOY_BENCH_KV_RAW_GRPC_SERVICE_H_
