// SPDX-License-Identifier: Apache-2.0
#include "decode_worker/grammar_cache.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/grammar/json_schema.h"

namespace baton {

GrammarCache::GrammarCache(std::shared_ptr<const TokenTrie> tokens, bool first_token_loses_spaces)
    : tokens_(std::move(tokens)), first_token_loses_spaces_(first_token_loses_spaces), thread_("grammars", [this] { Run(); }) {}

void GrammarCache::Stop() {
  jobs_.Close();
  thread_.Join();
}

void GrammarCache::Get(const internal::AnswerFormat& format, Then then) {
  if (format.format_case() == internal::AnswerFormat::FORMAT_NOT_SET) return then(nullptr);
  std::string key = format.SerializeAsString();
  if (auto found = Find(key)) return then(std::move(found));
  Job job{format, std::move(key), then};
  if (jobs_.TryPush(std::move(job))) return;
  then(absl::ResourceExhaustedError(absl::StrCat(kMaxCompiling, " formats wait to be compiled")));
}

std::shared_ptr<Grammar> GrammarCache::Find(const std::string& key) {
  MutexLock lock(&mutex_);
  for (auto it = recent_.begin(); it != recent_.end(); ++it) {
    if (it->first != key) continue;
    recent_.splice(recent_.begin(), recent_, it);
    return it->second;
  }
  return nullptr;
}

void GrammarCache::Run() {
  while (!jobs_.closed()) {
    const std::optional<Job> job = jobs_.Pop(absl::Seconds(10));
    if (job.has_value()) job->then(Make(*job));
  }
}

// It may have been made while the job waited.
absl::StatusOr<std::shared_ptr<Grammar>> GrammarCache::Make(const Job& job) {
  if (auto found = Find(job.key)) return found;
  BATON_ASSIGN_OR_RETURN(std::shared_ptr<Grammar> grammar, Compile(job.format));
  MutexLock lock(&mutex_);
  recent_.emplace_front(job.key, grammar);
  if (recent_.size() > kMaxGrammars) recent_.pop_back();
  return grammar;
}

absl::StatusOr<std::shared_ptr<Grammar>> GrammarCache::Compile(const internal::AnswerFormat& format) const {
  if (tokens_ == nullptr) return absl::InvalidArgumentError("response_format cannot be used: the model has no tokenizer");
  if (format.has_json_object()) return std::make_shared<Grammar>(AnyJsonObject(), tokens_, first_token_loses_spaces_);
  BATON_ASSIGN_OR_RETURN(Program program, CompileJsonSchema(format.json_schema(), format.lenient()));
  return std::make_shared<Grammar>(std::move(program), tokens_, first_token_loses_spaces_);
}

}  // namespace baton
