// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_TEXT_TEXT_FILES_H_
#define BATON_COMMON_TEXT_TEXT_FILES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace baton {

// One of the files that LoadModelText reads.
struct TextFile {
  std::string name;  // "model.gguf", "tokenizer.json", "config.json", ...: no folders.
  std::string bytes;
};

// What LoadModelText(path) reads, without the weights: of a folder its small files, of a GGUF file (or of the first of its parts) a
// GGUF file of the `tokenizer.*` keys alone.
//   Codes of GgufFile::Open and MappedFile::Open; NOT_FOUND for a folder with none of them.
absl::StatusOr<std::vector<TextFile>> ReadTextFiles(absl::string_view path);

// Writes them into the folder `folder`, which exists, and returns the path for LoadModelText: it then says what it says of the model
// itself, and the tokenizer has the same fingerprint.
//   INVALID_ARGUMENT  a name that is none of those above (nothing leaves the folder), or is there twice; none of a model.
//   UNAVAILABLE       a file cannot be written.
absl::StatusOr<std::string> WriteTextFiles(const std::vector<TextFile>& files, const std::string& folder);

}  // namespace baton

#endif  // BATON_COMMON_TEXT_TEXT_FILES_H_
