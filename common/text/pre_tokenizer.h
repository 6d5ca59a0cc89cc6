// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_TEXT_PRE_TOKENIZER_H_
#define BATON_COMMON_TEXT_PRE_TOKENIZER_H_

#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/text/pattern.h"
#include "nlohmann/json.hpp"

namespace baton {

// A text cut into words that merges do not cross.
struct Words {
  struct Word {
    size_t begin = 0, end = 0;
    bool at_start = false;  // Its first character is the first of the whole input.
  };
  std::string text;  // What `words` point into; may differ from what went in.
  std::vector<Word> words;
};

// Cuts a stretch of text into words and rewrites them into the vocabulary's alphabet. Immutable; any thread.
class PreTokenizer {
 public:
  // What becomes of the parts of a text that a pattern matches.
  enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

  struct Split {
    Pattern pattern;
    Behavior behavior = Behavior::kIsolated;
    bool invert = false;  // What matches and what does not change places.
  };
  struct SpacePrefix {};   // A space before each word that has none.
  struct ByteAlphabet {};  // Bytes become characters of the byte-level alphabet.
  struct Metaspace {
    enum class Prepend { kNever, kFirst, kAlways };
    std::string replacement = "\xE2\x96\x81";
    Prepend prepend = Prepend::kAlways;
    bool split = true;
  };
  using Step = std::variant<Split, SpacePrefix, ByteAlphabet, Metaspace>;

  PreTokenizer() = default;  // One word.
  explicit PreTokenizer(std::vector<Step> steps) : steps_(std::move(steps)) {}

  // From the "pre_tokenizer" of a tokenizer.json (null: none). A type that is not known is INVALID_ARGUMENT naming it.
  static absl::StatusOr<PreTokenizer> FromJson(const nlohmann::json& value);

  // `at_start` says that `text` is the beginning of the input. Empty words are dropped.
  absl::StatusOr<Words> Apply(std::string text, bool at_start) const;

 private:
  std::vector<Step> steps_;
};

// GPT-2's words: contractions, letters, digits and other signs, each with one leading space, and runs of white space.
extern const char kGpt2WordPattern[];

}  // namespace baton

#endif  // BATON_COMMON_TEXT_PRE_TOKENIZER_H_
