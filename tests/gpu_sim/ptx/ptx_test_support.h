// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_GPU_SIM_PTX_PTX_TEST_SUPPORT_H_
#define BATON_TESTS_GPU_SIM_PTX_PTX_TEST_SUPPORT_H_

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/gpu_sim/ptx/launch.h"

namespace baton::ptx::testing {

// A kernel "k" of hand-written PTX with pointer parameters p0, p1 ... already in %a0, %a1 ..., and the registers that tests use.
inline std::string KernelText(int num_pointers, const std::string& body, const std::string& declarations = "") {
  std::string text = ".version 8.0\n.target sm_80\n.address_size 64\n" + declarations + "\n.visible .entry k(";
  for (int i = 0; i < num_pointers; ++i) absl::StrAppend(&text, i > 0 ? ", " : "", ".param .u64 p", i);
  absl::StrAppend(&text, ")\n{\n.reg .pred %p<16>; .reg .b16 %h<16>; .reg .b32 %r<48>; .reg .f32 %f<32>; .reg .b64 %d<32>; .reg .f64 %g<8>;\n",
                  ".reg .b64 %a<8>; .reg .b32 %tid;\nmov.u32 %tid, %tid.x;\n");
  for (int i = 0; i < num_pointers; ++i) absl::StrAppend(&text, "ld.param.u64 %a", i, ", [p", i, "];\n");
  return text + body + "\nret;\n}\n";
}

// Loads and runs kernel "k"; what it may touch is what Buffer gave out.
class PtxTest : public ::testing::Test {
 protected:
  template <typename T>
  T* Buffer(size_t count, T fill = T{}) {
    // Aligned as the driver does it. What is registered ends with the last element: one more is outside.
    buffers_.push_back(std::make_unique<uint8_t[]>(count * sizeof(T) + 256));
    T* const data = reinterpret_cast<T*>((reinterpret_cast<uint64_t>(buffers_.back().get()) + 255) / 256 * 256);
    for (size_t i = 0; i < count; ++i) data[i] = fill;
    memory_.Add(data, count * sizeof(T));
    return data;
  }

  template <typename... P>
  LaunchReport Run(const std::string& text, const LaunchShape& shape, P... parameters) {
    auto module = LoadModule(text);
    EXPECT_TRUE(module.ok()) << module.status() << "\n" << text;
    if (!module.ok()) return {};
    const Kernel* const kernel = (*module)->Find("k");
    if (kernel == nullptr) {
      ADD_FAILURE() << "no kernel k";
      return {};
    }
    std::vector<uint8_t> bytes;
    [[maybe_unused]] const auto append = [&](auto value) {
      bytes.resize((bytes.size() + sizeof(value) - 1) / sizeof(value) * sizeof(value) + sizeof(value));
      std::memcpy(bytes.data() + bytes.size() - sizeof(value), &value, sizeof(value));
    };
    (append(parameters), ...);
    auto report = Launch(**module, *kernel, shape, bytes, memory_, options_);
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? *std::move(report) : LaunchReport();
  }

  // One warp.
  template <typename... P>
  LaunchReport RunWarp(const std::string& text, P... parameters) {
    return Run(text, {.grid = {}, .block = {32, 1, 1}}, parameters...);
  }

  static int CountOf(const LaunchReport& report, FindingKind kind) {
    int count = 0;
    for (const Finding& finding : report.findings) count += finding.kind == kind;
    return count;
  }
  // Exactly one finding, of this kind.
  static void ExpectOnly(const LaunchReport& report, FindingKind kind) {
    EXPECT_EQ(report.findings.size(), 1u) << report.ToString();
    EXPECT_EQ(CountOf(report, kind), 1) << report.ToString();
  }

  GlobalMemory memory_;
  LaunchOptions options_;
  std::vector<std::unique_ptr<uint8_t[]>> buffers_;
};

}  // namespace baton::ptx::testing

#endif  // BATON_TESTS_GPU_SIM_PTX_PTX_TEST_SUPPORT_H_
