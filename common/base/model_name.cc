// SPDX-License-Identifier: Apache-2.0
#include "common/base/model_name.h"

#include "absl/strings/ascii.h"
#include "absl/strings/strip.h"

namespace baton {

std::string ShortModelName(absl::string_view path) {
  while (absl::ConsumeSuffix(&path, "/")) {
  }
  const size_t slash = path.rfind('/');
  if (slash != absl::string_view::npos) path.remove_prefix(slash + 1);
  path = path.substr(0, path.find_first_of("-. "));
  return path.empty() ? "model" : absl::AsciiStrToLower(path);
}

}  // namespace baton
