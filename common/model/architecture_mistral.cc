// SPDX-License-Identifier: Apache-2.0
#include "common/model/architecture.h"

namespace baton {

// As Llama, with head_dim of its own and, in the first version, a sliding window. GGUF files call it llama.
const Architecture kMistral = {
    .name = "mistral",
    .hugging_face = {.names = &kHuggingFaceNames, .interleaved_rope = false},
    .gguf = {},
    .qkv_bias = false,
    .qk_norm = false,
    .sliding_window_needs_switch = false,
};

}  // namespace baton
