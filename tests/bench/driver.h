// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_BENCH_DRIVER_H_
#define BATON_TESTS_BENCH_DRIVER_H_

#include <functional>

#include "absl/status/statusor.h"
#include "common/base/json.h"

namespace baton::bench {

// The protocol between tests/bench/run and the programs that it measures (driver.py has the other half): prints {"ready":
// `about`}, then answers each JSON line on standard input, until that ends, with what `measure` makes of it or {"error": text}.
void ServeCases(const nlohmann::json& about, const std::function<absl::StatusOr<nlohmann::json>(const nlohmann::json&)>& measure);

}  // namespace baton::bench

#endif  // BATON_TESTS_BENCH_DRIVER_H_
