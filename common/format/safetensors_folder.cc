// SPDX-License-Identifier: Apache-2.0
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/format/safetensors.h"
#include "common/format/strict_json.h"

namespace baton {
namespace {

// A plain name of an entry of the folder itself.
bool IsPlainFileName(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.size() <= 255 && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const SafetensorsFolder>> SafetensorsFolder::Open(absl::string_view folder_view) {
  const std::string folder(folder_view);
  std::shared_ptr<SafetensorsFolder> result(new SafetensorsFolder());
  absl::StatusOr<std::shared_ptr<const SafetensorsFile>> single =
      SafetensorsFile::Open(absl::StrCat(folder, "/model.safetensors"));
  if (single.ok()) {
    result->files_.push_back(*single);
    for (const TensorView& tensor : (*single)->tensors()) result->index_.emplace(tensor.name, &tensor);
    return std::shared_ptr<const SafetensorsFolder>(std::move(result));
  }
  if (!absl::IsNotFound(single.status())) return single.status();
  const absl::Status status = result->OpenShards(folder, absl::StrCat(folder, "/model.safetensors.index.json"));
  if (!status.ok()) return status;
  return std::shared_ptr<const SafetensorsFolder>(std::move(result));
}

absl::Status SafetensorsFolder::OpenShards(const std::string& folder, const std::string& index_path) {
  const absl::StatusOr<std::shared_ptr<const MappedFile>> mapped = MappedFile::Open(index_path);
  if (absl::IsNotFound(mapped.status())) {
    return absl::NotFoundError(
        absl::StrCat(folder, ": has neither model.safetensors nor model.safetensors.index.json"));
  }
  BATON_RETURN_IF_ERROR(mapped.status());
  const std::span<const uint8_t> bytes = (*mapped)->bytes();
  if (bytes.size() > SafetensorsFile::kMaxHeaderBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(index_path, ": is ", bytes.size(), " bytes, the limit is ", SafetensorsFile::kMaxHeaderBytes));
  }
  const absl::StatusOr<nlohmann::json> json =
      ParseStrictJson(absl::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()), /*max_depth=*/8);
  if (!json.ok()) return Annotate(json.status(), index_path);
  const auto map = json->is_object() ? json->find("weight_map") : json->end();
  if (map == json->end() || !map->is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(index_path, ": weight_map is missing or no object"));
  }
  absl::flat_hash_map<std::string, std::shared_ptr<const SafetensorsFile>> shards;
  for (const auto& [name, shard_name] : map->items()) {
    const std::string tensor = absl::Utf8SafeCHexEscape(name.substr(0, 200));
    if (!shard_name.is_string() || !IsPlainFileName(shard_name.get_ref<const std::string&>())) {
      return absl::InvalidArgumentError(
          absl::StrCat(index_path, ": tensor ", tensor, ": shard ",
                       shard_name.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace).substr(0, 300),
                       " is not a plain file name inside the folder"));
    }
    const std::string& shard = shard_name.get_ref<const std::string&>();
    std::shared_ptr<const SafetensorsFile>& file = shards[shard];
    if (file == nullptr) {
      absl::StatusOr<std::shared_ptr<const SafetensorsFile>> opened =
          SafetensorsFile::Open(absl::StrCat(folder, "/", shard));
      if (!opened.ok()) return Annotate(opened.status(), absl::StrCat(index_path, ": tensor ", tensor));
      file = *std::move(opened);
      files_.push_back(file);
    }
    const TensorView* view = file->FindTensor(name);
    if (view == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(index_path, ": tensor ", tensor, " is absent from its shard ", shard));
    }
    index_.emplace(name, view);
  }
  return absl::OkStatus();
}

const TensorView* SafetensorsFolder::FindTensor(absl::string_view name) const {
  const auto it = index_.find(name);
  return it == index_.end() ? nullptr : it->second;
}

}  // namespace baton
