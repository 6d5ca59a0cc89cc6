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

v1::GenerateRequest WithMargins(v1::GenerateRequest request);
// Steps of `got` that are the reference's, up to the first that is not: there the reference, asked WithMargins, must have been nearly
// undecided, so that a backend's rounding may lead another way.
int NumStepsThatFollow(const cli::Answer& got, const cli::Answer& expected);

}  // namespace baton::testing

#endif  // BATON_TESTS_GPU_SIM_CLUSTER_GPU_CLUSTER_H_
