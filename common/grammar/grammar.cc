// SPDX-License-Identifier: Apache-2.0
#include "common/grammar/grammar.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"

namespace baton {
namespace {

using Op = Program::Op;

constexpr size_t kMaxLookedAt = 512;
constexpr int64_t kMaxLookWork = 2'000'000;

void AppendNumber(uint32_t number, std::string* key) {
  key->append(reinterpret_cast<const char*>(&number), sizeof(number));
}

}  // namespace

Grammar::Grammar(Program program, std::shared_ptr<const TokenTrie> tokens, bool first_token_loses_spaces)
    : program_(std::move(program)),
      tokens_(std::move(tokens)),
      first_token_loses_spaces_(first_token_loses_spaces),
      path_(tokens_->max_token_bytes() + 2),
      scratch_(tokens_->max_token_bytes() + 2) {}

// ---- States.

bool Grammar::Fits(const Stack& stack) const {
  return static_cast<int>(stack.size()) + program_.states[stack.back().state].need <= Program::kMaxDepth;
}

// What can be at the top of a stack without a byte.
void Grammar::Expand(const Stack& stack, std::vector<Stack>* open, State* state) const {
  const Program::State& top = program_.states[stack.back().state];
  const Program::Rule& rule = program_.rules[top.rule];
  for (uint32_t j = 0; j < top.num_jumps; ++j) {
    const Program::Jump& jump = program_.jumps[top.first_jump + j];
    Stack next = stack;
    Frame& frame = next.back();
    switch (jump.op) {
      case Op::kGo:
        frame.state = jump.target;
        break;
      case Op::kTail:
        frame = {program_.rules[jump.rule].start, 0};
        break;
      case Op::kCall:
        frame.state = jump.target;
        if (!Fits(next)) continue;  // It has to go on when the call has returned.
        next.push_back({program_.rules[jump.rule].start, 0});
        break;
      case Op::kReturn:
        next.pop_back();
        if (next.empty()) {
          state->accepting = true;
          continue;
        }
        break;
      case Op::kMore:
        if (frame.count >= rule.max_count) continue;
        // Without a maximum, more than enough is enough: so there are few states.
        if (rule.max_count != Program::kUnbounded || frame.count < rule.min_count) ++frame.count;
        frame.state = jump.target;
        break;
      case Op::kEnough:
        if (frame.count < rule.min_count) continue;
        frame.state = jump.target;
        break;
    }
    if (Fits(next)) open->push_back(std::move(next));
  }
}

void Grammar::Close(std::vector<Stack>* open, State* state) {
  --work_left_;
  if (open->size() == 1 && program_.states[(*open)[0].back().state].num_jumps == 0) {  // Most of the bytes of a text.
    state->stacks.push_back(std::move((*open)[0]));
    open->clear();
    return;
  }
  absl::flat_hash_set<std::string> seen;
  std::string key;
  while (!open->empty() && state->stacks.size() < kMaxStacks) {
    Stack stack = std::move(open->back());
    open->pop_back();
    --work_left_;
    key.assign(reinterpret_cast<const char*>(stack.data()), stack.size() * sizeof(Frame));
    if (!seen.insert(key).second) continue;
    Expand(stack, open, state);
    if (program_.states[stack.back().state].num_edges > 0) state->stacks.push_back(std::move(stack));
  }
  state->crowded = !open->empty();
  open->clear();
  std::ranges::sort(state->stacks);
}

std::string Grammar::KeyOf(const State& state) {
  std::string key(1, state.accepting ? 'y' : 'n');
  for (const Stack& stack : state.stacks) {
    AppendNumber(static_cast<uint32_t>(stack.size()), &key);
    key.append(reinterpret_cast<const char*>(stack.data()), stack.size() * sizeof(Frame));
  }
  return key;
}

// States with one key have the same mask: a token has at most max_token_bytes bytes and can count no further, so only that
// much of what is missing to a bound matters.
std::string Grammar::MaskKeyOf(const State& state) const {
  const uint32_t horizon = static_cast<uint32_t>(tokens_->max_token_bytes()) + 1;
  std::string key;
  for (const Stack& stack : state.stacks) {
    AppendNumber(static_cast<uint32_t>(stack.size()), &key);
    for (const Frame& frame : stack) {
      const Program::Rule& rule = program_.rules[program_.states[frame.state].rule];
      const uint32_t missing = rule.min_count > frame.count ? rule.min_count - frame.count : 0;
      const uint32_t left = rule.max_count == Program::kUnbounded ? horizon : rule.max_count - frame.count;
      AppendNumber(frame.state, &key);
      AppendNumber(std::min(missing, horizon), &key);
      AppendNumber(std::min(left, horizon), &key);
    }
  }
  return key;
}

uint32_t Grammar::Put(StateRef state) {
  const auto [it, inserted] = numbers_.try_emplace(KeyOf(*state), static_cast<uint32_t>(states_.size()));
  if (inserted) {
    state->generation = generation_;
    state->next.fill(kUnknown);
    states_.push_back(std::move(state));
  }
  return it->second;
}

// Choices keep the states they are in; those are put again when they are needed.
void Grammar::MakeRoom() {
  if (masks_.size() >= kMaxMasks) {
    masks_.clear();
    for (const StateRef& state : states_) state->mask = nullptr;
  }
  if (states_.size() < kMaxStates / 2) return;
  states_.clear();
  numbers_.clear();
  ++generation_;
}

Grammar::StateRef Grammar::Start() {
  auto state = std::make_shared<State>();
  std::vector<Stack> open = {{{program_.rules[0].start, 0}}};
  if (!Fits(open[0])) return nullptr;
  Close(&open, state.get());
  start_key_ = KeyOf(*state);
  return states_[Put(std::move(state))];
}

Grammar::StateRef Grammar::Live(const StateRef& state) {
  MakeRoom();
  if (state->generation == generation_) return state;
  auto copy = std::make_shared<State>();
  copy->stacks = state->stacks;
  copy->accepting = state->accepting;
  copy->crowded = state->crowded;
  return states_[Put(std::move(copy))];
}

Grammar::State* Grammar::Next(State* from, uint8_t byte, State* scratch) {
  if (from->next[byte] < kDead) return states_[from->next[byte]].get();
  if (from->next[byte] == kDead) return nullptr;
  std::vector<Stack> open;
  work_left_ -= static_cast<int64_t>(from->stacks.size());
  for (const Stack& stack : from->stacks) {
    const Program::State& top = program_.states[stack.back().state];
    for (uint32_t e = 0; e < top.num_edges; ++e) {
      const Program::Edge& edge = program_.edges[top.first_edge + e];
      if (byte < edge.low || byte > edge.high) continue;
      Stack next = stack;
      next.back().state = edge.target;
      if (Fits(next)) open.push_back(std::move(next));
    }
  }
  if (open.empty()) {
    from->next[byte] = kDead;
    return nullptr;
  }
  const bool room = states_.size() < kMaxStates;
  auto fresh = room ? std::make_shared<State>() : nullptr;
  State* const state = room ? fresh.get() : scratch;
  state->stacks.clear();
  state->accepting = state->crowded = false;
  Close(&open, state);
  if (!room) {
    scratch->next.fill(kUnknown);
    return scratch;
  }
  // A scratch state's successors are not remembered: its place is taken again.
  const uint32_t number = Put(std::move(fresh));
  if (from->generation == generation_) from->next[byte] = number;
  return states_[number].get();
}

Grammar::StateRef Grammar::Advance(const StateRef& from, absl::string_view bytes) {
  StateRef start = Live(from);
  State* state = start.get();
  for (size_t i = 0; i < bytes.size(); ++i) {
    State* const next = Next(state, static_cast<uint8_t>(bytes[i]), &scratch_[i % 2]);
    if (next == nullptr) return nullptr;
    state = next;
  }
  if (state->generation == generation_) return state->shared_from_this();
  auto copy = std::make_shared<State>();
  copy->stacks = state->stacks;
  copy->accepting = state->accepting;
  copy->crowded = state->crowded;
  return copy;
}

// ---- Masks.

std::shared_ptr<TokenMask> Grammar::Walk(State* from) {
  auto mask = std::make_shared<TokenMask>(tokens_->vocab_size());
  const std::vector<TokenTrie::Node>& nodes = tokens_->nodes();
  path_[0] = from;
  const int64_t least = std::max<int64_t>(0, work_left_ - kMaxMaskWork);
  for (uint32_t i = 0; i < nodes.size();) {
    if (work_left_ < least) return nullptr;
    const TokenTrie::Node& node = nodes[i];
    State* const state = Next(path_[node.depth - 1], node.byte, &scratch_[node.depth]);
    if (state == nullptr) {
      i = node.end;
      continue;
    }
    path_[node.depth] = state;
    for (uint32_t t = 0; t < node.num_tokens; ++t) mask->Allow(tokens_->tokens()[node.first_token + t]);
    ++i;
  }
  return mask;
}

std::shared_ptr<const TokenMask> Grammar::Mask(const StateRef& from) {
  const StateRef state = Live(from);
  work_left_ = std::min(kMaxWork, std::max<int64_t>(0, work_left_) + kWorkPerMask);
  if (state->crowded) return nullptr;
  if (state->mask != nullptr) return state->mask;
  std::string key = MaskKeyOf(*state);
  const bool first = first_token_loses_spaces_ && KeyOf(*state) == start_key_;
  if (first) key.push_back('f');
  const auto found = masks_.find(key);
  if (found != masks_.end()) return state->mask = found->second;
  const std::shared_ptr<TokenMask> mask = Walk(state.get());
  if (mask == nullptr) return nullptr;
  if (first) {
    for (const int32_t id : tokens_->tokens()) {
      if (tokens_->BytesOf(id).find(' ') != absl::string_view::npos) mask->Forbid(id);
    }
  }
  masks_.emplace(std::move(key), mask);
  return state->mask = mask;
}

// ---- Before it is used.

std::vector<uint8_t> Grammar::Branches(const State& state) const {
  std::array<bool, 257> begins = {};
  for (const Stack& stack : state.stacks) {
    const Program::State& top = program_.states[stack.back().state];
    for (uint32_t e = 0; e < top.num_edges; ++e) {
      begins[program_.edges[top.first_edge + e].low] = true;
      begins[program_.edges[top.first_edge + e].high + size_t{1}] = true;
    }
  }
  std::vector<uint8_t> branches;
  for (int byte = 0; byte < 256; ++byte) {
    if (begins[static_cast<size_t>(byte)]) branches.push_back(static_cast<uint8_t>(byte));
  }
  return branches;
}

absl::Status Grammar::CheckAlternatives(const Program& program) {
  // Few programs have many alternatives anywhere; the others need no look at their texts.
  const auto crowded = [](const Program::State& state) { return state.num_jumps > kMaxStacks / 8; };
  if (std::ranges::none_of(program.states, crowded)) return absl::OkStatus();
  Grammar grammar(program, std::make_shared<TokenTrie>(std::vector<absl::string_view>{}));
  StateRef start = grammar.Start();
  // In the order in which they are found: they are numbered so.
  for (size_t i = 0; start != nullptr && i < grammar.states_.size() && i < kMaxLookedAt && grammar.work_left_ > -kMaxLookWork; ++i) {
    const StateRef state = grammar.states_[i];
    if (state->crowded) {
      return absl::InvalidArgumentError(absl::StrCat("more than ", kMaxStacks, " alternatives begin alike, and have to be followed at once"));
    }
    for (const uint8_t byte : grammar.Branches(*state)) grammar.Next(state.get(), byte, &grammar.scratch_[0]);
  }
  return absl::OkStatus();
}

// ---- One choice.

void GrammarState::Append(int32_t token) {
  if (state_ == nullptr) return;
  const absl::string_view bytes = grammar_->tokens().BytesOf(token);
  state_ = bytes.empty() ? nullptr : grammar_->Advance(state_, bytes);
}

}  // namespace baton
