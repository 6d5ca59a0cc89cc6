// SPDX-License-Identifier: Apache-2.0
// Word patterns by the names that GGUF files give them. Each is the pre_tokenizer of the published model's own
// tokenizer.json.
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/text/gguf_vocabulary.h"

namespace baton {
namespace {

// Parts that several patterns share.
#define BATON_CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define BATON_SPACES R"(\s*[\r\n]+|\s+(?!\S)|\s+)"
#define BATON_SIGNS R"( ?[^\s\p{L}\p{N}]+[\r\n]*)"
// Words of one case or capitalised, as in the newer vocabularies of OpenAI and Mistral.
#define BATON_CAPITALISED R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
#define BATON_UPPER R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
#define BATON_SIGNS_SLASH R"( ?[^\s\p{L}\p{N}]+[\r\n/]*)"

constexpr char kLlama3[] = BATON_CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)" BATON_SIGNS "|" BATON_SPACES;
constexpr char kQwen2[] = BATON_CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)" BATON_SIGNS "|" BATON_SPACES;
constexpr char kGpt4o[] = BATON_CAPITALISED BATON_CONTRACTIONS "?|" BATON_UPPER BATON_CONTRACTIONS
                                                               R"(?|\p{N}{1,3}|)" BATON_SIGNS_SLASH "|" BATON_SPACES;
constexpr char kTekken[] = BATON_CAPITALISED "|" BATON_UPPER R"(|\p{N}|)" BATON_SIGNS_SLASH "|" BATON_SPACES;
constexpr char kDeepseekWords[] =
    R"re([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|)re" BATON_SPACES;
constexpr char kJapaneseChinese[] = "[\xE4\xB8\x80-\xE9\xBE\xA5\xE3\x81\x80-\xE3\x82\x9F\xE3\x82\xA0-\xE3\x83\xBF]+";
constexpr char kDigit[] = R"(\p{N})";
constexpr char kDigits3[] = R"(\p{N}{1,3})";
constexpr char kAsciiDigits3[] = "[0-9][0-9][0-9]";
constexpr char kPunctuation[] = R"([\p{P}$+<=>^~|]+)";
constexpr char kFalconPunctuation[] = R"([\p{P}$+<=>^~|`]+)";

struct Entry {
  absl::string_view names;            // Each between spaces.
  std::vector<const char*> patterns;  // Applied one after the other; matches and what is between them are words.
  bool ignore_merges = false;
  bool add_bos = false;
  bool nfc = false;
};

const std::vector<Entry>& Table() {
  static const auto* table = new std::vector<Entry>{
      {" gpt-2 phi-2 jina-es jina-de gigachat jina-v2-es jina-v2-de jina-v2-code mpt olmo jais trillion ",
       {kGpt2WordPattern}},
      {" smollm starcoder refact command-r codeshell exaone minerva-7b ", {kDigit, kGpt2WordPattern}},
      {" llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 ", {kLlama3}, true, true},
      {" dbrx smaug-bpe glm4 chatglm-bpe ", {kLlama3}},
      {" qwen2 deepseek-r1-qwen ", {kQwen2}, false, false, true},
      {" stablelm2 hunyuan ", {kQwen2}},
      {" deepseek-v3 ", {kDigits3, kJapaneseChinese, kDeepseekWords}},
      {" gpt-4o llama4 ", {kGpt4o}},
      {" tekken ", {kTekken}, true, true},
      {" falcon ", {kFalconPunctuation, kGpt2WordPattern, kAsciiDigits3}},
      // What files without a name were made for.
      {" default ", {kPunctuation, kGpt2WordPattern, R"(\p{N}+)", kAsciiDigits3}},
  };
  return *table;
}

}  // namespace

absl::StatusOr<GgufPreTokenizer> FindGgufPreTokenizer(absl::string_view name) {
  const std::string wanted = absl::StrCat(" ", name.empty() ? "default" : name, " ");
  for (const Entry& entry : Table()) {
    if (name.find(' ') != absl::string_view::npos || entry.names.find(wanted) == absl::string_view::npos) continue;
    GgufPreTokenizer found;
    for (const char* regex : entry.patterns) {
      BATON_ASSIGN_OR_RETURN(Pattern pattern, Pattern::FromRegex(regex));
      found.steps.push_back(PreTokenizer::Split{std::move(pattern)});
    }
    found.steps.push_back(PreTokenizer::ByteAlphabet{});
    found.ignore_merges = entry.ignore_merges;
    found.add_bos = entry.add_bos;
    found.nfc = entry.nfc;
    return found;
  }
  return absl::InvalidArgumentError(absl::StrCat("tokenizer.ggml.pre: unknown pre-tokenizer '", name, "'"));
}

}  // namespace baton
