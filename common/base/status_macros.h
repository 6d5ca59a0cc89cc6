// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BASE_STATUS_MACROS_H_
#define BATON_COMMON_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define BATON_STATUS_CONCAT_INNER(a, b) a##b
#define BATON_STATUS_CONCAT(a, b) BATON_STATUS_CONCAT_INNER(a, b)

// Returns from the enclosing function (which returns absl::Status or absl::StatusOr) when `expr` is not OK.
#define BATON_RETURN_IF_ERROR(expr)                     \
  do {                                                  \
    if (absl::Status baton_status = (expr); !baton_status.ok()) return baton_status; \
  } while (false)

// BATON_ASSIGN_OR_RETURN(auto x, F()): x becomes F's value, or the enclosing function returns F's status.
#define BATON_ASSIGN_OR_RETURN(lhs, expr) \
  BATON_ASSIGN_OR_RETURN_INNER(BATON_STATUS_CONCAT(baton_status_or_, __LINE__), lhs, expr)
#define BATON_ASSIGN_OR_RETURN_INNER(tmp, lhs, expr) \
  auto tmp = (expr);                                 \
  if (!tmp.ok()) return std::move(tmp).status();     \
  lhs = *std::move(tmp)

namespace baton {

// The same code with `context` and ": " before the message; OK stays OK. Callers add the thing they were about (a file
// name, a request id); the callee has named the value and the bound.
absl::Status Annotate(const absl::Status& status, absl::string_view context);

}  // namespace baton

#endif  // BATON_COMMON_BASE_STATUS_MACROS_H_
