// SPDX-License-Identifier: Apache-2.0
#include "common/base/model_name.h"

#include "absl/strings/ascii.h"
#include "absl/strings/strip.h"

namespace baton {

std::string ShortModelName(absl::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  absl::ConsumeSuffix(&path, "/tokenizer.json");
  if (const size_t slash = path.rfind('/'); slash != absl::string_view::npos) path.remove_prefix(slash + 1);
  absl::ConsumeSuffix(&path, ".gguf");
  const absl::string_view head = path.substr(0, path.find('-'));
  const std::string name = absl::AsciiStrToLower(head.empty() ? path : head);
  return name.empty() ? "model" : name;
}

}  // namespace baton
