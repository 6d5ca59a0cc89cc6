// SPDX-License-Identifier: Apache-2.0
#include "absl/strings/str_cat.h"
#include "common/format/safetensors.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = baton::SafetensorsFile::Parse({data, size}, "fuzz.safetensors");
  if (!file.ok()) return 0;
  size_t sum = 0;
  for (const baton::TensorView& tensor : (*file)->tensors()) {
    for (uint8_t byte : tensor.span()) sum += byte;
  }
  volatile size_t sink = sum;
  (void)sink;
  return 0;
}

namespace baton::fuzz {

std::vector<std::string> Seeds() {
  const auto file = [](const std::string& header, size_t data_bytes) {
    const uint64_t length = header.size();
    return absl::StrCat(std::string(reinterpret_cast<const char*>(&length), 8), header, std::string(data_bytes, 'd'));
  };
  return {file(R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"b":{"dtype":"BF16","shape":[4],)"
               R"("data_offsets":[24,32]},"__metadata__":{"format":"pt"}})",
               32),
          file(R"({"e":{"dtype":"F16","shape":[0],"data_offsets":[0,0]},"u":{"dtype":"U8","shape":[],)"
               R"("data_offsets":[0,1]}}   )",
               1),
          file("{}", 0)};
}

int NumInputs() { return 20000; }

}  // namespace baton::fuzz
