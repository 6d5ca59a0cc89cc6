// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/text/tokenizer_json.h"

namespace baton {
namespace {

using nlohmann::json;

constexpr size_t kMaxDepth = 32;

// Receives the parser's events. Values below model.vocab and model.merges go into the tables, all others into a tree.
class Handler : public nlohmann::json_sax<json> {
 public:
  explicit Handler(TokenizerJson* out) : out_(out) {}

  const std::string& error() const { return error_; }

  bool null() override { return Value(nullptr); }
  bool boolean(bool value) override { return Value(value); }
  bool number_integer(number_integer_t value) override { return Number(value); }
  bool number_unsigned(number_unsigned_t value) override {
    return Number(value > INT64_MAX ? INT64_MAX : static_cast<int64_t>(value));
  }
  bool number_float(number_float_t value, const string_t&) override { return Value(value); }
  bool binary(binary_t&) override { return Fail("binary value"); }

  bool string(string_t& value) override {
    if (table_ != Table::kMerges) return Value(std::move(value));
    if (depth_ == table_depth_ + 1) {
      pair_.push_back(std::move(value));
      return pair_.size() <= 2 || Fail(MergeName() + ": needs two texts");
    }
    // "left right": a merge as one text. Tokens of such files have no spaces.
    std::vector<std::string> halves = absl::StrSplit(value, ' ');
    if (halves.size() != 2) return Fail(absl::StrCat(MergeName(), ": '", value, "' is not two texts"));
    out_->merges.emplace_back(std::move(halves[0]), std::move(halves[1]));
    return true;
  }

  bool key(string_t& value) override {
    key_ = std::move(value);
    return true;
  }

  bool start_object(std::size_t) override {
    if (!Deeper()) return false;
    if (table_ != Table::kNone) return Fail(TableName() + ": unexpected object");
    if (AtModelMember("vocab")) return StartTable(Table::kVocabulary);
    return Open(json::object());
  }
  bool end_object() override {
    --depth_;
    if (table_ != Table::kNone && depth_ < table_depth_) {
      table_ = Table::kNone;
      return true;
    }
    stack_.pop_back();
    return true;
  }
  bool start_array(std::size_t) override {
    if (!Deeper()) return false;
    if (table_ == Table::kMerges && depth_ == table_depth_ + 1) {
      pair_.clear();
      return true;
    }
    if (table_ != Table::kNone) return Fail(TableName() + ": unexpected list");
    if (AtModelMember("merges")) return StartTable(Table::kMerges);
    if (AtModelMember("vocab")) return Fail("model.vocab: a list (a Unigram model?), needs an object");
    return Open(json::array());
  }
  bool end_array() override {
    --depth_;
    if (table_ == Table::kMerges && depth_ == table_depth_) {
      if (pair_.size() != 2) return Fail(MergeName() + ": needs two texts");
      out_->merges.emplace_back(std::move(pair_[0]), std::move(pair_[1]));
      return true;
    }
    if (table_ != Table::kNone) {
      table_ = Table::kNone;
      return true;
    }
    stack_.pop_back();
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    return Fail(absl::StrCat("byte ", position, ": malformed JSON"));
  }

 private:
  enum class Table { kNone, kVocabulary, kMerges };

  bool Fail(std::string error) {
    if (error_.empty()) error_ = std::move(error);
    return false;
  }
  bool Deeper() { return ++depth_ <= kMaxDepth || Fail(absl::StrCat("nested deeper than ", kMaxDepth)); }
  std::string MergeName() const { return absl::StrCat("model.merges[", out_->merges.size(), "]"); }
  std::string TableName() const { return table_ == Table::kMerges ? MergeName() : "model.vocab['" + key_ + "']"; }

  // The value that begins now is the member `name` of the top-level member "model".
  bool AtModelMember(absl::string_view name) const {
    return stack_.size() == 2 && in_model_ && stack_.back()->is_object() && key_ == name;
  }
  bool StartTable(Table table) {
    table_ = table;
    table_depth_ = depth_;
    return true;
  }

  json* Place(json value) {
    if (stack_.empty()) {
      out_->rest = std::move(value);
      return &out_->rest;
    }
    json* parent = stack_.back();
    if (parent->is_object()) {
      json& member = (*parent)[key_];
      member = std::move(value);
      return &member;
    }
    parent->push_back(std::move(value));
    return &parent->back();
  }
  bool Open(json value) {
    if (stack_.size() == 1) in_model_ = stack_.back()->is_object() && key_ == "model";
    stack_.push_back(Place(std::move(value)));
    return true;
  }
  bool Value(json value) {
    if (table_ != Table::kNone) return Fail(TableName() + ": value of the wrong type");
    Place(std::move(value));
    return true;
  }
  bool Number(int64_t value) {
    if (table_ != Table::kVocabulary) return Value(value);
    out_->vocabulary.push_back({key_, value});
    return true;
  }

  TokenizerJson* const out_;
  std::vector<json*> stack_;
  std::string key_;
  bool in_model_ = false;
  Table table_ = Table::kNone;
  size_t depth_ = 0, table_depth_ = 0;
  std::vector<std::string> pair_;
  std::string error_;
};

}  // namespace

absl::StatusOr<TokenizerJson> ReadTokenizerJson(absl::string_view text) {
  TokenizerJson out;
  Handler handler(&out);
  bool ok = false;
  try {
    ok = json::sax_parse(text.data(), text.data() + text.size(), &handler);
  } catch (const json::exception&) {
    return absl::InvalidArgumentError("malformed JSON");
  }
  if (!ok) return absl::InvalidArgumentError(handler.error());
  if (!out.rest.is_object()) return absl::InvalidArgumentError("needs an object");
  return out;
}

}  // namespace baton
