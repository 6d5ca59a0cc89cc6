// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_DEPLOY_CLI_CLUSTER_PLAN_H_
#define BATON_DEPLOY_CLI_CLUSTER_PLAN_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "deploy/cli/router_client.h"
#include "deploy/cli/supervisor.h"

namespace baton::cli {

// What a local cluster is made of.
struct ClusterPlan {
  std::string program_folder;  // Where the programs lie.
  std::string model;
  int num_prefill = 1;
  int num_decode = 1;
  RouterAccess access;             // To ask the router how far it is.
  std::string grpc, http, status;  // The router's addresses, ports known; http may be empty.
  std::string registry;            // Where workers register; empty: at grpc.
  bool local_prefill = false;
  std::string disaggregate;        // Empty: adaptive, or never with local_prefill.
  // Options that a person set, by flag name (underscores), as text. ForwardedTo says who understands which.
  std::map<std::string, std::string> options;
  std::vector<std::string> router_flags, prefill_flags, decode_flags;  // Appended as they are.
};

// Names of the options that `program` ("router", "prefill", "decode") takes from ClusterPlan::options.
const std::vector<std::string>& ForwardedTo(absl::string_view program);

// The processes: the router in stage 0, workers p-1 ..., d-1 ... in stage 1, on free ports of their own.
//   INVALID_ARGUMENT  a count out of range, or prefill workers missing where they are needed.
absl::StatusOr<std::vector<ChildSpec>> PlanCluster(const ClusterPlan& plan);

// `address`, with a free port of this machine in place of 0. Whoever listens there already would be taken for the cluster
// that is being started, so a port that is in use is refused. It is free now, and may be taken by somebody else before it is
// used: that start then fails and says so. Processes that let the system choose don't get it where the system's range leaves room below.
//   INVALID_ARGUMENT  not HOST:PORT.
//   UNAVAILABLE       the address cannot be bound, or is in use.
absl::StatusOr<std::string> WithFreePort(absl::string_view flag, absl::string_view address);

// Where processes of this machine reach what listens on `address`: 0.0.0.0 and [::] become the loopback address.
std::string ReachableAddress(const std::string& address);

}  // namespace baton::cli

#endif  // BATON_DEPLOY_CLI_CLUSTER_PLAN_H_
