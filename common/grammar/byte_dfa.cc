// SPDX-License-Identifier: Apache-2.0
#include "common/grammar/byte_dfa.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace baton {
namespace {

constexpr uint32_t kFirstSurrogate = 0xD800, kLastSurrogate = 0xDFFF, kLastCharacter = 0x10FFFF;

absl::Status TooLarge() {
  return absl::ResourceExhaustedError(absl::StrCat("it needs an automaton of more than ", ByteDfa::kMaxStates, " states"));
}

int EncodeUtf8(uint32_t c, std::array<uint8_t, 4>* bytes) {
  if (c < 0x80) {
    (*bytes)[0] = static_cast<uint8_t>(c);
    return 1;
  }
  const int n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
  for (int i = n - 1; i > 0; --i, c >>= 6) (*bytes)[i] = static_cast<uint8_t>(0x80 | (c & 0x3F));
  (*bytes)[0] = static_cast<uint8_t>((n == 2 ? 0xC0 : n == 3 ? 0xE0 : 0xF0) | c);
  return n;
}

// Numbers states by what they stand for, and hands out those that are new.
template <typename Key>
class Numbering {
 public:
  uint32_t Of(const Key& key) {
    const auto [it, inserted] = numbers_.try_emplace(key, static_cast<uint32_t>(keys_.size()));
    if (inserted) keys_.push_back(key);
    return it->second;
  }
  size_t size() const { return keys_.size(); }
  Key key(size_t i) const { return keys_[i]; }

 private:
  absl::flat_hash_map<Key, uint32_t> numbers_;
  std::vector<Key> keys_;
};

}  // namespace

absl::Status CompileBudget::Exceeded() {
  return absl::ResourceExhaustedError(
      absl::StrCat("the patterns, bounds and keys of the schema together take more than ", kSteps, " steps to compile"));
}

int ByteNfa::NewState(bool between) {
  if (!budget_->Take(16)) full_ = true;
  if (full_ || states_.size() >= kMaxStates) {
    full_ = true;
    return 0;
  }
  states_.push_back({.edges = {}, .empties = {}, .between = between});
  return static_cast<int>(states_.size()) - 1;
}

void ByteNfa::AddBytes(int from, uint8_t low, uint8_t high, int to) {
  budget_->Take(4);
  if (!full_) states_[from].edges.push_back({low, high, static_cast<uint32_t>(to)});
}

void ByteNfa::AddEmpty(int from, int to) {
  if (!full_) states_[from].empties.push_back(to);
}

void ByteNfa::AddCharacters(int from, uint32_t low, uint32_t high, int to) {
  high = std::min(high, kLastCharacter);
  if (low > high || full_) return;
  if (low <= kLastSurrogate && high >= kFirstSurrogate) {
    if (low < kFirstSurrogate) AddCharacters(from, low, kFirstSurrogate - 1, to);
    if (high > kLastSurrogate) AddCharacters(from, kLastSurrogate + 1, high, to);
    return;
  }
  if (form_ == CharacterForm::kPlain) return AddUtf8(from, low, high, to);
  AddEscapes(from, low, high, to);
  constexpr std::pair<uint32_t, uint32_t> kThemselves[] = {
      {0x20, '"' - 1}, {'"' + 1, '\\' - 1}, {'\\' + 1, kLastCharacter}};
  for (const auto& [first, last] : kThemselves) {
    const uint32_t begin = std::max(low, first), end = std::min(high, last);
    if (begin <= end) AddUtf8(from, begin, end, to);
  }
}

// The escapes of what cannot stand for itself. Those that begin alike share their states.
void ByteNfa::AddEscapes(int from, uint32_t low, uint32_t high, int to) {
  constexpr std::pair<char, char> kShort[] = {{'"', '"'},  {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'},
                                              {'\n', 'n'}, {'\r', 'r'},  {'\t', 't'}};
  std::map<std::string, int> states = {{"", from}};
  for (uint32_t c = low; c <= high && c <= '\\'; ++c) {
    if (c >= 0x20 && c != '"' && c != '\\') continue;
    budget_->Take(64);
    std::string text = absl::StrFormat("\\u%04x", c);
    for (const auto& [character, letter] : kShort) {
      if (c == static_cast<uint32_t>(character)) text = std::string("\\") + letter;
    }
    for (size_t i = 0; i < text.size(); ++i) {
      const uint8_t byte = static_cast<uint8_t>(text[i]);
      const int before = states[text.substr(0, i)];
      if (i + 1 == text.size()) {
        AddBytes(before, byte, byte, to);
      } else if (const auto [it, inserted] = states.try_emplace(text.substr(0, i + 1), 0); inserted) {
        it->second = NewState(/*between=*/false);
        AddBytes(before, byte, byte, it->second);
      }
    }
  }
}

// As RE2 does it: a range is split until each of its bytes is a range of its own.
void ByteNfa::AddUtf8(int from, uint32_t low, uint32_t high, int to) {
  for (const uint32_t last : {0x7Fu, 0x7FFu, 0xFFFFu}) {
    if (low > last || high <= last) continue;
    AddUtf8(from, low, last, to);
    return AddUtf8(from, last + 1, high, to);
  }
  std::array<uint8_t, 4> first, second;
  const int n = EncodeUtf8(low, &first);
  for (int i = 1; i < n; ++i) {
    const uint32_t mask = (1u << (6 * i)) - 1;
    if ((low & ~mask) == (high & ~mask)) continue;
    if ((low & mask) != 0) {
      AddUtf8(from, low, low | mask, to);
      return AddUtf8(from, (low | mask) + 1, high, to);
    }
    if ((high & mask) != mask) {
      AddUtf8(from, low, (high & ~mask) - 1, to);
      return AddUtf8(from, high & ~mask, high, to);
    }
  }
  EncodeUtf8(high, &second);
  for (int i = 0; i < n; ++i) {
    const int next = i + 1 == n ? to : NewState(/*between=*/false);
    AddBytes(from, first[i], second[i], next);
    from = next;
  }
}

std::vector<int> ByteNfa::Closure(const std::vector<int>& states, int accept) const {
  seen_.resize(states_.size());
  ++call_;
  std::vector<int> open, closed;
  const auto see = [&](int s) {
    if (std::exchange(seen_[s], call_) != call_) open.push_back(s);
  };
  for (const int s : states) see(s);
  while (!open.empty()) {
    const int s = open.back();
    open.pop_back();
    if (s == accept || !states_[s].edges.empty()) closed.push_back(s);
    budget_->Take(1 + states_[s].empties.size());
    for (const int t : states_[s].empties) see(t);
  }
  budget_->Take(8 * closed.size());
  std::ranges::sort(closed);
  return closed;
}

absl::StatusOr<ByteDfa> ByteNfa::Determinize(int start, int accept) const {
  if (budget_->exceeded()) return CompileBudget::Exceeded();
  if (full_) return TooLarge();
  ByteDfa dfa;
  Numbering<std::vector<int>> sets;
  sets.Of(Closure({start}, accept));
  for (size_t i = 0; i < sets.size(); ++i) {
    const std::vector<int> set = sets.key(i);
    if (sets.size() > ByteDfa::kMaxStates) return TooLarge();
    ByteDfa::State state;
    std::vector<ByteDfa::Edge> edges;
    std::array<bool, 257> borders{};
    for (const int s : set) {
      state.accepting = state.accepting || s == accept;
      state.between = state.between && states_[s].between;
      edges.insert(edges.end(), states_[s].edges.begin(), states_[s].edges.end());
    }
    for (const ByteDfa::Edge& edge : edges) borders[edge.low] = borders[edge.high + 1] = true;
    for (int low = 0; low < 256;) {
      int next = low + 1;
      while (next < 256 && !borders[next]) ++next;
      if (!budget_->Take(edges.size() + 4)) return CompileBudget::Exceeded();
      std::vector<int> targets;
      for (const ByteDfa::Edge& edge : edges) {
        if (edge.low <= low && low <= edge.high) targets.push_back(static_cast<int>(edge.target));
      }
      if (!targets.empty()) {
        const uint32_t target = sets.Of(Closure(targets, accept));
        state.edges.push_back({static_cast<uint8_t>(low), static_cast<uint8_t>(next - 1), target});
      }
      low = next;
    }
    dfa.states.push_back(std::move(state));
  }
  return dfa;
}

absl::StatusOr<ByteDfa> BoundLength(const ByteDfa& dfa, uint32_t min, uint32_t max, CompileBudget* budget) {
  using Key = std::pair<uint32_t, uint32_t>;  // State, characters so far.
  const bool bounded = max != UINT32_MAX;
  ByteDfa result;
  Numbering<Key> keys;
  keys.Of({0, 0});
  for (size_t i = 0; i < keys.size(); ++i) {
    if (keys.size() > ByteDfa::kMaxStates) return TooLarge();
    const auto [from, count] = keys.key(i);
    if (!budget->Take(8 + 8 * dfa.states[from].edges.size())) return CompileBudget::Exceeded();
    ByteDfa::State state = dfa.states[from];
    state.accepting = state.accepting && count >= min;
    std::vector<ByteDfa::Edge> edges = std::exchange(state.edges, {});
    for (const ByteDfa::Edge& edge : edges) {
      uint32_t next = count + dfa.states[edge.target].between;
      if (bounded && next > max) continue;
      if (!bounded) next = std::min(next, min);
      state.edges.push_back({edge.low, edge.high, keys.Of({edge.target, next})});
    }
    result.states.push_back(std::move(state));
  }
  return result;
}

ByteDfa OneOfTexts(const std::vector<std::string>& texts) {
  ByteDfa trie;
  trie.states.emplace_back();
  for (const std::string& text : texts) {
    uint32_t at = 0;
    for (const char c : text) {
      const uint8_t byte = static_cast<uint8_t>(c);
      auto& edges = trie.states[at].edges;
      const auto found = std::ranges::find(edges, byte, &ByteDfa::Edge::low);
      if (found != edges.end()) {
        at = found->target;
        continue;
      }
      const uint32_t next = static_cast<uint32_t>(trie.states.size());
      edges.push_back({byte, byte, next});
      trie.states.emplace_back();
      at = next;
    }
    trie.states[at].accepting = true;
  }
  for (ByteDfa::State& state : trie.states) std::ranges::sort(state.edges, {}, &ByteDfa::Edge::low);
  return trie;
}

absl::StatusOr<ByteDfa> ExcludeTexts(const ByteDfa& dfa, const std::vector<std::string>& texts, CompileBudget* budget) {
  constexpr uint32_t kOff = UINT32_MAX;  // No longer the beginning of an excluded text.
  for (const std::string& text : texts) budget->Take(8 * text.size());
  if (budget->exceeded()) return CompileBudget::Exceeded();
  const ByteDfa trie = OneOfTexts(texts);
  using Key = std::pair<uint32_t, uint32_t>;
  ByteDfa result;
  Numbering<Key> keys;
  keys.Of({0, 0});
  for (size_t i = 0; i < keys.size(); ++i) {
    if (keys.size() > ByteDfa::kMaxStates) return TooLarge();
    const auto [from, node] = keys.key(i);
    const size_t children = node == kOff ? 1 : 1 + trie.states[node].edges.size();
    if (!budget->Take(8 + 8 * dfa.states[from].edges.size() * children)) return CompileBudget::Exceeded();
    ByteDfa::State state = dfa.states[from];
    state.accepting = state.accepting && (node == kOff || !trie.states[node].accepting);
    std::vector<ByteDfa::Edge> edges = std::exchange(state.edges, {});
    for (const ByteDfa::Edge& edge : edges) {
      int low = edge.low;
      if (node != kOff) {
        for (const ByteDfa::Edge& child : trie.states[node].edges) {
          if (child.low < edge.low || child.low > edge.high) continue;
          if (low < child.low) {
            state.edges.push_back({static_cast<uint8_t>(low), static_cast<uint8_t>(child.low - 1), keys.Of({edge.target, kOff})});
          }
          state.edges.push_back({child.low, child.low, keys.Of({edge.target, child.target})});
          low = child.low + 1;
        }
      }
      if (low <= edge.high) state.edges.push_back({static_cast<uint8_t>(low), edge.high, keys.Of({edge.target, kOff})});
    }
    result.states.push_back(std::move(state));
  }
  return result;
}

}  // namespace baton
