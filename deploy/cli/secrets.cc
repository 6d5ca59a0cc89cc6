// SPDX-License-Identifier: Apache-2.0
#include "deploy/cli/secrets.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace baton::cli {
namespace {

constexpr char kRemoved[] = "[removed]";

bool IsNameChar(char c) { return absl::ascii_isalnum(c) || c == '_' || c == '-'; }

// Whether a value under this name is a secret. Exactly "token" is one, "max_tokens" and "token_timeout" are not.
bool MeansSecret(absl::string_view name) {
  std::string plain = absl::StrReplaceAll(absl::AsciiStrToLower(name), {{"-", "_"}});
  plain.erase(0, std::min(plain.find_first_not_of('_'), plain.size()));
  if (plain == "token") return true;
  for (const char* end : {"key", "keys", "secret", "secrets", "password", "passwd", "passphrase", "authorization", "credential",
                          "credentials", "auth_token", "access_token", "api_token", "bearer_token", "hf_token"}) {
    if (plain == end || absl::EndsWith(plain, absl::StrCat("_", end)) || (absl::EndsWith(plain, end) && absl::EndsWith(plain, "key"))) {
      return true;
    }
  }
  return false;
}

// The end of the value that begins at `begin`: behind its closing quote, or at white space, a comma or a bracket.
size_t EndOfValue(absl::string_view line, size_t begin) {
  if (begin < line.size() && (line[begin] == '"' || line[begin] == '\'')) {
    const size_t quote = line.find(line[begin], begin + 1);
    return quote == absl::string_view::npos ? line.size() : quote + 1;
  }
  return std::min(line.find_first_of(" \t,;}]\"'", begin), line.size());
}

// Where the value of the name that ends at `end` begins; npos when there is none.
size_t BeginOfValue(absl::string_view line, size_t begin, size_t end) {
  size_t at = end;
  if (at < line.size() && (line[at] == '"' || line[at] == '\'')) ++at;
  while (at < line.size() && (line[at] == ' ' || line[at] == '\t')) ++at;
  if (at < line.size() && (line[at] == ':' || line[at] == '=')) {
    ++at;
    while (at < line.size() && (line[at] == ' ' || line[at] == '\t')) ++at;
    return at < line.size() ? at : absl::string_view::npos;
  }
  const bool flag = absl::StartsWith(line.substr(begin), "--");
  return flag && at > end && at < line.size() ? at : absl::string_view::npos;
}

std::string RemoveFromLine(absl::string_view line) {
  std::string out;
  size_t at = 0;
  while (at < line.size()) {
    if (!IsNameChar(line[at])) {
      // scheme://user:password@host
      const size_t host = absl::StartsWith(line.substr(at), "://") ? line.find_first_of("@/ \t\"'", at + 3) : absl::string_view::npos;
      if (host != absl::string_view::npos && line[host] == '@') {
        absl::StrAppend(&out, "://", kRemoved);
        at = host;
        continue;
      }
      out += line[at++];
      continue;
    }
    size_t end = at;
    while (end < line.size() && IsNameChar(line[end])) ++end;
    const absl::string_view word = line.substr(at, end - at);
    if (absl::StartsWith(word, "sk-") && word.size() > 8) {
      absl::StrAppend(&out, kRemoved);
    } else if (absl::EqualsIgnoreCase(word, "bearer") && end < line.size() && line[end] == ' ') {
      absl::StrAppend(&out, word, " ", kRemoved);
      end = EndOfValue(line, end + 1);
    } else {
      const size_t value = MeansSecret(word) ? BeginOfValue(line, at, end) : absl::string_view::npos;
      absl::StrAppend(&out, word);
      if (value != absl::string_view::npos) {
        absl::StrAppend(&out, line.substr(end, value - end), kRemoved);
        // A header's value has words: "Basic dXNlcg==".
        end = absl::EqualsIgnoreCase(word, "authorization") ? line.size() : EndOfValue(line, value);
      }
    }
    at = end;
  }
  return out;
}

}  // namespace

std::string RemoveSecrets(absl::string_view text) {
  std::vector<std::string> lines;
  bool in_key = false;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::StrContains(line, "PRIVATE KEY-----")) {
      if (!in_key) lines.push_back(kRemoved);
      in_key = absl::StrContains(line, "-----BEGIN") && !absl::StrContains(line, "-----END");
    } else if (!in_key) {
      lines.push_back(RemoveFromLine(line));
    }
  }
  std::string out;
  for (size_t i = 0; i < lines.size(); ++i) absl::StrAppend(&out, i > 0 ? "\n" : "", lines[i]);
  return out;
}

}  // namespace baton::cli
