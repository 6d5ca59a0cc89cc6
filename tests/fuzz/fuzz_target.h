// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_FUZZ_FUZZ_TARGET_H_
#define BATON_TESTS_FUZZ_FUZZ_TARGET_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// What a fuzz target defines. The first is libFuzzer's entry point: it must return for every input, whatever it is.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace baton::fuzz {

// Good inputs, which the seeded driver spoils.
std::vector<std::string> Seeds();

// Spoilt copies that the seeded driver tries per run.
int NumInputs();

}  // namespace baton::fuzz

#endif  // BATON_TESTS_FUZZ_FUZZ_TARGET_H_
