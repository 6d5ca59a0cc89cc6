// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "absl/flags/flag.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "deploy/bench/load_run.h"
#include "deploy/cli/command.h"
#include "deploy/cli/flags.h"
#include "deploy/cli/interrupt.h"
#include "deploy/cli/tls.h"

ABSL_FLAG(std::string, url, "http://127.0.0.1:8000", "The server: http://HOST:PORT or https://HOST:PORT, with /PATH where its API is not under /v1.");
ABSL_FLAG(std::string, request_model, "", "Model name in the requests; empty asks the server for its first.");
ABSL_FLAG(std::string, api_key_env, "OPENAI_API_KEY", "Environment variable with the key, if the server wants one.");
ABSL_FLAG(std::string, prompt_kind, "ids", "How prompts are sent: ids (of exact length), text, or chat.");
ABSL_FLAG(std::string, profile, "", "Lengths of a use: short-question-long-answer or long-document-short-summary.");
ABSL_FLAG(std::string, arrival, "closed", "closed (users that wait for their answers), constant or poisson (--request-rate).");
ABSL_FLAG(double, request_rate, 1, "Requests per second of an open loop.");
ABSL_FLAG(int, concurrency, 8, "Users of a closed loop; requests under way at most of an open one.");
ABSL_FLAG(int, num_requests, 100, "Requests in all; 0: as many as fit into --duration.");
ABSL_FLAG(absl::Duration, duration, absl::InfiniteDuration(), "No request begins later than this.");
ABSL_FLAG(int, input_tokens, 128, "Prompt tokens, beside a shared prefix.");
ABSL_FLAG(int, output_tokens, 128, "Tokens of an answer.");
ABSL_FLAG(double, spread, 0, "Lengths are uniform within plus or minus this part.");
ABSL_FLAG(int, prefix_tokens, 0, "Prompt tokens that requests share.");
ABSL_FLAG(int, num_prefixes, 1, "Different shared prefixes.");
ABSL_FLAG(int, turns, 1, "Turns of a conversation, each with all before it in its prompt (text or chat).");
ABSL_FLAG(int, burst_tokens, 0, "Send prompts of so many tokens into the running streams; 0: none.");
ABSL_FLAG(absl::Duration, burst_every, absl::Seconds(3), "Time from one of those to the next.");
ABSL_FLAG(absl::Duration, burst_after, absl::Seconds(10), "Time before the first, to compare with.");
ABSL_FLAG(int, vocab_size, 32000, "Ids are drawn below this.");
ABSL_FLAG(std::string, result_file, "", "Write the report as JSON into this file as well.");

namespace baton::cli {
namespace {

using bench::Arrival;
using bench::LoadOptions;
using bench::LoadProgress;
using bench::PromptKind;

template <typename T>
absl::Status ReadChoice(absl::string_view flag, const std::string& text, std::initializer_list<std::pair<const char*, T>> choices,
                        T* value) {
  std::string known;
  for (const auto& [name, choice] : choices) {
    if (text == name) {
      *value = choice;
      return absl::OkStatus();
    }
    absl::StrAppend(&known, known.empty() ? "" : ", ", name);
  }
  return absl::InvalidArgumentError(absl::StrCat(flag, " ", text, " is none of ", known));
}

absl::StatusOr<LoadOptions> ReadFlags(const ConfigResult& config) {
  LoadOptions options{.url = absl::GetFlag(FLAGS_url),
                      .model = absl::GetFlag(FLAGS_request_model),
                      .temperature = absl::GetFlag(FLAGS_temperature),
                      .timeout = absl::GetFlag(FLAGS_timeout)};
  if (const char* key = std::getenv(absl::GetFlag(FLAGS_api_key_env).c_str())) options.api_key = key;
  if (absl::StartsWith(options.url, "https://")) {
    BATON_ASSIGN_OR_RETURN(options.tls, HttpsContext());
  }
  bench::WorkloadOptions& workload = options.workload;
  BATON_RETURN_IF_ERROR(ReadChoice("--arrival", absl::GetFlag(FLAGS_arrival),
                                   {{"closed", Arrival::kClosed}, {"constant", Arrival::kConstant}, {"poisson", Arrival::kPoisson}},
                                   &workload.arrival));
  BATON_RETURN_IF_ERROR(ReadChoice("--prompt-kind", absl::GetFlag(FLAGS_prompt_kind),
                                   {{"ids", PromptKind::kIds}, {"text", PromptKind::kText}, {"chat", PromptKind::kChat}},
                                   &workload.kind));
  workload.input_tokens = absl::GetFlag(FLAGS_input_tokens);
  workload.output_tokens = absl::GetFlag(FLAGS_output_tokens);
  if (const std::string profile = absl::GetFlag(FLAGS_profile); !profile.empty()) {
    BATON_RETURN_IF_ERROR(bench::ApplyProfile(profile, &workload));
    // What a person says beats the profile.
    if (config.sources.at("input_tokens") != ConfigSource::kDefault) workload.input_tokens = absl::GetFlag(FLAGS_input_tokens);
    if (config.sources.at("output_tokens") != ConfigSource::kDefault) workload.output_tokens = absl::GetFlag(FLAGS_output_tokens);
  }
  workload.request_rate = absl::GetFlag(FLAGS_request_rate);
  workload.concurrency = absl::GetFlag(FLAGS_concurrency);
  workload.num_requests = absl::GetFlag(FLAGS_num_requests);
  workload.duration = absl::GetFlag(FLAGS_duration);
  workload.spread = absl::GetFlag(FLAGS_spread);
  workload.prefix_tokens = absl::GetFlag(FLAGS_prefix_tokens);
  workload.num_prefixes = absl::GetFlag(FLAGS_num_prefixes);
  workload.turns = absl::GetFlag(FLAGS_turns);
  workload.burst_tokens = absl::GetFlag(FLAGS_burst_tokens);
  workload.burst_every = absl::GetFlag(FLAGS_burst_every);
  workload.burst_after = absl::GetFlag(FLAGS_burst_after);
  workload.vocab_size = absl::GetFlag(FLAGS_vocab_size);
  workload.seed = absl::GetFlag(FLAGS_seed);
  return options;
}

void ShowProgress(const LoadProgress& progress) {
  absl::FPrintF(stderr, "\r%6.0f s: %d done, %d failed, %d under way, %d pieces   ", absl::ToDoubleSeconds(progress.elapsed),
                progress.num_ended, progress.num_failed, progress.num_running, progress.num_pieces);
}

int RunBenchServe(const ConfigResult& config) {
  const bool json = absl::GetFlag(FLAGS_json);
  auto options = ReadFlags(config);
  if (!options.ok()) return Fail("bench serve", options.status(), json, kExitUsage);
  InterruptWatch interrupt;
  if (options->model.empty()) {
    auto model = bench::FirstModel(*options);
    if (!model.ok()) {
      return Fail("bench serve", model.status(), json, absl::IsInvalidArgument(model.status()) ? kExitUsage : kExitFailure);
    }
    options->model = *model;
  }
  auto run = bench::LoadRun::Create(*options);
  if (!run.ok()) {
    return Fail("bench serve", run.status(), json, absl::IsInvalidArgument(run.status()) ? kExitUsage : kExitFailure);
  }
  interrupt.SetHandler([&] { (*run)->Stop(); });
  const bool terminal = isatty(STDERR_FILENO);
  const bench::LoadResult result = (*run)->Run([&](const LoadProgress& progress) {
    if (terminal) ShowProgress(progress);
  });
  interrupt.SetHandler(nullptr);
  if (terminal) std::fputs("\n", stderr);
  const bench::Report report = bench::MakeReport(result.measurements, result.issue_end);
  const std::string text = bench::ReportJson(report) + "\n";
  if (const std::string path = absl::GetFlag(FLAGS_result_file); !path.empty()) {
    std::ofstream file(path);
    file << text;
    file.close();
    if (!file) return Fail("bench serve", absl::UnavailableError(absl::StrCat("cannot write ", path)), json);
  }
  if (!Print(json ? text : bench::ReportText(report))) return kExitFailure;
  return report.num_succeeded > 0 && report.num_failed == 0 ? kExitOk : kExitFailure;
}

}  // namespace

Command BenchServeCommand() {
  return {
      .name = "bench serve",
      .summary = "load an OpenAI-compatible server and measure what clients see",
      .spec = {.summary = "Sends streaming requests to any OpenAI-compatible server, in a closed loop (users that wait for their "
                          "answers) or an open one, and reports time to first token, time per output token, gaps and "
                          "throughput by the definitions of `vllm bench serve`. Ctrl-C ends it with what was measured. The exit "
                          "code is 1 when a request failed.",
               .examples = "  baton bench serve --concurrency 8 --input-tokens 512 --output-tokens 128\n"
                           "  baton bench serve --arrival poisson --request-rate 2 --duration 60s --num-requests 0\n"
                           "  baton bench serve --profile long-document-short-summary --num-requests 20\n"
                           "  baton bench serve --num-requests 0 --duration 48s --burst-tokens 1500 --burst-after 24s\n",
               .groups = {{"Server", {"url", "request_model", "api_key_env", "timeout", "ca", "cert", "key"}},
                          {"Load", {"arrival", "request_rate", "concurrency", "num_requests", "duration"}},
                          {"Prompts", {"profile", "prompt_kind", "input_tokens", "output_tokens", "spread", "prefix_tokens", "num_prefixes",
                                       "turns", "vocab_size", "temperature", "seed"}},
                          {"Long prompts into running streams", {"burst_tokens", "burst_every", "burst_after"}},
                          {"Output", {"json", "result_file"}}}},
      .run = RunBenchServe,
  };
}

}  // namespace baton::cli
