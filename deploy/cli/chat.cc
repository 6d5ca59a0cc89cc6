// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <string>

#include "absl/flags/flag.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/host_port.h"
#include "deploy/cli/answer.h"
#include "deploy/cli/command.h"
#include "deploy/cli/flags.h"
#include "deploy/cli/interrupt.h"
#include "deploy/cli/request.h"
#include "deploy/cli/router_client.h"
#include "deploy/cli/terminal.h"
#include "deploy/cli/tls.h"

namespace baton::cli {
namespace {

constexpr char kChatHelp[] =
    "  /reset    forget the conversation\n"
    "  /history  show it\n"
    "  /quit     end (also Ctrl-D)\n"
    "  Ctrl-C stops an answer.\n";

class Chat {
 public:
  Chat(const v1::GenerateRequest& request, const RouterAccess& access, InterruptWatch* interrupts)
      : request_(request),
        client_(absl::GetFlag(FLAGS_router), access),
        interrupts_(interrupts),
        interactive_(isatty(STDIN_FILENO) == 1),
        color_(UseColor(STDERR_FILENO)) {
    Reset();
  }

  int Run() {
    if (interactive_) Note("Chat with the model. /help lists the commands.\n");
    bool failed = false;
    while (true) {
      if (interactive_) std::fputs(Styled("> ", Tone::kBold, color_).c_str(), stderr);
      std::string line;
      if (!std::getline(std::cin, line)) break;
      const std::string text(absl::StripAsciiWhitespace(line));
      if (text.empty()) continue;
      if (text[0] == '/') {
        if (text == "/quit" || text == "/exit") return failed ? kExitFailure : kExitOk;
        RunCommand(text);
        continue;
      }
      failed = !Ask(text);
      // A script should not go on as if it had been answered.
      if (failed && (!interactive_ || unwritable_)) return kExitFailure;
    }
    if (interactive_) std::fputs("\n", stderr);
    return kExitOk;
  }

 private:
  void Reset() {
    request_.mutable_chat()->clear_messages();
    if (const std::string system = absl::GetFlag(FLAGS_system); !system.empty()) AddMessage("system", system);
  }

  void AddMessage(const std::string& role, const std::string& content) {
    v1::ChatMessage* message = request_.mutable_chat()->add_messages();
    message->set_role(role);
    message->set_content(content);
  }

  void Note(absl::string_view text) const { std::fputs(Styled(text, Tone::kDim, color_).c_str(), stderr); }

  void RunCommand(const std::string& text) {
    if (text == "/reset") {
      Reset();
      Note("The conversation starts anew.\n");
    } else if (text == "/history") {
      for (const v1::ChatMessage& message : request_.chat().messages()) {
        Note(absl::StrCat(message.role(), ": ", message.content(), "\n"));
      }
    } else if (text == "/help") {
      Note(kChatHelp);
    } else {
      const auto nearest = NearestName(text, {"/reset", "/history", "/quit", "/help"});
      Note(absl::StrCat("There is no ", text, nearest ? absl::StrCat("; did you mean ", *nearest, "?") : "", "\n"));
    }
  }

  // False when the router refused or failed; the question is then forgotten.
  bool Ask(const std::string& text) {
    AddMessage("user", text);
    if (const absl::Status valid = CheckTexts(request_); !valid.ok()) {
      request_.mutable_chat()->mutable_messages()->RemoveLast();
      Fail("chat", valid, /*json=*/false);
      return false;
    }
    Answer answer;
    interrupts_->SetHandler([this] { client_.Cancel(); });
    const absl::Status status =
        client_.Generate(request_, absl::GetFlag(FLAGS_timeout), [&](const v1::GenerateResponse& response) {
          answer.Add(response);
          for (const v1::ChoiceDelta& delta : response.deltas()) {
            if (!delta.text().empty()) unwritable_ = unwritable_ || !Print(delta.text());
          }
          if (unwritable_) client_.Cancel();  // Whoever reads us is gone.
        });
    interrupts_->SetHandler(nullptr);
    const std::string said = answer.choices.empty() ? "" : answer.choices[0].text;
    if (!said.empty() || status.ok()) unwritable_ = unwritable_ || !Print("\n");
    if (unwritable_) {
      Fail("chat", absl::UnavailableError("standard output cannot be written"), /*json=*/false);
      return false;
    }
    const bool stopped = absl::IsCancelled(status);
    if (stopped) Note("(stopped)\n");
    if (!status.ok() && !stopped) {
      Fail("chat", status, /*json=*/false);
      request_.mutable_chat()->mutable_messages()->RemoveLast();
      return false;
    }
    // A stopped answer is part of the conversation as far as it was said.
    AddMessage("assistant", said);
    if (status.ok() && absl::GetFlag(FLAGS_timeline) && interactive_) Note(TimelineText(answer));
    return true;
  }

  v1::GenerateRequest request_;
  RouterClient client_;
  InterruptWatch* const interrupts_;
  const bool interactive_;
  const bool color_;
  bool unwritable_ = false;  // Answers are lost.
};

int RunChat(const ConfigResult& config) {
  InterruptWatch interrupts;
  v1::GenerateRequest request;
  absl::Status status = SetSampling(config, &request);
  if (status.ok()) status = CheckAddress("--router", absl::GetFlag(FLAGS_router));
  const auto access = AccessFromFlags();
  if (status.ok()) status = access.status();
  if (!status.ok()) return Fail("chat", status, /*json=*/false, kExitUsage);
  return Chat(request, *access, &interrupts).Run();
}

}  // namespace

Command ChatCommand() {
  return {
      .name = "chat",
      .summary = "talk with the model at the terminal",
      .spec = {.summary = absl::StrCat("A conversation with the model, a line each turn; also from a pipe. In it:\n", kChatHelp),
               .examples = "  baton chat\n"
                           "  baton chat --router 10.0.0.1:9000 --system 'Answer in one sentence.' --temperature 0.7\n"
                           "  echo 'Why is the sky blue?' | baton chat\n",
               .groups = {{"Request", {"router", "api_key_file", "model", "system", "timeout", "cache_salt"}},
                          {"TLS", ClientTlsFlags()},
                          AnswerFlags(),
                          SamplingFlags(),
                          {"Output", {"timeline"}}},
               .not_from_environment = {"model"}},
      .run = RunChat,
  };
}

}  // namespace baton::cli
