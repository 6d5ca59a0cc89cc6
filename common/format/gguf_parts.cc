// SPDX-License-Identifier: Apache-2.0
// A model in several GGUF files, as llama-gguf-split writes them: each has `split.count`, `split.no` (from 0) and
// `split.tensors.count` (of all parts together); only the first has the model's metadata.
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/format/gguf.h"

namespace baton {
namespace {

constexpr char kCount[] = "split.count", kNumber[] = "split.no", kTensors[] = "split.tensors.count";
constexpr uint64_t kMaxParts = 99999;  // The names have five digits.

// "-00002-of-00003.gguf"
std::string PartSuffix(uint64_t index, uint64_t count) { return absl::StrFormat("-%05d-of-%05d.gguf", index + 1, count); }

}  // namespace

absl::Status GgufFile::AddParts() {
  BATON_ASSIGN_OR_RETURN(const uint64_t count, GetU64Or(kCount, 1));
  if (count <= 1) return absl::OkStatus();
  if (count > kMaxParts) {
    return absl::InvalidArgumentError(absl::StrCat(path_, ": key ", kCount, " is ", count, ", at most ", kMaxParts, " parts are read"));
  }
  BATON_ASSIGN_OR_RETURN(const uint64_t number, GetU64(kNumber));
  const std::string suffix = PartSuffix(0, count);
  if (number != 0) {
    return absl::InvalidArgumentError(absl::StrCat(path_, ": is part ", number + 1, " of ", count, " (", kNumber,
                                                   "); give the first, whose name ends in ", suffix));
  }
  if (!absl::EndsWith(path_, suffix)) {
    return absl::InvalidArgumentError(absl::StrCat(path_, ": is the first of ", count, " parts (", kCount,
                                                   "), so its name has to end in ", suffix, " for the others to be found"));
  }
  const std::string stem = path_.substr(0, path_.size() - suffix.size());
  for (uint64_t i = 1; i < count; ++i) {
    absl::StatusOr<std::shared_ptr<GgufFile>> part = OpenPart(stem + PartSuffix(i, count));
    if (!part.ok()) return Annotate(part.status(), absl::StrCat(path_, ": part ", i + 1, " of ", count));
    BATON_RETURN_IF_ERROR(AddPart(*std::move(part), i, count));
  }
  BATON_ASSIGN_OR_RETURN(const uint64_t num_tensors, GetU64Or(kTensors, tensors_.size()));
  if (num_tensors == tensors_.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(path_, ": key ", kTensors, " is ", num_tensors, ", the ", count, " parts have ",
                                                 tensors_.size(), " tensors"));
}

absl::Status GgufFile::AddPart(std::shared_ptr<const GgufFile> part, uint64_t index, uint64_t count) {
  for (const auto& [key, expected] : {std::pair(kNumber, index), std::pair(kCount, count)}) {
    BATON_ASSIGN_OR_RETURN(const uint64_t found, part->GetU64(key));
    if (found == expected) continue;
    return absl::InvalidArgumentError(absl::StrCat(part->path_, ": key ", key, " is ", found, ", should be ", expected));
  }
  for (const TensorView& tensor : part->tensors_) {
    if (!tensor_index_.emplace(tensor.name, tensors_.size()).second) {
      return absl::InvalidArgumentError(absl::StrCat(part->path_, ": tensor ", tensor.name, " is in an earlier part, too"));
    }
    tensors_.push_back(tensor);
  }
  more_parts_.push_back(std::move(part));
  return absl::OkStatus();
}

}  // namespace baton
