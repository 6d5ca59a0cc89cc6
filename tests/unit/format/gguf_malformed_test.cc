// SPDX-License-Identifier: Apache-2.0
// Files that attack a GGUF reader: complete ones in hex, and the same defects inside a good tiny model.
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <limits>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/format/gguf.h"
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
constexpr auto kUnsupported = absl::StatusCode::kFailedPrecondition;

absl::StatusOr<std::shared_ptr<const GgufFile>> Parse(const std::string& bytes) {
  return GgufFile::Parse({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, "x.gguf");
}

struct Malformed {
  const char* name;
  const char* hex;
  absl::StatusCode code;
  const char* reason;  // From the byte offset on.
};

constexpr char kEntry1[] = "47475546030000000000000000000000010000000000000001000000000000006";
constexpr Malformed kFiles[] = {
    {"G01 magic only", "47475546", kInvalid, "byte 4: file ends inside the version: 4 bytes needed, 0 left"},
    {"G02 n_kv 2^64-1", "47475546030000000000000000000000ffffffffffffffff", kInvalid,
     "byte 16: 18446744073709551615 metadata entries claimed, the 0 bytes left hold at most 0"},
    {"G04 key length 2^64-1", "474755460300000000000000000000000100000000000000ffffffffffffffff", kInvalid,
     "byte 16: 1 metadata entries claimed, the 8 bytes left hold at most 0"},
    {"G05 string of 1 GiB",
     "474755460300000000000000000000000100000000000000010000000000000061080000000000004000000000", kInvalid,
     "byte 37: length of a string value is 1073741824 bytes, the file has 0 left (key a)"},
    {"G07 array of array",
     "47475546030000000000000000000000010000000000000001000000000000006109000000090000000100000000000000090000000100000"
     "000"
     "000000090000000100000000000000090000000100000000000000",
     kInvalid, "byte 37: an array of arrays is not supported (key a)"},
    {"G08 value type 99", "47475546030000000000000000000000010000000000000001000000000000006163000000", kInvalid,
     "byte 33: key a: unknown value type 99"},
    {"G10 dims [1,0]",
     "47475546030000000100000000000000000000000000000001000000000000007402000000010000000000000000000000000000000000000"
     "0000000"
     "0000000000",
     kInvalid, "byte 45: tensor t: dimension 1 is 0"},
    {"G11 dims [2^32,2^32]",
     "47475546030000000100000000000000000000000000000001000000000000007402000000000000000100000000000000010000000000000"
     "0000000"
     "0000000000",
     kInvalid, "byte 37: tensor t: number of elements overflows"},
    {"G13 n_dims 2^32-1", "474755460300000001000000000000000000000000000000010000000000000074ffffffff", kInvalid,
     "byte 8: 1 tensors claimed, the 13 bytes left hold at most 0"},
    {"G14 tensor type 9999",
     "4747554603000000010000000000000000000000000000000100000000000000740100000020000000000000000f270000000000000000000"
     "0",
     kInvalid, "byte 45: tensor t: unknown type 9999"},
    {"G16 alignment 3",
     "474755460300000000000000000000000100000000000000110000000000000067656e6572616c2e616c69676e6d656e74040000000300000"
     "0",
     kInvalid, "byte 53: general.alignment is 3, not a power of two in [8, 1048576]"},
    {"G17 alignment 2^30",
     "474755460300000000000000000000000100000000000000110000000000000067656e6572616c2e616c69676e6d656e74040000000000004"
     "0",
     kInvalid, "byte 53: general.alignment is 1073741824, not a power of two in [8, 1048576]"},
    {"G19 offset 2^64-32",
     "47475546030000000100000000000000000000000000000001000000000000007401000000080000000000000000000000e0fffffffffffff"
     "f",
     kInvalid, "byte 49: tensor t: offset 18446744073709551584 + 32 bytes end outside the file"},
    {"G20 tensor twice",
     "47475546030000000200000000000000000000000000000001000000000000007401000000080000000000000000000000000000000000000"
     "0010000"
     "000000000074010000000800000000000000000000002000000000000000",
     kInvalid, "byte 57: tensor t occurs twice"},
    {"G22 big-endian", "474755460000000300000000000000000000000000000000", kUnsupported,
     "byte 4: big-endian GGUF (version 3) is not supported"},
    {"G23 dim 2^64-1",
     "47475546030000000100000000000000000000000000000001000000000000007401000000ffffffffffffffff00000000000000000000000"
     "0",
     kInvalid, "byte 37: tensor t: dimension 0 is 18446744073709551615"},
    {"G25 tensor name of 65 bytes",
     "47475546030000000100000000000000000000000000000041000000000000007878787878787878787878787878787878787878787878787"
     "8787878"
     "78787878787878787878787878787878787878787878787878787878787878787878787801000000080000000000000000000000000000000"
     "0000000",
     kInvalid, "byte 24: length of a tensor name is 65 bytes, the limit is 64"},
    {"G26 bool 2", "4747554603000000000000000000000001000000000000000100000000000000610700000002", kInvalid,
     "byte 37: bool value is 2, neither 0 nor 1 (key a)"},
};

long ResidentBytes() {
  long pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST(GgufMalformed, CompleteFilesAreRefusedWithFileOffsetAndReason) {
  for (const Malformed& file : kFiles) {
    SCOPED_TRACE(file.name);
    const std::string path = testing::WriteTempFile("bad.gguf", absl::HexStringToBytes(file.hex));
    const long before = ResidentBytes();
    EXPECT_THAT(GgufFile::Open(path), StatusIs(file.code, HasSubstr(absl::StrCat(path, ": ", file.reason))));
    EXPECT_LT(ResidentBytes() - before, 16 << 20);
  }
}

TEST(GgufMalformed, DeeperArraysOfArrays) {
  const std::string head = absl::HexStringToBytes(absl::StrCat(kEntry1, "109000000"));
  const std::string level = absl::HexStringToBytes("090000000100000000000000");
  for (int levels : {1000, 1000000}) {
    std::string bytes = head;
    for (int i = 0; i < levels; ++i) bytes += level;
    EXPECT_THAT(Parse(bytes), StatusIs(kInvalid, HasSubstr("byte 37: an array of arrays is not supported (key a)")));
  }
}

template <typename T>
void Put(std::string* bytes, size_t offset, T value) {
  memcpy(bytes->data() + offset, &value, sizeof(T));
}

template <typename T>
T Take(const std::string& bytes, size_t offset) {
  T value;
  memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

struct Good {
  std::string bytes;
  std::vector<GgufWriter::Field> fields;
  size_t OffsetOf(const std::string& what) const {
    for (const GgufWriter::Field& field : fields) {
      if (field.what == what) return field.offset;
    }
    ADD_FAILURE() << what;
    return 0;
  }
};

Good GoodModel() {
  testing::TinyModelOptions options;
  options.num_layers = 1;
  options.hidden_size = 32;
  options.num_heads = 2;
  options.num_kv_heads = 1;
  options.intermediate_size = 32;
  options.vocab_size = 260;
  Good good;
  good.bytes = testing::TinyModel(options).Build(&good.fields);
  return good;
}

TEST(GgufMalformed, SameDefectsInsideAGoodModel) {
  const Good good = GoodModel();
  const auto spoil = [&](const std::string& what, auto value) {
    std::string bytes = good.bytes;
    Put(&bytes, good.OffsetOf(what), value);
    return Parse(bytes);
  };
  const std::string q = "tensor blk.0.attn_q.weight: ";
  const auto at = [&](const std::string& what) {
    return HasSubstr(absl::StrCat("x.gguf: byte ", good.OffsetOf(what), ": "));
  };
  EXPECT_THAT(spoil("number of entries", ~uint64_t{0}), StatusIs(kInvalid, at("number of entries")));
  EXPECT_THAT(spoil("number of tensors", ~uint64_t{0}), StatusIs(kInvalid, at("number of tensors")));
  EXPECT_THAT(spoil("key length of general.name", ~uint64_t{0}), StatusIs(kInvalid, at("key length of general.name")));
  EXPECT_THAT(spoil("string length of general.name", uint64_t{1} << 30),
              StatusIs(kInvalid, AllOf(at("string length of general.name"), HasSubstr("1073741824"))));
  EXPECT_THAT(spoil("element type of tokenizer.ggml.tokens", uint32_t{9}),
              StatusIs(kInvalid, at("element type of tokenizer.ggml.tokens")));
  EXPECT_THAT(spoil("array length of tokenizer.ggml.tokens", ~uint64_t{0} / 8 + 2),
              StatusIs(kInvalid, at("array length of tokenizer.ggml.tokens")));
  EXPECT_THAT(spoil("type of general.name", uint32_t{99}), StatusIs(kInvalid, at("type of general.name")));
  EXPECT_THAT(spoil(q + "dimension 1", uint64_t{0}), StatusIs(kInvalid, at(q + "dimension 1")));
  EXPECT_THAT(spoil(q + "dimension 1", uint64_t{1} << 62),
              StatusIs(kInvalid, HasSubstr("number of elements overflows")));
  EXPECT_THAT(spoil(q + "dimension 0", ~uint64_t{0}), StatusIs(kInvalid, at(q + "dimension 0")));
  EXPECT_THAT(spoil(q + "number of dimensions", ~uint32_t{0}), StatusIs(kInvalid, at(q + "number of dimensions")));
  EXPECT_THAT(spoil(q + "number of dimensions", uint32_t{0}), StatusIs(kInvalid, at(q + "number of dimensions")));
  EXPECT_THAT(spoil(q + "type", uint32_t{9999}), StatusIs(kInvalid, at(q + "type")));
  EXPECT_THAT(spoil(q + "type", uint32_t{16}),
              StatusIs(kUnsupported, AllOf(at(q + "type"), HasSubstr("type IQ2_XXS"))));
  EXPECT_THAT(spoil(q + "offset", ~uint64_t{31}), StatusIs(kInvalid, at(q + "offset")));
  EXPECT_THAT(spoil(q + "offset", uint64_t{33}), StatusIs(kInvalid, HasSubstr("is no multiple of the alignment 32")));
  EXPECT_THAT(spoil(q + "offset", uint64_t{0}), StatusIs(kInvalid, HasSubstr("the tensor before ends at")));
  // Inside the file, but no longer what the writer laid out.
  EXPECT_THAT(spoil(q + "dimension 1", uint64_t{16}), StatusIs(kInvalid, HasSubstr("hole")));
  EXPECT_THAT(spoil(q + "dimension 1", uint64_t{33}), StatusIs(kInvalid, HasSubstr("overlap")));
  EXPECT_THAT(spoil(q + "type", uint32_t{1}), StatusIs(kInvalid, HasSubstr("hole")));
  EXPECT_THAT(Parse(good.bytes + std::string(32, 'x')),
              StatusIs(kInvalid, HasSubstr("32 bytes follow the last tensor")));
  EXPECT_THAT(spoil(q + "name length", uint64_t{65}), StatusIs(kInvalid, at(q + "name length")));
  EXPECT_THAT(spoil("version", uint32_t{0x03000000}), StatusIs(kUnsupported, HasSubstr("big-endian")));
  EXPECT_THAT(spoil("version", uint32_t{1}), StatusIs(kUnsupported, HasSubstr("GGUF version 1 is not supported")));
  EXPECT_THAT(spoil("version", uint32_t{4}), StatusIs(kUnsupported, HasSubstr("GGUF version 4 is not supported")));
}

TEST(GgufMalformed, DuplicatesAlignmentAndBoolsInsideAGoodModel) {
  testing::TinyModelOptions options;
  options.num_layers = 1;
  const auto model = [&] { return testing::TinyModel(options); };
  EXPECT_THAT(Parse(model().Duplicate("llama.block_count").Build()),
              StatusIs(kInvalid, HasSubstr("key llama.block_count occurs twice")));
  GgufWriter twice = model();
  twice.tensors.push_back(twice.tensors[3]);
  EXPECT_THAT(Parse(twice.Build()), StatusIs(kInvalid, HasSubstr("occurs twice")));
  for (uint32_t alignment : {0u, 1u, 3u, 4u, 24u, 1u << 21, 1u << 30, 1u << 31}) {
    EXPECT_THAT(
        Parse(model().SetU32("general.alignment", alignment).Build()),
        StatusIs(kInvalid, HasSubstr(absl::StrCat("general.alignment is ", alignment, ", not a power of two"))));
  }
  EXPECT_THAT(Parse(model().SetString("general.alignment", "32").Build()),
              StatusIs(kInvalid, HasSubstr("general.alignment: expected u32, found string")));
  EXPECT_THAT(Parse(model().SetRaw("b", GgufValueType::kBool, "\2").Build()),
              StatusIs(kInvalid, HasSubstr("bool value is 2")));
  EXPECT_THAT(
      Parse(model().SetRaw("b", GgufValueType::kArray, absl::HexStringToBytes("0700000002000000000000000102")).Build()),
      StatusIs(kInvalid, HasSubstr("bool value is 2")));
  EXPECT_THAT(Parse(model().SetString("", "x").Build()), StatusIs(kInvalid, HasSubstr("has an empty key")));
  GgufWriter bad_key = model();
  bad_key.SetRaw("\xff\x1b[31m", GgufValueType::kBool, "\2");
  EXPECT_THAT(Parse(bad_key.Build()), StatusIs(kInvalid, HasSubstr("(key \\xff\\x1b[31m)")));
}

// Each number of the file set to each of the values that break readers: never a crash, and an error that has file and
// offset unless the file happens to be good still.
TEST(GgufMalformed, EveryNumberSpoilt) {
  const Good good = GoodModel();
  int refused = 0, accepted = 0;
  for (const GgufWriter::Field& field : good.fields) {
    const uint64_t value =
        field.bytes == 4 ? Take<uint32_t>(good.bytes, field.offset) : Take<uint64_t>(good.bytes, field.offset);
    for (uint64_t other : {uint64_t{0}, uint64_t{1}, value + 1, value - 1, uint64_t{1} << 31, (uint64_t{1} << 32) - 1,
                           uint64_t{1} << 63, ~uint64_t{0}}) {
      std::string bytes = good.bytes;
      if (field.bytes == 4) {
        Put(&bytes, field.offset, static_cast<uint32_t>(other));
      } else {
        Put(&bytes, field.offset, other);
      }
      if (bytes == good.bytes) continue;
      const auto file = Parse(bytes);
      if (file.ok()) {
        ++accepted;
        continue;
      }
      ++refused;
      EXPECT_TRUE(file.status().code() == kInvalid || file.status().code() == kUnsupported) << file.status();
      EXPECT_THAT(std::string(file.status().message()), HasSubstr("x.gguf: byte ")) << field.what;
    }
  }
  EXPECT_GT(refused, 30 * accepted) << accepted << " accepted";
}

// Each entry's type number changed to each other one, its bytes left alone.
TEST(GgufMalformed, EveryTypeForEveryKey) {
  const Good good = GoodModel();
  for (const GgufWriter::Field& field : good.fields) {
    if (field.what.rfind("type of ", 0) != 0) continue;
    for (uint32_t type = 0; type < 14; ++type) {
      std::string bytes = good.bytes;
      Put(&bytes, field.offset, type);
      const auto file = Parse(bytes);
      if (file.ok()) continue;
      EXPECT_THAT(file, StatusIs(kInvalid, HasSubstr("x.gguf: byte "))) << field.what << " " << type;
    }
  }
}

}  // namespace
}  // namespace baton
