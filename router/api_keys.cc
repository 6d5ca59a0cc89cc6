// SPDX-License-Identifier: Apache-2.0
#include "router/api_keys.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

constexpr size_t kMaxFileBytes = 1 << 20;

absl::StatusOr<std::string> ReadKeyFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return absl::NotFoundError(absl::StrCat("--api-keys ", path, ": cannot be read"));
  std::string text(kMaxFileBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.bad()) return absl::UnavailableError(absl::StrCat("--api-keys ", path, ": cannot be read"));
  text.resize(static_cast<size_t>(in.gcount()));
  if (text.size() <= kMaxFileBytes) return text;
  return absl::InvalidArgumentError(absl::StrCat("--api-keys ", path, ": is over ", kMaxFileBytes, " bytes"));
}

absl::StatusOr<std::vector<ApiKey>> ParseKeyFile(const std::string& path, const std::string& text) {
  absl::StatusOr<std::vector<ApiKey>> keys = ParseApiKeys(text);
  if (!keys.ok()) return Annotate(keys.status(), absl::StrCat("--api-keys ", path));
  return keys;
}

// In a time that depends on the lengths alone.
bool SameKey(absl::string_view a, absl::string_view b) {
  unsigned char difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[b.empty() ? 0 : i % b.size()]);
  return difference == 0;
}

bool May(KeyRole role, KeyRole needed) { return role == needed || role == KeyRole::kAdmin; }

absl::string_view Purpose(KeyRole needed) {
  switch (needed) {
    case KeyRole::kClient:
      return "for clients";
    case KeyRole::kWorker:
      return "for workers";
    case KeyRole::kAdmin:
      return "for administration";
  }
  return "";
}

}  // namespace

absl::StatusOr<std::vector<ApiKey>> ParseApiKeys(absl::string_view text) {
  std::vector<ApiKey> keys;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line[0] == '#') continue;
    const auto error = [number](const auto&... what) { return absl::InvalidArgumentError(absl::StrCat("line ", number, ": ", what...)); };
    const std::vector<std::string> words = absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    if (words.size() < 2 || words.size() > 3) return error("needs NAME KEY [ROLE], has ", words.size(), " words");
    ApiKey key{.name = words[0], .key = words[1]};
    if (words.size() == 3) {
      if (words[2] == "worker") {
        key.role = KeyRole::kWorker;
      } else if (words[2] == "admin") {
        key.role = KeyRole::kAdmin;
      } else if (words[2] != "client") {
        return error("the role is none of client, worker, admin");
      }
    }
    const auto visible = [](char c) { return c > 0x20 && c < 0x7f; };
    if (!std::all_of(line.begin(), line.end(), [&](char c) { return visible(c) || c == ' ' || c == '\t'; })) {
      return error("has other characters than visible ASCII");
    }
    if (key.key.size() < kMinKeyBytes) return error("the key of ", key.name, " has ", key.key.size(), " characters, at least ", kMinKeyBytes, " are needed");
    for (const ApiKey& other : keys) {
      if (other.name == key.name) return error("the name ", key.name, " is there before");
      if (other.key == key.key) return error("the key of ", key.name, " is that of ", other.name);
    }
    keys.push_back(std::move(key));
  }
  if (keys.empty()) return absl::InvalidArgumentError("there is no key in it");
  return keys;
}

absl::StatusOr<std::unique_ptr<ApiKeys>> ApiKeys::Load(const std::string& path) {
  BATON_ASSIGN_OR_RETURN(std::string text, ReadKeyFile(path));
  BATON_ASSIGN_OR_RETURN(std::vector<ApiKey> keys, ParseKeyFile(path, text));
  auto loaded = std::unique_ptr<ApiKeys>(new ApiKeys(path));
  MutexLock lock(&loaded->mutex_);
  loaded->keys_ = std::move(keys);
  loaded->text_ = std::move(text);
  return loaded;
}

absl::StatusOr<std::string> ApiKeys::Check(absl::string_view authorization, KeyRole needed) const {
  absl::string_view key = absl::StripAsciiWhitespace(authorization);
  if (key.empty()) return absl::UnauthenticatedError("no API key was sent: it belongs into \"Authorization: Bearer KEY\"");
  constexpr absl::string_view kScheme = "bearer ";
  if (!absl::StartsWithIgnoreCase(key, kScheme)) {
    return absl::UnauthenticatedError("the Authorization header is not \"Bearer KEY\"");
  }
  key = absl::StripAsciiWhitespace(key.substr(kScheme.size()));
  MutexLock lock(&mutex_);
  const ApiKey* found = nullptr;
  for (const ApiKey& known : keys_) {
    if (SameKey(key, known.key)) found = &known;
  }
  if (found == nullptr) return absl::UnauthenticatedError("the API key is not known here");
  if (May(found->role, needed)) return found->name;
  return absl::PermissionDeniedError(absl::StrCat("the API key ", found->name, " is not one ", Purpose(needed)));
}

void ApiKeys::Reload() {
  const absl::StatusOr<std::string> text = ReadKeyFile(path_);
  MutexLock lock(&mutex_);
  if (text.ok() && *text == text_) return;
  absl::StatusOr<std::vector<ApiKey>> keys = text.ok() ? ParseKeyFile(path_, *text) : text.status();
  if (!keys.ok()) {
    if (refused_ != keys.status().message()) BATON_LOG(WARNING) << keys.status().message() << "; the keys stay as they were";
    refused_ = std::string(keys.status().message());
    return;
  }
  keys_ = *std::move(keys);
  text_ = *text;
  refused_.clear();
  BATON_LOG(INFO) << "--api-keys " << path_ << ": read again, " << keys_.size() << " keys";
}

}  // namespace baton
