// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_ROUTER_CALL_SCANNER_H_
#define BATON_ROUTER_CALL_SCANNER_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace baton {

// Follows a text that begins like a call of a tool, or a list of them, and says when it cannot become one any more: another member
// than those of a call, a name that no tool has, a value of another kind, something behind it. What it lets pass still has to
// be read as JSON at its end. One thread; a character costs the same wherever it stands.
class CallScanner {
 public:
  // `names`: of the tools; they outlive it.
  explicit CallScanner(const std::vector<std::string>* names) : names_(names) {}

  // More of the text. False from where it is no call.
  bool Push(absl::string_view text);

 private:
  enum class Place {
    kBegin,       // Of the whole text.
    kObject,      // Where a call's object begins: an empty list is none.
    kKey,         // Where a member begins: it has some.
    kInKey,
    kColon,
    kValue,
    kInName,      // In the string that names the tool.
    kInString,    // In another string that is a member's value.
    kNested,      // In the object that is a member's value.
    kAfterValue,
    kAfterObject,
    kEnd,
    kNoCall,
  };

  Place Next(char c);
  Place InString(char c, Place after);
  Place Value(char c);
  Place Nested(char c);

  const std::vector<std::string>* const names_;
  Place place_ = Place::kBegin;
  bool list_ = false;
  std::string key_;    // As it is written.
  std::string value_;  // Of the name, so far.
  bool escaped_ = false;       // The character before was a backslash.
  bool plain_ = true;          // No escape in this key or name yet: it is what it looks like.
  bool in_nested_string_ = false;
  int depth_ = 0;  // Of kNested.
};

}  // namespace baton

#endif  // BATON_ROUTER_CALL_SCANNER_H_
