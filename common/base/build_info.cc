// SPDX-License-Identifier: Apache-2.0
#include "common/base/build_info.h"

#include "absl/strings/str_cat.h"

namespace baton {

std::string Version() { return BATON_VERSION; }

std::string BuildDescription() {
  std::string text = absl::StrCat("baton ", BATON_VERSION, " (", BATON_BUILD_TYPE, ", ");
#if defined(__clang__)
  absl::StrAppend(&text, "clang ", __clang_major__, ".", __clang_minor__);
#else
  absl::StrAppend(&text, "gcc ", __GNUC__, ".", __GNUC_MINOR__);
#endif
  if (sizeof(BATON_SANITIZERS) > 1) absl::StrAppend(&text, ", sanitizers ", BATON_SANITIZERS);
  return text + ")";
}

}  // namespace baton
