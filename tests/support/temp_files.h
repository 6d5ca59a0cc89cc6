// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_SUPPORT_TEMP_FILES_H_
#define BATON_TESTS_SUPPORT_TEMP_FILES_H_

#include <string>

#include "absl/strings/string_view.h"

namespace baton::testing {

// Files of a test live in a folder of the running program under build/<preset>/tests/tmp (or $TEST_TMPDIR). It goes with
// the program; one that a killed program left goes with the next program that makes a file. Any thread.

// A path in that folder that nothing has yet. `name` ends it.
std::string TempPath(absl::string_view name);
// Writes `bytes` there and returns the path.
std::string WriteTempFile(absl::string_view name, absl::string_view bytes);
// An empty folder there.
std::string MakeTempFolder(absl::string_view name);

}  // namespace baton::testing

#endif  // BATON_TESTS_SUPPORT_TEMP_FILES_H_
