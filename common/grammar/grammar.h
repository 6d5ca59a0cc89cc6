// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_GRAMMAR_GRAMMAR_H_
#define BATON_COMMON_GRAMMAR_GRAMMAR_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/grammar/program.h"
#include "common/grammar/token_trie.h"

namespace baton {

// One bit per token id, of those that may come next.
class TokenMask {
 public:
  explicit TokenMask(int vocab_size) : words_((static_cast<size_t>(vocab_size) + 63) / 64) {}
  void Allow(int32_t id) { words_[static_cast<size_t>(id) / 64] |= uint64_t{1} << (id % 64); }
  void Forbid(int32_t id) { words_[static_cast<size_t>(id) / 64] &= ~(uint64_t{1} << (id % 64)); }
  bool allows(int32_t id) const {
    const size_t word = static_cast<size_t>(id) / 64;
    return word < words_.size() && (words_[word] >> (id % 64) & 1) != 0;
  }
  const std::vector<uint64_t>& words() const { return words_; }

 private:
  std::vector<uint64_t> words_;
};

// Which texts an answer may be: a Program, made deterministic as far as answers go (states, their successors by byte) and
// brought over a vocabulary (masks). Shared by the choices of all requests with the same text; what it has worked out is
// bounded by kMaxStates and kMaxMasks and made anew beyond. One thread after it is made: the engine's.
class Grammar {
 public:
  // A state has about 1.2 KiB and its stacks, a mask a bit per token.
  static constexpr size_t kMaxStates = 4096;
  static constexpr size_t kMaxMasks = 256;
  // Of what a text may be in the middle of, at one place. No mask is made where there are more: CheckAlternatives says so before.
  static constexpr size_t kMaxStacks = 512;
  // Masks are made between two tokens of everybody's answers. Of one mask, and of all beyond what each mask brings along:
  // a unit is a stack that was looked at, some 0.1 us. Most masks take some thousands.
  static constexpr int64_t kMaxMaskWork = 200'000;
  static constexpr int64_t kMaxWork = 600'000;
  static constexpr int64_t kWorkPerMask = 16'000;

  struct Frame {
    uint32_t state, count;
    auto operator<=>(const Frame&) const = default;
  };
  using Stack = std::vector<Frame>;
  // Where a text is. Never a dead end: every state can go on to an end of the text.
  struct State : std::enable_shared_from_this<State> {
    std::vector<Stack> stacks;  // In order; each stands where bytes may come.
    bool accepting = false;     // The text may end here.
    bool crowded = false;       // There are more stacks than kMaxStacks: these are not all.
    uint64_t generation = 0;    // Of the table that `next` points into.
    std::array<uint32_t, 256> next;
    std::shared_ptr<const TokenMask> mask;

    bool complete() const { return accepting && stacks.empty(); }  // Nothing can follow.
  };
  using StateRef = std::shared_ptr<State>;

  // `first_token_loses_spaces`: the detokenizer drops the spaces of an answer's first token.
  Grammar(Program program, std::shared_ptr<const TokenTrie> tokens, bool first_token_loses_spaces = false);

  StateRef Start();
  // After `bytes`. Null: no text goes on so.
  StateRef Advance(const StateRef& from, absl::string_view bytes);
  // The tokens whose bytes lead from `from` into a state. Without those that end an answer. Null: it takes more work than is
  // left (kMaxWork), of which there is some again later; or `from` is crowded.
  std::shared_ptr<const TokenMask> Mask(const StateRef& from);

  // Whether a text can get to a place of more than kMaxStacks alternatives that have not parted; looks at the first 512 states of texts.
  //   INVALID_ARGUMENT  it can.
  static absl::Status CheckAlternatives(const Program& program);

  const TokenTrie& tokens() const { return *tokens_; }
  size_t num_states() const { return states_.size(); }
  size_t num_masks() const { return masks_.size(); }

 private:
  static constexpr uint32_t kUnknown = 0xffffffff, kDead = 0xfffffffe;

  // The first bytes of the runs of bytes that lead from a state to the same places.
  std::vector<uint8_t> Branches(const State& state) const;
  StateRef Live(const StateRef& state);
  void MakeRoom();
  // `scratch` is used where there is no room for another state.
  State* Next(State* from, uint8_t byte, State* scratch);
  void Close(std::vector<Stack>* open, State* state);
  void Expand(const Stack& stack, std::vector<Stack>* open, State* state) const;
  bool Fits(const Stack& stack) const;
  static std::string KeyOf(const State& state);
  std::string MaskKeyOf(const State& state) const;
  uint32_t Put(StateRef state);
  std::shared_ptr<TokenMask> Walk(State* from);

  const Program program_;
  const std::shared_ptr<const TokenTrie> tokens_;
  const bool first_token_loses_spaces_;
  std::string start_key_;
  uint64_t generation_ = 1;
  int64_t work_left_ = kMaxWork;
  std::vector<StateRef> states_;
  absl::flat_hash_map<std::string, uint32_t> numbers_;  // Of states, by KeyOf.
  absl::flat_hash_map<std::string, std::shared_ptr<const TokenMask>> masks_;
  std::vector<State*> path_;       // Scratch of Walk, by depth.
  std::vector<State> scratch_;
};

// Where one choice is in its grammar: a function of its tokens. Copies are independent.
class GrammarState {
 public:
  explicit GrammarState(std::shared_ptr<Grammar> grammar) : grammar_(std::move(grammar)), state_(grammar_->Start()) {}

  // A token of the answer; nothing once the answer has left the grammar.
  void Append(int32_t token);
  bool failed() const { return state_ == nullptr; }
  bool accepting() const { return state_ != nullptr && state_->accepting; }
  bool complete() const { return state_ != nullptr && state_->complete(); }
  // Null when failed, or as Grammar::Mask.
  std::shared_ptr<const TokenMask> Mask() const { return state_ == nullptr ? nullptr : grammar_->Mask(state_); }

 private:
  std::shared_ptr<Grammar> grammar_;
  Grammar::StateRef state_;
};

}  // namespace baton

#endif  // BATON_COMMON_GRAMMAR_GRAMMAR_H_
