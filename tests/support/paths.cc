// SPDX-License-Identifier: Apache-2.0
#include "tests/support/paths.h"

#include "absl/strings/str_cat.h"

namespace baton::testing {

std::string SourcePath(absl::string_view name) { return absl::StrCat(BATON_SOURCE_DIR "/", name); }

std::string BuildPath(absl::string_view name) { return absl::StrCat(BATON_BUILD_DIR "/", name); }

}  // namespace baton::testing
