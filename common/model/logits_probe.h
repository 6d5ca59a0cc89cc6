// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_MODEL_LOGITS_PROBE_H_
#define BATON_COMMON_MODEL_LOGITS_PROBE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/backend/create_backend.h"
#include "common/kv/kv_layout.h"
#include "common/model/forward.h"
#include "common/model/model.h"

namespace baton {

struct LogitsProbeOptions {
  std::string backend = "cpu";  // See CreateBackend.
  BackendOptions backend_options;
  KvDtype kv_dtype = KvDtype::kF16;
  int block_size = 16;
  int chunk_tokens = 256;  // Rows per forward pass.
  int panel_rows = 256;    // Rows per unit of a pass.
};

// A model in this process without an engine around it, for looking inside: token ids in, logits out. What `baton logits`
// prints, and what the accuracy tests run. One thread at a time.
class LogitsProbe {
 public:
  //   Checkpoint::Open's, CreateBackend's and Model::Load's errors.
  static absl::StatusOr<std::unique_ptr<LogitsProbe>> Open(absl::string_view path, const LogitsProbeOptions& options);
  static absl::StatusOr<std::unique_ptr<LogitsProbe>> Open(std::shared_ptr<const Checkpoint> checkpoint,
                                                           const LogitsProbeOptions& options);

  // Called once per position, in order; logits [vocab_size] is valid during the call.
  using Sink = std::function<void(int position, std::span<const float> logits)>;

  // Feeds `tokens` (positions 0 ... n - 1) and reports the logits of the positions from `first_logits` on. first_logits =
  // n - 1 gives the last alone, 0 all.
  //   INVALID_ARGUMENT    no tokens, more than the model's context, a token id outside the vocabulary (names its place), or
  //                       first_logits outside [0, n).
  //   RESOURCE_EXHAUSTED  the KV cache of so many tokens.
  absl::Status Run(std::span<const int32_t> tokens, int first_logits, const Sink& sink);

  const Model& model() const { return *model_; }
  Backend& backend() { return *backend_; }
  // The KV cache of the last Run; position p lies in block p / block_size. Null before the first Run.
  const KvPool* pool() const { return pool_.get(); }

 private:
  LogitsProbe() = default;
  absl::Status Validate(std::span<const int32_t> tokens, int first_logits) const;
  absl::Status ReservePool(int num_tokens);

  LogitsProbeOptions options_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<KvPool> pool_;
  std::unique_ptr<ForwardBuffers> buffers_;
};

}  // namespace baton

#endif  // BATON_COMMON_MODEL_LOGITS_PROBE_H_
