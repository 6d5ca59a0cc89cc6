// SPDX-License-Identifier: Apache-2.0
#include "common/text/unicode.h"

#include <random>
#include <string>
#include <vector>

#include "common/base/utf8.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace baton {
namespace {

using ::testing::HasSubstr;
using testing::StatusIs;

std::string SanitizedIn(const std::vector<std::string>& parts) {
  Utf8Sanitizer sanitizer;
  std::string out;
  for (const std::string& part : parts) sanitizer.Push(part, &out);
  sanitizer.Finish(&out);
  return out;
}

TEST(ValidateUtf8Test, NamesTheByte) {
  EXPECT_TRUE(ValidateUtf8("a\xC3\xA9\xF0\x9F\x8C\x8D", "text").ok());
  EXPECT_TRUE(ValidateUtf8(absl::string_view("\0", 1), "text").ok());
  for (const char* bad : {"abc\xFF", "abc\xC3", "abc\xC0\xAF", "abc\xED\xA0\x80", "abc\xF4\x90\x80\x80", "abc\x80"}) {
    EXPECT_THAT(ValidateUtf8(bad, "text"),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("text: invalid UTF-8 at byte 3")));
  }
}

TEST(Utf8SanitizerTest, HoldsHalfCharactersBack) {
  Utf8Sanitizer sanitizer;
  std::string out;
  sanitizer.Push("\xF0\x9F", &out);
  EXPECT_EQ(out, "");
  sanitizer.Push("\x8C", &out);
  EXPECT_EQ(out, "");
  sanitizer.Push("\x8D!", &out);
  EXPECT_EQ(out, "\xF0\x9F\x8C\x8D!");
}

TEST(Utf8SanitizerTest, MalformedPartsBecomeOneReplacementEach) {
  EXPECT_EQ(SanitizedIn({"\xF0"}), "\xEF\xBF\xBD");
  EXPECT_EQ(SanitizedIn({"\xC3\x28"}), "\xEF\xBF\xBD(");
  EXPECT_EQ(SanitizedIn({"\xE2\x80"}), "\xEF\xBF\xBD");
  EXPECT_EQ(SanitizedIn({"\xFF"}), "\xEF\xBF\xBD");
  EXPECT_EQ(SanitizedIn({"\xE2", "\x80", "\xF0"}), "\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(Utf8SanitizerTest, CutsDoNotMatter) {
  const uint32_t seed = 20260102;
  std::mt19937 rng(seed);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    for (int i = rng() % 12; i >= 0; --i) {
      switch (rng() % 3) {
        case 0:
          bytes.push_back(static_cast<char>(rng() % 256));
          break;
        case 1:
          bytes += "\xF0\x9F\x8C\x8D";
          break;
        default:
          bytes.push_back(static_cast<char>(0x80 + rng() % 0x80));
      }
    }
    std::vector<std::string> parts;
    for (size_t pos = 0; pos < bytes.size();) {
      const size_t size = 1 + rng() % 3;
      parts.push_back(bytes.substr(pos, size));
      pos += size;
    }
    EXPECT_EQ(SanitizedIn(parts), ReplaceInvalidUtf8(bytes)) << "seed " << seed << " round " << round;
    EXPECT_EQ(SanitizedIn({bytes}), ReplaceInvalidUtf8(bytes)) << "seed " << seed << " round " << round;
  }
}

TEST(NormalizeTest, Forms) {
  EXPECT_EQ(Normalize(NormalForm::kNfc, "e\u0301"), "\u00e9");
  EXPECT_EQ(Normalize(NormalForm::kNfd, "\u00e9"), "e\u0301");
  EXPECT_EQ(Normalize(NormalForm::kNfc, "\u1112\u1161\u11ab"), "\ud55c");
  EXPECT_EQ(Normalize(NormalForm::kNfc, "\u212b"), "\u00c5");
  EXPECT_EQ(Normalize(NormalForm::kNfc, "\ufb01"), "\ufb01");
  EXPECT_EQ(Normalize(NormalForm::kNfkc, "\ufb01\u00b2"), "fi2");
  EXPECT_EQ(Normalize(NormalForm::kNfkd, "\u00e9"), "e\u0301");
  EXPECT_EQ(Normalize(NormalForm::kNfc, "q\u0307\u0323"), "q\u0323\u0307");
  EXPECT_EQ(Normalize(NormalForm::kNfc, std::string("a\0b", 3)), std::string("a\0b", 3));
}

// Half a megabyte of marks in the wrong order; sorting them by swapping neighbours would take hours.
TEST(NormalizeTest, LongRunsOfMarks) {
  std::string text = "a";
  for (int i = 0; i < 131072; ++i) text += "\u0301\u0316";
  const std::string out = Normalize(NormalForm::kNfc, text);
  EXPECT_EQ(out.substr(0, 4), "\u00e1\u0316");
  EXPECT_EQ(out.substr(out.size() - 2), "\u0301");
}

TEST(LettersTest, CaseAndAccents) {
  EXPECT_EQ(Lowercase("ÀÉI\u0130ß"), "àéii\u0307ß");
  EXPECT_EQ(StripAccents("e\u0301x\u0d40"), "ex");
  EXPECT_TRUE(IsWordCharacter(0x24B6));
  EXPECT_TRUE(IsWhitespace(0x3000));
  EXPECT_FALSE(IsWhitespace(0x200B));
  EXPECT_FALSE(IsWhitespace(0x180E));
  EXPECT_TRUE(IsWordCharacter(U'é'));
  EXPECT_FALSE(IsWordCharacter(U'-'));
  EXPECT_TRUE(IsWordCharacter(0x2EBF0));   // A letter since Unicode 15.1.
  EXPECT_FALSE(IsWordCharacter(0x1FA77));  // A symbol since Unicode 15.
  EXPECT_FALSE(IsWordCharacter(0x2FFFE));
}

TEST(ByteAlphabetTest, IsReversible) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  std::string text;
  AppendByteLevel(all, &text);
  EXPECT_TRUE(ValidateUtf8(text, "alphabet").ok());
  EXPECT_EQ(FromByteLevel(text), all);
  EXPECT_EQ(ByteToCharacter(' '), U'\u0120');
  EXPECT_EQ(ByteToCharacter('\n'), U'\u010a');
  EXPECT_EQ(CharacterToByte(U'世'), -1);
  EXPECT_EQ(FromByteLevel("世"), std::nullopt);
}

}  // namespace
}  // namespace baton
