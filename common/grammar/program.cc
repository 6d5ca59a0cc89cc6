// SPDX-License-Identifier: Apache-2.0
#include "common/grammar/program.h"

#include <algorithm>

namespace baton {
namespace {

using Op = Program::Op;

// What the state's rule needs to end by this jump.
int NeedOf(const Program& program, const Program::Jump& jump) {
  const auto need = [&](uint32_t state) { return static_cast<int>(program.states[state].need); };
  switch (jump.op) {
    case Op::kReturn:
      return 0;
    case Op::kTail:
      return need(program.rules[jump.rule].start);
    case Op::kCall: {
      const int called = need(program.rules[jump.rule].start);
      return std::max(called == Program::kNever ? called : std::min(called + 1, int{Program::kNever}), need(jump.target));
    }
    default:
      return need(jump.target);
  }
}

// Every state's need, from the returns backwards. Needs only fall, and each at most kMaxDepth times.
void WorkOutNeeds(Program* program) {
  std::vector<std::vector<uint32_t>> users(program->states.size());
  std::vector<uint32_t> open;
  for (uint32_t s = 0; s < program->states.size(); ++s) {
    const Program::State& state = program->states[s];
    for (uint32_t e = 0; e < state.num_edges; ++e) users[program->edges[state.first_edge + e].target].push_back(s);
    for (uint32_t j = 0; j < state.num_jumps; ++j) {
      const Program::Jump& jump = program->jumps[state.first_jump + j];
      if (jump.op == Op::kReturn) open.push_back(s);
      if (jump.op == Op::kTail || jump.op == Op::kCall) users[program->rules[jump.rule].start].push_back(s);
      if (jump.op != Op::kReturn && jump.op != Op::kTail) users[jump.target].push_back(s);
    }
  }
  while (!open.empty()) {
    const uint32_t s = open.back();
    open.pop_back();
    Program::State& state = program->states[s];
    int need = state.need;
    for (uint32_t e = 0; e < state.num_edges; ++e) {
      need = std::min<int>(need, program->states[program->edges[state.first_edge + e].target].need);
    }
    for (uint32_t j = 0; j < state.num_jumps; ++j) need = std::min(need, NeedOf(*program, program->jumps[state.first_jump + j]));
    if (need > Program::kMaxDepth) need = Program::kNever;  // Nobody may go so deep.
    if (need >= state.need) continue;
    state.need = static_cast<uint8_t>(need);
    open.insert(open.end(), users[s].begin(), users[s].end());
  }
}

// Edges and jumps into what never ends go: where a state has edges, a byte can come.
void LeaveOutDeadEnds(Program* program) {
  for (Program::State& state : program->states) {
    const auto edges = program->edges.begin() + state.first_edge;
    const auto edges_end = std::stable_partition(edges, edges + state.num_edges, [&](const Program::Edge& edge) {
      return program->states[edge.target].need != Program::kNever;
    });
    state.num_edges = static_cast<uint32_t>(edges_end - edges);
    const auto jumps = program->jumps.begin() + state.first_jump;
    const auto jumps_end = std::stable_partition(jumps, jumps + state.num_jumps, [&](const Program::Jump& jump) {
      return NeedOf(*program, jump) < Program::kNever;
    });
    state.num_jumps = static_cast<uint32_t>(jumps_end - jumps);
  }
}

}  // namespace

bool ProgramBuilder::Charge() {
  full_ = full_ || num_links_ >= kMaxLinks;
  num_links_ += !full_;
  return !full_;
}

void ProgramBuilder::Add(State from, Program::Jump jump) {
  if (Charge()) states_[from].jumps.push_back(jump);
}

ProgramBuilder::Rule ProgramBuilder::NewRule(uint32_t min_count, uint32_t max_count) {
  const Rule rule = static_cast<Rule>(rules_.size());
  rules_.push_back({0, min_count, max_count});
  rules_[rule].start = NewState(rule);
  return rule;
}

ProgramBuilder::State ProgramBuilder::NewState(Rule rule) {
  if (states_.size() >= kMaxStates) {
    full_ = true;
    return 0;
  }
  states_.push_back({.rule = rule, .edges = {}, .jumps = {}});
  return static_cast<State>(states_.size() - 1);
}

void ProgramBuilder::Bytes(State from, uint8_t low, uint8_t high, State to) {
  if (Charge()) states_[from].edges.push_back({low, high, to});
}

ProgramBuilder::State ProgramBuilder::Text(Rule rule, State from, absl::string_view text) {
  for (const char c : text) {
    const State next = NewState(rule);
    Bytes(from, static_cast<uint8_t>(c), static_cast<uint8_t>(c), next);
    from = next;
  }
  return from;
}

void ProgramBuilder::Dfa(Rule rule, State from, const ByteDfa& dfa, State to) {
  if (states_.size() + dfa.states.size() > kMaxStates) {
    full_ = true;
    return;
  }
  const State first = static_cast<State>(states_.size());
  for (size_t i = 0; i < dfa.states.size(); ++i) NewState(rule);
  Go(from, first);
  for (size_t i = 0; i < dfa.states.size(); ++i) {
    const State state = first + static_cast<State>(i);
    for (const ByteDfa::Edge& edge : dfa.states[i].edges) Bytes(state, edge.low, edge.high, first + edge.target);
    if (dfa.states[i].accepting) Go(state, to);
  }
}

Program ProgramBuilder::Build() const {
  Program program;
  program.rules = rules_;
  program.states.reserve(states_.size());
  for (const Draft& draft : states_) {
    program.states.push_back({.first_edge = static_cast<uint32_t>(program.edges.size()),
                              .first_jump = static_cast<uint32_t>(program.jumps.size()),
                              .num_edges = static_cast<uint32_t>(draft.edges.size()),
                              .num_jumps = static_cast<uint32_t>(draft.jumps.size()),
                              .rule = draft.rule});
    program.edges.insert(program.edges.end(), draft.edges.begin(), draft.edges.end());
    program.jumps.insert(program.jumps.end(), draft.jumps.begin(), draft.jumps.end());
  }
  WorkOutNeeds(&program);
  LeaveOutDeadEnds(&program);
  return program;
}

}  // namespace baton
