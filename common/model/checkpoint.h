// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_MODEL_CHECKPOINT_H_
#define BATON_COMMON_MODEL_CHECKPOINT_H_

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/format/gguf.h"
#include "common/format/tensor.h"
#include "common/model/model_config.h"

namespace baton {

// One transformer layer's tensors, each of exactly the shape given (a matrix is [out, in]).
struct LayerTensors {
  TensorView attn_norm;                      // [hidden]
  TensorView q;                              // [num_heads * head_dim, hidden]
  TensorView k, v;                           // [num_kv_heads * head_dim, hidden]
  TensorView attn_out;                       // [hidden, num_heads * head_dim]
  TensorView mlp_norm;                       // [hidden]
  TensorView gate, up;                       // [intermediate, hidden]
  TensorView down;                           // [hidden, intermediate]
  std::optional<TensorView> q_bias;          // [num_heads * head_dim]; these three with config.qkv_bias
  std::optional<TensorView> k_bias, v_bias;  // [num_kv_heads * head_dim]
  std::optional<TensorView> q_norm, k_norm;  // [head_dim]; with config.qk_norm
};

// A model's configuration and weights, as they lie in a GGUF file or a Hugging Face folder (config.json and
// safetensors). The weights stay in the mapped files, in their own types; every type is one that Dequantize reads. With
// config.rope.interleaved the rows of q and k are in the file's interleaved order. Immutable; any thread.
class Checkpoint {
 public:
  // `path`: a .gguf file, or a folder with config.json. Reads the metadata and checks every tensor's presence, type and
  // shape against it, then hashes (see fingerprint). Tensors that the architecture does not name are ignored, unless
  // they are known to change its result.
  //   NOT_FOUND            no such file or folder, or a part of it.
  //   INVALID_ARGUMENT     malformed, or a tensor that is missing or of another shape; names tensor, shape and
  //   expectation. FAILED_PRECONDITION  an architecture or feature that is not implemented.
  static absl::StatusOr<std::shared_ptr<const Checkpoint>> Open(absl::string_view path);

  // The same for a GGUF file that is open already (the tokeniser reads it, too).
  static absl::StatusOr<std::shared_ptr<const Checkpoint>> FromGguf(std::shared_ptr<const GgufFile> file);

  const std::string& path() const { return path_; }
  const ModelConfig& config() const { return config_; }
  const TensorView& embedding() const { return embedding_; }    // [vocab, hidden]
  const TensorView& final_norm() const { return final_norm_; }  // [hidden]
  const TensorView& output() const { return output_; }          // [vocab, hidden]; the embedding where they are tied.
  std::span<const LayerTensors> layers() const { return layers_; }

  // 32 hexadecimal digits over the config and every tensor's name, type, shape and bytes: the identity of the model in
  // every key and handoff. Weights of over 256 MiB in all are sampled per tensor (first and last 4 KiB and 64 evenly
  // spaced pages of 4 KiB), so that opening a big file again costs milliseconds.
  const std::string& fingerprint() const { return fingerprint_; }

  // The GGUF file, or null for a folder.
  const std::shared_ptr<const GgufFile>& gguf() const { return gguf_; }

 private:
  friend class CheckpointLoader;
  Checkpoint() = default;

  std::string path_;
  ModelConfig config_;
  TensorView embedding_, final_norm_, output_;
  std::vector<LayerTensors> layers_;
  std::string fingerprint_;
  std::shared_ptr<const GgufFile> gguf_;
  std::shared_ptr<const void> mapping_;  // Keeps the bytes of all views.
};

}  // namespace baton

#endif  // BATON_COMMON_MODEL_CHECKPOINT_H_
