// SPDX-License-Identifier: Apache-2.0
#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/time/civil_time.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/text/chat_template.h"
#include "common/text/text_bundle.h"
#include "deploy/cli/command.h"
#include "deploy/cli/flags.h"

namespace baton::cli {
namespace {

using Json = nlohmann::ordered_json;

// --now as ChatRequest wants it.
absl::StatusOr<std::optional<std::string>> NowFromFlag() {
  std::string text = absl::GetFlag(FLAGS_now);
  if (text.empty()) return std::optional<std::string>();
  if (!text.empty() && text.back() == 'Z') text.pop_back();
  absl::CivilSecond second;
  absl::CivilDay day;
  if (absl::ParseCivilTime(text, &day)) {
    second = absl::CivilSecond(day);
  } else if (!absl::ParseCivilTime(text, &second)) {
    return absl::InvalidArgumentError(absl::StrCat("--now ", text, ": expected 2026-01-02 or 2026-01-02T15:04:05"));
  }
  return std::make_optional(absl::FormatCivilTime(second));
}

absl::StatusOr<ChatRequest> ParseRequest(const std::string& line, bool json) {
  // Tools nest deeper than other requests: a schema in a list in an object.
  BATON_ASSIGN_OR_RETURN(Json input, ParseOrderedJson(line, ChatTemplate::kMaxDepth + 8));
  ChatRequest request;
  if (!json) {
    request.messages = std::move(input);
    return request;
  }
  if (!input.is_object()) return absl::InvalidArgumentError("expected an object with 'messages'");
  if (input.contains("messages")) request.messages = input["messages"];
  if (input.contains("tools")) request.tools = input["tools"];
  if (input.contains("documents")) request.documents = input["documents"];
  if (input.contains("variables")) request.variables = input["variables"];
  if (const auto flag = input.find("add_generation_prompt"); flag != input.end() && !flag->is_null()) {
    if (!flag->is_boolean()) return absl::InvalidArgumentError("'add_generation_prompt' is not true or false");
    request.add_generation_prompt = flag->get<bool>();
  }
  return request;
}

absl::StatusOr<std::string> RenderLine(const ChatTemplate& chat, const std::string& line, bool json,
                                       const std::optional<std::string>& now) {
  BATON_ASSIGN_OR_RETURN(ChatRequest request, ParseRequest(line, json));
  request.now = now;
  return chat.Render(request);
}

int RunTemplate(const ConfigResult&) {
  const bool json = absl::GetFlag(FLAGS_json);
  const auto now = NowFromFlag();
  if (!now.ok()) return Fail("template", now.status(), json, kExitUsage);
  const auto bundle = LoadTextBundle(absl::GetFlag(FLAGS_tokenizer));
  if (!bundle.ok()) return Fail("template", bundle.status(), json);
  auto pool = RendererPool::Create({.num_processes = 1});
  if (!pool.ok()) return Fail("template", pool.status(), json);
  const auto chat = ChatTemplate::Create(*std::move(pool), *bundle);
  if (!chat.ok()) return Fail("template", chat.status(), json);
  int exit_code = kExitOk;
  for (std::string line; std::getline(std::cin, line);) {
    if (line.empty()) continue;
    const auto text = RenderLine(**chat, line, json, *now);
    if (!text.ok() && !json) {
      exit_code = Fail("template", text.status(), false);
      continue;
    }
    // A template's refusal is a result here, not a failure of this program.
    const Json out = text.ok() ? Json{{"text", *text}}
                               : Json{{"error", std::string(text.status().message())}, {"code", CodeName(text.status().code())}};
    if (!Print(json ? DumpJson(out) + "\n" : *text + "\n")) return kExitFailure;
  }
  return exit_code;
}

}  // namespace

Command TemplateCommand() {
  return {
      .name = "template",
      .summary = "show the prompt that a chat becomes",
      .spec = {.summary = "Renders a model's chat template, once for each line of standard input. With --json a line is "
                          "{\"messages\", \"tools\", \"add_generation_prompt\"} and its answer {\"text\"} or {\"error\"}; "
                          "otherwise a line is a list of messages, answered with the text.",
               .examples = "  echo '[{\"role\":\"user\",\"content\":\"Hi\"}]' | baton template --tokenizer model.gguf\n"
                           "  baton template --tokenizer folder/ --json --now 2026-01-02 <chats.jsonl\n",
               .groups = {{"Text", {"tokenizer", "now"}}, {"Output", {"json"}}},
               .required = {"tokenizer"}},
      .run = RunTemplate,
  };
}

}  // namespace baton::cli
