// SPDX-License-Identifier: Apache-2.0
#include "common/grammar/pattern.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/grammar/pattern_syntax.h"

namespace baton {
namespace {

using Kind = PatternNode::Kind;

constexpr uint32_t kLastCharacter = 0x10FFFF;

class Emitter {
 public:
  Emitter(CharacterForm form, CompileBudget* budget) : nfa(form, budget), budget_(budget) {}

  // From `from`; where it ends. -1: an anchor where none can be.
  int Emit(const PatternNode& node, int from) {
    budget_->Take(8);
    if (++work_ > kMaxWork || nfa.full()) return Full();
    switch (node.kind) {
      case Kind::kCharacters: {
        const int to = nfa.NewState();
        for (const auto& [low, high] : node.characters) nfa.AddCharacters(from, low, high, to);
        return to;
      }
      case Kind::kSequence:
        return Sequence(node, 0, node.children.size(), from);
      case Kind::kAlternatives: {
        const int to = nfa.NewState();
        for (const PatternNode& child : node.children) {
          const int begin = nfa.NewState();
          nfa.AddEmpty(from, begin);
          const int end = Emit(child, begin);
          if (end < 0) return end;
          nfa.AddEmpty(end, to);
        }
        return to;
      }
      case Kind::kRepeat:
        return Repeat(node, from);
      default:
        return -1;
    }
  }
  int Sequence(const PatternNode& node, size_t begin, size_t end, int from) {
    for (size_t i = begin; i < end && from >= 0; ++i) from = Emit(node.children[i], from);
    return from;
  }
  bool too_much() const { return work_ > kMaxWork; }

  ByteNfa nfa;

 private:
  static constexpr int kMaxWork = 1 << 18;
  static int Full() { return 0; }

  int Repeat(const PatternNode& node, int from) {
    const PatternNode& child = node.children[0];
    for (int i = 0; i < node.min && from >= 0 && !Over(); ++i) from = Emit(child, from);
    if (from < 0) return from;
    if (node.max == PatternNode::kUnbounded) {
      // Around a state of its own: what is before must not be in the loop.
      const int loop = nfa.NewState();
      nfa.AddEmpty(from, loop);
      const int end = Emit(child, loop);
      if (end < 0) return end;
      nfa.AddEmpty(end, loop);
      const int to = nfa.NewState();
      nfa.AddEmpty(loop, to);
      return to;
    }
    const int to = nfa.NewState();
    nfa.AddEmpty(from, to);
    for (int i = node.min; i < node.max && !Over(); ++i) {
      const int begin = nfa.NewState();
      nfa.AddEmpty(from, begin);
      from = Emit(child, begin);
      if (from < 0) return from;
      nfa.AddEmpty(from, to);
    }
    return to;
  }
  bool Over() const { return too_much() || nfa.full(); }

  CompileBudget* const budget_;
  int work_ = 0;
};

// Anything, where the pattern is not anchored.
int Anything(ByteNfa* nfa, int from) {
  const int loop = nfa->NewState();
  nfa->AddEmpty(from, loop);
  nfa->AddCharacters(loop, 0, kLastCharacter, loop);
  return loop;
}

}  // namespace

absl::StatusOr<ByteDfa> CompilePattern(absl::string_view pattern, CharacterForm form, CompileBudget* budget) {
  budget->Take(16 * pattern.size());  // The tree has sets of characters.
  if (budget->exceeded()) return CompileBudget::Exceeded();
  BATON_ASSIGN_OR_RETURN(const PatternNode root, ParsePattern(pattern));
  Emitter emitter(form, budget);
  const int start = emitter.nfa.NewState(), accept = emitter.nfa.NewState();
  for (const PatternNode& alternative : root.children) {
    size_t begin = 0, end = alternative.children.size();
    const bool from_start = end > 0 && alternative.children[0].kind == Kind::kBegin;
    begin += from_start;
    const bool to_end = end > begin && alternative.children[end - 1].kind == Kind::kEnd;
    end -= to_end;
    int at = emitter.nfa.NewState();
    emitter.nfa.AddEmpty(start, at);
    if (!from_start) at = Anything(&emitter.nfa, at);
    at = emitter.Sequence(alternative, begin, end, at);
    if (at < 0) return absl::InvalidArgumentError("^ and $ are supported at the ends of the pattern or of its alternatives alone");
    if (!to_end) at = Anything(&emitter.nfa, at);
    emitter.nfa.AddEmpty(at, accept);
  }
  if (emitter.too_much()) return absl::ResourceExhaustedError("its repetitions are too many");
  return emitter.nfa.Determinize(start, accept);
}

}  // namespace baton
