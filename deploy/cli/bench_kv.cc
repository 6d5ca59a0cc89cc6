// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/base/quantity.h"
#include "common/base/status_macros.h"
#include "deploy/bench_kv/kv_bench.h"
#include "deploy/bench_kv/kv_bench_report.h"
#include "deploy/cli/command.h"
#include "deploy/cli/flags.h"

ABSL_FLAG(std::string, sizes, "64KiB,256KiB,1MiB,4MiB,16MiB,64MiB,256MiB,1GiB", "Sizes of the transfers, separated by commas.");
ABSL_FLAG(int, rounds, 9, "Measurements per size; more for small ones, fewer for large ones.");

namespace baton::cli {
namespace {

absl::StatusOr<bench::KvBenchOptions> ReadFlags() {
  bench::KvBenchOptions options;
  const std::string transport = absl::GetFlag(FLAGS_transport);
  auto kinds = ParseTransportFlag(transport);
  if (!kinds.ok()) return Annotate(kinds.status(), "--transport");
  options.kinds = *std::move(kinds);
  std::erase_if(options.kinds, [](TransportKind kind) { return TransportOf(kind).needs_device; });
  if (options.kinds.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("--transport ", transport, " moves memory of a GPU, which is not measured here"));
  }
  for (absl::string_view text : absl::StrSplit(absl::GetFlag(FLAGS_sizes), ',', absl::SkipWhitespace())) {
    auto bytes = ParseBytes(text);
    if (!bytes.ok()) return Annotate(bytes.status(), "--sizes");
    options.sizes.push_back(*bytes);
  }
  options.rounds = absl::GetFlag(FLAGS_rounds);
  return options;
}

int RunBenchKv(const ConfigResult&) {
  const bool json = absl::GetFlag(FLAGS_json);
  const auto options = ReadFlags();
  if (!options.ok()) return Fail("bench kv", options.status(), json, kExitUsage);
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
                          "checksums, beside what the same way carries at best: memcpy into the same memory for shm, a bare "
                          "stream for tcp and grpc. Takes twice the largest size in memory.",
               .examples = "  baton bench kv\n  baton bench kv --transport shm --sizes 64KiB,1MiB --json\n",
               .groups = {{"What", {"transport", "sizes", "rounds"}}, {"Output", {"json"}}}},
      .run = RunBenchKv,
  };
}

}  // namespace baton::cli
