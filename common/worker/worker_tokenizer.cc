// SPDX-License-Identifier: Apache-2.0
#include "common/worker/worker_tokenizer.h"

#include <vector>

#include "absl/status/statusor.h"
#include "common/base/logging.h"
#include "common/text/text_bundle.h"

namespace baton {

WorkerTokenizer ReadWorkerTokenizer(const std::string& path, bool with_answer_tokens) {
  WorkerTokenizer result;
  const absl::StatusOr<TextBundle> bundle = LoadTextBundle(path);
  if (!bundle.ok()) {
    BATON_LOG(WARNING) << "no tokenizer to compare with the router's: " << bundle.status().message();
    return result;
  }
  const Tokenizer& tokenizer = *bundle->tokenizer;
  result.fingerprint = tokenizer.fingerprint();
  if (!with_answer_tokens) return result;
  std::vector<absl::string_view> bytes(static_cast<size_t>(tokenizer.vocab_size()));
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.IsSpecial(id)) bytes[id] = tokenizer.TokenBytes(id);
  }
  result.answer_tokens = std::make_shared<TokenTrie>(bytes);
  result.first_token_loses_spaces = tokenizer.leading_rule().kind == LeadingRule::Kind::kFirstToken;
  return result;
}

}  // namespace baton
