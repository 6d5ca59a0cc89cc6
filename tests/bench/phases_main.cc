// SPDX-License-Identifier: Apache-2.0
// How fast the two phases are in this process, without an engine: prefill of n tokens, and decode steps of B conversations
// with contexts of c tokens. Best of several runs, so that a busy machine disturbs less.
//   phases [--model FILE] [--backend cpu] [--activations ...] [--isa NAME] [--threads N] [--repeat 5]
// For tests/bench/peers, which interleaves it with other programs: --json --cases '[{"name":..., "kind":"prefill", "n":512},
// {"name":..., "kind":"decode", "batch":8, "context":256}]' prints one object, name to best seconds.
#include <time.h>

#include <chrono>
#include <cstdio>
#include <numeric>
#include <random>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "common/backend/create_backend.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/model/forward.h"
#include "tests/support/golden.h"

ABSL_FLAG(std::string, model, "", "model file or folder; empty: SmolLM2 from the cache folder");
ABSL_FLAG(std::string, backend, "cpu", "see CreateBackend");
ABSL_FLAG(std::string, activations, "", "see CreateBackend");
ABSL_FLAG(std::string, matmul, "", "see CreateBackend");
ABSL_FLAG(std::string, isa, "", "see CreateBackend");
ABSL_FLAG(int, threads, 0, "threads; 0: all");
ABSL_FLAG(std::string, cases, "", "with --json: what to measure");
ABSL_FLAG(bool, json, false, "one JSON object on standard output");
ABSL_FLAG(int, repeat, 5, "runs of each, of which the best counts");

namespace baton::testing {
namespace {

using Clock = std::chrono::steady_clock;

// CPU time of this process: what one thread would take on a machine of its own, with --threads 1.
double CpuSeconds() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}
struct Times {
  double wall = 1e30;
  double cpu = 1e30;
};

double Seconds(Clock::time_point since) { return std::chrono::duration<double>(Clock::now() - since).count(); }

class Phases {
 public:
  Phases(const Model* model, Backend* backend) : model_(model), backend_(backend) {}

  // Seconds of one prefill of n tokens, in panels of 256 rows, no logits.
  absl::StatusOr<Times> Prefill(int n) {
    BATON_RETURN_IF_ERROR(Prepare(n, 1, n, 0));
    const std::vector<int32_t> tokens = Tokens(n);
    std::vector<int32_t> blocks(static_cast<size_t>(n / 16 + 1));
    std::iota(blocks.begin(), blocks.end(), 0);
    ModelInput input;
    input.AddSequence(tokens, 0, blocks, 16, 0);
    return Best(input);
  }

  // Seconds of one step of `batch` conversations, each with `context` tokens in its cache.
  absl::StatusOr<Times> Decode(int batch, int context) {
    BATON_RETURN_IF_ERROR(Prepare(batch, batch, context + 1, batch));
    const int blocks_each = context / 16 + 1;
    ModelInput input;
    const std::vector<int32_t> tokens = Tokens(batch);
    for (int s = 0; s < batch; ++s) {
      std::vector<int32_t> blocks(static_cast<size_t>(blocks_each));
      std::iota(blocks.begin(), blocks.end(), s * blocks_each);
      input.AddSequence(std::span(tokens).subspan(static_cast<size_t>(s), 1), context, blocks, 16, 1);
    }
    return Best(input);
  }

 private:
  std::vector<int32_t> Tokens(int n) const {
    std::mt19937 rng(1);
    std::vector<int32_t> tokens(static_cast<size_t>(n));
    for (int32_t& token : tokens) token = static_cast<int32_t>(rng() % static_cast<uint32_t>(model_->config().vocab_size));
    return tokens;
  }
  absl::Status Prepare(int rows, int sequences, int tokens_each, int logit_rows) {
    BATON_ASSIGN_OR_RETURN(pool_, KvPool::Create(model_->kv_layout(KvDtype::kF16, 16),
                                                 sequences * (tokens_each / 16 + 1), backend_));
    for (int l = 0; l < model_->config().num_layers; ++l) {  // Touch the pages.
      for (int b = 0; b < pool_->num_blocks(); ++b) std::fill(pool_->Cell(l, b).begin(), pool_->Cell(l, b).end(), 0);
    }
    BATON_ASSIGN_OR_RETURN(buffers_, ForwardBuffers::Create(*model_, rows, logit_rows));
    return absl::OkStatus();
  }
  Times Best(const ModelInput& input) {
    Times best;
    for (int i = 0; i < absl::GetFlag(FLAGS_repeat) + 1; ++i) {
      const auto start = Clock::now();
      const double cpu_start = CpuSeconds();
      ForwardPass pass(model_, pool_.get(), &input, buffers_.get(), 256);
      pass.Finish();
      if (i == 0) continue;  // Warms caches and the rotary table.
      best.wall = std::min(best.wall, Seconds(start));
      best.cpu = std::min(best.cpu, CpuSeconds() - cpu_start);
    }
    return best;
  }
  const Model* const model_;
  Backend* const backend_;
  std::unique_ptr<KvPool> pool_;
  std::unique_ptr<ForwardBuffers> buffers_;
};

// One number per case, in a list: the shape that a peer's driver gives for its repetitions.
absl::Status PrintJson(Phases* phases) {
  BATON_ASSIGN_OR_RETURN(const nlohmann::json cases, ParseJson(absl::GetFlag(FLAGS_cases)));
  nlohmann::json result = nlohmann::json::object();
  for (const nlohmann::json& c : cases) {
    BATON_ASSIGN_OR_RETURN(const Times t, c.value("kind", "") == "prefill"
                                              ? phases->Prefill(c.value("n", 1))
                                              : phases->Decode(c.value("batch", 1), c.value("context", 1)));
    result[c.value("name", "")] = {t.wall};
  }
  std::printf("%s\n", result.dump().c_str());
  return absl::OkStatus();
}

absl::Status Main() {
  std::string path = absl::GetFlag(FLAGS_model);
  if (path.empty()) path = FindSmolLm2().value_or("");
  if (path.empty()) return absl::NotFoundError("no SmolLM2 model file: deploy/fetch_model fetches it");
  BackendOptions options;
  options.num_threads = absl::GetFlag(FLAGS_threads);
  options.isa = absl::GetFlag(FLAGS_isa);
  options.activations = absl::GetFlag(FLAGS_activations);
  options.matmul = absl::GetFlag(FLAGS_matmul);
  BATON_ASSIGN_OR_RETURN(auto backend, CreateBackend(absl::GetFlag(FLAGS_backend), options));
  auto start = Clock::now();
  BATON_ASSIGN_OR_RETURN(auto checkpoint, Checkpoint::Open(path));
  const double open_s = Seconds(start);
  start = Clock::now();
  BATON_ASSIGN_OR_RETURN(auto model, Model::Load(checkpoint, backend.get()));
  Phases phases(model.get(), backend.get());
  if (absl::GetFlag(FLAGS_json)) return PrintJson(&phases);
  std::printf("%s, %s: open %.0f ms, pack %.0f ms, %.1f MB of weights\n", backend->description().c_str(),
              backend->numerics_id().c_str(), 1e3 * open_s, 1e3 * Seconds(start),
              static_cast<double>(model->weight_bytes()) / 1e6);
  for (const int n : {64, 512, 2048}) {
    BATON_ASSIGN_OR_RETURN(const Times t, phases.Prefill(n));
    std::printf("prefill n %4d: %7.1f ms, %7.0f tok/s (CPU %.1f ms)\n", n, 1e3 * t.wall, n / t.wall, 1e3 * t.cpu);
  }
  for (const auto& [batch, context] : {std::pair(1, 128), {1, 256}, {1, 2048}, {8, 256}, {32, 256}}) {
    BATON_ASSIGN_OR_RETURN(const Times t, phases.Decode(batch, context));
    std::printf("decode B %2d, c %4d: %6.2f ms, %7.0f tok/s (CPU %.2f ms)\n", batch, context, 1e3 * t.wall,
                batch / t.wall, 1e3 * t.cpu);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace baton::testing

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = baton::testing::Main();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
