// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cstdio>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "common/base/host_port.h"
#include "common/base/json.h"
#include "deploy/cli/answer.h"
#include "deploy/cli/command.h"
#include "deploy/cli/flags.h"
#include "deploy/cli/request.h"
#include "deploy/cli/router_client.h"
#include "deploy/cli/terminal.h"
#include "deploy/cli/tls.h"

namespace baton::cli {
namespace {

// Several choices arrive interleaved, so they are shown when all is said.
std::string AllChoices(const Answer& answer) {
  std::string text;
  for (size_t i = 0; i < answer.choices.size(); ++i) {
    absl::StrAppend(&text, i > 0 ? "\n" : "", "--- answer ", i + 1, "\n", answer.choices[i].text, "\n");
  }
  return text;
}

int RunGenerate(const ConfigResult& config) {
  const bool json = absl::GetFlag(FLAGS_json);
  v1::GenerateRequest request;
  absl::Status status = SetPrompt(config, &request);
  if (status.ok()) status = SetSampling(config, &request);
  if (status.ok()) status = CheckTexts(request);
  if (status.ok()) status = CheckAddress("--router", absl::GetFlag(FLAGS_router));
  const auto access = AccessFromFlags();
  if (status.ok()) status = access.status();
  if (!status.ok()) return Fail("generate", status, json, kExitUsage);

  const bool stream = !json && absl::GetFlag(FLAGS_n) == 1;
  Answer answer;
  bool printed = true;
  RouterClient client(absl::GetFlag(FLAGS_router), *access);
  status = client.Generate(request, absl::GetFlag(FLAGS_timeout), [&](const v1::GenerateResponse& response) {
    answer.Add(response);
    if (!stream) return;
    for (const v1::ChoiceDelta& delta : response.deltas()) {
      if (!delta.text().empty()) printed = printed && Print(delta.text());
    }
    if (!printed) client.Cancel();  // Whoever reads us is gone.
  });
  if (!printed) return Fail("generate", absl::UnavailableError("standard output cannot be written"), false);
  if (stream && !answer.choices.empty()) printed = Print("\n");
  if (!status.ok()) return Fail("generate", status, json);
  if (json) {
    printed = Print(DumpJson(ToJson(answer, request.has_logprobs())) + "\n");
  } else if (!stream) {
    printed = Print(AllChoices(answer));
  }
  if (!json && absl::GetFlag(FLAGS_timeline)) {
    std::fputs(Styled(TimelineText(answer), Tone::kDim, UseColor(STDERR_FILENO)).c_str(), stderr);
  }
  return printed ? kExitOk : Fail("generate", absl::UnavailableError("standard output cannot be written"), false);
}

}  // namespace

Command GenerateCommand() {
  ConfigGroup answer = AnswerFlags();
  answer.flags.insert(answer.flags.end(), {"logprobs", "n"});
  return {
      .name = "generate",
      .summary = "continue a prompt or answer a chat, once",
      .spec = {.summary = "Sends one prompt to a router and shows the answer as it comes, then where the time went.",
               .examples = "  baton generate --prompt 'The capital of France is' --max-tokens 16 --temperature 0\n"
                           "  baton generate --messages '[{\"role\":\"user\",\"content\":\"Hello!\"}]' --json\n"
                           "  cat letter.txt | baton generate --prompt - --seed 7 --stop $'\\n\\n'\n",
               .groups = {{"Prompt", {"prompt", "messages", "prompt_ids", "tools", "template_kwargs", "add_special_tokens"}},
                          {"Request", {"router", "api_key_file", "model", "timeout", "cache_salt", "priority", "request_id"}},
                          {"TLS", ClientTlsFlags()},
                          answer,
                          SamplingFlags(),
                          {"Output", {"json", "timeline"}}},
               .not_from_environment = {"model"}},
      .run = RunGenerate,
  };
}

}  // namespace baton::cli
