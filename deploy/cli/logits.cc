// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/model/logits_probe.h"
#include "deploy/cli/command.h"
#include "deploy/cli/flags.h"

namespace baton::cli {
namespace {

// The shortest text that reads back as `value`.
template <class Number>
void AppendNumber(Number value, std::string* out) {
  if (!std::isfinite(value)) {
    out->append("null");
    return;
  }
  char buffer[32];
  out->append(buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr);
}

// The `count` largest as pairs, largest first; equal ones by id.
std::vector<int> LargestIds(std::span<const float> logits, int count) {
  std::vector<int> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto middle = ids.begin() + std::min<size_t>(count, ids.size());
  std::partial_sort(ids.begin(), middle, ids.end(), [logits](int a, int b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  ids.erase(middle, ids.end());
  return ids;
}

double LogSumExp(std::span<const float> logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  return largest + std::log(sum);
}

// Writes what the probe reports, a position at a time: all of a long prompt's logits would not fit in memory.
class Output {
 public:
  Output(bool json, bool all, int top, FILE* raw) : json_(json), all_(all), top_(top), raw_(raw) {}

  // False when something could not be written.
  bool Position(int position, std::span<const float> logits) {
    if (raw_ != nullptr && std::fwrite(logits.data(), sizeof(float), logits.size(), raw_) != logits.size()) return false;
    AppendTop(position, logits);
    if (!json_) return true;
    if (!log_sum_exp_.empty()) log_sum_exp_ += ',';
    AppendNumber(LogSumExp(logits), &log_sum_exp_);
    if (raw_ != nullptr) return true;
    std::string text = positions_ == 0 ? (all_ ? "{\"logits\":[[" : "{\"logits\":[") : ",[";
    for (size_t i = 0; i < logits.size(); ++i) {
      if (i > 0) text += ',';
      AppendNumber(logits[i], &text);
    }
    text += ']';
    ++positions_;
    return std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  }

  bool Finish() {
    if (raw_ != nullptr && std::fflush(raw_) != 0) return false;
    if (!json_) return raw_ != nullptr || Print(top_text_);
    std::string text = raw_ != nullptr ? "{" : all_ ? "]," : ",";
    if (top_ > 0) absl::StrAppend(&text, "\"top\":", all_ ? "[" : "", top_text_, all_ ? "]," : ",");
    absl::StrAppend(&text, "\"log_sum_exp\":", all_ ? "[" : "", log_sum_exp_, all_ ? "]}\n" : "}\n");
    return Print(text);
  }

 private:
  void AppendTop(int position, std::span<const float> logits) {
    if (!json_) {
      for (const int id : LargestIds(logits, top_ > 0 ? top_ : 10)) {
        absl::StrAppendFormat(&top_text_, "position %d  token %-8d %.4f\n", position, id, logits[id]);
      }
      return;
    }
    if (top_ <= 0) return;
    absl::StrAppend(&top_text_, top_text_.empty() ? "[" : ",[");
    bool first = true;
    for (const int id : LargestIds(logits, top_)) {
      absl::StrAppend(&top_text_, first ? "[" : ",[", id, ",");
      AppendNumber(logits[id], &top_text_);
      top_text_ += ']';
      first = false;
    }
    top_text_ += ']';
  }

  const bool json_, all_;
  const int top_;
  FILE* const raw_;
  int positions_ = 0;
  std::string top_text_;
  std::string log_sum_exp_;
};

absl::StatusOr<LogitsProbeOptions> OptionsFromFlags(const ConfigResult& config) {
  LogitsProbeOptions options;
  if (const int top = absl::GetFlag(FLAGS_top); top < 0) {
    return absl::InvalidArgumentError(absl::StrCat("--top ", top, " is under 0"));
  }
  options.backend_options.num_threads = absl::GetFlag(FLAGS_threads);
  if (options.backend_options.num_threads < 0) {
    return absl::InvalidArgumentError(absl::StrCat("--threads ", options.backend_options.num_threads, " is under 0"));
  }
  options.backend_options.isa = absl::GetFlag(FLAGS_isa);
  options.backend_options.activations = absl::GetFlag(FLAGS_activations);
  std::string dtype = absl::GetFlag(FLAGS_kv_dtype);
  if (absl::GetFlag(FLAGS_reference)) {
    options.backend = "reference";
    options.backend_options.isa.clear();
    options.backend_options.activations.clear();
    if (config.sources.at("kv_dtype") == ConfigSource::kDefault) dtype = "f32";
  }
  const absl::StatusOr<KvDtype> kv_dtype = ParseKvDtype(dtype);
  if (!kv_dtype.ok()) return absl::InvalidArgumentError(absl::StrCat("--kv-dtype ", dtype, " is none of f16, bf16, int8, f32"));
  options.kv_dtype = *kv_dtype;
  if (const int rows = absl::GetFlag(FLAGS_chunk_tokens); config.sources.at("chunk_tokens") != ConfigSource::kDefault) {
    if (rows < 1) return absl::InvalidArgumentError(absl::StrCat("--chunk-tokens ", rows, " is under 1"));
    options.chunk_tokens = rows;
    options.panel_rows = rows;
  }
  return options;
}

absl::Status ComputeLogits(const LogitsProbeOptions& options, const std::vector<int>& ids, FILE* raw) {
  BATON_ASSIGN_OR_RETURN(const std::unique_ptr<LogitsProbe> probe, LogitsProbe::Open(absl::GetFlag(FLAGS_model), options));
  const bool all = absl::GetFlag(FLAGS_all);
  Output output(absl::GetFlag(FLAGS_json), all, absl::GetFlag(FLAGS_top), raw);
  bool written = true;
  BATON_RETURN_IF_ERROR(probe->Run(ids, all ? 0 : static_cast<int>(ids.size()) - 1,
                                   [&](int position, std::span<const float> logits) {
                                     written = written && output.Position(position, logits);
                                   }));
  if (!written || !output.Finish()) return absl::UnavailableError("the logits cannot be written");
  return absl::OkStatus();
}

int RunLogits(const ConfigResult& config) {
  const bool json = absl::GetFlag(FLAGS_json);
  const auto ids = ParseIntList("--prompt-ids", absl::GetFlag(FLAGS_prompt_ids));
  if (!ids.ok()) return Fail("logits", ids.status(), json, kExitUsage);
  const auto options = OptionsFromFlags(config);
  if (!options.ok()) return Fail("logits", options.status(), json, kExitUsage);
  FILE* raw = nullptr;
  if (const std::string path = absl::GetFlag(FLAGS_raw); !path.empty()) {
    raw = std::fopen(path.c_str(), "wb");
    if (raw == nullptr) return Fail("logits", absl::NotFoundError("--raw " + path + ": cannot be written"), json);
  }
  absl::Status status = ComputeLogits(*options, *ids, raw);
  if (raw != nullptr && std::fclose(raw) != 0) status.Update(absl::UnavailableError("the logits cannot be written"));
  return status.ok() ? kExitOk : Fail("logits", status, json);
}

}  // namespace

Command LogitsCommand() {
  return {
      .name = "logits",
      .summary = "compute a model's logits in this process",
      .spec = {.summary = "Runs a model over token ids, without a cluster, and shows the logits after the last one (with --all "
                          "after each). JSON: 'logits' is the whole vector, 'top' the largest as pairs, 'log_sum_exp'. --raw "
                          "writes the vectors as little-endian fp32 instead.",
               .examples = "  baton logits --model model.gguf --prompt-ids 504,3575,282 --top 5\n"
                           "  baton logits --model folder/ --prompt-ids 1,2,3 --reference --all --raw logits.f32\n",
               .groups = {{"Model", {"model", "prompt_ids"}},
                          {"Compute", {"reference", "threads", "isa", "activations", "kv_dtype", "chunk_tokens"}},
                          {"Output", {"all", "top", "raw", "json"}}},
               .required = {"model", "prompt_ids"}},
      .run = RunLogits,
  };
}

}  // namespace baton::cli
