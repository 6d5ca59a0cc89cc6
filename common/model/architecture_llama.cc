// SPDX-License-Identifier: Apache-2.0
#include "common/model/architecture.h"

namespace baton {

// Llama 1 to 3 and everything of that shape (SmolLM2 too). Converters to GGUF permute the rows of q and k into the
// interleaved rotary order.
const Architecture kLlama = {
    .name = "llama",
    .hugging_face = {.names = &kHuggingFaceNames, .interleaved_rope = false},
    .gguf = {.names = &kGgufNames, .interleaved_rope = true},
    .qkv_bias = false,
    .qk_norm = false,
    .sliding_window_needs_switch = false,
};

}  // namespace baton
