// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_WORKER_WORKER_TOKENIZER_H_
#define BATON_COMMON_WORKER_WORKER_TOKENIZER_H_

#include <memory>
#include <string>

#include "common/grammar/token_trie.h"

namespace baton {

// What a worker, which deals in ids, knows of its model's tokenizer.
struct WorkerTokenizer {
  // Tokenizer::fingerprint(), for the router to hold against its own. Empty for a model without a tokenizer, or with one that
  // cannot be read (logged): it is not compared.
  std::string fingerprint;
  // The bytes of the tokens that constrained answers are made of. Null: not asked for, or there is no tokenizer.
  std::shared_ptr<const TokenTrie> answer_tokens;
  bool first_token_loses_spaces = false;  // As Grammar has it.
};

// Of the model at `path`.
WorkerTokenizer ReadWorkerTokenizer(const std::string& path, bool with_answer_tokens);

}  // namespace baton

#endif  // BATON_COMMON_WORKER_WORKER_TOKENIZER_H_
