// SPDX-License-Identifier: Apache-2.0
#include "common/worker/tokenizer_fingerprint.h"

#include "absl/status/statusor.h"
#include "common/base/logging.h"
#include "common/text/text_bundle.h"

namespace baton {

std::string ReadTokenizerFingerprint(const std::string& path) {
  const absl::StatusOr<TextBundle> bundle = LoadTextBundle(path);
  if (bundle.ok()) return bundle->tokenizer->fingerprint();
  BATON_LOG(WARNING) << "no tokenizer to compare with the router's: " << bundle.status().message();
  return "";
}

}  // namespace baton
