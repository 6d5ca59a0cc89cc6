// SPDX-License-Identifier: Apache-2.0
#include "common/model/checkpoint.h"

#include <sys/stat.h>

#include <functional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "common/format/mapped_file.h"
#include "common/format/safetensors.h"
#include "common/format/strict_json.h"
#include "common/model/architecture.h"
#include "common/model/checkpoint_fingerprint.h"

namespace baton {

// Fills a Checkpoint from either container.
class CheckpointLoader {
 public:
  using Lookup = std::function<const TensorView*(absl::string_view)>;

  explicit CheckpointLoader(Checkpoint* checkpoint) : checkpoint_(*checkpoint), config_(checkpoint->config_) {}

  absl::Status LoadGguf(std::shared_ptr<const GgufFile> file);
  absl::Status LoadFolder();

 private:
  absl::Status LoadTensors(Container container);
  absl::Status LoadLayer(int layer);
  absl::Status Take(const std::string& name, std::initializer_list<int64_t> shape, TensorView* view);
  absl::Status TakeIf(bool wanted, const std::string& name, int64_t size, std::optional<TensorView>* view);

  Checkpoint& checkpoint_;
  ModelConfig& config_;
  const TensorNames* names_ = nullptr;
  Lookup find_;
};

absl::Status CheckpointLoader::LoadGguf(std::shared_ptr<const GgufFile> file) {
  checkpoint_.gguf_ = std::move(file);
  checkpoint_.mapping_ = checkpoint_.gguf_;
  BATON_ASSIGN_OR_RETURN(config_, ConfigFromGguf(*checkpoint_.gguf_));
  find_ = [file = checkpoint_.gguf_.get()](absl::string_view name) { return file->FindTensor(name); };
  return LoadTensors(Container::kGguf);
}

absl::Status CheckpointLoader::LoadFolder() {
  const std::string config_path = absl::StrCat(checkpoint_.path_, "/config.json");
  BATON_ASSIGN_OR_RETURN(const std::shared_ptr<const MappedFile> config_file, MappedFile::Open(config_path));
  const std::span<const uint8_t> bytes = config_file->bytes();
  constexpr size_t kMaxConfigBytes = 16 << 20;
  if (bytes.size() > kMaxConfigBytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: %d bytes, the limit is %d", config_path, bytes.size(), kMaxConfigBytes));
  }
  const absl::StatusOr<nlohmann::json> json =
      ParseStrictJson(absl::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  if (!json.ok()) return Annotate(json.status(), config_path);
  absl::StatusOr<ModelConfig> config = ConfigFromJson(*json);
  if (!config.ok()) return Annotate(config.status(), config_path);
  config_ = *std::move(config);
  BATON_ASSIGN_OR_RETURN(const std::shared_ptr<const SafetensorsFolder> folder,
                         SafetensorsFolder::Open(checkpoint_.path_));
  checkpoint_.mapping_ = folder;
  find_ = [folder](absl::string_view name) { return folder->FindTensor(name); };
  return LoadTensors(Container::kHuggingFace);
}

absl::Status CheckpointLoader::Take(const std::string& name, std::initializer_list<int64_t> shape, TensorView* view) {
  const TensorView* found = find_(name);
  if (found == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(checkpoint_.path_, ": tensor ", name, " is missing"));
  }
  const TensorShape expected(shape);
  if (found->shape != expected) {
    return absl::InvalidArgumentError(absl::StrCat(checkpoint_.path_, ": tensor ", name, " has shape ",
                                                   ShapeToString(found->shape), ", the config says ",
                                                   ShapeToString(expected)));
  }
  if (!TraitsOf(found->type).dequantizable) {
    return absl::FailedPreconditionError(absl::StrCat(checkpoint_.path_, ": tensor ", name, " has type ",
                                                      GgmlTypeName(found->type), ", which cannot be computed with"));
  }
  *view = *found;
  return absl::OkStatus();
}

absl::Status CheckpointLoader::TakeIf(bool wanted, const std::string& name, int64_t size,
                                      std::optional<TensorView>* view) {
  if (wanted) return Take(name, {size}, &view->emplace());
  if (find_(name) == nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(checkpoint_.path_, ": tensor ", name, ": architecture ",
                                                    config_.architecture, " with such a tensor is not supported"));
}

absl::Status CheckpointLoader::LoadLayer(int layer) {
  const std::string prefix = absl::StrCat(names_->layer_prefix, layer);
  const int64_t hidden = config_.hidden_size;
  const int64_t q_rows = int64_t{config_.num_heads} * config_.head_dim;
  const int64_t kv_rows = int64_t{config_.num_kv_heads} * config_.head_dim;
  const int64_t intermediate = config_.intermediate_size;
  LayerTensors& t = checkpoint_.layers_.emplace_back();
  BATON_RETURN_IF_ERROR(Take(prefix + names_->attn_norm, {hidden}, &t.attn_norm));
  BATON_RETURN_IF_ERROR(Take(prefix + names_->q, {q_rows, hidden}, &t.q));
  BATON_RETURN_IF_ERROR(Take(prefix + names_->k, {kv_rows, hidden}, &t.k));
  BATON_RETURN_IF_ERROR(Take(prefix + names_->v, {kv_rows, hidden}, &t.v));
  BATON_RETURN_IF_ERROR(Take(prefix + names_->attn_out, {hidden, q_rows}, &t.attn_out));
  BATON_RETURN_IF_ERROR(Take(prefix + names_->mlp_norm, {hidden}, &t.mlp_norm));
  BATON_RETURN_IF_ERROR(Take(prefix + names_->gate, {intermediate, hidden}, &t.gate));
  BATON_RETURN_IF_ERROR(Take(prefix + names_->up, {intermediate, hidden}, &t.up));
  BATON_RETURN_IF_ERROR(Take(prefix + names_->down, {hidden, intermediate}, &t.down));
  BATON_RETURN_IF_ERROR(TakeIf(config_.qkv_bias, prefix + names_->q_bias, q_rows, &t.q_bias));
  BATON_RETURN_IF_ERROR(TakeIf(config_.qkv_bias, prefix + names_->k_bias, kv_rows, &t.k_bias));
  BATON_RETURN_IF_ERROR(TakeIf(config_.qkv_bias, prefix + names_->v_bias, kv_rows, &t.v_bias));
  BATON_RETURN_IF_ERROR(TakeIf(config_.qk_norm, prefix + names_->q_norm, config_.head_dim, &t.q_norm));
  BATON_RETURN_IF_ERROR(TakeIf(config_.qk_norm, prefix + names_->k_norm, config_.head_dim, &t.k_norm));
  for (const char* suffix : names_->unsupported) {
    std::optional<TensorView> none;
    BATON_RETURN_IF_ERROR(TakeIf(false, prefix + suffix, 0, &none));
  }
  return absl::OkStatus();
}

absl::Status CheckpointLoader::LoadTensors(Container container) {
  BATON_ASSIGN_OR_RETURN(const Architecture* architecture, FindArchitecture(config_.architecture, container));
  names_ = TraitsIn(*architecture, container).names;
  const int64_t vocab = config_.vocab_size, hidden = config_.hidden_size;
  BATON_RETURN_IF_ERROR(Take(names_->embedding, {vocab, hidden}, &checkpoint_.embedding_));
  for (int layer = 0; layer < config_.num_layers; ++layer) BATON_RETURN_IF_ERROR(LoadLayer(layer));
  BATON_RETURN_IF_ERROR(Take(names_->final_norm, {hidden}, &checkpoint_.final_norm_));
  const char* output = config_.tied_embeddings ? names_->embedding : names_->output;
  BATON_RETURN_IF_ERROR(Take(output, {vocab, hidden}, &checkpoint_.output_));

  std::vector<const TensorView*> tensors = {&checkpoint_.embedding_, &checkpoint_.final_norm_};
  if (!config_.tied_embeddings) tensors.push_back(&checkpoint_.output_);
  for (const LayerTensors& t : checkpoint_.layers_) {
    tensors.insert(tensors.end(), {&t.attn_norm, &t.q, &t.k, &t.v, &t.attn_out, &t.mlp_norm, &t.gate, &t.up, &t.down});
    for (const auto* view : {&t.q_bias, &t.k_bias, &t.v_bias, &t.q_norm, &t.k_norm}) {
      if (view->has_value()) tensors.push_back(&**view);
    }
  }
  checkpoint_.fingerprint_ = ModelFingerprint(config_, tensors);
  if (config_.sliding_window > 0) {
    BATON_LOG(WARNING) << checkpoint_.path_ << ": context limited to the sliding window of " << config_.sliding_window
                       << " positions";
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const Checkpoint>> Checkpoint::FromGguf(std::shared_ptr<const GgufFile> file) {
  std::shared_ptr<Checkpoint> checkpoint(new Checkpoint());
  checkpoint->path_ = file->path();
  BATON_RETURN_IF_ERROR(CheckpointLoader(checkpoint.get()).LoadGguf(std::move(file)));
  return std::shared_ptr<const Checkpoint>(std::move(checkpoint));
}

absl::StatusOr<std::shared_ptr<const Checkpoint>> Checkpoint::Open(absl::string_view path) {
  std::string name(path);
  struct stat st;
  if (stat(name.c_str(), &st) != 0 || !S_ISDIR(st.st_mode)) {
    BATON_ASSIGN_OR_RETURN(std::shared_ptr<const GgufFile> file, GgufFile::Open(name));
    return FromGguf(std::move(file));
  }
  while (name.size() > 1 && name.back() == '/') name.pop_back();
  std::shared_ptr<Checkpoint> checkpoint(new Checkpoint());
  checkpoint->path_ = std::move(name);
  BATON_RETURN_IF_ERROR(CheckpointLoader(checkpoint.get()).LoadFolder());
  return std::shared_ptr<const Checkpoint>(std::move(checkpoint));
}

}  // namespace baton
