// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_TEXT_TEXT_BUNDLE_H_
#define BATON_COMMON_TEXT_TEXT_BUNDLE_H_

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/text/tokenizer.h"

namespace baton {

// A model's text side: everything between a client's text and token ids.
struct TextBundle {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::optional<std::string> chat_template;       // Jinja2 source.
  std::optional<std::string> tool_chat_template;  // Used instead when a request brings tools.
  // What templates see by name: bos_token, eos_token, unk_token, ... Absent where the model has none.
  std::map<std::string, std::string> template_tokens;
  // Why there is no tokenizer; empty: there is one. See LoadModelText.
  std::string no_text;
};

// Loads from one of
//   a GGUF file                    tokenizer.ggml.*, tokenizer.chat_template
//   a folder                       tokenizer.json, and where there are: tokenizer_config.json, special_tokens_map.json,
//                                  generation_config.json, config.json, chat_template.jinja
//   a file tokenizer.json          the same, from its folder
//   NOT_FOUND         no such file, or a folder without tokenizer.json.
//   INVALID_ARGUMENT  a file is malformed or contradicts itself; the message names file and place.
// Codes of GgufFile::Open for GGUF files.
absl::StatusOr<TextBundle> LoadTextBundle(absl::string_view path);

// The same for a model that is served: one without a tokenizer is served for token ids. Then `no_text` says why, and
// `tokenizer` knows no text: it encodes nothing (FAILED_PRECONDITION), no id has bytes, and the fingerprint is empty; the
// ids that end an answer are there where the model's files name them.
//   NOT_FOUND  no such file, or a folder with neither tokenizer.json nor config.json.
// Other codes as above: a tokenizer that is there and cannot be read is an error.
absl::StatusOr<TextBundle> LoadModelText(absl::string_view path);

}  // namespace baton

#endif  // BATON_COMMON_TEXT_TEXT_BUNDLE_H_
