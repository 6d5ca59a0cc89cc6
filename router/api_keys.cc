// SPDX-License-Identifier: Apache-2.0
#include "router/api_keys.h"

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/logging.h"
#include "common/base/status_macros.h"
#include "router/prepared_request.h"

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

// Of the words behind name and key. What a word is that has no business there is not said: it may be a key.
absl::StatusOr<KeyRole> ParseRole(absl::string_view word) {
  if (word == "client") return KeyRole::kClient;
  if (word == "worker") return KeyRole::kWorker;
  if (word == "admin") return KeyRole::kAdmin;
  return absl::InvalidArgumentError("the role is none of client, worker, admin");
}

// NOT_FOUND: no limit has that name.
absl::Status ParseLimit(absl::string_view name, absl::string_view text, KeyLimits* limits) {
  struct Row {
    absl::string_view name;
    int64_t least, most;
    std::function<void(int64_t)> set;
  };
  constexpr int64_t kMost = 1000000000;
  const Row rows[] = {{"max-concurrent", 1, kMost, [&](int64_t value) { limits->max_concurrent = value; }},
                      {"requests-per-minute", 1, kMost, [&](int64_t value) { limits->requests_per_minute = value; }},
                      {"tokens-per-minute", 1, kMost, [&](int64_t value) { limits->tokens_per_minute = value; }},
                      {"weight", 1, kMaxKeyWeight, [&](int64_t value) { limits->weight = static_cast<int>(value); }},
                      {"priority", -kMaxPriority, kMaxPriority, [&](int64_t value) { limits->priority = static_cast<int>(value); }}};
  for (const Row& row : rows) {
    if (row.name != name) continue;
    int64_t value = 0;
    if (!absl::SimpleAtoi(text, &value) || value < row.least || value > row.most) {
      return absl::InvalidArgumentError(absl::StrCat(name, " \"", text, "\" is not a number from ", row.least, " to ", row.most));
    }
    row.set(value);
    return absl::OkStatus();
  }
  return absl::NotFoundError("");
}

absl::Status ParseRest(const std::vector<std::string>& words, ApiKey* key) {
  std::set<std::string> seen;
  for (size_t i = 2; i < words.size(); ++i) {
    const std::pair<std::string, std::string> limit = absl::StrSplit(words[i], absl::MaxSplits('=', 1));
    if (!absl::StrContains(words[i], '=')) {
      if (i > 2) return absl::InvalidArgumentError(absl::StrCat("word ", i + 1, " is not LIMIT=VALUE"));
      BATON_ASSIGN_OR_RETURN(key->role, ParseRole(words[i]));
      continue;
    }
    if (key->role == KeyRole::kWorker) return absl::InvalidArgumentError("a worker's key has no limits");
    if (!seen.insert(limit.first).second) return absl::InvalidArgumentError(absl::StrCat(limit.first, " is there before"));
    const absl::Status status = ParseLimit(limit.first, limit.second, &key->limits);
    if (absl::IsNotFound(status)) {
      return absl::InvalidArgumentError(
          absl::StrCat("word ", i + 1, " is none of the limits max-concurrent, requests-per-minute, tokens-per-minute, weight, priority"));
    }
    BATON_RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
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
    const auto visible = [](char c) { return c > 0x20 && c < 0x7f; };
    if (!std::all_of(line.begin(), line.end(), [&](char c) { return visible(c) || c == ' ' || c == '\t'; })) {
      return error("has other characters than visible ASCII");
    }
    const std::vector<std::string> words = absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    if (words.size() < 2) return error("needs NAME KEY [ROLE] [LIMIT=VALUE ...], has ", words.size(), " words");
    ApiKey key{.name = words[0], .key = words[1]};
    if (const absl::Status status = ParseRest(words, &key); !status.ok()) return error(status.message());
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

absl::StatusOr<std::unique_ptr<ApiKeys>> ApiKeys::Load(const std::string& path, const Clock* clock) {
  BATON_ASSIGN_OR_RETURN(std::string text, ReadKeyFile(path));
  BATON_ASSIGN_OR_RETURN(std::vector<ApiKey> keys, ParseKeyFile(path, text));
  auto loaded = std::unique_ptr<ApiKeys>(new ApiKeys(path, clock));
  MutexLock lock(&loaded->mutex_);
  loaded->Set(std::move(keys));
  loaded->text_ = std::move(text);
  return loaded;
}

void ApiKeys::ExportTo(MetricRegistry* metrics) {
  MutexLock lock(&mutex_);
  metrics_ = metrics;
  for (const Known& known : keys_) known.account->ExportTo(metrics);
}

void ApiKeys::Set(std::vector<ApiKey> keys) {
  std::vector<Known> known;
  for (ApiKey& key : keys) {
    const auto old = std::find_if(keys_.begin(), keys_.end(), [&](const Known& k) { return k.key.name == key.name; });
    std::shared_ptr<KeyAccount> account = old == keys_.end() ? nullptr : old->account;
    if (account == nullptr) {
      account = std::make_shared<KeyAccount>(key.name, key.limits, clock_);
      if (metrics_ != nullptr) account->ExportTo(metrics_);
    } else {
      account->SetLimits(key.limits);
    }
    known.push_back({std::move(key), std::move(account)});
  }
  keys_ = std::move(known);
}

absl::StatusOr<std::string> ApiKeys::Check(absl::string_view authorization, KeyRole needed) const {
  BATON_ASSIGN_OR_RETURN(const std::shared_ptr<KeyAccount> account, Find(authorization, needed));
  return account->name();
}

absl::StatusOr<std::shared_ptr<KeyAccount>> ApiKeys::Find(absl::string_view authorization, KeyRole needed) const {
  absl::string_view key = absl::StripAsciiWhitespace(authorization);
  if (key.empty()) return absl::UnauthenticatedError("no API key was sent: it belongs into \"Authorization: Bearer KEY\"");
  constexpr absl::string_view kScheme = "bearer ";
  if (!absl::StartsWithIgnoreCase(key, kScheme)) {
    return absl::UnauthenticatedError("the Authorization header is not \"Bearer KEY\"");
  }
  key = absl::StripAsciiWhitespace(key.substr(kScheme.size()));
  MutexLock lock(&mutex_);
  const Known* found = nullptr;
  for (const Known& known : keys_) {
    if (SameKey(key, known.key.key)) found = &known;
  }
  if (found == nullptr) return absl::UnauthenticatedError("the API key is not known here");
  if (May(found->key.role, needed)) return found->account;
  return absl::PermissionDeniedError(absl::StrCat("the API key ", found->key.name, " is not one ", Purpose(needed)));
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
  Set(*std::move(keys));
  text_ = *text;
  refused_.clear();
  BATON_LOG(INFO) << "--api-keys " << path_ << ": read again, " << keys_.size() << " keys";
}

}  // namespace baton
