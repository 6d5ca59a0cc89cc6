// SPDX-License-Identifier: Apache-2.0
#include "common/format/gguf.h"

#include <sys/stat.h>

#include "tests/support/gguf_writer.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tiny_model.h"

namespace baton {
namespace {

using ::baton::testing::GgufWriter;
using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

absl::StatusOr<std::shared_ptr<const GgufFile>> Parse(const std::string& bytes) {
  return GgufFile::Parse({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, "x.gguf");
}

GgufWriter Metadata() {
  GgufWriter writer;
  writer.SetU32("u32", 7).SetI32("i32", -7).SetU64("u64", ~uint64_t{0}).SetF32("f32", 1.5f).SetBool("yes", true);
  writer.SetString("text", "h\xc3\xa9llo").SetString("empty", "").SetStrings("words", {"a", "", "\xc4\xa0the"});
  writer.SetI32s("numbers", {1, -2, 3}).SetF32s("scores", {0.5f, -1.0f}).SetStrings("none", {});
  writer.SetRaw("u8", GgufValueType::kU8, "\xff")
      .SetRaw("f64", GgufValueType::kF64, std::string("\0\0\0\0\0\0\xf8\x3f", 8));
  return writer;
}

TEST(Gguf, TypedLookups) {
  const std::string bytes = Metadata().Build();
  ASSERT_OK_AND_ASSIGN(const auto file, Parse(bytes));
  EXPECT_EQ(file->version(), 3u);
  EXPECT_EQ(*file->GetU64("u32"), 7u);
  EXPECT_EQ(*file->GetI64("i32"), -7);
  EXPECT_EQ(*file->GetU64("u64"), ~uint64_t{0});
  EXPECT_EQ(*file->GetU64("u8"), 255u);
  EXPECT_EQ(*file->GetF64("f32"), 1.5);
  EXPECT_EQ(*file->GetF64("f64"), 1.5);
  EXPECT_EQ(*file->GetBool("yes"), true);
  EXPECT_EQ(*file->GetString("text"), "h\xc3\xa9llo");
  EXPECT_EQ(*file->GetString("empty"), "");
  EXPECT_THAT(*file->GetStringArray("words"), ElementsAre("a", "", "\xc4\xa0the"));
  EXPECT_THAT(*file->GetStringArray("none"), ElementsAre());
  EXPECT_THAT(*file->GetI64Array("numbers"), ElementsAre(1, -2, 3));
  EXPECT_THAT(*file->GetF32Array("scores"), ElementsAre(0.5f, -1.0f));
  EXPECT_EQ(*file->GetU64Or("absent", 9), 9u);
  EXPECT_EQ(*file->GetF64Or("f32", 9), 1.5);
  EXPECT_EQ(*file->GetBoolOr("absent", true), true);
  EXPECT_EQ(*file->GetStringOr("absent", "x"), "x");
  // Views, not copies.
  EXPECT_GE(file->GetString("text")->data(), bytes.data());
  EXPECT_LT(file->GetString("text")->data(), bytes.data() + bytes.size());
}

TEST(Gguf, LookupErrorsNameKeyAndTypes) {
  const std::string bytes = Metadata().Build();
  ASSERT_OK_AND_ASSIGN(const auto file, Parse(bytes));
  EXPECT_THAT(file->GetU64("nothing"), StatusIs(absl::StatusCode::kNotFound, "x.gguf: key nothing is missing"));
  EXPECT_THAT(file->GetU64("text"), StatusIs(kInvalid, "x.gguf: key text: expected integer, found string"));
  EXPECT_THAT(file->GetU64("f32"), StatusIs(kInvalid, HasSubstr("key f32: expected integer, found f32")));
  EXPECT_THAT(file->GetU64("i32"), StatusIs(kInvalid, HasSubstr("key i32 is -7, must not be negative")));
  EXPECT_THAT(file->GetI64("u64"), StatusIs(kInvalid, HasSubstr("key u64 is 18446744073709551615, over 2^63 - 1")));
  EXPECT_THAT(file->GetF64("u32"), StatusIs(kInvalid, HasSubstr("key u32: expected f32 or f64, found u32")));
  EXPECT_THAT(file->GetBool("u32"), StatusIs(kInvalid, HasSubstr("expected bool, found u32")));
  EXPECT_THAT(file->GetString("words"), StatusIs(kInvalid, HasSubstr("expected string, found array of string")));
  EXPECT_THAT(file->GetStringArray("numbers"),
              StatusIs(kInvalid, HasSubstr("expected array of string, found array of i32")));
  EXPECT_THAT(file->GetI64Array("scores"),
              StatusIs(kInvalid, HasSubstr("expected array of integer, found array of f32")));
  EXPECT_THAT(file->GetF32Array("f32"), StatusIs(kInvalid, HasSubstr("expected array of f32, found f32")));
  EXPECT_THAT(file->GetU64Or("text", 1), StatusIs(kInvalid, HasSubstr("expected integer, found string")));
}

TEST(Gguf, TensorsKeepNameTypeShapeAndBytes) {
  for (uint32_t version : {2u, 3u}) {
    for (uint32_t alignment : {8u, 32u, 64u, 4096u, 1u << 20}) {
      GgufWriter writer;
      writer.version = version;
      writer.alignment = alignment;
      writer.AddTensor("a", GgmlType::kF32, {2, 3}, "0123456789abcdefghijklmn");
      writer.AddTensor("b", GgmlType::kQ8_0, {1, 2, 1, 32}, std::string(68, 'q'));
      const std::string bytes = writer.Build();
      ASSERT_OK_AND_ASSIGN(const auto file, Parse(bytes));
      ASSERT_EQ(file->tensors().size(), 2u);
      const TensorView* a = file->FindTensor("a");
      ASSERT_NE(a, nullptr);
      EXPECT_THAT(a->shape, ElementsAre(2, 3));
      EXPECT_EQ(std::string(a->span().begin(), a->span().end()), "0123456789abcdefghijklmn");
      const TensorView* b = file->FindTensor("b");
      ASSERT_NE(b, nullptr);
      EXPECT_EQ(b->type, GgmlType::kQ8_0);
      EXPECT_THAT(b->shape, ElementsAre(1, 2, 1, 32));
      EXPECT_EQ(std::string(b->span().begin(), b->span().end()), std::string(68, 'q'));
      EXPECT_EQ(static_cast<size_t>(b->data - a->data) % alignment, 0u);
      EXPECT_EQ(file->FindTensor("c"), nullptr);
    }
  }
}

TEST(Gguf, LastTensorNeedsNoPaddingAndEmptyFilesAreFine) {
  GgufWriter writer;
  writer.AddTensor("a", GgmlType::kF32, {1}, "1234");
  EXPECT_THAT(Parse(writer.Build()), IsOk());
  EXPECT_THAT(Parse(GgufWriter().Build()), IsOk());
}

TEST(Gguf, FilesThatAreNone) {
  const std::string folder = testing::MakeTempFolder("folder.gguf");
  EXPECT_THAT(GgufFile::Open(folder), StatusIs(kInvalid, AllOf(HasSubstr(folder), HasSubstr("is a directory"))));
  const std::string fifo = folder + "/fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_THAT(GgufFile::Open(fifo), StatusIs(kInvalid, AllOf(HasSubstr(fifo), HasSubstr("is a FIFO"))));
  EXPECT_THAT(GgufFile::Open("/dev/zero"), StatusIs(kInvalid, HasSubstr("/dev/zero: is a device")));
  EXPECT_THAT(GgufFile::Open(folder + "/none"), StatusIs(absl::StatusCode::kNotFound, HasSubstr("/none: cannot open")));
  EXPECT_THAT(GgufFile::Open(absl::string_view("a\0b", 3)), StatusIs(kInvalid, HasSubstr("NUL")));
  const std::string empty = testing::WriteTempFile("empty.gguf", "");
  EXPECT_THAT(GgufFile::Open(empty), StatusIs(kInvalid, HasSubstr("empty.gguf: file is empty")));
  const std::string text = testing::WriteTempFile("text.gguf", "version https://git-lfs.github.com/spec/v1\n");
  EXPECT_THAT(GgufFile::Open(text),
              StatusIs(kInvalid, HasSubstr("text.gguf: byte 0: not a GGUF file: it starts with \"vers\"")));
  const std::string gzip = testing::WriteTempFile("x.gguf", "\x1f\x8b\x08\x08GGUF");
  EXPECT_THAT(GgufFile::Open(gzip), StatusIs(kInvalid, HasSubstr("byte 0: not a GGUF file but a gzip archive")));
}

TEST(Gguf, EveryTruncationIsRefused) {
  testing::TinyModelOptions options;
  options.num_layers = 1;
  size_t data_offset = 0;
  const std::string bytes = testing::TinyModel(options).Build(nullptr, &data_offset);
  ASSERT_THAT(Parse(bytes), IsOk());
  const size_t half = data_offset + (bytes.size() - data_offset) / 2;
  for (size_t size : {data_offset, data_offset + 1, half, bytes.size() - 1}) {
    const std::string path = testing::WriteTempFile("cut.gguf", bytes.substr(0, size));
    EXPECT_THAT(GgufFile::Open(path),
                StatusIs(kInvalid, AllOf(HasSubstr(path + ": byte "), HasSubstr("end outside the file"))))
        << size;
  }
  for (size_t size = 0; size < data_offset; size += 1 + size / 37) {
    EXPECT_THAT(Parse(bytes.substr(0, size)), StatusIs(kInvalid, HasSubstr("x.gguf: byte "))) << size;
  }
}

}  // namespace
}  // namespace baton
