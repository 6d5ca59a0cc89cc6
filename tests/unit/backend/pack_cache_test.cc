// SPDX-License-Identifier: Apache-2.0
#include "common/backend/cpu/pack_cache.h"

#include <gmock/gmock.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/support/temp_files.h"
#include "tests/unit/backend/kernels_test_support.h"

namespace baton::cpu {
namespace {

namespace fs = std::filesystem;
using ::baton::testing::MakeTempFolder;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint64_t kMuch = uint64_t{1} << 30;

std::vector<fs::path> FilesIn(const std::string& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
  return files;
}

// A matrix of a file.
struct Weights {
  explicit Weights(uint32_t seed, GgmlType type = GgmlType::kQ4_1, int64_t out = 48, int64_t in = 64) {
    std::mt19937 rng(seed);
    bytes = RandomBlocks(rng, type, out, in);
    view = View(bytes, type, out, in);
  }
  std::vector<uint8_t> bytes;
  TensorView view;
};

PackedQuant Pack(const Weights& weights, PackCache* cache) {
  auto packed = PackQuant({&weights.view, 1}, cache);
  EXPECT_TRUE(packed.ok()) << packed.status();
  return *std::move(packed);
}

bool SameBytes(const PackedQuant& a, const PackedQuant& b) {
  return a.bytes() == b.bytes() && std::memcmp(a.matrix.data, b.matrix.data, a.bytes()) == 0;
}

void FlipBit(const fs::path& file, size_t offset) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(static_cast<std::streamoff>(offset));
  const int byte = stream.get();
  stream.seekp(static_cast<std::streamoff>(offset));
  stream.put(static_cast<char>(byte ^ 4));
}

TEST(PackCacheTest, ASecondStartMapsWhatTheFirstOnePacked) {
  const std::string folder = MakeTempFolder("cache") + "/made/by/the/cache";
  for (const GgmlType type : {GgmlType::kQ4_1, GgmlType::kQ6_K, GgmlType::kF16}) {
    const Weights weights(1, type, 37, 256);
    const bool floats = type == GgmlType::kF16;
    PackCache first(folder, kMuch), second(folder, kMuch);
    const std::string key = floats ? PackCache::KeyOf("float 1", {&weights.view, 1}) : "";
    if (floats) {
      const auto fresh = *PackFloat({&weights.view, 1});
      ASSERT_TRUE(PackFloat({&weights.view, 1}, &first).ok());
      const auto mapped = *PackFloat({&weights.view, 1}, &second);
      EXPECT_EQ(std::memcmp(fresh.matrix.data, mapped.matrix.data, fresh.bytes()), 0);
      ASSERT_NE(second.Find(key, fresh.bytes()), nullptr);
      continue;
    }
    const PackedQuant fresh = Pack(weights, nullptr);
    Pack(weights, &first);
    const PackedQuant mapped = Pack(weights, &second);
    EXPECT_TRUE(SameBytes(fresh, mapped));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(mapped.matrix.data) % 64, 0u);
  }
  EXPECT_EQ(FilesIn(folder).size(), 3u);
}

TEST(PackCacheTest, EveryByteOfTheSourceIsPartOfTheKey) {
  Weights weights(2);
  const std::string key = PackCache::KeyOf("quant 0", {&weights.view, 1});
  EXPECT_EQ(PackCache::KeyOf("quant 0", {&weights.view, 1}), key);
  EXPECT_NE(PackCache::KeyOf("quant 1", {&weights.view, 1}), key);
  for (const size_t at : {size_t{0}, weights.bytes.size() / 2, weights.bytes.size() - 1}) {
    weights.bytes[at] ^= 1;
    EXPECT_NE(PackCache::KeyOf("quant 0", {&weights.view, 1}), key) << "byte " << at;
    weights.bytes[at] ^= 1;
  }
  weights.view.shape = {24, 128};
  EXPECT_NE(PackCache::KeyOf("quant 0", {&weights.view, 1}), key);
}

TEST(PackCacheTest, ADamagedFileIsPackedAgain) {
  const std::string folder = MakeTempFolder("cache");
  const Weights weights(3);
  const PackedQuant fresh = Pack(weights, nullptr);
  PackCache writer(folder, kMuch);
  Pack(weights, &writer);
  const std::vector<fs::path> files = FilesIn(folder);
  ASSERT_EQ(files.size(), 1u);
  const size_t size = fs::file_size(files[0]);
  EXPECT_EQ(size, 4096 + fresh.bytes() + 64);
  const std::string key = files[0].stem();
  for (const size_t at : {size_t{0}, size_t{17}, size_t{25}, size_t{33}, size_t{4096}, size_t{4096} + fresh.bytes() - 1}) {
    SCOPED_TRACE(absl::StrCat("byte ", at));
    FlipBit(files[0], at);
    PackCache reader(folder, kMuch);
    EXPECT_EQ(reader.Find(key, fresh.bytes()), nullptr);
    EXPECT_THAT(FilesIn(folder), IsEmpty());
    EXPECT_TRUE(SameBytes(Pack(weights, &reader), fresh));
    EXPECT_THAT(FilesIn(folder), ElementsAre(files[0]));
  }
  for (const size_t length : {size_t{0}, size_t{100}, size - 1, size + 1}) {
    SCOPED_TRACE(absl::StrCat("length ", length));
    fs::resize_file(files[0], length);
    PackCache reader(folder, kMuch);
    EXPECT_TRUE(SameBytes(Pack(weights, &reader), fresh));
    EXPECT_EQ(fs::file_size(files[0]), size);
  }
}

TEST(PackCacheTest, AFileUnderAnotherNameIsNotTakenForIt) {
  const std::string folder = MakeTempFolder("cache");
  const Weights a(4), b(5);
  PackCache cache(folder, kMuch);
  Pack(a, &cache);
  const fs::path file = FilesIn(folder)[0];
  fs::rename(file, folder + "/" + PackCache::KeyOf("quant 0", {&b.view, 1}) + ".pack");
  PackCache other(folder, kMuch);
  EXPECT_TRUE(SameBytes(Pack(b, &other), Pack(b, nullptr)));
}

TEST(PackCacheTest, TheLeastRecentlyUsedGoFirstAndNoneThatIsInUse) {
  const std::string folder = MakeTempFolder("cache");
  const Weights a(6), b(7), c(8);
  const uint64_t one = 4096 + Pack(a, nullptr).bytes() + 64;
  std::vector<fs::path> of_a, of_b;
  {
    PackCache cache(folder, kMuch);
    Pack(a, &cache);
    of_a = FilesIn(folder);
    Pack(b, &cache);
  }
  fs::last_write_time(of_a[0], fs::file_time_type::clock::now() - std::chrono::hours(1));
  PackCache cache(folder, 2 * one);
  Pack(a, &cache);  // Used now, so b is the oldest.
  Pack(c, &cache);
  EXPECT_EQ(FilesIn(folder).size(), 2u);
  EXPECT_TRUE(fs::exists(of_a[0]));
  EXPECT_FALSE(fs::exists(folder + "/" + PackCache::KeyOf("quant 0", {&b.view, 1}) + ".pack"));
  // Both are in use: b is packed, and not kept.
  EXPECT_TRUE(SameBytes(Pack(b, &cache), Pack(b, nullptr)));
  EXPECT_EQ(FilesIn(folder).size(), 2u);
}

TEST(PackCacheTest, AFolderThatCannotBeOnlyCostsTheCache) {
  const std::string folder = MakeTempFolder("cache");
  const std::string file = folder + "/file";
  std::ofstream(file) << "no folder";
  const Weights weights(9);
  for (const std::string& path : {file, file + "/below", std::string("/proc/baton-cache")}) {
    PackCache cache(path, kMuch);
    EXPECT_TRUE(SameBytes(Pack(weights, &cache), Pack(weights, nullptr))) << path;
  }
}

TEST(PackCacheTest, WhatAKilledWriterLeftIsRemovedAfterAnHour) {
  const std::string folder = MakeTempFolder("cache");
  const std::string old = folder + "/abc.1.writing", young = folder + "/abd.2.writing";
  std::ofstream(old) << "half";
  std::ofstream(young) << "half";
  fs::last_write_time(old, fs::file_time_type::clock::now() - std::chrono::hours(2));
  PackCache cache(folder, kMuch);
  Pack(Weights(10), &cache);
  EXPECT_FALSE(fs::exists(old));
  EXPECT_TRUE(fs::exists(young));
}

TEST(PackCacheTest, ManyThreadsAndCachesOverOneFolder) {
  const std::string folder = MakeTempFolder("cache");
  std::vector<Weights> weights;
  for (uint32_t seed = 20; seed < 28; ++seed) weights.emplace_back(seed);
  for (Weights& w : weights) w.view.data = w.bytes.data();  // They have moved.
  const uint64_t room = 3 * (4096 + Pack(weights[0], nullptr).bytes() + 64);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 5; ++round) {
        PackCache cache(folder, room);
        for (size_t i = 0; i < weights.size(); ++i) {
          const Weights& w = weights[(i + static_cast<size_t>(t)) % weights.size()];
          EXPECT_TRUE(SameBytes(Pack(w, &cache), Pack(w, nullptr)));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace baton::cpu
