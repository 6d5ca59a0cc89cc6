// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_MODEL_ARCHITECTURE_H_
#define BATON_COMMON_MODEL_ARCHITECTURE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace baton {

enum class Container { kHuggingFace, kGguf };

// What the tensors of a container are called. A layer's tensor is layer_prefix + number + the suffix below.
struct TensorNames {
  const char* embedding;
  const char* final_norm;
  const char* output;
  const char* layer_prefix;
  const char* attn_norm;
  const char* q;
  const char* k;
  const char* v;
  const char* attn_out;
  const char* mlp_norm;
  const char* gate;
  const char* up;
  const char* down;
  const char* q_bias;
  const char* k_bias;
  const char* v_bias;
  const char* q_norm;
  const char* k_norm;
  // Of tensors that change the result and are not computed here: a layer that has one is refused, not misread.
  const char* unsupported[6];
};

extern const TensorNames kHuggingFaceNames;
extern const TensorNames kGgufNames;

// How one container holds an architecture's models.
struct ContainerTraits {
  const TensorNames* names = nullptr;  // nullptr: this container has no such architecture.
  bool interleaved_rope = false;
};

// One architecture: a row of facts, no code. Each is defined in its own file, architecture_NAME.cc, and listed in
// architecture.cc.
struct Architecture {
  const char* name;  // Hugging Face's model_type, GGUF's general.architecture.
  ContainerTraits hugging_face;
  ContainerTraits gguf;
  bool qkv_bias;
  bool qk_norm;
  // config.json's sliding_window holds only if use_sliding_window is true as well (Qwen).
  bool sliding_window_needs_switch;
};

extern const Architecture kLlama;
extern const Architecture kMistral;
extern const Architecture kQwen2;
extern const Architecture kQwen3;

// FAILED_PRECONDITION for a name that is not known in this container; the message lists those that are.
absl::StatusOr<const Architecture*> FindArchitecture(absl::string_view name, Container container);

const ContainerTraits& TraitsIn(const Architecture& architecture, Container container);

}  // namespace baton

#endif  // BATON_COMMON_MODEL_ARCHITECTURE_H_
