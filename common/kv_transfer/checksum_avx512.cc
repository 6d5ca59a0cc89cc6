// SPDX-License-Identifier: Apache-2.0
#include "common/kv_transfer/checksum_impl.h"

namespace baton::checksum {

const Functions& Avx512Functions() { return kFunctions; }

}  // namespace baton::checksum
