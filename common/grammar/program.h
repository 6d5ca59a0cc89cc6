// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_GRAMMAR_PROGRAM_H_
#define BATON_COMMON_GRAMMAR_PROGRAM_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/grammar/byte_dfa.h"

namespace baton {

// A pushdown automaton over bytes: rules call each other and return, and a frame counts one thing (characters, items).
// Immutable once built; any thread.
struct Program {
  static constexpr uint32_t kUnbounded = 0xffffffff;
  // Open calls of a text at most. Below JSON parsers' usual bounds on nesting.
  static constexpr int kMaxDepth = 64;
  // Of State::need: no text can end from here.
  static constexpr uint8_t kNever = 255;

  enum class Op : uint8_t {
    kGo,      // To `target`.
    kCall,    // Of the rule `rule`; afterwards at `target`.
    kTail,    // The rule `rule` instead of this one.
    kReturn,  // The rule ends here.
    kMore,    // To `target`, counting one, unless the rule's max_count is reached.
    kEnough,  // To `target`, when the rule's min_count is reached.
  };
  struct Edge {
    uint8_t low, high;
    uint32_t target;
  };
  struct Jump {
    Op op;
    uint32_t rule, target;
  };
  struct State {
    uint32_t first_edge = 0, first_jump = 0;
    uint32_t num_edges = 0, num_jumps = 0;
    uint32_t rule = 0;
    uint8_t need = kNever;  // Further open calls without which its rule cannot end.
  };
  struct Rule {
    uint32_t start = 0;
    uint32_t min_count = 0, max_count = kUnbounded;
  };

  std::vector<State> states;
  std::vector<Edge> edges;
  std::vector<Jump> jumps;
  std::vector<Rule> rules;  // The first is the whole text.

  // Whether any text at all is in the language.
  bool HasText() const { return states[rules[0].start].need < kMaxDepth; }
};

// Writes a Program. One thread.
class ProgramBuilder {
 public:
  using State = uint32_t;
  using Rule = uint32_t;
  // Together they bound a program at a few megabytes.
  static constexpr size_t kMaxStates = 65536;
  static constexpr size_t kMaxLinks = 262144;  // Edges and jumps.

  Rule NewRule(uint32_t min_count = 0, uint32_t max_count = Program::kUnbounded);
  State Start(Rule rule) const { return rules_[rule].start; }
  State NewState(Rule rule);

  void Bytes(State from, uint8_t low, uint8_t high, State to);
  // The bytes of `text`, through new states of `rule`; the state after them.
  State Text(Rule rule, State from, absl::string_view text);
  void Go(State from, State to) { Add(from, {Program::Op::kGo, 0, to}); }
  void Call(State from, Rule called, State to) { Add(from, {Program::Op::kCall, called, to}); }
  void Tail(State from, Rule called) { Add(from, {Program::Op::kTail, called, 0}); }
  void Return(State from) { Add(from, {Program::Op::kReturn, 0, 0}); }
  void More(State from, State to) { Add(from, {Program::Op::kMore, 0, to}); }
  void Enough(State from, State to) { Add(from, {Program::Op::kEnough, 0, to}); }
  // A copy of the automaton: from `from`, and on to `to` where it accepts.
  void Dfa(Rule rule, State from, const ByteDfa& dfa, State to);

  // A bound was reached: what was built is not whole.
  bool full() const { return full_; }
  // The program, with every state's need worked out.
  Program Build() const;

 private:
  struct Draft {
    Rule rule;
    std::vector<Program::Edge> edges;
    std::vector<Program::Jump> jumps;
  };
  void Add(State from, Program::Jump jump);
  bool Charge();

  std::vector<Draft> states_;
  std::vector<Program::Rule> rules_;
  size_t num_links_ = 0;
  bool full_ = false;
};

}  // namespace baton

#endif  // BATON_COMMON_GRAMMAR_PROGRAM_H_
