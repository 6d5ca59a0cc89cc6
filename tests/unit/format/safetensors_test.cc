// SPDX-License-Identifier: Apache-2.0
#include "common/format/safetensors.h"

#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/status_matchers.h"

namespace baton {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

std::string Length(uint64_t length) { return std::string(reinterpret_cast<const char*>(&length), 8); }

std::string File(absl::string_view header, absl::string_view data) {
  return absl::StrCat(Length(header.size()), header, data);
}

absl::StatusOr<std::shared_ptr<const SafetensorsFile>> Parse(const std::string& bytes) {
  return SafetensorsFile::Parse({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, "x.safetensors");
}

// One tensor "a" with the given dtype and offsets texts, over 12 bytes of data.
std::string One(absl::string_view dtype, absl::string_view shape, absl::string_view offsets) {
  return File(absl::StrCat(R"({"a":{"dtype":)", dtype, R"(,"shape":)", shape, R"(,"data_offsets":)", offsets, "}}"),
              "0123456789ab");
}

TEST(Safetensors, ReadsTensors) {
  // Out of order, an empty tensor, two 16-bit types side by side, metadata, spaces behind the JSON.
  const std::string bytes = File(
      R"({"__metadata__":{"format":"pt"},"c":{"dtype":"F16","shape":[1,2],"data_offsets":[12,16]},)"
      R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"e":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},)"
      R"("b":{"dtype":"BF16","shape":[2,1],"data_offsets":[8,12]},"u":{"dtype":"U8","shape":[],"data_offsets":[16,17]}}    )",
      "0123456789abcdefg");
  ASSERT_OK_AND_ASSIGN(const auto file, Parse(bytes));
  ASSERT_EQ(file->tensors().size(), 5u);
  const TensorView* c = file->FindTensor("c");
  ASSERT_NE(c, nullptr);
  EXPECT_EQ(c->type, GgmlType::kF16);
  EXPECT_THAT(c->shape, ElementsAre(1, 2));
  EXPECT_EQ(std::string(c->span().begin(), c->span().end()), "cdef");
  EXPECT_EQ(file->FindTensor("b")->type, GgmlType::kBF16);
  EXPECT_EQ(file->FindTensor("e")->bytes, 0u);
  EXPECT_EQ(file->FindTensor("u")->type, GgmlType::kOpaque);
  EXPECT_EQ(file->FindTensor("__metadata__"), nullptr);
  // S05: an empty container is valid.
  EXPECT_THAT(Parse(absl::HexStringToBytes("02000000000000007b7d")), IsOk());
}

TEST(Safetensors, HeaderLength) {
  EXPECT_THAT(Parse(absl::HexStringToBytes("ffffffffffffffff7b7d")),
              StatusIs(kInvalid,
                       "x.safetensors: byte 0: header length 18446744073709551615, the limit is 100000000 and "
                       "the file has 2 bytes left"));
  EXPECT_THAT(Parse(Length(11) + "{}"), StatusIs(kInvalid, HasSubstr("header length 11, the limit is 100000000")));
  EXPECT_THAT(Parse(Length(100000001) + "{}"), StatusIs(kInvalid, HasSubstr("header length 100000001")));
  EXPECT_THAT(Parse(Length(0)), StatusIs(kInvalid, HasSubstr("byte 8: header of length 0 does not start with")));
  EXPECT_THAT(Parse(Length(1) + "{"), StatusIs(kInvalid, HasSubstr("byte 8: header of length 1 does not start with")));
  EXPECT_THAT(Parse("1234567"), StatusIs(kInvalid, HasSubstr("file of 7 bytes has no 8-byte header length")));
}

TEST(Safetensors, HeaderText) {
  EXPECT_THAT(Parse(File(" {}", "")), StatusIs(kInvalid, HasSubstr("does not start with a JSON object")));
  EXPECT_THAT(Parse(File("\xef\xbb\xbf{}", "")), StatusIs(kInvalid, HasSubstr("does not start with a JSON object")));
  EXPECT_THAT(Parse(File(std::string(100000, '['), "")), StatusIs(kInvalid, HasSubstr("does not start with")));
  EXPECT_THAT(Parse(File("{\"a\":" + std::string(100000, '['), "")),
              StatusIs(kInvalid, HasSubstr("nested deeper than 8")));
  EXPECT_THAT(Parse(File("{\"a\":", "")), StatusIs(kInvalid, HasSubstr("x.safetensors: header from byte 8: ")));
  EXPECT_THAT(Parse(File("{\"\xff\":1}", "")), StatusIs(kInvalid, HasSubstr("header from byte 8: ")));
  EXPECT_THAT(Parse(File(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                         R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                         "0123")),
              StatusIs(kInvalid, HasSubstr("key \"a\" occurs twice")));
  EXPECT_THAT(Parse(File(R"({"a":7})", "")), StatusIs(kInvalid, HasSubstr("tensor a: entry is no object")));
}

TEST(Safetensors, Tiling) {
  const auto two = [](absl::string_view first, absl::string_view second) {
    return File(absl::StrCat(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":)", first,
                             R"(},"b":{"dtype":"F32","shape":[1],"data_offsets":)", second, "}}"),
                "0123456789ab");
  };
  EXPECT_THAT(Parse(two("[0,4]", "[2,6]")), StatusIs(kInvalid, AllOf(HasSubstr("tensor b: "), HasSubstr("overlap"))));
  EXPECT_THAT(Parse(two("[0,4]", "[0,4]")), StatusIs(kInvalid, HasSubstr("overlap")));
  EXPECT_THAT(Parse(two("[0,4]", "[8,12]")), StatusIs(kInvalid, AllOf(HasSubstr("tensor b: "), HasSubstr("hole"))));
  EXPECT_THAT(Parse(two("[4,8]", "[8,12]")), StatusIs(kInvalid, AllOf(HasSubstr("tensor a: "), HasSubstr("hole"))));
  EXPECT_THAT(Parse(two("[0,4]", "[4,8]")),
              StatusIs(kInvalid, HasSubstr("tensors end at 8 of a data section of 12 bytes")));
}

TEST(Safetensors, Offsets) {
  for (const char* offsets : {"[4,0]", "[-4,0]", "[0.5,4]", "[\"0\",4]", "[0]", "[0,4,8]", "null", "{}",
                              "[0,9223372036854775808]", "[18446744073709551612,18446744073709551616]",
                              "[18446744073709551612,18446744073709551615]", "[0,8]", "[0,16]", "[0,1e1]"}) {
    EXPECT_THAT(Parse(One("\"F32\"", "[3]", offsets)),
                StatusIs(kInvalid, HasSubstr("x.safetensors: tensor a: data_offsets")))
        << offsets;
  }
  EXPECT_THAT(Parse(One("\"F32\"", "[3]", "[0,12]")), IsOk());
  EXPECT_THAT(Parse(One("\"F32\"", "[3,-1]", "[0,12]")), StatusIs(kInvalid, HasSubstr("tensor a: dimension -1")));
  EXPECT_THAT(Parse(One("\"F32\"", "3", "[0,12]")), StatusIs(kInvalid, HasSubstr("shape is missing or no array")));
  EXPECT_THAT(Parse(One("\"F32\"", "[4294967296,4294967296]", "[0,12]")), StatusIs(kInvalid, HasSubstr("overflows")));
  EXPECT_THAT(Parse(One("\"F32\"", "[1,1,1,1,1,1,1,1,3]", "[0,12]")), StatusIs(kInvalid, HasSubstr("9 dimensions")));
}

TEST(Safetensors, Dtypes) {
  for (const char* dtype : {"\"X99\"", "\"f32\"", "null", "7", "[]"}) {
    EXPECT_THAT(Parse(One(dtype, "[3]", "[0,12]")), StatusIs(kInvalid, HasSubstr("x.safetensors: tensor a: ")))
        << dtype;
    EXPECT_THAT(Parse(One(dtype, "[3]", "[0,12]")), StatusIs(kInvalid, HasSubstr("dtype"))) << dtype;
  }
  EXPECT_THAT(Parse(File(R"({"a":{"shape":[3],"data_offsets":[0,12]}})", "0123456789ab")),
              StatusIs(kInvalid, HasSubstr("tensor a: dtype is missing")));
}

TEST(Safetensors, EveryTruncationIsRefused) {
  const std::string good = One("\"F32\"", "[3]", "[0,12]");
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_THAT(Parse(good.substr(0, size)), StatusIs(kInvalid, HasSubstr("x.safetensors: "))) << size;
  }
  EXPECT_THAT(Parse(good + "!"), StatusIs(kInvalid, HasSubstr("tensors end at 12 of a data section of 13 bytes")));
}

class Folder : public ::testing::Test {
 protected:
  void Write(absl::string_view name, absl::string_view text) {
    std::ofstream(absl::StrCat(path_, "/", name), std::ios::binary) << std::string(text);
  }
  absl::StatusOr<std::shared_ptr<const SafetensorsFolder>> OpenWithShard(absl::string_view shard) {
    Write("model.safetensors.index.json", absl::StrCat(R"({"weight_map":{"a":"m-1.safetensors","b":)", shard, "}}"));
    return SafetensorsFolder::Open(path_);
  }
  const std::string path_ = testing::MakeTempFolder("folder");
};

constexpr char kA[] = R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}})";
constexpr char kB[] = R"({"b":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}})";

TEST_F(Folder, SingleFileWinsOverAnIndex) {
  Write("model.safetensors", File(kA, "0123456789ab"));
  Write("model.safetensors.index.json", "garbage");
  ASSERT_OK_AND_ASSIGN(const auto folder, SafetensorsFolder::Open(path_));
  EXPECT_NE(folder->FindTensor("a"), nullptr);
  EXPECT_EQ(folder->FindTensor("b"), nullptr);
}

TEST_F(Folder, Shards) {
  Write("m-1.safetensors", File(kA, "0123456789ab"));
  Write("m-2.safetensors", File(kB, "cdefghijklmn"));
  ASSERT_OK_AND_ASSIGN(const auto folder, OpenWithShard("\"m-2.safetensors\""));
  EXPECT_EQ(folder->num_tensors(), 2u);
  EXPECT_EQ(folder->FindTensor("b")->data[0], 'c');
  // Download caches link to their blobs.
  const std::string blob = testing::WriteTempFile("blob", File(kB, "opqrstuvwxyz"));
  ASSERT_EQ(symlink(blob.c_str(), absl::StrCat(path_, "/m-3.safetensors").c_str()), 0);
  ASSERT_OK_AND_ASSIGN(const auto linked, OpenWithShard("\"m-3.safetensors\""));
  EXPECT_EQ(linked->FindTensor("b")->data[0], 'o');
}

TEST_F(Folder, ShardsThatAreRefused) {
  Write("m-1.safetensors", File(kA, "0123456789ab"));
  for (const char* shard : {R"("../../etc/passwd")", R"("/etc/passwd")", R"("sub/m.safetensors")", R"("..")", R"(".")",
                            R"("")", R"("a\u0000b")", "7", "null", R"({"x":1})"}) {
    EXPECT_THAT(OpenWithShard(shard),
                StatusIs(kInvalid, AllOf(HasSubstr("index.json: tensor b: shard "),
                                         HasSubstr("is not a plain file name inside the folder"))))
        << shard;
  }
  EXPECT_THAT(OpenWithShard("\"none.safetensors\""),
              StatusIs(absl::StatusCode::kNotFound, AllOf(HasSubstr("tensor b: "), HasSubstr("none.safetensors"))));
  EXPECT_THAT(OpenWithShard("\"m-1.safetensors\""),
              StatusIs(kInvalid, HasSubstr("tensor b is absent from its shard m-1.safetensors")));
}

TEST_F(Folder, IndexThatIsNone) {
  EXPECT_THAT(SafetensorsFolder::Open(path_), StatusIs(absl::StatusCode::kNotFound, HasSubstr("has neither")));
  for (const char* text : {"[]", "{}", "{\"weight_map\":[]}", "nope", "7"}) {
    Write("model.safetensors.index.json", text);
    EXPECT_THAT(SafetensorsFolder::Open(path_), StatusIs(kInvalid, HasSubstr("model.safetensors.index.json: ")))
        << text;
  }
  Write("model.safetensors.index.json", std::string(100000, '['));
  EXPECT_THAT(SafetensorsFolder::Open(path_), StatusIs(kInvalid, HasSubstr("nested deeper than")));
}

}  // namespace
}  // namespace baton
