// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_UNIT_GRAMMAR_GRAMMAR_TEST_SUPPORT_H_
#define BATON_TESTS_UNIT_GRAMMAR_GRAMMAR_TEST_SUPPORT_H_

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/grammar/grammar.h"
#include "nlohmann/json.hpp"

namespace baton::testing {

// A vocabulary of the 256 bytes.
std::shared_ptr<const TokenTrie> ByteTokens();

// Of a schema that has to compile, over ByteTokens.
std::shared_ptr<Grammar> GrammarOf(absl::string_view schema, bool lenient = false);

bool Accepts(Grammar& grammar, absl::string_view text);

// Walks from state to state by bytes drawn at random from the masks until the text may end; from `hurry` bytes on, what
// closes strings and brackets is preferred. Fails the test where no byte is allowed.
std::string RandomText(Grammar& grammar, std::mt19937_64& rng, size_t hurry);

// Whether `value` is valid under `schema`: draft 2020-12 read plainly, of the keywords that CompileJsonSchema takes (without
// "format"). $ref is looked up in `root`.
bool IsValid(const nlohmann::ordered_json& schema, const nlohmann::ordered_json& value, const nlohmann::ordered_json& root);

}  // namespace baton::testing

#endif  // BATON_TESTS_UNIT_GRAMMAR_GRAMMAR_TEST_SUPPORT_H_
