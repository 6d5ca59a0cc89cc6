// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BASE_BUILD_INFO_H_
#define BATON_COMMON_BASE_BUILD_INFO_H_

#include <string>

namespace baton {

// The release, "0.1.0": CMake's project version.
std::string Version();
// One line for --version and logs: release, build type, compiler, sanitizers.
std::string BuildDescription();

}  // namespace baton

#endif  // BATON_COMMON_BASE_BUILD_INFO_H_
