// SPDX-License-Identifier: Apache-2.0
#include "deploy/cli/flags.h"

#include <utility>

#include "absl/flags/flag.h"
#include "common/base/quantity.h"
#include "common/base/secret_file.h"

namespace baton::cli {
namespace {

std::string& CurrentCommand() {
  static std::string* const name = new std::string;
  return *name;
}

std::vector<std::string>& MutableStopStrings() {
  static auto* const stops = new std::vector<std::string>;
  return *stops;
}

// Help is asked for after SetCurrentCommand.
const char* ModelHelp() {
  const std::string& command = CurrentCommand();
  if (command == "generate" || command == "chat") return "Name of the model, where the router serves more than one.";
  return "GGUF file, or Hugging Face folder with config.json and safetensors.";
}

const char* JsonHelp() {
  const std::string& command = CurrentCommand();
  if (command == "tokenize") return "JSON in and out, one object per line; otherwise text in, ids out.";
  if (command == "template") return "JSON in and out, one object per line; otherwise a JSON list of messages in, text out.";
  return "One JSON object on standard output instead of text.";
}

const char* StatusHelp() {
  if (CurrentCommand() == "status") return "HOST:PORT of a process's --status: asks that process alone whether it is ready.";
  return "HOST:PORT of the router's /health, /ready and /metrics; port 0 takes a free one.";
}

const char* ApiKeyHelp() {
  if (CurrentCommand() == "serve") return "File with a key of role admin, for the workers and for waiting until all serve; needed with --api-keys.";
  return "File with the API key that the router wants.";
}

const char* ThreadsHelp() {
  return CurrentCommand() == "serve" ? "Compute threads of each worker; 0 takes every CPU." : "Compute threads; 0 takes every CPU.";
}

}  // namespace

void SetCurrentCommand(absl::string_view name) { CurrentCommand() = std::string(name); }
const std::vector<std::string>& StopStrings() { return MutableStopStrings(); }

}  // namespace baton::cli

ABSL_FLAG(std::string, model, "", baton::cli::ModelHelp());
ABSL_FLAG(bool, json, false, baton::cli::JsonHelp());
ABSL_FLAG(int, threads, 0, baton::cli::ThreadsHelp());

ABSL_FLAG(int, prefill, 1, "Prefill workers to start.");
ABSL_FLAG(int, decode, 1, "Decode workers to start.");
ABSL_FLAG(std::string, grpc, "127.0.0.1:9000", "HOST:PORT of the router's gRPC services; port 0 takes a free one.");
ABSL_FLAG(std::string, http, "127.0.0.1:8000", "HOST:PORT of the router's HTTP API; port 0 takes a free one, empty serves none.");
ABSL_FLAG(std::string, status, "127.0.0.1:0", baton::cli::StatusHelp());
ABSL_FLAG(bool, local_prefill, false, "No prefill workers: every decode worker computes its prompts itself.");
ABSL_FLAG(std::string, disaggregate, "", "When prompts go to prefill workers: adaptive (where it is sooner), always or never; empty: adaptive, or never "
          "with --local-prefill.");
ABSL_FLAG(std::string, served_model_name, "", "Name that requests use; empty takes the first word of the file's name.");
ABSL_FLAG(std::string, transport, "auto", "How the KV cache travels: auto, or one kind (cuda_ipc, shm, nccl, tcp, grpc; cuda_ipc and nccl between GPUs).");
ABSL_FLAG(std::string, device, "auto", "auto (a GPU where one can serve, else the CPU), cpu, cuda, or reference (plain fp32, slow).");
ABSL_FLAG(baton::AutoByteSize, kv_memory, {}, "Memory of each worker's KV pool; auto divides half of what the cgroup leaves.");
ABSL_FLAG(int, max_context, 0, "Tokens of prompt and answer at most; 0 is the model's.");
ABSL_FLAG(std::string, kv_wire, "pool",
          "Form in which KV comes to a worker over tcp and grpc: pool, as --kv-dtype, or int8: half of f16's bytes, for a little accuracy.");
ABSL_FLAG(std::string, kv_dtype, "f16", "Type of cached keys and values: f16, bf16, int8 (with a scale per token and head: half the memory and traffic) or f32.");
ABSL_FLAG(std::string, cache_dir, "", "Folder where packed weights are kept for the next start, shared by the workers; empty keeps none.");
ABSL_FLAG(int, chunk_tokens, 512, "Prompt tokens per forward pass.");
ABSL_FLAG(int, max_running, 64, "Sequences per decode step.");
ABSL_FLAG(bool, prefix_cache, true, "Keep KV blocks of past requests for prompts that begin alike.");
ABSL_FLAG(std::string, max_request_bytes, "64MiB", "Largest request that the router takes.");
ABSL_FLAG(std::string, api_keys, "", "File of the keys that the router asks for, NAME KEY [client|worker|admin] [LIMIT=VALUE ...] a line.");
ABSL_FLAG(bool, insecure, false, "Serve other machines without asking anybody for a key or a certificate.");
ABSL_FLAG(std::string, tls_cert, "", "PEM certificate (and those up to the CA) of --grpc and --http, which then speak TLS alone. Read again when it changes.");
ABSL_FLAG(std::string, tls_key, "", "PEM key of --tls-cert, without a passphrase.");
ABSL_FLAG(std::string, tls_client_ca, "", "PEM certificates of the CA that every client has to have a certificate of, serve itself too (--cert, --key); "
          "empty: clients need none.");
ABSL_FLAG(std::string, router_flags, "", "More flags for the router, separated by spaces.");
ABSL_FLAG(std::string, prefill_flags, "", "More flags for the prefill workers, separated by spaces.");
ABSL_FLAG(std::string, decode_flags, "", "More flags for the decode workers, separated by spaces.");
ABSL_FLAG(absl::Duration, grace, absl::Seconds(30), "How long a drain waits for running requests.");
ABSL_FLAG(absl::Duration, start_timeout, absl::Minutes(2), "The cluster must be ready after so long.");
ABSL_FLAG(std::string, log_level, "info", "debug, info, warning or error.");
ABSL_FLAG(std::string, log_format, "text", "text or json.");

ABSL_FLAG(std::string, processes, "", "--status addresses of more processes, as of routers, separated by commas; workers are found.");
ABSL_FLAG(std::string, config_folder, "/etc/baton", "Folder of configuration files.");
ABSL_FLAG(int, log_lines, 1000, "Lines of the services' journal.");

ABSL_FLAG(std::string, router, "127.0.0.1:9000", "HOST:PORT of the router's gRPC services.");
ABSL_FLAG(std::string, api_key_file, "", baton::cli::ApiKeyHelp());
ABSL_FLAG(std::string, prompt, "", "Text to continue; - reads it from standard input.");
ABSL_FLAG(std::string, messages, "", "Chat as JSON, [{\"role\":\"user\",\"content\":\"...\"}]; - reads it from standard input.");
ABSL_FLAG(std::string, prompt_ids, "", "Token ids, 1,2,3; - reads them from standard input.");
ABSL_FLAG(std::string, tools, "", "Tools for the chat template, a JSON list.");
ABSL_FLAG(std::string, template_kwargs, "", "More variables for the chat template, a JSON object.");
ABSL_FLAG(std::string, system, "", "System message.");
ABSL_FLAG(bool, add_special_tokens, true, "Add the begin token to --prompt, where the model wants one.");
ABSL_FLAG(bool, keep_special, false, "Show special tokens in the text.");
ABSL_FLAG(bool, timeline, true, "Show where the time went, on standard error.");
ABSL_FLAG(absl::Duration, timeout, absl::Hours(1), "Give up after so long.");
ABSL_FLAG(int64_t, max_tokens, 0, "Tokens to generate at most; without it what the context leaves.");
ABSL_FLAG(int, min_tokens, 0, "No end of text before so many tokens.");
ABSL_FLAG(double, temperature, 1, "0 always takes the likeliest token.");
ABSL_FLAG(int, top_k, 0, "Only the K likeliest tokens; 0 is all.");
ABSL_FLAG(double, top_p, 1, "Only the likeliest tokens that together have this probability.");
ABSL_FLAG(double, min_p, 0, "Only tokens with at least this share of the likeliest one's probability.");
ABSL_FLAG(uint64_t, seed, 0, "The same seed gives the same text; without it a new one each time.");
ABSL_FLAG(double, repetition_penalty, 1, "Over 1: tokens of prompt and answer become less likely.");
ABSL_FLAG(double, presence_penalty, 0, "Subtracted once from tokens of the answer.");
ABSL_FLAG(double, frequency_penalty, 0, "Subtracted from tokens of the answer per use.");
ABSL_FLAG(std::string, logit_bias, "", "JSON object, {\"TOKEN_ID\": bias}.");
// The first call is at registration, with the default; an empty text after that is one that somebody gave.
ABSL_FLAG(std::string, stop, "", "Ends the answer before this text. May be given several times.").OnUpdate([] {
  static bool registered = false;
  if (std::exchange(registered, true)) baton::cli::MutableStopStrings().push_back(absl::GetFlag(FLAGS_stop));
});
ABSL_FLAG(std::string, stop_token_ids, "", "Token ids that end the answer, 1,2,3.");
ABSL_FLAG(bool, ignore_eos, false, "Go on after the model's end of text.");
ABSL_FLAG(int, logprobs, 0, "Log-probabilities of the tokens and of the K likeliest at each place.");
ABSL_FLAG(int, n, 1, "Answers to the same prompt.");
ABSL_FLAG(std::string, cache_salt, "", "Cached prompts are shared only among requests with the same salt.");
ABSL_FLAG(int, priority, 0, "Higher goes first.");
ABSL_FLAG(std::string, request_id, "", "Your own name for the request, for the logs.");

ABSL_FLAG(std::string, tokenizer, "", "GGUF file, or folder with tokenizer.json.");
ABSL_FLAG(bool, add_special, false, "Add the special tokens that the tokenizer puts around a text.");
ABSL_FLAG(std::string, now, "", "The time that templates see, 2026-01-02 or 2026-01-02T10:00:00; empty is the clock's.");
ABSL_FLAG(bool, reference, false, "Compute in plain fp32 instead of the way that serves.");
ABSL_FLAG(bool, all, false, "Logits of every position instead of the last alone.");
ABSL_FLAG(int, top, 0, "Also the K largest, as [id, logit] pairs.");
ABSL_FLAG(std::string, raw, "", "Write the logits as fp32 into this file instead of JSON.");
ABSL_FLAG(std::string, isa, "", "Force an instruction set for testing: scalar, avx2, avxvnni, avx512vnni, amx.");
ABSL_FLAG(std::string, activations, "", "Rounding of activations before quantised weights: mixed, one or two.");

namespace baton::cli {

absl::StatusOr<std::string> ApiKey() {
  const std::string path = absl::GetFlag(FLAGS_api_key_file);
  if (path.empty()) return std::string();
  return ReadSecretFile("--api-key-file", path);
}

}  // namespace baton::cli
