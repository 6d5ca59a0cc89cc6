// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_DEPLOY_CLI_FLAGS_H_
#define BATON_DEPLOY_CLI_FLAGS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/flags/declare.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

// The flags of all subcommands. A name is one flag in a program, so what several subcommands share stands here once; each
// subcommand's spec lists those it has. Read after parsing; main thread.

ABSL_DECLARE_FLAG(std::string, model);
ABSL_DECLARE_FLAG(bool, json);
ABSL_DECLARE_FLAG(int, threads);
ABSL_DECLARE_FLAG(std::string, transport);

// serve
ABSL_DECLARE_FLAG(int, prefill);
ABSL_DECLARE_FLAG(int, decode);
ABSL_DECLARE_FLAG(std::string, grpc);
ABSL_DECLARE_FLAG(std::string, http);
ABSL_DECLARE_FLAG(std::string, status);
ABSL_DECLARE_FLAG(bool, local_prefill);
ABSL_DECLARE_FLAG(std::string, disaggregate);
ABSL_DECLARE_FLAG(std::string, router_flags);
ABSL_DECLARE_FLAG(std::string, prefill_flags);
ABSL_DECLARE_FLAG(std::string, decode_flags);
ABSL_DECLARE_FLAG(absl::Duration, grace);
ABSL_DECLARE_FLAG(absl::Duration, start_timeout);
ABSL_DECLARE_FLAG(std::string, log_level);
ABSL_DECLARE_FLAG(std::string, log_format);

// generate, chat, status
ABSL_DECLARE_FLAG(std::string, router);
ABSL_DECLARE_FLAG(std::string, api_key_file);
ABSL_DECLARE_FLAG(std::string, prompt);
ABSL_DECLARE_FLAG(std::string, messages);
ABSL_DECLARE_FLAG(std::string, prompt_ids);
ABSL_DECLARE_FLAG(std::string, tools);
ABSL_DECLARE_FLAG(std::string, template_kwargs);
ABSL_DECLARE_FLAG(std::string, system);
ABSL_DECLARE_FLAG(bool, add_special_tokens);
ABSL_DECLARE_FLAG(bool, keep_special);
ABSL_DECLARE_FLAG(bool, timeline);
ABSL_DECLARE_FLAG(absl::Duration, timeout);
ABSL_DECLARE_FLAG(int64_t, max_tokens);
ABSL_DECLARE_FLAG(int, min_tokens);
ABSL_DECLARE_FLAG(double, temperature);
ABSL_DECLARE_FLAG(int, top_k);
ABSL_DECLARE_FLAG(double, top_p);
ABSL_DECLARE_FLAG(double, min_p);
ABSL_DECLARE_FLAG(uint64_t, seed);
ABSL_DECLARE_FLAG(double, repetition_penalty);
ABSL_DECLARE_FLAG(double, presence_penalty);
ABSL_DECLARE_FLAG(double, frequency_penalty);
ABSL_DECLARE_FLAG(std::string, logit_bias);
ABSL_DECLARE_FLAG(std::string, stop_token_ids);
ABSL_DECLARE_FLAG(bool, ignore_eos);
ABSL_DECLARE_FLAG(int, logprobs);
ABSL_DECLARE_FLAG(int, n);
ABSL_DECLARE_FLAG(std::string, cache_salt);
ABSL_DECLARE_FLAG(int, priority);
ABSL_DECLARE_FLAG(std::string, request_id);

// doctor
ABSL_DECLARE_FLAG(std::string, processes);
ABSL_DECLARE_FLAG(std::string, config_folder);
ABSL_DECLARE_FLAG(int, log_lines);

// tokenize, template, logits
ABSL_DECLARE_FLAG(std::string, tokenizer);
ABSL_DECLARE_FLAG(bool, add_special);
ABSL_DECLARE_FLAG(std::string, now);
ABSL_DECLARE_FLAG(bool, reference);
ABSL_DECLARE_FLAG(bool, all);
ABSL_DECLARE_FLAG(int, top);
ABSL_DECLARE_FLAG(std::string, raw);
ABSL_DECLARE_FLAG(std::string, isa);
ABSL_DECLARE_FLAG(std::string, activations);
ABSL_DECLARE_FLAG(std::string, kv_dtype);
ABSL_DECLARE_FLAG(std::string, kv_wire);
ABSL_DECLARE_FLAG(int, chunk_tokens);

namespace baton::cli {

// Every --stop that was given, in order.
const std::vector<std::string>& StopStrings();

// The key in --api-key-file; empty without one.
absl::StatusOr<std::string> ApiKey();

// Help texts depend on the subcommand where one name means two things.
void SetCurrentCommand(absl::string_view name);

}  // namespace baton::cli

#endif  // BATON_DEPLOY_CLI_FLAGS_H_
