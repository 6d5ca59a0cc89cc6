// SPDX-License-Identifier: Apache-2.0
// How right the serving path is: every golden prompt of SmolLM2 through the fp32 reference and through the CPU backend, and
// the table of what differs. Takes minutes; tests/unit/model runs a part of it.
//   accuracy [--activations mixed|one|two] [--kv f16] [--isa NAME] [--threads N] [--golden FILE]
//            [--reference_cache FILE]
#include <cstdio>
#include <fstream>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "common/base/status_macros.h"
#include "tests/bench/accuracy.h"

ABSL_FLAG(std::string, activations, "", "mixed, one or two terms (CreateBackend)");
ABSL_FLAG(std::string, kv, "f16", "KV cache type of the serving path: f32, f16 or bf16");
ABSL_FLAG(std::string, matmul, "", "see CreateBackend");
ABSL_FLAG(std::string, isa, "", "instruction set of the serving path");
ABSL_FLAG(int, threads, 0, "threads; 0: all");
ABSL_FLAG(std::string, golden, "", "other prompts, in the form of tests/golden/smollm2.json");
ABSL_FLAG(std::string, reference_cache, "", "file that keeps the reference's logits between runs");

namespace baton::testing {
namespace {

// The reference's logits of all cases: from `cache` when it has as many floats, else computed (and written there).
absl::StatusOr<std::vector<CaseLogits>> ReferenceLogits(std::shared_ptr<const Checkpoint> checkpoint,
                                                        const std::vector<GoldenCase>& cases, const std::string& cache) {
  std::vector<CaseLogits> reference(cases.size());
  const size_t vocab = static_cast<size_t>(checkpoint->config().vocab_size);
  if (std::ifstream file(cache, std::ios::binary); !cache.empty() && file) {
    for (size_t i = 0; i < cases.size(); ++i) {
      reference[i].assign(std::min<size_t>(cases[i].prompt_ids.size(), 512), std::vector<float>(vocab));
      for (auto& row : reference[i]) {
        file.read(reinterpret_cast<char*>(row.data()), static_cast<std::streamsize>(vocab * sizeof(float)));
      }
    }
    if (file) return reference;
  }
  LogitsProbeOptions options;
  options.backend = "reference";
  options.backend_options.num_threads = absl::GetFlag(FLAGS_threads);
  options.kv_dtype = KvDtype::kF32;
  BATON_ASSIGN_OR_RETURN(auto probe, LogitsProbe::Open(std::move(checkpoint), options));
  for (size_t i = 0; i < cases.size(); ++i) {
    std::fprintf(stderr, "reference: %s\n", cases[i].name.c_str());
    BATON_ASSIGN_OR_RETURN(reference[i], PromptLogits(probe.get(), cases[i]));
  }
  if (cache.empty()) return reference;
  std::ofstream file(cache, std::ios::binary);
  for (const CaseLogits& rows : reference) {
    for (const auto& row : rows) {
      file.write(reinterpret_cast<const char*>(row.data()), static_cast<std::streamsize>(vocab * sizeof(float)));
    }
  }
  return reference;
}

absl::Status Main() {
  const auto path = FindSmolLm2();
  if (!path.has_value()) return absl::NotFoundError("no SmolLM2 model file: deploy/fetch_model fetches it");
  BATON_ASSIGN_OR_RETURN(std::shared_ptr<const Checkpoint> checkpoint, Checkpoint::Open(*path));
  const std::vector<GoldenCase> cases = LoadSmolLm2Golden(absl::GetFlag(FLAGS_golden));
  BATON_ASSIGN_OR_RETURN(const std::vector<CaseLogits> reference,
                         ReferenceLogits(checkpoint, cases, absl::GetFlag(FLAGS_reference_cache)));
  LogitsProbeOptions options;
  options.backend_options.num_threads = absl::GetFlag(FLAGS_threads);
  options.backend_options.isa = absl::GetFlag(FLAGS_isa);
  options.backend_options.activations = absl::GetFlag(FLAGS_activations);
  options.backend_options.matmul = absl::GetFlag(FLAGS_matmul);
  BATON_ASSIGN_OR_RETURN(options.kv_dtype, ParseKvDtype(absl::GetFlag(FLAGS_kv)));
  BATON_ASSIGN_OR_RETURN(auto served, LogitsProbe::Open(checkpoint, options));
  BATON_ASSIGN_OR_RETURN(const AccuracyReport report, MeasureAccuracy(served.get(), cases, reference));
  std::printf("%s (%s), kv %s\n%s", served->backend().numerics_id().c_str(), served->backend().description().c_str(),
              KvDtypeName(options.kv_dtype), report.ToString().c_str());
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
