// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_WORKER_ADVERTISED_ADDRESS_H_
#define BATON_COMMON_WORKER_ADVERTISED_ADDRESS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace baton {

// Where others reach a server that is bound to `bound` (HOST:PORT). A wildcard host (0.0.0.0, [::]) is nobody's address: this
// machine's address on the way to the first of `routers` takes its place, or, where none of them can be looked up, the
// address of this machine's own name. Nothing is sent.
//   FAILED_PRECONDITION  neither gives an address; --advertise must.
absl::StatusOr<std::string> AdvertisedAddress(const std::string& bound, const std::vector<std::string>& routers);

}  // namespace baton

#endif  // BATON_COMMON_WORKER_ADVERTISED_ADDRESS_H_
