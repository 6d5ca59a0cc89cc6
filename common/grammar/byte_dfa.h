// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_GRAMMAR_BYTE_DFA_H_
#define BATON_COMMON_GRAMMAR_BYTE_DFA_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace baton {

// What the compilation of one schema may cost, all its automata together: a step is some 10 ns. One thread.
class CompileBudget {
 public:
  static constexpr int64_t kSteps = 8'000'000;
  // False: it is used up.
  bool Take(size_t steps) {
    left_ -= static_cast<int64_t>(steps);
    return left_ >= 0;
  }
  bool exceeded() const { return left_ < 0; }
  // RESOURCE_EXHAUSTED
  static absl::Status Exceeded();

 private:
  int64_t left_ = kSteps;
};

// A deterministic automaton over bytes; the first state is the start. States from which nothing is accepted may be there.
struct ByteDfa {
  static constexpr size_t kMaxStates = 16384;
  struct Edge {
    uint8_t low, high;
    uint32_t target;
  };
  struct State {
    std::vector<Edge> edges;  // Disjoint, in order.
    bool accepting = false;
    bool between = true;  // Not inside a character.
  };
  std::vector<State> states;
};

// How a character stands in the text.
enum class CharacterForm {
  kPlain,       // UTF-8.
  kJsonString,  // As inside a JSON string: UTF-8, and the one shortest escape for what cannot stand for itself.
};

// A nondeterministic automaton over bytes, to be determinised. One thread.
class ByteNfa {
 public:
  static constexpr size_t kMaxStates = 65536;

  // `budget` outlives this.
  ByteNfa(CharacterForm form, CompileBudget* budget) : form_(form), budget_(budget) {}

  int NewState(bool between = true);
  void AddBytes(int from, uint8_t low, uint8_t high, int to);
  void AddEmpty(int from, int to);
  // Any one character of [low, high], code points, in this automaton's form; surrogates are left out.
  void AddCharacters(int from, uint32_t low, uint32_t high, int to);
  bool full() const { return full_ || budget_->exceeded(); }

  //   RESOURCE_EXHAUSTED  over ByteNfa::kMaxStates, ByteDfa::kMaxStates or the budget.
  absl::StatusOr<ByteDfa> Determinize(int start, int accept) const;

 private:
  struct State {
    std::vector<ByteDfa::Edge> edges;
    std::vector<int> empties;
    bool between = true;
  };
  void AddUtf8(int from, uint32_t low, uint32_t high, int to);
  void AddEscapes(int from, uint32_t low, uint32_t high, int to);
  // The states that can be reached without a byte and have edges, or are `accept`; in order.
  std::vector<int> Closure(const std::vector<int>& states, int accept) const;

  const CharacterForm form_;
  CompileBudget* const budget_;
  mutable std::vector<uint32_t> seen_;  // Of Closure: the last call that saw a state.
  mutable uint32_t call_ = 0;
  std::vector<State> states_;
  bool full_ = false;
};

// The texts of `dfa` that have from min to max characters; max UINT32_MAX: no bound. A character is what ends in a state
// between characters.
//   RESOURCE_EXHAUSTED  over ByteDfa::kMaxStates or the budget.
absl::StatusOr<ByteDfa> BoundLength(const ByteDfa& dfa, uint32_t min, uint32_t max, CompileBudget* budget);
// The texts of `dfa` that are none of `texts`.
//   RESOURCE_EXHAUSTED  over ByteDfa::kMaxStates or the budget.
absl::StatusOr<ByteDfa> ExcludeTexts(const ByteDfa& dfa, const std::vector<std::string>& texts, CompileBudget* budget);
// Exactly `texts`.
ByteDfa OneOfTexts(const std::vector<std::string>& texts);

}  // namespace baton

#endif  // BATON_COMMON_GRAMMAR_BYTE_DFA_H_
