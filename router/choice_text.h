// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_ROUTER_CHOICE_TEXT_H_
#define BATON_ROUTER_CHOICE_TEXT_H_

#include <utility>
#include <vector>

#include "baton/internal/decode.pb.h"
#include "baton/v1/generation.pb.h"
#include "common/text/detokenizer.h"
#include "common/text/stop_string_matcher.h"

namespace baton {

// One choice's tokens on their way to being a client's deltas: text, stop strings, log-probabilities, finish reason. One
// thread. `tokenizer` outlives this.
class ChoiceText {
 public:
  ChoiceText(const Tokenizer* tokenizer, bool keep_special, bool with_logprobs, StopStringMatcher stops, int index)
      : tokenizer_(tokenizer),
        detokenizer_(tokenizer, keep_special),
        stops_(std::move(stops)),
        with_logprobs_(with_logprobs),
        index_(index) {}

  // Appends to `delta`, which is for this choice. Tokens after the one that completed a stop string are dropped. True when
  // the choice is finished with these tokens, its finish_reason being set.
  bool Push(const std::vector<internal::GeneratedToken>& tokens, v1::ChoiceDelta* delta);

  // It ends without any token, by its length.
  bool FinishEmpty(v1::ChoiceDelta* delta) {
    delta->set_index(index_);
    Finish("length", delta);
    return true;
  }

  bool finished() const { return finished_; }
  // A stop string ended it, so that the worker does not know yet.
  bool stopped_by_text() const { return stopped_by_text_; }
  const std::string& finish_reason() const { return finish_reason_; }
  int num_tokens() const { return num_tokens_; }

 private:
  void AppendLogprobs(const internal::GeneratedToken& token, v1::ChoiceDelta* delta) const;
  void Release(StopStringMatcher::Result result, v1::ChoiceDelta* delta);
  void Finish(absl::string_view reason, v1::ChoiceDelta* delta);

  const Tokenizer* const tokenizer_;
  Detokenizer detokenizer_;
  StopStringMatcher stops_;
  const bool with_logprobs_;
  const int index_;
  int num_tokens_ = 0;
  bool finished_ = false;
  bool stopped_by_text_ = false;
  std::string finish_reason_;
};

}  // namespace baton

#endif  // BATON_ROUTER_CHOICE_TEXT_H_
