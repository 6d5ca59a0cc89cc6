// SPDX-License-Identifier: Apache-2.0
#include "common/model/architecture.h"

namespace baton {

// Biases on q, k and v.
const Architecture kQwen2 = {
    .name = "qwen2",
    .hugging_face = {.names = &kHuggingFaceNames, .interleaved_rope = false},
    .gguf = {.names = &kGgufNames, .interleaved_rope = false},
    .qkv_bias = true,
    .qk_norm = false,
    .sliding_window_needs_switch = true,
};

}  // namespace baton
