// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_WORKER_TOKENIZER_FINGERPRINT_H_
#define BATON_COMMON_WORKER_TOKENIZER_FINGERPRINT_H_

#include <string>

namespace baton {

// Tokenizer::fingerprint() of the model at `path`, for the router to hold against its own. A worker needs no tokenizer, so a
// model without one, or with one that cannot be read (logged), has the empty fingerprint, which is not compared.
std::string ReadTokenizerFingerprint(const std::string& path);

}  // namespace baton

#endif  // BATON_COMMON_WORKER_TOKENIZER_FINGERPRINT_H_
