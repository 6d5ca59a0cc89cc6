// SPDX-License-Identifier: Apache-2.0
#include "common/kv_transfer/copy_past_caches.h"

#include <algorithm>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace baton {
namespace {

TEST(CopyPastCachesTest, CopiesEverySizeFromAndToAnywhereAndNothingElse) {
  std::mt19937 rng(3);
  std::vector<uint8_t> from(5000);
  for (uint8_t& byte : from) byte = static_cast<uint8_t>(rng());
  for (size_t size = 0; size < 4200; size += size < 200 ? 1 : 97) {
    for (const size_t shift : {0, 1, 8, 32}) {
      std::vector<uint8_t> to(5000, 0xee);
      const size_t at = 64 - reinterpret_cast<uintptr_t>(to.data()) % 32 + shift;
      CopyPastCaches(to.data() + at, from.data() + 3, size);
      ASSERT_TRUE(std::equal(to.begin() + static_cast<ptrdiff_t>(at), to.begin() + static_cast<ptrdiff_t>(at + size), from.begin() + 3))
          << size << " bytes, shift " << shift;
      const auto untouched = [](uint8_t byte) { return byte == 0xee; };
      EXPECT_TRUE(std::all_of(to.begin(), to.begin() + static_cast<ptrdiff_t>(at), untouched)) << size;
      EXPECT_TRUE(std::all_of(to.begin() + static_cast<ptrdiff_t>(at + size), to.end(), untouched)) << size;
    }
  }
}

}  // namespace
}  // namespace baton
