// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_SUPPORT_SANITIZERS_H_
#define BATON_TESTS_SUPPORT_SANITIZERS_H_

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace baton::testing {

// How many times longer than in a release build things may take; cmake/BatonOptions.cmake has the same for CTest. For bounds on
// time and, where a test would take minutes, for its number of cases.
#if defined(__SANITIZE_THREAD__)
inline constexpr int kSlowness = 10;
#elif defined(__SANITIZE_ADDRESS__)
inline constexpr int kSlowness = 5;
#else
inline constexpr int kSlowness = 1;
#endif

// Whether the output of a process has a sanitizer's report. A process that is killed, or whose exit code is nobody's, would
// hide one.
inline bool HasSanitizerReport(absl::string_view output) {
  for (const char* mark : {"WARNING: ThreadSanitizer", "ERROR: AddressSanitizer", "ERROR: LeakSanitizer", ": runtime error: "}) {
    if (absl::StrContains(output, mark)) return true;
  }
  return false;
}

}  // namespace baton::testing

#endif  // BATON_TESTS_SUPPORT_SANITIZERS_H_
