// SPDX-License-Identifier: Apache-2.0
#include "common/base/ids.h"

#include <sys/random.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/logging.h"

namespace baton {

uint64_t RandomUint64() {
  uint64_t value = 0;
  ssize_t got;
  do {
    got = ::getrandom(&value, sizeof(value), 0);
  } while (got < 0 && errno == EINTR);
  BATON_CHECK_EQ(got, static_cast<ssize_t>(sizeof(value))) << "getrandom";
  return value;
}

std::string NewId(absl::string_view prefix) {
  return absl::StrCat(prefix, "-", absl::StrFormat("%016x", RandomUint64()));
}

uint64_t ProcessIncarnation() {
  static const uint64_t incarnation = [] {
    uint64_t value = 0;
    while (value == 0) value = RandomUint64();
    return value;
  }();
  return incarnation;
}

}  // namespace baton
