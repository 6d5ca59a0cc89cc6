// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_TEXT_STOP_STRING_MATCHER_H_
#define BATON_COMMON_TEXT_STOP_STRING_MATCHER_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace baton {

// Ends a stream of text at the first stop string, which may span any number of pushes. Holds back exactly the longest
// end of the text that is a beginning of a stop string, so that what it released never has to be taken back. The result
// does not depend on how the text was cut: the stop string that is complete first wins, of those the longest. One
// thread.
class StopStringMatcher {
 public:
  static constexpr size_t kMaxStopStrings = 16;
  static constexpr size_t kMaxStopBytes = 4096;  // Of one stop string.

  //   INVALID_ARGUMENT  more than kMaxStopStrings, or one that is empty, too long or not UTF-8 (stop[i]).
  static absl::StatusOr<StopStringMatcher> Create(std::vector<std::string> stops, bool include_stop = false);

  struct Result {
    std::string text;               // To release now.
    std::optional<size_t> stopped;  // Index of the stop string; nothing may be pushed any more.
  };
  Result Push(absl::string_view text);
  // The stream has ended without a stop string: what was held back.
  std::string Finish();

  bool empty() const { return stops_.empty(); }
  const std::string& stop(size_t index) const { return stops_[index].text; }

 private:
  // One stop string's automaton of Knuth, Morris and Pratt.
  struct Stop {
    std::string text;
    std::vector<size_t> border;  // [size + 1]: length of the longest proper border of the first i bytes.
    size_t matched = 0;          // Longest end of the text so far that is a beginning of `text`.
  };

  std::vector<Stop> stops_;
  std::string held_;
  bool include_stop_ = false;
};

}  // namespace baton

#endif  // BATON_COMMON_TEXT_STOP_STRING_MATCHER_H_
