// SPDX-License-Identifier: Apache-2.0
// Checksums made on the device: the host's, bit for bit, over every shape of frame that a transport may have.
#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <span>

#include "common/backend/cuda/device_checksums.h"
#include "common/backend/cuda/kernels/kernel_types.h"
#include "common/kv_transfer/checksum.h"
#include "tests/gpu_sim/kernels/gpu_test_support.h"

namespace baton::cuda {
namespace {

// A frame as the host has it.
struct HostFrame {
  size_t cell_bytes;
  std::vector<uint8_t> bytes;
};

class ChecksumsTest : public testing::GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    CUdevice device = 0;
    int major = 0;
    ASSERT_EQ(api().cuDeviceGet(&device, 0), CUDA_SUCCESS);
    ASSERT_EQ(api().cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device), CUDA_SUCCESS);
    auto kernel = ChecksumKernel::Load(api(), 10 * major);
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    kernel_ = *std::move(kernel);
    auto checksums = DeviceChecksums::Create(kernel_.get());
    ASSERT_TRUE(checksums.ok()) << checksums.status();
    checksums_ = *std::move(checksums);
  }
  void TearDown() override {
    checksums_.reset();
    kernel_.reset();
    GpuTest::TearDown();
  }

  std::vector<uint8_t> RandomBytes(size_t bytes) {
    std::vector<uint8_t> random(bytes);
    for (uint8_t& byte : random) byte = static_cast<uint8_t>(rng_());
    return random;
  }

  // Cells of the frame in an array of their own, out of order, with what belongs to nobody between them.
  std::vector<CUdeviceptr> Scatter(const HostFrame& frame) {
    const size_t cell = frame.cell_bytes, count = (frame.bytes.size() + cell - 1) / cell, stride = cell + 64;
    std::vector<size_t> places(count);
    std::iota(places.begin(), places.end(), size_t{0});
    std::shuffle(places.begin(), places.end(), rng_);
    std::vector<uint8_t> pool = RandomBytes(count * stride);
    for (size_t i = 0; i < count; ++i) {
      const size_t part = std::min(cell, frame.bytes.size() - i * cell);
      std::copy_n(frame.bytes.begin() + static_cast<ptrdiff_t>(i * cell), part, pool.begin() + static_cast<ptrdiff_t>(places[i] * stride));
    }
    const auto uploaded = Upload(pool);
    std::vector<CUdeviceptr> cells(count);
    for (size_t i = 0; i < count; ++i) cells[i] = uploaded.pointer + places[i] * stride;
    return cells;
  }

  std::vector<uint64_t> Checksums(std::span<const HostFrame> frames) {
    checksums_->Clear();
    for (const HostFrame& frame : frames) {
      EXPECT_TRUE(checksums_->Add(Scatter(frame), frame.cell_bytes, frame.bytes.size())) << frame.bytes.size();
    }
    EXPECT_TRUE(checksums_->Launch(stream_).ok());
    EXPECT_EQ(api().cuStreamSynchronize(stream_), CUDA_SUCCESS) << SimFindings();
    return {checksums_->results().begin(), checksums_->results().end()};
  }
  void ExpectEqualToTheHosts(const std::vector<HostFrame>& frames) {
    const std::vector<uint64_t> got = Checksums(frames);
    ASSERT_EQ(got.size(), frames.size());
    for (size_t i = 0; i < frames.size(); ++i) {
      EXPECT_EQ(got[i], FrameChecksum(frames[i].bytes)) << frames[i].bytes.size() << " bytes in cells of " << frames[i].cell_bytes;
    }
  }

  std::mt19937 rng_{7};
  std::unique_ptr<ChecksumKernel> kernel_;
  std::unique_ptr<DeviceChecksums> checksums_;
};

// Around a stripe, a block, a tile of blocks and two; and odd lengths, of which the last stripe lies in two cells.
TEST_F(ChecksumsTest, EqualToTheHostsAtEveryEdge) {
  std::vector<HostFrame> frames;
  for (const size_t edge : {256, 320, 1024, 2048, 4096, 31 * 1024, 32 * 1024, 33 * 1024, 64 * 1024, 65 * 1024}) {
    for (const int off : {-64, -63, -1, 0, 1, 63, 64}) {
      const size_t bytes = edge + static_cast<size_t>(off);
      if (bytes < DeviceChecksums::kLeastBytes) continue;
      for (const size_t cell : {size_t{64}, size_t{1024}, size_t{4096 + 64}}) {
        if (bytes / cell < 200) frames.push_back({cell, RandomBytes(bytes)});
      }
    }
  }
  for (size_t begin = 0; begin < frames.size(); begin += DeviceChecksums::kMaxFrames) {
    const size_t end = std::min(frames.size(), begin + DeviceChecksums::kMaxFrames);
    ExpectEqualToTheHosts({frames.begin() + static_cast<ptrdiff_t>(begin), frames.begin() + static_cast<ptrdiff_t>(end)});
  }
}

TEST_F(ChecksumsTest, EqualToTheHostsForAnyLengthAndContent) {
  std::vector<HostFrame> frames;
  for (int i = 0; i < 60; ++i) {
    const size_t bytes = DeviceChecksums::kLeastBytes + rng_() % 9000, cell = 64 * (1 + rng_() % 40);
    frames.push_back({cell, RandomBytes(bytes)});
    if (i % 5 == 1) std::ranges::fill(frames.back().bytes, uint8_t{0});
    if (i % 5 == 2) std::ranges::fill(frames.back().bytes, uint8_t{0xff});
  }
  // What a layer of an 8B model has in 16 tokens, and of a small one in 128.
  frames.push_back({64 << 10, RandomBytes(2 * (64 << 10))});
  frames.push_back({12288, RandomBytes(8 * 12288)});
  ExpectEqualToTheHosts(frames);
  if (!simulated()) return;
  EXPECT_LE(static_cast<double>(SimCount("sectors")), 1.3 * static_cast<double>(SimCount("ideal_sectors")));
}

TEST_F(ChecksumsTest, AFlippedBitAnywhereShows) {
  const HostFrame whole{256, RandomBytes(2 * 1024 + 256)};
  const uint64_t right = FrameChecksum(whole.bytes);
  for (size_t byte = 0; byte < whole.bytes.size();) {
    std::vector<HostFrame> frames;
    for (; byte < whole.bytes.size() && frames.size() < DeviceChecksums::kMaxFrames; byte += 3) {  // In every lane's turn, and every place.
      frames.push_back(whole);
      frames.back().bytes[byte] ^= static_cast<uint8_t>(1 << rng_() % 8);
    }
    for (const uint64_t checksum : Checksums(frames)) EXPECT_NE(checksum, right);
  }
}

TEST_F(ChecksumsTest, WhatIsNotTheKernelsIsNotTaken) {
  const std::vector<CUdeviceptr> cells(4, 4096), crooked = {4096, 4104};
  EXPECT_TRUE(checksums_->Add(cells, 128, DeviceChecksums::kLeastBytes));
  EXPECT_FALSE(checksums_->Add(cells, 128, DeviceChecksums::kLeastBytes - 1));
  EXPECT_FALSE(checksums_->Add(cells, 128, 513));
  EXPECT_FALSE(checksums_->Add(cells, 96, 384));
  EXPECT_FALSE(checksums_->Add(crooked, 256, 512));
  EXPECT_EQ(checksums_->size(), 1u);
  const std::vector<CUdeviceptr> many(DeviceChecksums::kMaxCells - 3, 4096);
  EXPECT_FALSE(checksums_->Add(many, 128, 512));
  for (size_t i = 1; i < DeviceChecksums::kMaxFrames; ++i) ASSERT_TRUE(checksums_->Add(cells, 128, 512));
  EXPECT_FALSE(checksums_->Add(cells, 128, 512));
  checksums_->Clear();
  EXPECT_TRUE(checksums_->Add(many, 128, 512));
}

// Sums that are read before they are there.
TEST_F(ChecksumsTest, AMissingBarrierIsReported) {
  if (!simulated()) GTEST_SKIP() << "needs the simulator";
  const auto pool = Upload(RandomBytes(96 << 10));
  const auto cells = Upload(std::vector<unsigned long long>{pool.pointer});
  const auto frames = Upload(std::vector<ChecksumFrame>{{0, 96 << 10, 96 << 10}});
  const auto keys = Upload(std::vector<unsigned long long>(kNumChecksumKeys, 3));
  const auto out = Poisoned<unsigned long long>(1);
  Run("frame_checksums", {1}, {288}, cells.get(), frames.get(), keys.get(), out.get());
  EXPECT_EQ(TakeFindings(), "");
  ASSERT_TRUE(LeaveOut("frame_checksums", "bar.sync", 0));
  Run("frame_checksums", {1}, {288}, cells.get(), frames.get(), keys.get(), out.get());
  EXPECT_NE(TakeFindings(), "");
}

}  // namespace
}  // namespace baton::cuda
