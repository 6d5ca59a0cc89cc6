// SPDX-License-Identifier: Apache-2.0
// How fast the two phases are in this process, without an engine: prefill of n tokens, and decode steps of B conversations
// with contexts of c tokens. Best of several runs, so that a busy machine disturbs less.
//   phases [--model FILE] [--backend cpu] [--activations ...] [--isa NAME] [--threads N] [--repeat 5] [--cache_dir DIR]
// With --serve it is measured by tests/bench/run instead (driver.h).
#include <algorithm>
#include <chrono>
#include <cstdio>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "common/backend/create_backend.h"
#include "common/base/status_macros.h"
#include "common/model/work.h"
#include "tests/bench/driver.h"
#include "tests/bench/phases.h"
#include "tests/support/golden.h"

ABSL_FLAG(std::string, model, "", "model file or folder; empty: SmolLM2 from the cache folder");
ABSL_FLAG(std::string, backend, "cpu", "see CreateBackend");
ABSL_FLAG(std::string, activations, "", "see CreateBackend");
ABSL_FLAG(std::string, matmul, "", "see CreateBackend");
ABSL_FLAG(std::string, isa, "", "see CreateBackend");
ABSL_FLAG(std::string, cache_dir, "", "see CreateBackend");
ABSL_FLAG(std::string, kv_dtype, "f16", "f32, f16, bf16 or int8");
ABSL_FLAG(int, threads, 0, "threads; 0: all");
ABSL_FLAG(bool, serve, false, "answer cases on standard input");
ABSL_FLAG(int, repeat, 5, "runs of each, of which the best counts");

namespace baton::bench {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

double Seconds(Clock::time_point since) { return std::chrono::duration<double>(Clock::now() - since).count(); }

json PeaksJson(const MachinePeaks& peaks) {
  return {{"int8_ops", peaks.int8_ops},     {"bf16_flops", peaks.bf16_flops}, {"fp32_flops", peaks.fp32_flops},
          {"read_bytes", peaks.read_bytes}, {"matmul_ops", peaks.matmul_ops}, {"matmul_format", peaks.matmul_format},
          {"attention_format", peaks.attention_format}};
}

absl::StatusOr<json> Measure(const Model& model, Backend* backend, Phases* phases, const json& c) {
  const std::string kind = c.value("kind", "");
  if (kind == "calibrate") return json{{"peaks", PeaksJson(backend->MeasurePeaks(model.matrices()))}};
  absl::StatusOr<std::vector<RunTime>> times;
  if (kind == "prefill") {
    times = phases->Prefill(c.value("n", 1), c.value("repeat", 1));
  } else if (kind == "attention") {
    times = phases->Attention(c.value("n", 1), c.value("repeat", 1));
  } else if (kind == "decode") {
    times = phases->Decode(c.value("batch", 1), c.value("context", 1), c.value("steps", 1));
  } else {
    return absl::InvalidArgumentError(absl::StrCat("kind \"", kind, "\" is none of calibrate, prefill, attention, decode"));
  }
  BATON_RETURN_IF_ERROR(times.status());
  json seconds = json::array();
  for (const RunTime& time : *times) seconds.push_back(time.wall);
  return json{{"seconds", seconds}};
}

json About(const Model& model, Backend* backend, KvDtype kv_dtype) {
  const ModelWork work = WorkOf(model, model.kv_layout(kv_dtype, 16));
  return {{"description", backend->description()},
          {"numerics", backend->numerics_id()},
          {"block_weights", work.block_weights},
          {"head_weights", work.head_weights},
          {"attention_ops_per_pair", work.attention_ops_per_pair},
          {"num_layers", model.config().num_layers},
          {"block_bytes", work.block_bytes},
          {"head_bytes", work.head_bytes},
          {"kv_bytes_per_token", work.kv_bytes_per_token}};
}

RunTime Best(const std::vector<RunTime>& times) {
  RunTime best = times.front();
  for (const RunTime& time : times) best = {std::min(best.wall, time.wall), std::min(best.cpu, time.cpu)};
  return best;
}

absl::Status PrintAll(Phases* phases) {
  const int repeat = std::max(1, absl::GetFlag(FLAGS_repeat));
  for (const int n : {64, 512, 2048}) {
    BATON_ASSIGN_OR_RETURN(const auto times, phases->Prefill(n, repeat));
    const RunTime t = Best(times);
    std::printf("prefill n %4d: %7.1f ms, %7.0f tok/s (CPU %.1f ms)\n", n, 1e3 * t.wall, n / t.wall, 1e3 * t.cpu);
  }
  for (const auto& [batch, context] : {std::pair(1, 128), {1, 256}, {1, 2048}, {8, 256}, {32, 256}}) {
    BATON_ASSIGN_OR_RETURN(const auto times, phases->Decode(batch, context, repeat));
    const RunTime t = Best(times);
    std::printf("decode B %2d, c %4d: %6.2f ms, %7.0f tok/s (CPU %.2f ms)\n", batch, context, 1e3 * t.wall,
                batch / t.wall, 1e3 * t.cpu);
  }
  return absl::OkStatus();
}

absl::Status Main() {
  std::string path = absl::GetFlag(FLAGS_model);
  if (path.empty()) path = testing::FindSmolLm2().value_or("");
  if (path.empty()) return absl::NotFoundError("no SmolLM2 model file: deploy/fetch_model fetches it");
  BackendOptions options;
  options.num_threads = absl::GetFlag(FLAGS_threads);
  options.isa = absl::GetFlag(FLAGS_isa);
  options.activations = absl::GetFlag(FLAGS_activations);
  options.matmul = absl::GetFlag(FLAGS_matmul);
  options.cache_dir = absl::GetFlag(FLAGS_cache_dir);
  BATON_ASSIGN_OR_RETURN(auto backend, CreateBackend(absl::GetFlag(FLAGS_backend), options));
  auto start = Clock::now();
  BATON_ASSIGN_OR_RETURN(auto checkpoint, Checkpoint::Open(path));
  const double open_s = Seconds(start);
  start = Clock::now();
  BATON_ASSIGN_OR_RETURN(auto model, Model::Load(checkpoint, backend.get()));
  const double pack_s = Seconds(start);
  BATON_ASSIGN_OR_RETURN(const KvDtype kv_dtype, ParseKvDtype(absl::GetFlag(FLAGS_kv_dtype)));
  Phases phases(model.get(), backend.get(), kv_dtype);
  if (absl::GetFlag(FLAGS_serve)) {
    ServeCases(About(*model, backend.get(), kv_dtype), [&](const json& c) { return Measure(*model, backend.get(), &phases, c); });
    return absl::OkStatus();
  }
  std::printf("%s, %s: open %.0f ms, pack %.0f ms, %.1f MB of weights\n", backend->description().c_str(),
              backend->numerics_id().c_str(), 1e3 * open_s, 1e3 * pack_s, static_cast<double>(model->weight_bytes()) / 1e6);
  return PrintAll(&phases);
}

}  // namespace
}  // namespace baton::bench

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = baton::bench::Main();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
