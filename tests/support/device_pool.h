// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_SUPPORT_DEVICE_POOL_H_
#define BATON_TESTS_SUPPORT_DEVICE_POOL_H_

#include <memory>

#include "common/kv/kv_pool.h"

namespace baton::testing {

// A pool with the same blocks on a simulated device, in both forms. Builds with the CUDA toolkit only.
std::unique_ptr<KvPool> OnDevice(const KvPool& pool);

}  // namespace baton::testing

#endif  // BATON_TESTS_SUPPORT_DEVICE_POOL_H_
