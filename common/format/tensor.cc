// SPDX-License-Identifier: Apache-2.0
#include "common/format/tensor.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace baton {

std::string ShapeToString(std::span<const int64_t> shape) { return absl::StrCat("[", absl::StrJoin(shape, ", "), "]"); }

}  // namespace baton
