// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_ROUTER_WORKER_STATUS_H_
#define BATON_ROUTER_WORKER_STATUS_H_

#include "baton/v1/generation.pb.h"
#include "router/cluster_view.h"

namespace baton {

// A worker of `view` as clients see it in GetCluster.
v1::Worker WorkerStatus(const WorkerInfo& info, const ClusterView& view);

}  // namespace baton

#endif  // BATON_ROUTER_WORKER_STATUS_H_
