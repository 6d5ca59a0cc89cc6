// SPDX-License-Identifier: Apache-2.0
#include "common/text/text_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/format/gguf.h"
#include "common/format/mapped_file.h"

namespace baton {
namespace {

constexpr char kGguf[] = "model.gguf", kTokenizer[] = "tokenizer.json", kConfig[] = "config.json";
constexpr const char* kFolderFiles[] = {kTokenizer, "tokenizer_config.json", "special_tokens_map.json", "generation_config.json", kConfig,
                                        "chat_template.jinja"};

bool IsKnown(absl::string_view name) {
  return name == kGguf || std::find(std::begin(kFolderFiles), std::end(kFolderFiles), name) != std::end(kFolderFiles);
}

// Writes a GGUF file of version 3 without tensors.
class GgufText {
 public:
  explicit GgufText(const GgufFile& file) : file_(file) {}

  absl::StatusOr<std::string> Write() {
    uint64_t count = 0;
    for (const GgufEntry& entry : file_.entries()) {
      if (!absl::StartsWith(entry.key, "tokenizer.")) continue;
      if (entry.value.type == GgufValueType::kArray && entry.value.element_type == GgufValueType::kArray) continue;  // Means nothing to us.
      BATON_RETURN_IF_ERROR(Add(entry));
      ++count;
    }
    std::string header = "GGUF";
    Put<uint32_t>(3, &header);
    Put<uint64_t>(0, &header);
    Put<uint64_t>(count, &header);
    std::string bytes = header + entries_;
    bytes.resize((bytes.size() + 31) / 32 * 32);
    return bytes;
  }

 private:
  template <typename T>
  static void Put(T value, std::string* to) {
    static_assert(std::endian::native == std::endian::little);
    to->append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void PutString(absl::string_view text) {
    Put<uint64_t>(text.size(), &entries_);
    entries_.append(text.data(), text.size());
  }
  void PutType(GgufValueType type) { Put<uint32_t>(static_cast<uint32_t>(type), &entries_); }

  // In the widest type of its kind: lookups do not tell those apart.
  absl::Status Add(const GgufEntry& entry) {
    PutString(entry.key);
    switch (entry.value.type) {
      case GgufValueType::kString: {
        BATON_ASSIGN_OR_RETURN(const absl::string_view text, file_.GetString(entry.key));
        PutType(GgufValueType::kString);
        PutString(text);
        return absl::OkStatus();
      }
      case GgufValueType::kBool: {
        BATON_ASSIGN_OR_RETURN(const bool value, file_.GetBool(entry.key));
        PutType(GgufValueType::kBool);
        Put<uint8_t>(value, &entries_);
        return absl::OkStatus();
      }
      case GgufValueType::kF32:
      case GgufValueType::kF64: {
        BATON_ASSIGN_OR_RETURN(const double value, file_.GetF64(entry.key));
        PutType(GgufValueType::kF64);
        Put<double>(value, &entries_);
        return absl::OkStatus();
      }
      case GgufValueType::kArray:
        PutType(GgufValueType::kArray);
        return AddArray(entry);
      case GgufValueType::kU64: {
        BATON_ASSIGN_OR_RETURN(const uint64_t value, file_.GetU64(entry.key));
        PutType(GgufValueType::kU64);
        Put<uint64_t>(value, &entries_);
        return absl::OkStatus();
      }
      default: {
        BATON_ASSIGN_OR_RETURN(const int64_t value, file_.GetI64(entry.key));
        PutType(GgufValueType::kI64);
        Put<int64_t>(value, &entries_);
        return absl::OkStatus();
      }
    }
  }

  absl::Status AddArray(const GgufEntry& entry) {
    switch (entry.value.element_type) {
      case GgufValueType::kString: {
        BATON_ASSIGN_OR_RETURN(const std::vector<absl::string_view> texts, file_.GetStringArray(entry.key));
        PutType(GgufValueType::kString);
        Put<uint64_t>(texts.size(), &entries_);
        for (const absl::string_view text : texts) PutString(text);
        return absl::OkStatus();
      }
      case GgufValueType::kF32: {
        BATON_ASSIGN_OR_RETURN(const std::vector<float> values, file_.GetF32Array(entry.key));
        PutType(GgufValueType::kF32);
        Put<uint64_t>(values.size(), &entries_);
        for (const float value : values) Put<float>(value, &entries_);
        return absl::OkStatus();
      }
      case GgufValueType::kF64:  // No key of a tokenizer has such: an empty array keeps its place.
      case GgufValueType::kBool:
        PutType(entry.value.element_type);
        Put<uint64_t>(0, &entries_);
        return absl::OkStatus();
      default: {
        BATON_ASSIGN_OR_RETURN(const std::vector<int64_t> values, file_.GetI64Array(entry.key));
        PutType(GgufValueType::kI64);
        Put<uint64_t>(values.size(), &entries_);
        for (const int64_t value : values) Put<int64_t>(value, &entries_);
        return absl::OkStatus();
      }
    }
  }

  const GgufFile& file_;
  std::string entries_;
};

// `tokenizer`: where that is.
absl::StatusOr<std::vector<TextFile>> ReadFolder(const std::string& folder, const std::string& tokenizer) {
  std::vector<TextFile> files;
  struct stat found;
  for (const char* name : kFolderFiles) {
    const std::string path = absl::string_view(name) == kTokenizer ? tokenizer : absl::StrCat(folder, "/", name);
    if (::stat(path.c_str(), &found) != 0) continue;
    BATON_ASSIGN_OR_RETURN(const std::shared_ptr<const MappedFile> file, MappedFile::Open(path));
    files.push_back({name, {reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size()}});
  }
  if (files.empty()) return absl::NotFoundError(absl::StrCat(folder, ": has no tokenizer.json or config.json"));
  return files;
}

}  // namespace

absl::StatusOr<std::vector<TextFile>> ReadTextFiles(absl::string_view path) {
  struct stat found;
  const std::string whole(path);
  if (::stat(whole.c_str(), &found) == 0 && S_ISDIR(found.st_mode)) return ReadFolder(whole, absl::StrCat(whole, "/", kTokenizer));
  if (absl::EndsWith(path, ".json")) {
    const size_t slash = whole.rfind('/');
    return ReadFolder(slash == std::string::npos ? "." : whole.substr(0, slash), whole);
  }
  BATON_ASSIGN_OR_RETURN(const std::shared_ptr<const GgufFile> file, GgufFile::Open(path));
  BATON_ASSIGN_OR_RETURN(std::string bytes, GgufText(*file).Write());
  return std::vector<TextFile>{{kGguf, std::move(bytes)}};
}

absl::StatusOr<std::string> WriteTextFiles(const std::vector<TextFile>& files, const std::string& folder) {
  std::set<std::string> names;
  for (const TextFile& file : files) {
    if (!IsKnown(file.name)) return absl::InvalidArgumentError("a file of another name than those of a model's text");
    if (!names.insert(file.name).second) return absl::InvalidArgumentError(absl::StrCat(file.name, " is there twice"));
  }
  const bool gguf = names.contains(kGguf);
  if (gguf ? names.size() > 1 : !names.contains(kTokenizer) && !names.contains(kConfig)) {
    return absl::InvalidArgumentError(absl::StrCat(names.size(), " files, which are not those of one model"));
  }
  for (const TextFile& file : files) {
    const std::string path = absl::StrCat(folder, "/", file.name);
    std::ofstream out(path, std::ios::binary);
    out.write(file.bytes.data(), static_cast<std::streamsize>(file.bytes.size()));
    out.close();
    if (!out) return absl::UnavailableError(absl::StrCat("cannot write ", path));
  }
  return gguf ? absl::StrCat(folder, "/", kGguf) : folder;
}

}  // namespace baton
