// SPDX-License-Identifier: Apache-2.0
#include "decode_worker/grammar_cache.h"

#include "common/base/status_macros.h"
#include "common/grammar/json_schema.h"

namespace baton {

absl::StatusOr<std::shared_ptr<Grammar>> GrammarCache::Get(const internal::AnswerFormat& format) {
  if (format.format_case() == internal::AnswerFormat::FORMAT_NOT_SET) return nullptr;
  const std::string key = format.SerializeAsString();
  {
    MutexLock lock(&mutex_);
    for (auto it = recent_.begin(); it != recent_.end(); ++it) {
      if (it->first != key) continue;
      recent_.splice(recent_.begin(), recent_, it);
      return it->second;
    }
  }
  // Two that ask at once compile twice: the lock is not held for so long.
  BATON_ASSIGN_OR_RETURN(std::shared_ptr<Grammar> grammar, Compile(format));
  MutexLock lock(&mutex_);
  recent_.emplace_front(key, grammar);
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
