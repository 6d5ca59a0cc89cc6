// SPDX-License-Identifier: Apache-2.0
#include "common/text/chat_template.h"

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/text/text_test_files.h"

namespace baton {
namespace {

using nlohmann::ordered_json;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using testing::StatusIs;

// One pool for all cases: a process takes a while to import Jinja2.
std::shared_ptr<RendererPool> Pool() {
  static auto* pool = new std::shared_ptr<RendererPool>([] {
    RendererPoolOptions options;
    options.start_timeout = absl::Seconds(60);  // Loaded machines.
    options.render_timeout = absl::Seconds(10);
    auto made = RendererPool::Create(options);
    EXPECT_TRUE(made.ok()) << made.status().ToString();
    return *std::move(made);
  }());
  return *pool;
}

std::unique_ptr<const ChatTemplate> Make(const std::string& source, std::map<std::string, std::string> tokens = {},
                                         std::shared_ptr<RendererPool> pool = Pool()) {
  auto made = ChatTemplate::Create(std::move(pool), {.chat_template = source, .template_tokens = std::move(tokens)});
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return *std::move(made);
}

ordered_json Messages(const char* text) { return ordered_json::parse(text); }

const char kOneMessage[] = R"([{"role": "user", "content": "hi"}])";

absl::StatusOr<std::string> Render(const std::string& source, const char* messages = kOneMessage) {
  return Make(source)->Render({.messages = Messages(messages)});
}

TEST(ChatTemplateTest, PublishedTemplates) {
  if (!testing::SharedExists("tokenizers/expected.json.xz")) GTEST_SKIP() << "no published tokenizers beside the tree";
  int num_cases = 0, num_errors = 0;
  for (const auto& [model, expected] : testing::ExpectedTexts().items()) {
    if (expected["chats"].empty()) continue;
    const auto config = testing::TokenizerConfig(model);
    std::map<std::string, std::string> tokens;
    for (const char* name : {"bos_token", "eos_token", "unk_token", "pad_token"}) {
      if (!config.contains(name)) continue;
      if (config[name].is_string()) tokens[name] = config[name];
      if (config[name].is_object()) tokens[name] = config[name]["content"];
    }
    const auto chat_template = Make(config["chat_template"], tokens);
    for (const auto& chat : expected["chats"]) {
      ChatRequest request = {.messages = chat["messages"],
                             .add_generation_prompt = chat["add_generation_prompt"],
                             .now = "2026-01-02T00:00:00"};
      if (chat.contains("tools")) request.tools = chat["tools"];
      const auto text = chat_template->Render(request);
      if (chat.contains("error")) {
        EXPECT_THAT(text, StatusIs(absl::StatusCode::kInvalidArgument, chat["error"].get<std::string>()));
        ++num_errors;
      } else {
        ASSERT_TRUE(text.ok()) << text.status().ToString();
        EXPECT_EQ(*text, chat["text"].get<std::string>()) << model;
      }
      ++num_cases;
    }
  }
  EXPECT_GT(num_cases, 20);
  EXPECT_GT(num_errors, 0);
}

TEST(ChatTemplateTest, JsonKeepsOrderAndLetters) {
  const auto chat_template = Make(
      "{{ tools | tojson }}|{{ tools | tojson(indent=1) }}|{{ tools[0] | tojson(sort_keys=true, separators=(',', ':')) "
      "}}");
  const auto text = chat_template->Render(
      {.messages = Messages(kOneMessage), .tools = ordered_json::parse(R"([{"z": "<é'>", "a": 1}])")});
  EXPECT_EQ(*text,
            "[{\"z\": \"<é'>\", \"a\": 1}]|[\n {\n  \"z\": \"<é'>\",\n  \"a\": 1\n }\n]|{\"a\":1,\"z\":\"<é'>\"}");
}

TEST(ChatTemplateTest, NamesThatTemplatesSee) {
  const auto chat_template = Make(
      "{{ bos_token }}{{ add_generation_prompt }}{{ tools is none }}{{ documents is none }}"
      "{{ x.y }}{{ eos_token is defined }}{{ strftime_now('%d %b %Y') }}",
      {{"bos_token", "<s>"}});
  ChatRequest request = {.messages = Messages(kOneMessage), .variables = {{"x", {{"y", 7}}}}, .now = "2026-01-02"};
  EXPECT_EQ(*chat_template->Render(request), "<s>TrueTrueTrue7False02 Jan 2026");
  request.add_generation_prompt = false;
  request.variables = {{"bos_token", "<b>"}, {"x", {{"y", 7}}}};
  EXPECT_EQ(*chat_template->Render(request), "<b>FalseTrueTrue7False02 Jan 2026");
  EXPECT_EQ(Render("{{ strftime_now('%Y') | length }}").value(), "4");
}

TEST(ChatTemplateTest, BlocksAreTrimmedAndLoopsCanBreak) {
  EXPECT_EQ(*Render("{% for m in [1, 2, 3] %}\n  {% if m == 2 %}\n{% continue %}{% endif %}\n{{ m }}\n{% endfor %}\n"),
            "1\n3\n");
  EXPECT_EQ(*Render("a{% generation %}b{% endgeneration %}c"), "abc");
}

TEST(ChatTemplateTest, TheToolTemplateIsForTools) {
  auto made = ChatTemplate::Create(Pool(), {.chat_template = "plain", .tool_chat_template = "tools"});
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  EXPECT_EQ(*(*made)->Render({.messages = Messages(kOneMessage)}), "plain");
  EXPECT_EQ(*(*made)->Render({.messages = Messages(kOneMessage), .tools = ordered_json::array()}), "plain");
  EXPECT_EQ(*(*made)->Render({.messages = Messages(kOneMessage), .tools = ordered_json::parse("[{}]")}), "tools");
}

// B22.
TEST(ChatTemplateTest, AbsentNullAndEmptyContentAreOne) {
  const std::string plain =
      "{% for m in messages %}[{{ m.role }}:{{ m.content }}{% for c in m.tool_calls or [] %}"
      "+{{ c.function.name }}{% endfor %}]{% endfor %}";
  const std::string asks =
      "{% for m in messages %}{% if m['content'] is none %}NONE{% else %}<{{ m['content'] }}>{% endif %}{% endfor %}";
  const std::string call =
      R"("tool_calls": [{"type": "function", "function": {"name": "sqrt", "arguments": "{\"x\": 101}"}}])";
  for (const std::string content : {R"("content": null, )", R"("content": "", )", R"("content": [], )", ""}) {
    const std::string history = absl::StrCat(R"([{"role": "user", "content": "q"}, {"role": "assistant", )", content,
                                             call, R"(}, {"role": "tool", "content": "10.05"}])");
    EXPECT_EQ(*Render(plain, history.c_str()), "[user:q][assistant:+sqrt][tool:10.05]") << content;
    EXPECT_EQ(*Render(asks, history.c_str()), "<q>NONE<10.05>") << content;
    const std::string silent = absl::StrCat(R"([{"role": "assistant", )", content, R"("tool_calls": []}])");
    EXPECT_EQ(*Render(plain, silent.c_str()), "[assistant:]") << content;
    EXPECT_EQ(*Render(asks, silent.c_str()), "<>") << content;
  }
}

TEST(ChatTemplateTest, PartsOfContent) {
  const char parts[] =
      R"([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}])";
  EXPECT_EQ(*Render("{{ messages[0].content }}", parts), "a\nb");
  EXPECT_EQ(*Render("{% for m in messages %}{% for p in m['content'] %}<{{ p.text }}>{% endfor %}{% endfor %}", parts),
            "<a><b>");
}

// B23.
TEST(ChatTemplateTest, TheTemplatesOwnError) {
  const auto chat_template = Make(
      "{% if messages[0].role != 'user' %}{{ raise_exception('Conversation roles must alternate') }}{% endif %}ok");
  EXPECT_THAT(chat_template->Render({.messages = Messages(R"([{"role": "system", "content": "x"}])")}),
              StatusIs(absl::StatusCode::kInvalidArgument, "Conversation roles must alternate"));
  EXPECT_EQ(*chat_template->Render({.messages = Messages(kOneMessage)}), "ok");
  EXPECT_THAT(Render("{{ nothing.at.all }}"), StatusIs(absl::StatusCode::kInvalidArgument, "'nothing' is undefined"));
  EXPECT_THAT(Render("{{ 'a' + 1 }}"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("TypeError")));
}

TEST(ChatTemplateTest, ABrokenTemplateIsRefusedAtLoad) {
  EXPECT_THAT(ChatTemplate::Create(Pool(), {.chat_template = "a\n{% if %}"}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("chat template: line 2:")));
  EXPECT_THAT(ChatTemplate::Create(Pool(), {}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("no chat template")));
}

TEST(ChatTemplateTest, ShapesOfMessages) {
  const auto chat_template = Make("x");
  for (const auto& [messages, place] : std::vector<std::pair<const char*, const char*>>{
           {"[]", "messages"},
           {"null", "messages"},
           {"[1]", "messages[0]"},
           {R"([{"role": "user", "content": "a"}, {}])", "messages[1].role"},
           {R"([{"role": 1, "content": "a"}])", "messages[0].role"},
           {R"([{"role": "user", "content": 5}])", "messages[0].content"},
           {R"([{"role": "assistant", "content": "", "tool_calls": {}}])", "messages[0].tool_calls"}}) {
    EXPECT_THAT(chat_template->Render({.messages = Messages(messages)}),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(place)));
  }
  ordered_json deep = "x";
  for (int i = 0; i < 100; ++i) deep = ordered_json::array({deep});
  EXPECT_THAT(chat_template->Render({.messages = Messages(kOneMessage), .tools = deep}),
              StatusIs(absl::StatusCode::kInvalidArgument, "tools: nested deeper than 64"));
  EXPECT_THAT(chat_template->Render({.messages = Messages(kOneMessage), .variables = ordered_json::array()}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("variables")));
  ordered_json many = ordered_json::object();
  for (int i = 0; i < 257; ++i) many[absl::StrCat("v", i)] = i;
  EXPECT_THAT(chat_template->Render({.messages = Messages(kOneMessage), .variables = many}),
              StatusIs(absl::StatusCode::kInvalidArgument, "variables: 257 names, at most 256"));
  ordered_json bad = {{{"role", "user"}, {"content", "\xFF"}}};
  EXPECT_THAT(chat_template->Render({.messages = bad}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("UTF-8")));
}

TEST(ChatTemplateTest, TheSandboxHolds) {
  for (const char* source :
       {"{{ ''.__class__.__mro__ }}", "{{ messages.append(1) }}", "{{ raise_exception.__globals__ }}",
        "{{ cycler.__init__.__globals__.os.system('true') }}", "{% include '/etc/passwd' %}"}) {
    const auto text = Render(source);
    if (text.ok()) {
      EXPECT_EQ(*text, "") << source;  // Unsafe attributes are undefined.
    } else {
      EXPECT_EQ(text.status().code(), absl::StatusCode::kInvalidArgument) << source;
    }
  }
}

// C32. The pool's limits are short here, and every other request is answered.
TEST(ChatTemplateTest, HostileTemplates) {
  RendererPoolOptions options;
  options.start_timeout = absl::Seconds(60);
  options.render_timeout = absl::Milliseconds(700);
  options.limits.memory_bytes = int64_t{300} << 20;
  options.limits.output_bytes = 1 << 20;
  ASSERT_OK_AND_ASSIGN(const auto pool, RendererPool::Create(options));
  const auto error_of = [&pool](const std::string& source) {
    auto made = ChatTemplate::Create(pool, {.chat_template = source});
    if (!made.ok()) return made.status();
    return (*made)->Render({.messages = Messages(kOneMessage)}).status();
  };
  const std::vector<std::string> sources = {
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% for i in range(10**9) %}x{% endfor %}",
      "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
      "{% for i in range(99999) %}xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx{% endfor %}",
      absl::StrCat("{{ ", std::string(1000000, '('), "1", std::string(1000000, ')'), " }}"),
      "{{ 'x' * 1000000000 }}",
      "{{ 10 ** 100000000 }}",
      "{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}"};
  for (const std::string& source : sources) {
    const absl::Status status = error_of(source);
    EXPECT_THAT(status.code(), AnyOf(absl::StatusCode::kInvalidArgument, absl::StatusCode::kDeadlineExceeded,
                                     absl::StatusCode::kInternal))
        << source.substr(0, 60) << " " << status.ToString();
  }
  EXPECT_THAT(error_of("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"),
              StatusIs(absl::StatusCode::kDeadlineExceeded, "chat template took longer than 700 ms"));
  // What the next two ask for is quick, but not on every machine: no deadline that could come first.
  options.render_timeout = absl::Seconds(60);
  ASSERT_OK_AND_ASSIGN(const auto patient, RendererPool::Create(options));
  const auto patient_error_of = [&patient](const std::string& source) {
    auto made = ChatTemplate::Create(patient, {.chat_template = source});
    if (!made.ok()) return made.status();
    return (*made)->Render({.messages = Messages(kOneMessage)}).status();
  };
  EXPECT_THAT(patient_error_of("{{ 'x' * 2000000 }}"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("output over 1048576")));
  EXPECT_THAT(patient_error_of("fine"), testing::IsOk());
}

// More threads than processes, good templates among ones that get their process killed.
TEST(ChatTemplateTest, ManyThreads) {
  RendererPoolOptions options;
  options.start_timeout = absl::Seconds(60);
  options.queue_timeout = absl::Seconds(60);
  options.render_timeout = absl::Seconds(2);
  ASSERT_OK_AND_ASSIGN(const auto pool, RendererPool::Create(options));
  const auto good = Make("{{ messages[0].content }}", {}, pool);
  const auto endless = Make("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", {}, pool);
  std::atomic<int> num_right = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      if (t == 0) {
        EXPECT_EQ(endless->Render({.messages = Messages(kOneMessage)}).status().code(),
                  absl::StatusCode::kDeadlineExceeded);
        return;
      }
      for (int i = 0; i < 20; ++i) {
        const std::string content = absl::StrCat("thread ", t, " round ", i);
        const auto text = good->Render({.messages = {{{"role", "user"}, {"content", content}}}});
        if (text.ok() && *text == content) ++num_right;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_right, 100);
}

TEST(RendererPoolTest, ABusyPoolSaysSo) {
  RendererPoolOptions options;
  options.num_processes = 1;
  options.start_timeout = absl::Seconds(60);
  options.queue_timeout = absl::Milliseconds(1);
  options.render_timeout = absl::Seconds(3);
  ASSERT_OK_AND_ASSIGN(const auto pool, RendererPool::Create(options));
  const auto endless = Make("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", {}, pool);
  std::atomic<int> num_busy = 0, num_late = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      const auto code = endless->Render({.messages = Messages(kOneMessage)}).status().code();
      if (code == absl::StatusCode::kResourceExhausted) ++num_busy;
      if (code == absl::StatusCode::kDeadlineExceeded) ++num_late;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_busy, 1);
  EXPECT_EQ(num_late, 1);
}

TEST(RendererPoolTest, NeedsAProcess) {
  EXPECT_THAT(RendererPool::Create({.num_processes = 0}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("num_processes")));
}

}  // namespace
}  // namespace baton
