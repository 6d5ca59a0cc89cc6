// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_ROUTER_SERVED_MODEL_H_
#define BATON_ROUTER_SERVED_MODEL_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "baton/v1/generation.pb.h"
#include "common/text/tokenizer.h"

namespace baton {

// The text side of the model that this router serves. Any thread.
struct ServedModel {
  std::string name;  // What requests call it.
  std::shared_ptr<const Tokenizer> tokenizer;
  // The prompt's text for a chat; may take long and wait, so never on a thread that serves others. Absent: the model has no
  // template.
  //   INVALID_ARGUMENT  the template's own complaint.
  std::function<absl::StatusOr<std::string>(const v1::ChatPrompt&)> render_chat;
  // Bytes that one token can stand for at most; 0: not known. Text of more than context * this cannot fit.
  int64_t max_token_bytes = 0;
  // Why there is no text, in or out: the model has no tokenizer, so requests bring token ids and get them. Empty: there is.
  std::string no_text;
  int64_t created_unix_s = 0;  // For /v1/models.
};

}  // namespace baton

#endif  // BATON_ROUTER_SERVED_MODEL_H_
