// SPDX-License-Identifier: Apache-2.0
#include "common/text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

// Bounds of one match attempt. Real patterns stay far below on any text; a crafted one ends with an error.
constexpr uint32_t kMatchLimit = 50'000'000;
constexpr uint32_t kDepthLimit = 1'000'000;
constexpr uint32_t kHeapLimitKib = 64 * 1024;
constexpr size_t kJitStackBytes = 8u << 20;

std::string MessageOf(int code) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(code, buffer, sizeof(buffer));
  return reinterpret_cast<const char*>(buffer);
}

// What PCRE2 needs while it matches. One per thread: it is not thread-safe, and making it costs more than a match.
struct MatchState {
  MatchState()
      : data(pcre2_match_data_create(1, nullptr)),
        context(pcre2_match_context_create(nullptr)),
        stack(pcre2_jit_stack_create(64 * 1024, kJitStackBytes, nullptr)) {
    pcre2_set_match_limit(context, kMatchLimit);
    pcre2_set_depth_limit(context, kDepthLimit);
    pcre2_set_heap_limit(context, kHeapLimitKib);
    if (stack != nullptr) pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~MatchState() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
  MatchState(const MatchState&) = delete;
  MatchState& operator=(const MatchState&) = delete;

  pcre2_match_data* const data;
  pcre2_match_context* const context;
  pcre2_jit_stack* const stack;
};

}  // namespace

absl::StatusOr<Regex> Regex::Compile(absl::string_view pattern) {
  BATON_ASSIGN_OR_RETURN(const std::string translated, TranslateOniguruma(pattern));
  using Context = std::unique_ptr<pcre2_compile_context, void (*)(pcre2_compile_context*)>;
  Context context(pcre2_compile_context_create(nullptr), pcre2_compile_context_free);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context.get(), 100);
  int error = 0;
  PCRE2_SIZE offset = 0;
  // Oniguruma's ^ and $ are those of lines.
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &offset, context.get());
  if (code == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("pattern '", pattern, "': ", MessageOf(error), " (at byte ", offset, " of '", translated, "')"));
  }
  // Without a JIT (a kernel that forbids writable code) the interpreter gives the same matches, slower.
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  return Regex(std::shared_ptr<const pcre2_code>(
      code, [](const pcre2_code* c) { pcre2_code_free(const_cast<pcre2_code*>(c)); }));
}

absl::Status Regex::FindAll(absl::string_view text, std::vector<TextRange>* matches) const {
  static thread_local MatchState state;
  size_t start = 0;
  size_t last_end = SIZE_MAX;  // No match yet.
  const PCRE2_SIZE* range = pcre2_get_ovector_pointer(state.data);
  while (start <= text.size()) {
    const int rc = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), start,
                               PCRE2_NO_UTF_CHECK, state.data, state.context);
    if (rc == PCRE2_ERROR_NOMATCH) break;
    if (rc < 0) return absl::InvalidArgumentError(absl::StrCat("text near byte ", start, ": ", MessageOf(rc)));
    const TextRange match = {range[0], range[1]};
    if (match.begin >= match.end && match.end == last_end) {
      ++start;  // Look behind the next character.
      while (start < text.size() && (static_cast<uint8_t>(text[start]) & 0xC0) == 0x80) ++start;
      continue;
    }
    matches->push_back(match);
    start = last_end = match.end;
  }
  return absl::OkStatus();
}

}  // namespace baton
