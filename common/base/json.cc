// SPDX-License-Identifier: Apache-2.0
#include "common/base/json.h"

#include <exception>
#include <unordered_map>
#include <utility>
#include <vector>

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
class Builder : public nlohmann::detail::json_sax_dom_parser<nlohmann::json> {
 public:
  explicit Builder(nlohmann::json* root) : json_sax_dom_parser(*root, /*allow_exceptions_=*/false) {}

  template <typename Exception>
  bool parse_error(size_t position, const std::string& /*token*/, const Exception& exception) {
    position_ = position;
    reason_ = Reason(exception.what());
    return false;
  }
  size_t position_ = 0;
  std::string reason_;
};

// Builds an ordered_json. nlohmann's own builder looks through all members of an object for each new one: hours of it for a
// million of them.
class OrderedBuilder : public nlohmann::json_sax<nlohmann::ordered_json> {
 public:
  using Json = nlohmann::ordered_json;
  explicit OrderedBuilder(Json* root) : root_(root) {}

  bool null() override { return Put(nullptr) != nullptr; }
  bool boolean(bool value) override { return Put(value) != nullptr; }
  bool number_integer(number_integer_t value) override { return Put(value) != nullptr; }
  bool number_unsigned(number_unsigned_t value) override { return Put(value) != nullptr; }
  bool number_float(number_float_t value, const string_t&) override { return Put(value) != nullptr; }
  bool string(string_t& value) override { return Put(std::move(value)) != nullptr; }
  bool binary(binary_t& value) override { return Put(std::move(value)) != nullptr; }
  bool start_object(size_t) override { return Open(Json::object()); }
  bool start_array(size_t) override { return Open(Json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }

  // A name that comes again keeps its place; its last value counts.
  bool key(string_t& name) override {
    Level& level = levels_.back();
    auto& members = level.value->get_ref<Json::object_t&>();
    level.member = PlaceOf(name, members, &level);
    if (level.member == members.size()) members.emplace_back(std::move(name), nullptr);
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& exception) override {
    position_ = position;
    reason_ = Reason(exception.what());
    return false;
  }
  size_t position_ = 0;
  std::string reason_;

 private:
  static constexpr size_t kFewMembers = 16;  // Up to these, looking through them is the quickest.
  struct Level {
    Json* value;         // The array or object that is being filled.
    size_t member = 0;   // Of an object: whose value comes next.
    std::unordered_map<std::string, size_t> places;  // Of its members, when they are many.
  };

  static size_t PlaceOf(const std::string& name, const Json::object_t& members, Level* level) {
    const auto* const first = members.data();
    if (members.size() < kFewMembers) {
      size_t i = 0;
      while (i < members.size() && first[i].first != name) ++i;
      return i;
    }
    if (level->places.empty()) {
      for (size_t i = 0; i < members.size(); ++i) level->places.emplace(first[i].first, i);
    }
    return level->places.try_emplace(name, members.size()).first->second;
  }
  Json* Put(Json value) {
    if (levels_.empty()) {
      *root_ = std::move(value);
      return root_;
    }
    Level& level = levels_.back();
    if (auto* array = level.value->get_ptr<Json::array_t*>()) {
      array->push_back(std::move(value));
      return &array->back();
    }
    Json& member = level.value->get_ref<Json::object_t&>().data()[level.member].second;
    member = std::move(value);
    return &member;
  }
  // What is open does not move: only the innermost array or object grows.
  bool Open(Json value) {
    levels_.push_back({Put(std::move(value))});
    return true;
  }
  bool Close() {
    levels_.pop_back();
    return true;
  }

  Json* const root_;
  std::vector<Level> levels_;
};

template <typename Json, typename Builder>
absl::StatusOr<Json> Parse(absl::string_view text, int max_depth) {
  BATON_RETURN_IF_ERROR(CheckDepth(text, max_depth));
  const size_t valid = ValidUtf8Prefix(text);
  if (valid != text.size()) {
    return absl::InvalidArgumentError(absl::StrFormat("invalid JSON at byte %d: invalid UTF-8 byte 0x%02X", valid,
                                                      static_cast<unsigned char>(text[valid])));
  }
  // nlohmann takes a NUL for the end; JSON has none anywhere.
  if (const size_t nul = text.find('\0'); nul != absl::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrFormat("invalid JSON at byte %d: a NUL byte", nul));
  }
  Json value;
  Builder builder(&value);
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
  return Parse<nlohmann::json, Builder>(text, max_depth);
}

absl::StatusOr<nlohmann::ordered_json> ParseOrderedJson(absl::string_view text, int max_depth) {
  return Parse<nlohmann::ordered_json, OrderedBuilder>(text, max_depth);
}

std::string DumpJson(const nlohmann::json& value, int indent) { return Dump(value, indent); }
std::string DumpJson(const nlohmann::ordered_json& value, int indent) { return Dump(value, indent); }

}  // namespace baton
