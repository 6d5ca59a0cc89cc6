// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BASE_CONFIG_NAMES_H_
#define BATON_COMMON_BASE_CONFIG_NAMES_H_

#include <string>

#include "absl/strings/string_view.h"

// The three spellings of an option. Internal to config.

namespace baton::config_internal {

std::string CanonicalName(absl::string_view name);    // kv_memory: the ABSL_FLAG's.
std::string ShownName(absl::string_view name);        // kv-memory: command line and YAML.
std::string EnvironmentName(absl::string_view name);  // BATON_KV_MEMORY.

}  // namespace baton::config_internal

#endif  // BATON_COMMON_BASE_CONFIG_NAMES_H_
