// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/backend/cuda/cuda_device.h"
#include "common/base/quantity.h"
#include "common/base/status_macros.h"
#include "common/kv_transfer/transports/device_transports.h"
#include "deploy/bench_kv/kv_bench.h"
#include "deploy/bench_kv/kv_bench_report.h"
#include "deploy/cli/command.h"
#include "deploy/cli/flags.h"

ABSL_FLAG(std::string, sizes, "64KiB,256KiB,1MiB,4MiB,16MiB,64MiB,256MiB,1GiB", "Sizes of the transfers, separated by commas.");
ABSL_FLAG(std::string, cuda_driver, "libcuda.so.1", "Library of the CUDA driver, by file name or path, for cuda_ipc.");
ABSL_FLAG(int, rounds, 9, "Measurements per size; more for small ones, fewer for large ones.");

namespace baton::cli {
namespace {

absl::StatusOr<bench::KvBenchOptions> ReadFlags() {
  bench::KvBenchOptions options;
  const std::string transport = absl::GetFlag(FLAGS_transport);
  auto kinds = ParseTransportFlag(transport);
  if (!kinds.ok()) return Annotate(kinds.status(), "--transport");
  options.kinds = *std::move(kinds);
  std::erase(options.kinds, TransportKind::kNccl);
  if (options.kinds.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("--transport ", transport, " takes two processes with a GPU each, and is not measured here"));
  }
  options.cuda_driver = absl::GetFlag(FLAGS_cuda_driver);
  for (absl::string_view text : absl::StrSplit(absl::GetFlag(FLAGS_sizes), ',', absl::SkipWhitespace())) {
    auto bytes = ParseBytes(text);
    if (!bytes.ok()) return Annotate(bytes.status(), "--sizes");
    options.sizes.push_back(*bytes);
  }
  options.rounds = absl::GetFlag(FLAGS_rounds);
  return options;
}

// What there is a GPU for, where that was not asked for by name.
absl::Status OpenDevice(bench::KvBenchOptions* options) {
  const bool on_device = options->kinds.size() == 1 || cuda::FindCudaDevice(options->cuda_driver, 0).ok();
  return OpenDeviceTransports({.on_device = on_device, .cuda_driver = options->cuda_driver}, &options->kinds);
}

int RunBenchKv(const ConfigResult&) {
  const bool json = absl::GetFlag(FLAGS_json);
  auto options = ReadFlags();
  if (!options.ok()) return Fail("bench kv", options.status(), json, kExitUsage);
  if (const absl::Status opened = OpenDevice(&*options); !opened.ok()) return Fail("bench kv", opened, json, kExitFailure);
  const bool terminal = isatty(STDERR_FILENO);
  const auto points = bench::RunKvBench(*options, [terminal](const bench::KvBenchPoint& point) {
    if (!terminal) return;
    absl::FPrintF(stderr, "\r%s, %s: %.2f GB/s          ", TransportName(point.kind), FormatBytes(point.bytes), point.checked / 1e9);
  });
  if (terminal) std::fputs("\r                                                \r", stderr);
  if (!points.ok()) {
    return Fail("bench kv", points.status(), json, absl::IsInvalidArgument(points.status()) ? kExitUsage : kExitFailure);
  }
  return Print(json ? bench::KvBenchJson(*points) + "\n" : bench::KvBenchText(*points)) ? kExitOk : kExitFailure;
}

}  // namespace

Command BenchKvCommand() {
  return {
      .name = "bench kv",
      .summary = "measure how fast each transport moves a KV cache on this machine",
      .spec = {.summary = "Moves blocks of an 8B model's shape from one pool into another by each transport, with and without "
                          "checksums, beside what the same way carries at best: memcpy into the same memory for shm, a copy "
                          "on the device for cuda_ipc (where there is a GPU), a bare stream for tcp and grpc. Takes twice the "
                          "largest size in memory, and four times the last cache.",
               .examples = "  baton bench kv\n  baton bench kv --transport shm --sizes 64KiB,1MiB --json\n",
               .groups = {{"What", {"transport", "sizes", "rounds", "cuda_driver"}}, {"Output", {"json"}}}},
      .run = RunBenchKv,
  };
}

}  // namespace baton::cli
