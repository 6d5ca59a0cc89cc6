// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_DEPLOY_CLI_REQUEST_H_
#define BATON_DEPLOY_CLI_REQUEST_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "baton/v1/generation.pb.h"
#include "common/base/config.h"
#include "google/protobuf/message.h"

namespace baton::cli {

// The sampling flags that generate and chat share, in groups for --help.
ConfigGroup SamplingFlags();
ConfigGroup AnswerFlags();

// Sets everything but the prompt from the flags that were given; what was not given stays unset, so that the router's
// defaults hold.
//   INVALID_ARGUMENT  malformed --logit-bias or --stop-token-ids. Ranges are the router's to judge.
absl::Status SetSampling(const ConfigResult& config, v1::GenerateRequest* request);

// Sets the prompt from --prompt, --messages or --prompt-ids, of which exactly one must be there.
//   INVALID_ARGUMENT  none or several, or malformed JSON.
absl::Status SetPrompt(const ConfigResult& config, v1::GenerateRequest* request);

// Adds a JSON list of {"role", "content", ...} to `chat`; members beside the two travel as they are.
//   INVALID_ARGUMENT  not such a list; names the place.
absl::Status AddMessages(absl::string_view json, v1::ChatPrompt* chat);

// What protobuf would refuse only while it is sent, with words of its own.
//   INVALID_ARGUMENT  a text in `message` is not UTF-8.
absl::Status CheckTexts(const google::protobuf::Message& message);

}  // namespace baton::cli

#endif  // BATON_DEPLOY_CLI_REQUEST_H_
