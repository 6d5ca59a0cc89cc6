// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "common/base/logging.h"
#include "common/grammar/grammar.h"
#include "common/grammar/json_schema.h"
#include "tests/fuzz/fuzz_target.h"

// A schema, compiled strictly and leniently, and the beginning of an answer: there is always a byte to go on with.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace baton;
  static const auto* const tokens = [] {
    static std::string bytes(256, '\0');
    std::vector<absl::string_view> views;
    for (int i = 0; i < 256; ++i) bytes[i] = static_cast<char>(i);
    for (int i = 0; i < 256; ++i) views.push_back(absl::string_view(bytes).substr(i, 1));
    return new std::shared_ptr<const TokenTrie>(std::make_shared<TokenTrie>(views));
  }();
  const absl::string_view schema(reinterpret_cast<const char*>(data), size);
  for (const bool lenient : {false, true}) {
    auto program = CompileJsonSchema(schema, lenient);
    if (!program.ok()) continue;
    Grammar grammar(*std::move(program), *tokens);
    Grammar::StateRef state = grammar.Start();
    for (size_t i = 0; i < 40 && !state->complete(); ++i) {
      const auto mask = grammar.Mask(state);
      int byte = static_cast<int>(size * 31 + i * 7) % 256;
      for (int tries = 0; tries < 256 && !mask->allows(byte); ++tries) byte = (byte + 1) % 256;
      BATON_CHECK(mask->allows(byte)) << "a dead end";
      state = grammar.Advance(state, std::string(1, static_cast<char>(byte)));
      BATON_CHECK(state != nullptr) << "the mask allowed what cannot be";
    }
  }
  return 0;
}

namespace baton::fuzz {

std::vector<std::string> Seeds() {
  return {R"({"type":"object","properties":{"a":{"type":"integer","minimum":0,"maximum":130},"b":{"enum":["x","xy",null,{"c":[1]}]},)"
          R"("d":{"type":["string","null"],"minLength":1,"maxLength":9}},"required":["a"],"additionalProperties":{"type":"boolean"}})",
          R"({"$defs":{"n":{"type":"object","properties":{"v":{"const":1.5},"next":{"anyOf":[{"$ref":"#/$defs/n"},{"type":"null"}]}},)"
          R"("required":["v","next"]}},"allOf":[{"$ref":"#/$defs/n"},{"minProperties":1}]})",
          R"({"type":"array","prefixItems":[{"type":"number","exclusiveMinimum":-1.5,"multipleOf":0.1}],"items":{"oneOf":[true,{"type":"string",)"
          R"("pattern":"^(a|[b-d]+\\d{2,3}|\\u00e9?)$"}]},"minItems":2,"maxItems":4})",
          R"({"type":"object","patternProperties":{"^[a-z]{1,3}$":{"type":"string","format":"date-time"}},"additionalProperties":false})"};
}

int NumInputs() { return 4000; }

}  // namespace baton::fuzz
