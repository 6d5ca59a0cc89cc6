// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <fstream>
#include <functional>

#include "common/format/gguf.h"
#include "common/model/checkpoint.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tiny_model.h"

namespace baton {
namespace {

using ::baton::testing::GgufWriter;
using ::baton::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// A tiny model cut into three, as llama-gguf-split does it: metadata in the first, tensors in all (the first may be without).
class GgufPartsTest : public ::testing::Test {
 protected:
  GgufPartsTest() : folder_(testing::MakeTempFolder("parts")), whole_(testing::TinyModel()) {}

  std::string Path(int part) const { return folder_ + "/m-0000" + std::to_string(part) + "-of-00003.gguf"; }
  static void Write(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }
  GgufWriter Part(int part, bool tensors_in_first = true) const {
    GgufWriter writer = part == 1 ? whole_ : GgufWriter();
    writer.tensors.clear();
    writer.SetRaw("split.no", GgufValueType::kU16, std::string({static_cast<char>(part - 1), '\0'}));
    writer.SetRaw("split.count", GgufValueType::kU16, std::string("\3\0", 2));
    writer.SetI32("split.tensors.count", static_cast<int>(whole_.tensors.size()));
    for (size_t i = 0; i < whole_.tensors.size(); ++i) {
      const int home = tensors_in_first ? static_cast<int>(i % 3) + 1 : static_cast<int>(i % 2) + 2;
      if (home == part) writer.tensors.push_back(whole_.tensors[i]);
    }
    return writer;
  }
  void WriteAll(bool tensors_in_first = true) {
    for (int part = 1; part <= 3; ++part) Write(Path(part), Part(part, tensors_in_first).Build());
  }

  const std::string folder_;
  const GgufWriter whole_;
};

TEST_F(GgufPartsTest, AreOneModel) {
  const std::string one = folder_ + "/m.gguf";
  Write(one, whole_.Build());
  ASSERT_OK_AND_ASSIGN(const auto expected, Checkpoint::Open(one));
  for (const bool tensors_in_first : {true, false}) {
    WriteAll(tensors_in_first);
    ASSERT_OK_AND_ASSIGN(const auto file, GgufFile::Open(Path(1)));
    EXPECT_EQ(file->num_parts(), 3u);
    EXPECT_EQ(file->tensors().size(), whole_.tensors.size());
    for (const auto& tensor : whole_.tensors) {
      const TensorView* view = file->FindTensor(tensor.name);
      ASSERT_NE(view, nullptr) << tensor.name;
      EXPECT_EQ(view->shape, TensorShape(tensor.shape.begin(), tensor.shape.end())) << tensor.name;
      EXPECT_EQ(std::string(reinterpret_cast<const char*>(view->data), view->bytes), tensor.data) << tensor.name;
    }
    ASSERT_OK_AND_ASSIGN(const auto model, Checkpoint::FromGguf(file));
    EXPECT_EQ(model->fingerprint(), expected->fingerprint());
  }
}

TEST_F(GgufPartsTest, AMissingPartIsNamed) {
  WriteAll();
  std::filesystem::remove(Path(3));
  EXPECT_THAT(GgufFile::Open(Path(1)), StatusIs(absl::StatusCode::kNotFound, AllOf(HasSubstr("part 3 of 3"), HasSubstr(Path(3)))));
}

TEST_F(GgufPartsTest, AMalformedPartIsNamed) {
  WriteAll();
  const std::string bytes = Part(2).Build();
  Write(Path(2), bytes.substr(0, bytes.size() - 1));
  EXPECT_THAT(GgufFile::Open(Path(1)), StatusIs(kInvalid, AllOf(HasSubstr("part 2 of 3"), HasSubstr(Path(2) + ": byte "))));
}

TEST_F(GgufPartsTest, OnlyTheFirstIsTheModel) {
  WriteAll();
  EXPECT_THAT(GgufFile::Open(Path(2)), StatusIs(kInvalid, HasSubstr("is part 2 of 3 (split.no); give the first, whose name ends in "
                                                                    "-00001-of-00003.gguf")));
  const std::string other = folder_ + "/other.gguf";
  Write(other, Part(1).Build());
  EXPECT_THAT(GgufFile::Open(other), StatusIs(kInvalid, HasSubstr("its name has to end in -00001-of-00003.gguf")));
}

TEST_F(GgufPartsTest, PartsThatContradictEachOther) {
  const auto spoilt = [&](int part, const std::function<void(GgufWriter*)>& change) {
    WriteAll();
    GgufWriter writer = Part(part);
    change(&writer);
    Write(Path(part), writer.Build());
    return GgufFile::Open(Path(1)).status();
  };
  EXPECT_THAT(spoilt(2, [](GgufWriter* w) { w->SetU32("split.no", 2); }), StatusIs(kInvalid, HasSubstr("key split.no is 2, should be 1")));
  EXPECT_THAT(spoilt(3, [](GgufWriter* w) { w->SetU32("split.count", 4); }),
              StatusIs(kInvalid, HasSubstr("key split.count is 4, should be 3")));
  EXPECT_THAT(spoilt(2, [](GgufWriter* w) { w->Remove("split.no"); }), StatusIs(absl::StatusCode::kNotFound, HasSubstr("split.no")));
  EXPECT_THAT(spoilt(1, [](GgufWriter* w) { w->SetI32("split.tensors.count", 7); }),
              StatusIs(kInvalid, HasSubstr("key split.tensors.count is 7, the 3 parts have")));
  EXPECT_THAT(spoilt(1, [](GgufWriter* w) { w->SetU32("split.count", 100000); }), StatusIs(kInvalid, HasSubstr("at most 99999 parts")));
  const std::string again = whole_.tensors[0].name;  // Part 1 has it.
  EXPECT_THAT(spoilt(2, [&](GgufWriter* w) { w->tensors.push_back(whole_.tensors[0]); }),
              StatusIs(kInvalid, HasSubstr("tensor " + again + " is in an earlier part, too")));
}

}  // namespace
}  // namespace baton
