// SPDX-License-Identifier: Apache-2.0
#include "router/openai_request.h"
#include "router/prepared_request.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/unit/router/fake_tokenizer.h"

// A body for either path of the HTTP API, up to where workers would be asked.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace baton;
  static const auto* const model =
      new ServedModel{.name = "m", .tokenizer = std::make_shared<testing::FakeTokenizer>(), .max_token_bytes = 5};
  const ModelLimits limits{.contexts = {{.total = 64, .prompt = 64}}, .vocab_size = 257};
  const absl::string_view body(reinterpret_cast<const char*>(data), size);
  for (const bool chat : {false, true}) {
    const auto parsed = ParseOpenAiRequest(body, chat);
    if (!parsed.ok()) continue;
    for (const v1::GenerateRequest& request : parsed->requests) {
      if (!CheckRequest(request, *model).ok() || !CheckPromptLength(request, *model, limits).ok()) continue;
      (void)PrepareRequest(request, *model, limits);
    }
  }
  return 0;
}

namespace baton::fuzz {

std::vector<std::string> Seeds() {
  return {R"({"model":"m","prompt":"abc","max_tokens":5,"temperature":0.5,"top_p":0.9,"top_k":5,"min_p":0.1,"seed":7,"n":2,)"
          R"("stop":["x","y"],"logit_bias":{"5":-100},"logprobs":3,"stream":true,"stream_options":{"include_usage":true},)"
          R"("repetition_penalty":1.1,"presence_penalty":1,"frequency_penalty":-1,"min_tokens":1,"stop_token_ids":[9],"echo":false})",
          R"({"prompt":[[1,2],[3]],"priority":-5,"cache_salt":"s","request_id":"r","user":null,"best_of":1})",
          R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"a"}]},)"
          R"({"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}}]},)"
          R"({"role":"tool","tool_call_id":"1","content":"10"}],"tools":[{"type":"function","function":{"name":"f","parameters":{"a":1}}}],)"
          R"("tool_choice":"auto","logprobs":true,"top_logprobs":2,"max_completion_tokens":3,"chat_template_kwargs":{"t":true}})"};
}

int NumInputs() { return 20000; }

}  // namespace baton::fuzz
