// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_SUPPORT_PATHS_H_
#define BATON_TESTS_SUPPORT_PATHS_H_

#include <string>

#include "absl/strings/string_view.h"

namespace baton::testing {

// Where a test finds files. Only paths.cc is compiled with the absolute paths, so that a compiler cache serves the tests of
// another checkout too. Any thread; also before main.

// `name` below the checkout: SourcePath("tests/golden/tiny").
std::string SourcePath(absl::string_view name);
// `name` below build/<preset>: BuildPath("bin/baton").
std::string BuildPath(absl::string_view name);

}  // namespace baton::testing

#endif  // BATON_TESTS_SUPPORT_PATHS_H_
