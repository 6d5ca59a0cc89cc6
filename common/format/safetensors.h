// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_FORMAT_SAFETENSORS_H_
#define BATON_COMMON_FORMAT_SAFETENSORS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/format/mapped_file.h"
#include "common/format/tensor.h"

namespace baton {

// One safetensors file, mapped and checked in full by Open: the tensors tile the data section without hole, overlap or
// rest, each of exactly the bytes that its dtype and shape say. Immutable; any thread. Views live as long as it does.
class SafetensorsFile {
 public:
  static constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // The format's own limit.

  // Codes of MappedFile::Open; INVALID_ARGUMENT for a malformed file, naming the tensor and the reason.
  static absl::StatusOr<std::shared_ptr<const SafetensorsFile>> Open(absl::string_view path);

  // The same over bytes that the caller keeps alive; `name` is what messages call the file.
  static absl::StatusOr<std::shared_ptr<const SafetensorsFile>> Parse(std::span<const uint8_t> bytes,
                                                                      absl::string_view name);

  const std::string& path() const { return path_; }
  std::span<const TensorView> tensors() const { return tensors_; }  // By offset.
  const TensorView* FindTensor(absl::string_view name) const;       // nullptr if absent.

 private:
  SafetensorsFile() = default;
  absl::Status ParseHeader();
  absl::Status CheckTiling(uint64_t data_bytes) const;

  std::shared_ptr<const MappedFile> file_;  // Null for Parse.
  std::string path_;
  std::span<const uint8_t> bytes_;
  std::vector<TensorView> tensors_;
  absl::flat_hash_map<std::string, size_t> index_;
};

// The weights of a Hugging Face folder: `model.safetensors`, or else the shards that `model.safetensors.index.json`
// lists. A shard's name is a plain file name inside the folder (a symbolic link there is followed, as download caches
// use them); nothing else is ever opened.
class SafetensorsFolder {
 public:
  //   NOT_FOUND         neither file is there, or a shard is missing.
  //   INVALID_ARGUMENT  malformed index, a shard name with a path, or a tensor that is absent from its shard.
  static absl::StatusOr<std::shared_ptr<const SafetensorsFolder>> Open(absl::string_view folder);

  const TensorView* FindTensor(absl::string_view name) const;  // nullptr if absent.
  size_t num_tensors() const { return index_.size(); }

 private:
  SafetensorsFolder() = default;
  absl::Status OpenShards(const std::string& folder, const std::string& index_path);

  std::vector<std::shared_ptr<const SafetensorsFile>> files_;
  absl::flat_hash_map<std::string, const TensorView*> index_;
};

}  // namespace baton

#endif  // BATON_COMMON_FORMAT_SAFETENSORS_H_
