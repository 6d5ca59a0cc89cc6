// SPDX-License-Identifier: Apache-2.0
#include "common/model/architecture.h"

namespace baton {

// RMSNorm on each head of q and k; head_dim of its own.
const Architecture kQwen3 = {
    .name = "qwen3",
    .hugging_face = {.names = &kHuggingFaceNames, .interleaved_rope = false},
    .gguf = {.names = &kGgufNames, .interleaved_rope = false},
    .qkv_bias = false,
    .qk_norm = true,
    .sliding_window_needs_switch = true,
};

}  // namespace baton
