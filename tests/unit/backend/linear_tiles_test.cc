// SPDX-License-Identifier: Apache-2.0
// Quantised matrices on emulated AMX tiles (linear_quant_test.cc runs over them too): bits, memory touched, tiles let go.
#include <gmock/gmock.h>
#include <sys/mman.h>

#include <cstring>

#include "common/backend/cpu/tile_check.h"
#include "tests/unit/backend/emulated_tiles.h"
#include "tests/unit/backend/kernels_test_support.h"

namespace baton::cpu {
namespace {

constexpr GgmlType kTypes[] = {GgmlType::kQ4_0, GgmlType::kQ4_1, GgmlType::kQ5_0,   GgmlType::kQ5_1,   GgmlType::kQ8_0,
                               GgmlType::kQ2_K, GgmlType::kQ3_K, GgmlType::kQ4_K,   GgmlType::kQ5_K,   GgmlType::kQ6_K,
                               GgmlType::kIQ4_NL, GgmlType::kIQ4_XS, GgmlType::kMXFP4};

// Memory whose last byte is followed by a page that must not be touched, and whose first (where `bytes` fills pages) by one before.
class GuardedMemory {
 public:
  explicit GuardedMemory(size_t bytes) : bytes_((bytes + kPage - 1) / kPage * kPage + 2 * kPage) {
    map_ = static_cast<uint8_t*>(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_NE(map_, MAP_FAILED);
    EXPECT_EQ(mprotect(map_, kPage, PROT_NONE), 0);
    EXPECT_EQ(mprotect(map_ + bytes_ - kPage, kPage, PROT_NONE), 0);
    data_ = map_ + bytes_ - kPage - bytes;
  }
  ~GuardedMemory() { munmap(map_, bytes_); }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;
  uint8_t* data() { return data_; }

 private:
  static constexpr size_t kPage = 4096;
  const size_t bytes_;
  uint8_t* map_;
  uint8_t* data_;
};

int64_t ColumnsFor(GgmlType type) { return TraitsOf(type).block_length == 256 ? 768 : 352; }  // 24 or 11 groups.

std::vector<float> RandomActivations(std::mt19937& rng, int64_t n) {
  std::vector<float> x = RandomFloats(rng, n);
  for (size_t i = rng() % 150; i < x.size(); i += 1 + rng() % 150) x[i] *= 8;
  return x;
}

PackedQuant Pack(std::mt19937& rng, GgmlType type, int64_t out, int64_t in) {
  const std::vector<uint8_t> bytes = RandomBlocks(rng, type, out, in);
  const TensorView view = View(bytes, type, out, in);
  absl::StatusOr<PackedQuant> packed = PackQuant({&view, 1});
  EXPECT_TRUE(packed.ok()) << packed.status();
  return *std::move(packed);
}

int64_t Width(const QuantMatrix& w, Epilogue epilogue) { return epilogue == Epilogue::kSiluMul ? w.out / 2 : w.out; }

// y of rows [begin, end), starting from y = 0.25 everywhere, in memory that ends where y does.
std::vector<float> Multiply(const Kernels& k, const QuantMatrix& w, const QuantisedRows& x, int64_t begin, int64_t end,
                            Epilogue epilogue) {
  const int64_t width = Width(w, epilogue);
  GuardedMemory memory(static_cast<size_t>(end * width) * sizeof(float)), scratch(LinearScratchBytes(w.in));
  float* y = reinterpret_cast<float*>(memory.data());
  std::fill_n(y, end * width, 0.25f);
  k.linear_quantised({&w, x, begin, end, 0, (width + 15) / 16, y, width, epilogue, scratch.data()});
  return std::vector<float>(y, y + end * width);
}

class LinearTilesTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    amx_ = EmulatedAmxOver(GetParam());
    if (amx_.kernels == nullptr) GTEST_SKIP() << "this CPU lacks AVX-512 VNNI, or AVX2";
  }
  const Kernels& k() const { return *amx_.kernels; }
  EmulatedAmx amx_ = {};
};

// What is asked before tiles are used on a machine.
TEST_P(LinearTilesTest, TheCheckPasses) { EXPECT_TRUE(GivesTheSameBits(*FindKernels(Isa::kScalar), k().linear_quantised)); }

TEST(TileCheckTest, OneBitIsSeen) {
  const auto last_bit = [](const QuantLinearArgs& args) {
    FindKernels(Isa::kScalar)->linear_quantised(args);
    uint32_t bits;
    float* const last = args.y + (args.row_end - 1) * args.ldy + args.w->out - 1;
    std::memcpy(&bits, last, sizeof(bits));
    bits ^= args.x.lo != nullptr && IsFourBit(args.w->format) ? 1 : 0;  // In one of the four cases.
    std::memcpy(last, &bits, sizeof(bits));
  };
  EXPECT_FALSE(GivesTheSameBits(*FindKernels(Isa::kScalar), last_bit));
}

TEST_P(LinearTilesTest, SameBitsAsScalar) {
  std::mt19937 rng(1);
  constexpr int64_t kRows = 70;
  const Kernels& scalar = *FindKernels(Isa::kScalar);
  for (GgmlType type : kTypes) {
    const int64_t in = ColumnsFor(type);
    const PackedQuant wide = Pack(rng, type, 96, in), odd = Pack(rng, type, 77, in);
    for (int terms = 0; terms <= 2; ++terms) {
      SCOPED_TRACE(std::string(GgmlTypeName(type)) + ", terms " + std::to_string(terms));
      const std::vector<float> x = RandomActivations(rng, kRows * in);
      OwnedRows q(kRows, in, terms > 0), q_scalar(kRows, in, terms > 0);
      if (terms == 2) q.view.lo_threshold = q_scalar.view.lo_threshold = 0;
      k().quantise_rows(x.data(), in, 0, kRows, &q.view);
      scalar.quantise_rows(x.data(), in, 0, kRows, &q_scalar.view);
      ASSERT_EQ(0, std::memcmp(q.memory.get(), q_scalar.memory.get(), q.bytes));
      for (const auto& [w, epilogue] : {std::pair(&wide.matrix, Epilogue::kSiluMul), {&wide.matrix, Epilogue::kAccumulate},
                                        {&odd.matrix, Epilogue::kStore}, {&odd.matrix, Epilogue::kAccumulate}}) {
        const std::vector<float> want = Multiply(scalar, *w, q.view, 0, kRows, epilogue);
        for (int64_t rows = 1; rows <= kRows; ++rows) {
          // Every count for the formats of most models, for the others those where something begins or ends.
          const bool all = type == GgmlType::kQ4_1 || type == GgmlType::kQ6_K;
          if (!all && rows % 8 > 1 && rows != 31 && rows != 63 && rows != kRows) continue;
          const std::vector<float> got = Multiply(k(), *w, q.view, 0, rows, epilogue);
          ASSERT_EQ(0, std::memcmp(got.data(), want.data(), got.size() * sizeof(float))) << rows << " rows";
        }
        const std::vector<float> tail = Multiply(k(), *w, q.view, 23, kRows, epilogue);
        const size_t from = static_cast<size_t>(23 * Width(*w, epilogue));
        ASSERT_EQ(0, std::memcmp(&tail[from], &want[from], (tail.size() - from) * sizeof(float)));
        for (size_t i = 0; i < from; ++i) ASSERT_EQ(tail[i], 0.25f);
      }
    }
  }
}

TEST_P(LinearTilesTest, MoreRowsThanOnePass) {
  std::mt19937 rng(2);
  for (GgmlType type : {GgmlType::kQ4_1, GgmlType::kQ6_K}) {
    const int64_t in = 256, rows = 2 * 256 + 1;
    const PackedQuant w = Pack(rng, type, 160, in);
    const std::vector<float> x = RandomActivations(rng, rows * in);
    OwnedRows q(rows, in, true);
    k().quantise_rows(x.data(), in, 0, rows, &q.view);
    EXPECT_EQ(Multiply(k(), w.matrix, q.view, 0, rows, Epilogue::kStore),
              Multiply(*FindKernels(Isa::kScalar), w.matrix, q.view, 0, rows, Epilogue::kStore));
  }
}

// The rows' memory ends with what tiles read last, and no byte of it may be one too many.
TEST_P(LinearTilesTest, ReadsNoFurtherThanItsInputs) {
  std::mt19937 rng(3);
  for (GgmlType type : kTypes) {
    for (const int64_t rows : {32, 33, 40, 41, 55}) {
      SCOPED_TRACE(std::string(GgmlTypeName(type)) + ", " + std::to_string(rows) + " rows");
      const int64_t in = ColumnsFor(type);
      const PackedQuant w = Pack(rng, type, 48, in);
      GuardedMemory weights(w.bytes());
      std::memcpy(weights.data(), w.memory.get(), w.bytes());
      QuantMatrix matrix = w.matrix;
      matrix.data = weights.data();
      const std::vector<float> x = RandomActivations(rng, rows * in);
      OwnedRows q(rows, in, true);
      k().quantise_rows(x.data(), in, 0, rows, &q.view);
      const std::vector<float> want = Multiply(*FindKernels(Isa::kScalar), w.matrix, q.view, 0, rows, Epilogue::kStore);
      // Each array for itself, cut behind the last group's last row.
      const size_t last = static_cast<size_t>((in / 32 - 1) * q.view.ld + rows);
      const size_t last16 = static_cast<size_t>((in / 16 - 1) * q.view.ld + rows);
      GuardedMemory hi(last * 64), lo(last * 64), scale(last * 4), sum(last * 4), sum16(last16 * 4), used(last);
      QuantisedRows cut = q.view;
      const auto move = [](auto** array, GuardedMemory& to, size_t bytes) {
        std::memcpy(to.data(), *array, bytes);
        *array = reinterpret_cast<std::remove_reference_t<decltype(*array)>>(to.data());
      };
      move(&cut.bf16_hi, hi, last * 64);
      move(&cut.bf16_lo, lo, last * 64);
      move(&cut.scale, scale, last * 4);
      move(&cut.scaled_sum, sum, last * 4);
      move(&cut.scaled_sum16, sum16, last16 * 4);
      move(&cut.lo_used, used, last);
      // The odd tile is AVX-512's, which reads the rest.
      const int64_t num_tiles = 2;
      GuardedMemory y(static_cast<size_t>(rows * 32) * 4), scratch(LinearScratchBytes(in));
      cut.hi = cut.lo = nullptr;
      cut.lo = reinterpret_cast<int8_t*>(used.data());  // Not read: says that there are two terms.
      k().linear_quantised({&matrix, cut, 0, rows, 0, num_tiles, reinterpret_cast<float*>(y.data()), 32, Epilogue::kStore,
                            scratch.data()});
      for (int64_t r = 0; r < rows; ++r) {
        ASSERT_EQ(0, std::memcmp(y.data() + r * 128, &want[static_cast<size_t>(r * 48)], 128)) << "row " << r;
      }
    }
  }
}

TEST_P(LinearTilesTest, UsesTilesForManyRowsAndLetsThemGo) {
  std::mt19937 rng(4);
  const int64_t in = 64, rows = 33;
  const PackedQuant w = Pack(rng, GgmlType::kQ8_0, 80, in);
  OwnedRows q(rows, in, false);
  const std::vector<float> x = RandomFloats(rng, rows * in);
  k().quantise_rows(x.data(), in, 0, rows, &q.view);
  const auto dots = [&](int64_t num_rows, const QuantisedRows& x_rows) {
    const int64_t before = amx_.use().num_dots;
    Multiply(k(), w.matrix, x_rows, 0, num_rows, Epilogue::kStore);
    EXPECT_FALSE(amx_.use().configured);
    return amx_.use().num_dots - before;
  };
  EXPECT_EQ(dots(33, q.view), 3 * 2 * 4);  // Blocks of rows, groups, four of the five tiles.
  EXPECT_EQ(dots(32, q.view), 2 * 2 * 4);
  EXPECT_EQ(dots(31, q.view), 0);
  QuantisedRows bytes_only = q.view;
  bytes_only.bf16_hi = nullptr;
  EXPECT_EQ(dots(33, bytes_only), 0);
}

INSTANTIATE_TEST_SUITE_P(Avx512, LinearTilesTest, ::testing::Values(true, false),
                         [](const auto& info) { return std::string(info.param ? "Real" : "Emulated"); });

TEST(FindKernelsTest, AmxIsAvx512WithOtherMatrices) {
  EXPECT_STREQ(IsaName(Isa::kAmx), "amx");
  const Kernels* amx = FindKernels(Isa::kAmx);
  if (amx == nullptr) GTEST_SKIP() << "this CPU cannot run amx";
  const Kernels& avx512 = *FindKernels(Isa::kAvx512Vnni);
  EXPECT_TRUE(amx->bf16_rows);
  EXPECT_FALSE(avx512.bf16_rows);
  EXPECT_NE(amx->linear_quantised, avx512.linear_quantised);
  EXPECT_EQ(amx->quantise_rows, avx512.quantise_rows);
  EXPECT_EQ(amx->attention_rows, avx512.attention_rows);
}

// That the emulation refuses what a CPU would.

TileConfig Shapes(int rows, int bytes) {
  TileConfig config;
  for (int i = 0; i < 3; ++i) {
    config.rows[i] = static_cast<uint8_t>(rows);
    config.row_bytes[i] = static_cast<uint16_t>(bytes);
  }
  return config;
}

// Tiles 1 and 2 full of one value.
void FillWith(uint16_t bf16) {
  ConfigureTiles(Shapes(16, 64));
  uint16_t words[16][32];
  std::fill_n(words[0], 16 * 32, bf16);
  LoadTile<1>(words, 64);
  LoadTile<2>(words, 64);
}

TEST(EmulatedTilesDeathTest, RefusesWhatACpuRefuses) {
  ReleaseTiles();
  EXPECT_DEATH(ZeroTile<0>(), "#UD: tiles are not configured");
  alignas(64) uint8_t memory[1024] = {};
  EXPECT_DEATH(LoadTile<0>(memory, 64), "#UD: tiles are not configured");
  ConfigureTiles(Shapes(16, 64));
  EXPECT_DEATH(ZeroTile<3>(), "#UD: this tile is not configured");
  EXPECT_DEATH(ConfigureTiles(Shapes(17, 64)), "#GP: tile too large");
  TileConfig config = Shapes(16, 64);
  config.palette = 2;
  EXPECT_DEATH(ConfigureTiles(config), "#GP: palette");
  config = Shapes(16, 64);
  config.row_bytes[1] = 32;
  ConfigureTiles(config);
  EXPECT_DEATH((DotBf16<0, 1, 2>()), "#UD: depth of the operands differs");
  config = Shapes(16, 64);
  config.rows[0] = 8;
  ConfigureTiles(config);
  EXPECT_DEATH((DotBf16<0, 1, 2>()), "#UD: shape of the sums");
  ReleaseTiles();
  EXPECT_DEATH(StoreTile<0>(memory, 64), "#UD: tiles are not configured");
}

TEST(EmulatedTilesDeathTest, RefusesSumsThatRound) {
  FillWith(0x437f);                                          // 255
  for (int i = 0; i < 8; ++i) DotBf16<0, 1, 2>();
  float sums[16][16];
  StoreTile<0>(sums, 64);
  EXPECT_EQ(sums[3][5], 8 * 32 * 255 * 255);
  EXPECT_DEATH((DotBf16<0, 1, 2>()), "sums may be rounded");  // 18.7 million, odd products.
  FillWith(0x3f00);                                          // 0.5
  EXPECT_DEATH((DotBf16<0, 1, 2>()), "not an integer");
  ReleaseTiles();
}

TEST(EmulatedTilesTest, MultipliesAsTheManualSays) {
  std::mt19937 rng(5);
  TileConfig config;
  config.rows[0] = 5, config.row_bytes[0] = 12;  // Sums [5, 3]
  config.rows[1] = 5, config.row_bytes[1] = 8;   // A [5, 4]
  config.rows[2] = 2, config.row_bytes[2] = 12;  // B [4, 3], pairs of rows interleaved
  ConfigureTiles(config);
  const auto bf16 = [](float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    return static_cast<uint16_t>(bits >> 16);
  };
  float a[5][4], b[4][3];
  uint16_t a_words[5][4], b_words[2][6];
  for (int r = 0; r < 5; ++r) {
    for (int i = 0; i < 4; ++i) a_words[r][i] = bf16(a[r][i] = static_cast<float>(rng() % 200) - 100);
  }
  for (int i = 0; i < 4; ++i) {
    for (int n = 0; n < 3; ++n) b_words[i / 2][2 * n + i % 2] = bf16(b[i][n] = static_cast<float>(rng() % 200) - 100);
  }
  LoadTile<1>(a_words, sizeof(a_words[0]));
  LoadTile<2>(b_words, sizeof(b_words[0]));
  DotBf16<0, 1, 2>();
  DotBf16<0, 1, 2>();  // Adds.
  float sums[5][4];
  std::fill_n(&sums[0][0], 20, -1.0f);
  StoreTile<0>(sums, sizeof(sums[0]));
  for (int r = 0; r < 5; ++r) {
    for (int n = 0; n < 3; ++n) {
      float want = 0;
      for (int i = 0; i < 4; ++i) want += 2 * a[r][i] * b[i][n];
      EXPECT_EQ(sums[r][n], want);
    }
    EXPECT_EQ(sums[r][3], -1);  // Not stored.
  }
  ReleaseTiles();
}

}  // namespace
}  // namespace baton::cpu
