// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BASE_SECRET_FILE_H_
#define BATON_COMMON_BASE_SECRET_FILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace baton {

// The one word that is in a file: a key, which does not belong on a command line. White space around it is left out.
//   NOT_FOUND         the file cannot be read; names `flag` and file.
//   INVALID_ARGUMENT  it is empty, over 4 KiB, or has white space or other characters than visible ASCII in the middle.
absl::StatusOr<std::string> ReadSecretFile(absl::string_view flag, const std::string& path);

}  // namespace baton

#endif  // BATON_COMMON_BASE_SECRET_FILE_H_
