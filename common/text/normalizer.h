// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_TEXT_NORMALIZER_H_
#define BATON_COMMON_TEXT_NORMALIZER_H_

#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/text/pattern.h"
#include "common/text/unicode.h"
#include "nlohmann/json.hpp"

namespace baton {

// What happens to a stretch of text before it is split into words. Immutable; any thread.
class Normalizer {
 public:
  struct Prepend {
    std::string text;  // Not before an empty text.
  };
  struct Replace {
    Pattern pattern;
    std::string content;
  };
  struct Strip {
    bool left, right;
  };
  struct LowercaseStep {};
  struct StripAccentsStep {};
  struct ByteLevel {};
  using Step = std::variant<Prepend, Replace, Strip, NormalForm, LowercaseStep, StripAccentsStep, ByteLevel>;

  Normalizer() = default;  // Changes nothing.
  explicit Normalizer(std::vector<Step> steps) : steps_(std::move(steps)) {}

  // From the "normalizer" of a tokenizer.json (null: none). A type that is not known is INVALID_ARGUMENT naming it.
  static absl::StatusOr<Normalizer> FromJson(const nlohmann::json& value);

  absl::StatusOr<std::string> Apply(absl::string_view text) const;

 private:
  std::vector<Step> steps_;
};

}  // namespace baton

#endif  // BATON_COMMON_TEXT_NORMALIZER_H_
