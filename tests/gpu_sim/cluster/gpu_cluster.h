// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_GPU_SIM_CLUSTER_GPU_CLUSTER_H_
#define BATON_TESTS_GPU_SIM_CLUSTER_GPU_CLUSTER_H_

#include <string>
#include <vector>

#include "tests/integration/local_cluster.h"

namespace baton::testing {

// A model that a simulated GPU has kernels for, in a file.
std::string WriteGpuModel();
// The flags of a worker on a simulated GPU.
std::string OnGpu();
std::vector<std::vector<int>> Prompts();

// Something that goes wrong in the middle of a transfer.
struct TransferFault {
  std::string plan_variable;           // By which the stand-in's plan is named,
  std::string plan;                    // and what it says.
  std::vector<std::string> flags = {};  // Of the cluster.
  std::string recovers_to;             // The transport that hands over in the end.
};
// A prefill and a decode worker on simulated GPUs, one of which the fault happens to: what a client gets is right or an error, soon, the fault
// has happened, the pair works again by itself, and nothing is left behind.
void ExpectNoWrongToken(const TransferFault& fault);

v1::GenerateRequest WithMargins(v1::GenerateRequest request);
// Steps of `got` that are the reference's, up to the first that is not: there the reference, asked WithMargins, must have been nearly
// undecided, so that a backend's rounding may lead another way.
int NumStepsThatFollow(const cli::Answer& got, const cli::Answer& expected);

}  // namespace baton::testing

#endif  // BATON_TESTS_GPU_SIM_CLUSTER_GPU_CLUSTER_H_
