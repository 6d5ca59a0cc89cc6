// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_DECODE_WORKER_GRAMMAR_CACHE_H_
#define BATON_DECODE_WORKER_GRAMMAR_CACHE_H_

#include <list>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "baton/internal/decode.pb.h"
#include "common/base/mutex.h"
#include "common/grammar/grammar.h"

namespace baton {

// The grammars of the answer formats that were asked for last, with the masks they have worked out. Any thread: what is not
// there is compiled on the caller's.
class GrammarCache {
 public:
  // Each has up to about 10 MB: kMaxSchemaBytes of text, the program, Grammar's states and masks.
  static constexpr size_t kMaxGrammars = 16;

  // `tokens` null: the model has no tokenizer.
  GrammarCache(std::shared_ptr<const TokenTrie> tokens, bool first_token_loses_spaces)
      : tokens_(std::move(tokens)), first_token_loses_spaces_(first_token_loses_spaces) {}

  // Null for a format that allows anything.
  //   INVALID_ARGUMENT  as CompileJsonSchema, or the model has no tokenizer.
  absl::StatusOr<std::shared_ptr<Grammar>> Get(const internal::AnswerFormat& format);

 private:
  absl::StatusOr<std::shared_ptr<Grammar>> Compile(const internal::AnswerFormat& format) const;

  const std::shared_ptr<const TokenTrie> tokens_;
  const bool first_token_loses_spaces_;
  Mutex mutex_;
  std::list<std::pair<std::string, std::shared_ptr<Grammar>>> recent_ ABSL_GUARDED_BY(mutex_);  // The last used first.
};

}  // namespace baton

#endif  // BATON_DECODE_WORKER_GRAMMAR_CACHE_H_
