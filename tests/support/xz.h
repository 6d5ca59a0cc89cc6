// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_SUPPORT_XZ_H_
#define BATON_TESTS_SUPPORT_XZ_H_

#include <cstdio>
#include <string>

namespace baton::testing {

// The text inside an .xz file, by the xz program; empty if either is missing. `path` must need no quoting.
inline std::string ReadXz(const std::string& path) {
  std::string text;
  FILE* pipe = popen(("xz -dc '" + path + "'").c_str(), "r");
  if (pipe == nullptr) return text;
  char buffer[65536];
  for (size_t n; (n = fread(buffer, 1, sizeof(buffer), pipe)) > 0;) text.append(buffer, n);
  return pclose(pipe) == 0 ? text : std::string();
}

}  // namespace baton::testing

#endif  // BATON_TESTS_SUPPORT_XZ_H_
