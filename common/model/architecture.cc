// SPDX-License-Identifier: Apache-2.0
#include "common/model/architecture.h"

#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace baton {
namespace {

constexpr const Architecture* kArchitectures[] = {&kLlama, &kMistral, &kQwen2, &kQwen3};

}  // namespace

const TensorNames kHuggingFaceNames = {
    .embedding = "model.embed_tokens.weight",
    .final_norm = "model.norm.weight",
    .output = "lm_head.weight",
    .layer_prefix = "model.layers.",
    .attn_norm = ".input_layernorm.weight",
    .q = ".self_attn.q_proj.weight",
    .k = ".self_attn.k_proj.weight",
    .v = ".self_attn.v_proj.weight",
    .attn_out = ".self_attn.o_proj.weight",
    .mlp_norm = ".post_attention_layernorm.weight",
    .gate = ".mlp.gate_proj.weight",
    .up = ".mlp.up_proj.weight",
    .down = ".mlp.down_proj.weight",
    .q_bias = ".self_attn.q_proj.bias",
    .k_bias = ".self_attn.k_proj.bias",
    .v_bias = ".self_attn.v_proj.bias",
    .q_norm = ".self_attn.q_norm.weight",
    .k_norm = ".self_attn.k_norm.weight",
    .unsupported = {".self_attn.o_proj.bias", ".mlp.gate_proj.bias", ".mlp.up_proj.bias", ".mlp.down_proj.bias",
                    ".mlp.gate.weight", ".self_attn.sinks"},
};

const TensorNames kGgufNames = {
    .embedding = "token_embd.weight",
    .final_norm = "output_norm.weight",
    .output = "output.weight",
    .layer_prefix = "blk.",
    .attn_norm = ".attn_norm.weight",
    .q = ".attn_q.weight",
    .k = ".attn_k.weight",
    .v = ".attn_v.weight",
    .attn_out = ".attn_output.weight",
    .mlp_norm = ".ffn_norm.weight",
    .gate = ".ffn_gate.weight",
    .up = ".ffn_up.weight",
    .down = ".ffn_down.weight",
    .q_bias = ".attn_q.bias",
    .k_bias = ".attn_k.bias",
    .v_bias = ".attn_v.bias",
    .q_norm = ".attn_q_norm.weight",
    .k_norm = ".attn_k_norm.weight",
    .unsupported = {".attn_output.bias", ".ffn_gate.bias", ".ffn_up.bias", ".ffn_down.bias", ".ffn_gate_inp.weight",
                    ".attn_sinks.weight"},
};

const ContainerTraits& TraitsIn(const Architecture& architecture, Container container) {
  return container == Container::kGguf ? architecture.gguf : architecture.hugging_face;
}

absl::StatusOr<const Architecture*> FindArchitecture(absl::string_view name, Container container) {
  std::vector<const char*> known;
  for (const Architecture* architecture : kArchitectures) {
    if (TraitsIn(*architecture, container).names == nullptr) continue;
    if (name == architecture->name) return architecture;
    known.push_back(architecture->name);
  }
  return absl::FailedPreconditionError(
      absl::StrCat("architecture \"", absl::Utf8SafeCHexEscape(name.substr(0, 100)), "\" is not supported; supported ",
                   container == Container::kGguf ? "in GGUF files: " : "in folders: ", absl::StrJoin(known, ", ")));
}

}  // namespace baton
