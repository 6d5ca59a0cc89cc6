// SPDX-License-Identifier: Apache-2.0
#include "common/text/pre_tokenizer.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/text/unicode.h"

namespace baton {
namespace {

using Word = Words::Word;
using Behavior = PreTokenizer::Behavior;

struct Part {
  TextRange range;
  bool is_match;
};

// The whole of `word` as alternating parts between and inside the matches (which may be empty).
std::vector<Part> PartsOf(absl::string_view word, const std::vector<TextRange>& matches, bool invert) {
  std::vector<Part> parts;
  size_t done = 0;
  for (const TextRange& match : matches) {
    if (match.begin > done) parts.push_back({{done, match.begin}, invert});
    parts.push_back({match, !invert});
    done = match.end;
  }
  if (done < word.size()) parts.push_back({{done, word.size()}, invert});
  return parts;
}

std::vector<TextRange> Resolve(const std::vector<Part>& parts, Behavior behavior) {
  std::vector<TextRange> out;
  bool previous_match = false;
  switch (behavior) {
    case Behavior::kIsolated:
      for (const Part& part : parts) out.push_back(part.range);
      break;
    case Behavior::kRemoved:
      for (const Part& part : parts) {
        if (!part.is_match) out.push_back(part.range);
      }
      break;
    case Behavior::kContiguous:
      for (const Part& part : parts) {
        if (!out.empty() && part.is_match == previous_match) {
          out.back().end = part.range.end;
        } else {
          out.push_back(part.range);
        }
        previous_match = part.is_match;
      }
      break;
    case Behavior::kMergedWithPrevious:
      for (const Part& part : parts) {
        if (part.is_match && !previous_match && !out.empty()) {
          out.back().end = part.range.end;
        } else {
          out.push_back(part.range);
        }
        previous_match = part.is_match;
      }
      break;
    case Behavior::kMergedWithNext:
      for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
        if (part->is_match && !previous_match && !out.empty()) {
          out.back().begin = part->range.begin;
        } else {
          out.push_back(part->range);
        }
        previous_match = part->is_match;
      }
      std::reverse(out.begin(), out.end());
      break;
  }
  return out;
}

struct Applier {
  Words* words;

  absl::string_view TextOf(const Word& word) const {
    return absl::string_view(words->text).substr(word.begin, word.end - word.begin);
  }

  absl::Status operator()(const PreTokenizer::Split& split) const {
    std::vector<Word> out;
    std::vector<TextRange> matches;
    for (const Word& word : words->words) {
      const absl::string_view text = TextOf(word);
      matches.clear();
      BATON_RETURN_IF_ERROR(split.pattern.FindAll(text, &matches));
      for (const TextRange& range : Resolve(PartsOf(text, matches, split.invert), split.behavior)) {
        if (range.begin == range.end) continue;
        out.push_back({word.begin + range.begin, word.begin + range.end, word.at_start && range.begin == 0});
      }
    }
    words->words = std::move(out);
    return absl::OkStatus();
  }

  // Writes every word anew with `write(word, &text)`.
  template <typename Write>
  void Rewrite(const Write& write) const {
    std::string text;
    text.reserve(words->text.size() + words->text.size() / 4);
    for (Word& word : words->words) {
      const size_t begin = text.size();
      write(word, &text);
      word.begin = begin;
      word.end = text.size();
    }
    words->text = std::move(text);
  }

  absl::Status operator()(const PreTokenizer::SpacePrefix&) const {
    Rewrite([this](const Word& word, std::string* out) {
      absl::StrAppend(out, absl::StartsWith(TextOf(word), " ") ? "" : " ", TextOf(word));
    });
    return absl::OkStatus();
  }

  absl::Status operator()(const PreTokenizer::ByteAlphabet&) const {
    Rewrite([this](const Word& word, std::string* out) { AppendByteLevel(TextOf(word), out); });
    return absl::OkStatus();
  }

  absl::Status operator()(const PreTokenizer::Metaspace& step) const {
    using Prepend = PreTokenizer::Metaspace::Prepend;
    Rewrite([&](const Word& word, std::string* out) {
      const absl::string_view text = TextOf(word);
      const bool has_prefix = absl::StartsWith(text, step.replacement) || absl::StartsWith(text, " ");
      const bool wants = step.prepend == Prepend::kAlways || (step.prepend == Prepend::kFirst && word.at_start);
      if (wants && !has_prefix) absl::StrAppend(out, step.replacement);
      for (const char c : text) {
        if (c == ' ') {
          absl::StrAppend(out, step.replacement);
        } else {
          out->push_back(c);
        }
      }
    });
    if (!step.split) return absl::OkStatus();
    return (*this)(PreTokenizer::Split{Pattern::Literal(step.replacement), Behavior::kMergedWithNext, false});
  }
};

}  // namespace

const char kGpt2WordPattern[] = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

absl::StatusOr<Words> PreTokenizer::Apply(std::string text, bool at_start) const {
  Words words;
  words.text = std::move(text);
  if (!words.text.empty()) words.words.push_back({0, words.text.size(), at_start});
  for (const Step& step : steps_) {
    BATON_RETURN_IF_ERROR(std::visit(Applier{&words}, step));
  }
  return words;
}

}  // namespace baton
