// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BASE_MODEL_NAME_H_
#define BATON_COMMON_BASE_MODEL_NAME_H_

#include <string>

#include "absl/strings/string_view.h"

namespace baton {

// What people call the model of a path when nobody names it: the base name up to the first dash, in lower case, without
// ".gguf". ".../SmolLM2-135M-Instruct.Q4_1.gguf" is "smollm2", ".../qwen3/tokenizer.json" is "qwen3"; "model" when nothing is left.
std::string ShortModelName(absl::string_view path);

}  // namespace baton

#endif  // BATON_COMMON_BASE_MODEL_NAME_H_
