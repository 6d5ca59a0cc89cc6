// SPDX-License-Identifier: Apache-2.0
// What ptxas says a kernel takes, held to resources.txt: more registers or shared memory, any spill, or a kernel that is not in
// the table is a failure. Counts belong to the toolkit of the table; with another one only spills are looked at.
#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <string>

#include "gtest/gtest.h"
#include "tests/support/paths.h"

namespace {

struct Resources {
  int registers = 0;
  int shared_bytes = 0;
  int spilled_bytes = 0;
};

std::string Read(const std::string& path) {
  std::ifstream in(path);
  EXPECT_TRUE(in) << path;
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

std::map<std::string, Resources> FromLogs(const std::string& sm) {
  std::map<std::string, Resources> found;
  for (const char* file : {"decode_attention", "elementwise", "embedding", "frame_checksums", "kv_blocks", "prefill_attention", "quant_gemm", "quant_gemv", "rms_norm", "rope_cache", "sampling"}) {
    std::stringstream log(Read(baton::testing::BuildPath(std::string("common/backend/cuda/kernels/") + file + "." + sm + ".cubin.log")));
    std::string kernel;
    for (std::string line; std::getline(log, line);) {
      std::smatch match;
      if (std::regex_search(line, match, std::regex("Compiling entry function '(\\w+)'"))) kernel = match[1];
      if (std::regex_search(line, match, std::regex("(\\d+) bytes spill stores, (\\d+) bytes spill loads"))) found[kernel].spilled_bytes = std::stoi(match[1]) + std::stoi(match[2]);
      if (std::regex_search(line, match, std::regex("Used (\\d+) registers"))) found[kernel].registers = std::stoi(match[1]);
      if (std::regex_search(line, match, std::regex("(\\d+) bytes smem"))) found[kernel].shared_bytes = std::stoi(match[1]);
    }
  }
  return found;
}

TEST(ResourcesTest, NoKernelTakesMoreThanItsRow) {
  std::map<std::string, std::map<std::string, Resources>> table;  // By architecture and kernel.
  std::stringstream rows(Read(baton::testing::SourcePath("tests/gpu_sim/kernels/resources.txt")));
  std::string toolkit;
  for (std::string line; std::getline(rows, line);) {
    if (line.rfind("# toolkit ", 0) == 0) toolkit = line.substr(10);
    if (line.empty() || line[0] == '#') continue;
    std::stringstream fields(line);
    std::string sm, kernel;
    Resources row;
    ASSERT_TRUE(fields >> sm >> kernel >> row.registers >> row.shared_bytes) << line;
    table[sm][kernel] = row;
  }
  const bool same_toolkit = toolkit == BATON_CUDA_VERSION;
  for (const char* sm : {"sm_80", "sm_90"}) {
    const std::map<std::string, Resources> found = FromLogs(sm);
    EXPECT_GE(found.size(), 28u) << sm;
    for (const auto& [kernel, now] : found) {
      EXPECT_EQ(now.spilled_bytes, 0) << sm << " " << kernel << " spills";
      if (!same_toolkit) continue;
      ASSERT_EQ(table[sm].count(kernel), 1u) << "no row: " << sm << " " << kernel << " " << now.registers << " " << now.shared_bytes;
      EXPECT_LE(now.registers, table[sm][kernel].registers) << sm << " " << kernel << ": registers";
      EXPECT_LE(now.shared_bytes, table[sm][kernel].shared_bytes) << sm << " " << kernel << ": shared bytes";
    }
    for (const auto& entry : table[sm]) EXPECT_EQ(found.count(entry.first), 1u) << "no kernel: " << entry.first;
  }
}

}  // namespace
