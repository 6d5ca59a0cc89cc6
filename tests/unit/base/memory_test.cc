// SPDX-License-Identifier: Apache-2.0
#include "common/base/memory.h"

#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_files.h"

namespace baton {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

// A machine's /proc and /sys/fs/cgroup in a folder. 8 GiB, 6 of them available.
class FakeRoot : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::MakeTempFolder("root");
    Write("proc/meminfo", "MemTotal:        8388608 kB\nMemFree:  100 kB\nMemAvailable:    6291456 kB\n");
  }

  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path full = root_ / path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }
  MemoryLimits Read() {
    absl::StatusOr<MemoryLimits> limits = ReadMemoryLimits(root_.string());
    EXPECT_TRUE(limits.ok()) << limits.status();
    return limits.value_or(MemoryLimits{});
  }
  std::filesystem::path root_;
};

TEST_F(FakeRoot, WithoutCgroupsTheMachineBounds) {
  EXPECT_EQ(Read().available_bytes, 6 * kGiB);
  EXPECT_EQ(Read().limit_bytes, 8 * kGiB);
  EXPECT_EQ(Read().bound_by, "machine");
}

TEST_F(FakeRoot, TheTightestEnclosingCgroupV2Bounds) {
  Write("proc/self/cgroup", "0::/user/app\n");
  Write("sys/fs/cgroup/user/app/memory.max", "max\n");
  Write("sys/fs/cgroup/user/memory.max", std::to_string(3 * kGiB) + "\n");
  Write("sys/fs/cgroup/user/memory.current", std::to_string(2 * kGiB) + "\n");
  Write("sys/fs/cgroup/user/memory.stat", "anon 7\ninactive_file " + std::to_string(kGiB / 2) + "\nactive_file " +
                                              std::to_string(kGiB / 2) + "\n");
  EXPECT_EQ(Read().limit_bytes, 3 * kGiB);
  EXPECT_EQ(Read().available_bytes, 2 * kGiB);  // 3 - (2 - 1 of cache).
  EXPECT_THAT(Read().bound_by, ::testing::EndsWith("/sys/fs/cgroup/user"));
}

TEST_F(FakeRoot, AContainersOwnCgroupIsTheMountsRoot) {
  Write("proc/self/cgroup", "0::/kubepods/pod1/container\n");
  Write("sys/fs/cgroup/memory.max", std::to_string(kGiB));
  Write("sys/fs/cgroup/memory.current", std::to_string(2 * kGiB));
  EXPECT_EQ(Read().limit_bytes, kGiB);
  EXPECT_EQ(Read().available_bytes, 0);
}

TEST_F(FakeRoot, CgroupV1WithAndWithoutLimit) {
  Write("proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/a\n");
  Write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(Read().bound_by, "machine");
  Write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", std::to_string(2 * kGiB));
  Write("sys/fs/cgroup/memory/a/memory.usage_in_bytes", std::to_string(kGiB));
  Write("sys/fs/cgroup/memory/a/memory.stat", "total_inactive_file 0\ntotal_active_file 1024\n");
  EXPECT_EQ(Read().available_bytes, kGiB + 1024);
  EXPECT_EQ(Read().limit_bytes, 2 * kGiB);
}

TEST_F(FakeRoot, NoMeminfoIsUnavailable) {
  std::filesystem::remove(root_ / "proc/meminfo");
  EXPECT_THAT(ReadMemoryLimits(root_.string()),
              testing::StatusIs(absl::StatusCode::kUnavailable, ::testing::HasSubstr("/proc/meminfo")));
}

TEST(Memory, ThisMachineAndProcess) {
  ASSERT_OK_AND_ASSIGN(const MemoryLimits limits, ReadMemoryLimits());
  EXPECT_GT(limits.limit_bytes, 0);
  EXPECT_GE(limits.available_bytes, 0);
  EXPECT_LE(limits.available_bytes, limits.limit_bytes);
  EXPECT_GT(ResidentBytes(), 1 << 16);
}

}  // namespace
}  // namespace baton
