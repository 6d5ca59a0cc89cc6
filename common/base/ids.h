// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BASE_IDS_H_
#define BATON_COMMON_BASE_IDS_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace baton {

// 64 bits from the kernel's random source. Any thread.
uint64_t RandomUint64();

// `prefix`, a dash and 16 random hexadecimal digits: NewId("r") = "r-6f1c...". Any thread.
std::string NewId(absl::string_view prefix);
inline std::string NewRequestId() { return NewId("r"); }

// Names this run of this process: random, never 0, the same for the process's whole life. A peer that restarts at the same
// address has another incarnation.
uint64_t ProcessIncarnation();

}  // namespace baton

#endif  // BATON_COMMON_BASE_IDS_H_
