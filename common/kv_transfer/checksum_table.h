// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_KV_TRANSFER_CHECKSUM_TABLE_H_
#define BATON_COMMON_KV_TRANSFER_CHECKSUM_TABLE_H_

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

namespace baton::checksum {

// The same functions compiled for several instruction sets; all give the same values. Plain C types only: an inline function of
// the standard library must not be compiled for a processor that others do not have.
struct Functions {
  uint64_t (*one)(const uint8_t* data, size_t bytes);
  uint64_t (*pieces)(const iovec* pieces, size_t num_pieces);
};
const Functions& PlainFunctions();
const Functions& Avx2Functions();
const Functions& Avx512Functions();

}  // namespace baton::checksum

#endif  // BATON_COMMON_KV_TRANSFER_CHECKSUM_TABLE_H_
