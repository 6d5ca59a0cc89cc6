// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target without libFuzzer: seeded damage to good inputs, a few thousand per run, the same ones each time.
// BATON_FUZZ_SEED takes another walk; BATON_FUZZ_INPUTS a longer one.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <random>

#include "gtest/gtest.h"
#include "tests/fuzz/fuzz_target.h"

namespace baton::fuzz {
namespace {

uint64_t FromEnvironment(const char* name, uint64_t fallback) {
  const char* text = getenv(name);
  return text == nullptr ? fallback : strtoull(text, nullptr, 10);
}

class Damage {
 public:
  explicit Damage(uint64_t seed) : rng_(seed) {}

  std::string Apply(const std::string& good) {
    std::string bytes = good;
    for (uint64_t i = 0, n = 1 + Below(4); i < n && !bytes.empty(); ++i) Once(&bytes);
    return bytes;
  }

 private:
  uint64_t Below(uint64_t bound) { return rng_() % bound; }

  // Headers come first and are where the decisions are: half of all places are among the first few hundred bytes.
  size_t Place(const std::string& bytes) {
    const size_t near = std::min<size_t>(bytes.size(), 1024);
    return Below(Below(2) == 0 ? near : bytes.size());
  }

  void Once(std::string* bytes) {
    static constexpr uint64_t kValues[] = {
        0,     1,          0x7f,       0x80, 0xff, 0xffff, 1u << 31,           ~0u, 1ull << 32, 1ull << 62,
        ~0ull, ~0ull - 31, 1ull << 63, 9,    8,    12,     uint64_t{100000001}};
    const size_t at = Place(*bytes);
    switch (Below(6)) {
      case 0:
        (*bytes)[at] = static_cast<char>((*bytes)[at] ^ (1 << Below(8)));
        return;
      case 1:
        (*bytes)[at] = static_cast<char>(rng_());
        return;
      case 2: {
        const uint64_t value = kValues[Below(std::size(kValues))];
        memcpy(bytes->data() + at, &value, std::min<size_t>(Below(2) == 0 ? 4 : 8, bytes->size() - at));
        return;
      }
      case 3:
        bytes->resize(at);
        return;
      case 4:
        bytes->erase(at, 1 + Below(16));
        return;
      default:
        bytes->insert(at, bytes->substr(Place(*bytes), 1 + Below(16)));
    }
  }

  std::mt19937_64 rng_;
};

TEST(SeededFuzz, GoodAndSpoiltInputs) {
  const uint64_t seed = FromEnvironment("BATON_FUZZ_SEED", 1);
  const uint64_t num_inputs = FromEnvironment("BATON_FUZZ_INPUTS", static_cast<uint64_t>(NumInputs()));
  const std::vector<std::string> seeds = Seeds();
  ASSERT_FALSE(seeds.empty());
  for (const std::string& good : seeds) {
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(good.data()), good.size());
  }
  for (uint64_t i = 0; i < num_inputs; ++i) {
    SCOPED_TRACE(::testing::Message() << "BATON_FUZZ_SEED=" << seed << " input " << i);
    const std::string bytes = Damage(seed * 1000003 + i).Apply(seeds[i % seeds.size()]);
    // A heap block of exactly the input's size: a sanitizer sees one byte too many.
    const std::vector<uint8_t> exact(bytes.begin(), bytes.end());
    LLVMFuzzerTestOneInput(exact.data(), exact.size());
  }
}

}  // namespace
}  // namespace baton::fuzz
