// SPDX-License-Identifier: Apache-2.0
#include "common/format/strict_json.h"

#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"

namespace baton {
namespace {

// Stops at a key that the object it is in already has. Runs over texts that ParseJson has accepted.
class DuplicateKeyFinder : public nlohmann::json_sax<nlohmann::json> {
 public:
  const std::string& duplicate() const { return duplicate_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

  bool start_object(std::size_t) override {
    keys_.emplace_back();
    return true;
  }
  bool end_object() override {
    keys_.pop_back();
    return true;
  }
  bool key(string_t& name) override {
    if (keys_.back().insert(name).second) return true;
    duplicate_ = name;
    return false;
  }

 private:
  std::vector<absl::flat_hash_set<std::string>> keys_;  // Per open object.
  std::string duplicate_;
};

}  // namespace

absl::StatusOr<nlohmann::json> ParseStrictJson(absl::string_view text, int max_depth) {
  BATON_ASSIGN_OR_RETURN(nlohmann::json value, ParseJson(text, max_depth));
  DuplicateKeyFinder finder;
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &finder)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "key \"", absl::Utf8SafeCHexEscape(finder.duplicate().substr(0, 200)), "\" occurs twice in one object"));
  }
  return value;
}

}  // namespace baton
