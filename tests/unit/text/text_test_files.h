// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_UNIT_TEXT_TEXT_TEST_FILES_H_
#define BATON_TESTS_UNIT_TEXT_TEXT_TEST_FILES_H_

#include <memory>
#include <string>
#include <vector>

#include "common/text/gguf_vocabulary.h"
#include "common/text/tokenizer.h"
#include "nlohmann/json.hpp"

// Published tokenizers, which lie beside the source tree; tests that need them skip where they are not.
namespace baton::testing {

std::string SharedPath(const std::string& name);
bool SharedExists(const std::string& name);
// The decompressed contents of a .xz file; empty when it cannot be read.
std::string ReadXz(const std::string& path);
std::string ReadWholeFile(const std::string& path);

// {"text", "ids", "ids_with_special", "decoded"} and chats by model name; see the README beside the file.
const nlohmann::ordered_json& ExpectedTexts();
std::string TokenizerJsonText(const std::string& model);
nlohmann::json TokenizerConfig(const std::string& model);
// Loaded once per process.
std::shared_ptr<const Tokenizer> SharedTokenizer(const std::string& model);
// The same vocabulary in the form that a GGUF file has. `bos` may be empty.
GgufVocabulary AsGguf(const std::string& model, const std::string& ggml_model, const std::string& pre,
                      const std::string& bos);

// A byte-level tokenizer.json of the 256 bytes and a few merges, with the added tokens <|begin|> 300 and <|end|> 301
// (special) and <think> 302 (not special).
nlohmann::json TinyByteLevelJson();
// A SentencePiece-style tokenizer.json: <unk> 0, <s> 1, </s> 2, the byte tokens, letters, and pieces of U+2581.
nlohmann::json TinySpmJson();

// The ids as a list, for messages.
std::string IdsText(const std::vector<int32_t>& ids);

}  // namespace baton::testing

#endif  // BATON_TESTS_UNIT_TEXT_TEXT_TEST_FILES_H_
