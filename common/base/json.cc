// SPDX-License-Identifier: Apache-2.0
#include "common/base/json.h"

#include <exception>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"

namespace baton {
namespace {

absl::Status CheckDepth(absl::string_view text, int max_depth) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > max_depth) {
        return absl::InvalidArgumentError(
            absl::StrFormat("invalid JSON at byte %d: nested deeper than %d levels", i, max_depth));
      }
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return absl::OkStatus();
}

// nlohmann's messages read "[json.exception.parse_error.101] parse error at line 1, column 2: <what is wrong>".
std::string Reason(absl::string_view message) {
  for (absl::string_view mark : {"] parse error at line ", "] "}) {
    const size_t at = message.find(mark);
    if (at == absl::string_view::npos) continue;
    message.remove_prefix(at + mark.size());
    if (mark.size() > 2) {
      const size_t colon = message.find(": ");
      if (colon != absl::string_view::npos) message.remove_prefix(colon + 2);
    }
    break;
  }
  return std::string(message);
}

// Collects what a parse reports; nlohmann's DOM builder keeps the exception instead, without the byte of a number out of
// range.
template <typename Json>
class Builder : public nlohmann::detail::json_sax_dom_parser<Json> {
 public:
  explicit Builder(Json* root) : nlohmann::detail::json_sax_dom_parser<Json>(*root, /*allow_exceptions_=*/false) {}

  template <typename Exception>
  bool parse_error(size_t position, const std::string& /*token*/, const Exception& exception) {
    position_ = position;
    reason_ = Reason(exception.what());
    return false;
  }
  size_t position_ = 0;
  std::string reason_;
};

template <typename Json>
absl::StatusOr<Json> Parse(absl::string_view text, int max_depth) {
  BATON_RETURN_IF_ERROR(CheckDepth(text, max_depth));
  const size_t valid = ValidUtf8Prefix(text);
  if (valid != text.size()) {
    return absl::InvalidArgumentError(absl::StrFormat("invalid JSON at byte %d: invalid UTF-8 byte 0x%02X", valid,
                                                      static_cast<unsigned char>(text[valid])));
  }
  Json value;
  Builder<Json> builder(&value);
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) {
    const size_t offset = builder.position_ > 0 ? builder.position_ - 1 : 0;
    return absl::InvalidArgumentError(
        absl::StrFormat("invalid JSON at byte %d: %s", offset, ReplaceInvalidUtf8(builder.reason_)));
  }
  return value;
}

template <typename Json>
std::string Dump(const Json& value, int indent) {
  return value.dump(indent, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

}  // namespace

absl::StatusOr<nlohmann::json> ParseJson(absl::string_view text, int max_depth) {
  return Parse<nlohmann::json>(text, max_depth);
}

absl::StatusOr<nlohmann::ordered_json> ParseOrderedJson(absl::string_view text, int max_depth) {
  return Parse<nlohmann::ordered_json>(text, max_depth);
}

std::string DumpJson(const nlohmann::json& value, int indent) { return Dump(value, indent); }
std::string DumpJson(const nlohmann::ordered_json& value, int indent) { return Dump(value, indent); }

}  // namespace baton
