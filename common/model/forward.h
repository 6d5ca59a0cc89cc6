// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_MODEL_FORWARD_H_
#define BATON_COMMON_MODEL_FORWARD_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "common/backend/backend.h"
#include "common/kv/kv_pool.h"
#include "common/model/model.h"

namespace baton {

// The flattened arrays of one step, owned. Built by the engine from a Batch. Rows of a sequence are consecutive positions,
// ascending; every block table reaches the sequence's last row.
struct ModelInput {
  std::vector<int32_t> token_ids, positions, slots;  // [num_rows]
  std::vector<int32_t> query_starts;                 // [num_sequences + 1]
  std::vector<std::vector<int32_t>> block_tables;    // [num_sequences]
  std::vector<int32_t> logit_rows;                   // Rows whose logits are wanted, ascending.
  std::vector<TokenChoice> choices;  // Of each of them, where the backend chooses tokens; none: their logits go to the host.

  int num_rows() const { return static_cast<int>(token_ids.size()); }
  int num_sequences() const { return static_cast<int>(block_tables.size()); }
  // Empties every array and keeps the memory.
  void Clear();
  // Appends one sequence: tokens[i] at position first_position + i, K and V to the blocks of `block_table`. Logits of the
  // last `num_logits` rows are wanted.
  void AddSequence(std::span<const int32_t> tokens, int first_position, std::span<const int32_t> block_table,
                   int block_size, int num_logits);
};

// Memory of a step in flight, reused between steps: no allocation while serving. Two passes that are in flight at once (a
// prefill chunk that pauses for a decode step) have one each.
class ForwardBuffers {
 public:
  //   RESOURCE_EXHAUSTED  names the size.
  static absl::StatusOr<std::unique_ptr<ForwardBuffers>> Create(const Model& model, int max_rows, int max_logit_rows);
  int max_rows() const { return max_rows_; }
  int max_logit_rows() const { return max_logit_rows_; }
  // [num logit rows, vocab_size], valid after a pass is done and until the next one begins.
  const float* logits() const { return logits_; }
  // [num logit rows], likewise, of a pass with choices.
  const int32_t* tokens() const { return tokens_; }

 private:
  friend class ForwardPass;
  ForwardBuffers() = default;
  int max_rows_ = 0;
  int max_logit_rows_ = 0;
  std::shared_ptr<uint8_t[]> memory_, logits_memory_, tokens_memory_;
  float* x_ = nullptr;          // [max_rows, hidden]: the residual stream of all rows.
  float* q_ = nullptr;          // [max_rows, num_heads head_dim]: of the panel in flight.
  float* attention_ = nullptr;  // [max_rows, num_heads head_dim]: of the panel in flight.
  float* logits_ = nullptr;     // [max_logit_rows, vocab_size]
  int32_t* tokens_ = nullptr;   // [max_logit_rows]
};

// One step of the model over one input, resumable: each Advance runs one (layer, row panel) unit and returns, so that the
// engine can serve its inbox, or run a decode step with other buffers, in between. Rows of a panel see the KV of earlier
// panels of the same layer, so panels of a layer run in order. How a pass is cut into panels changes no bit of its result.
//
// The last layer computes keys and values for all rows, and the rest only where logits follow from it.
//
// Engine thread only.
class ForwardPass {
 public:
  // `input` and the rest outlive the pass. 1 <= input->num_rows() <= buffers->max_rows(), logit rows likewise;
  // panel_rows >= 1.
  ForwardPass(const Model* model, const KvPool* pool, const ModelInput* input, ForwardBuffers* buffers, int panel_rows);
  ~ForwardPass();
  ForwardPass(const ForwardPass&) = delete;
  ForwardPass& operator=(const ForwardPass&) = delete;

  // Runs the next unit. True while more is left. The embedding belongs to the first unit, the head to the last.
  bool Advance();
  // Advance until done.
  void Finish() {
    while (Advance()) {
    }
  }
  bool done() const { return done_; }

  // Layers [0, layers_complete()) are written to the KV pool for all rows.
  int layers_complete() const { return layer_; }

 private:
  void TellBackend();
  // Panel [row_begin, row_end) as the backend sees it; its arrays stay valid until the next call.
  StepRows Slice(int row_begin, int row_end);
  void RunPanel(int layer, int row_begin, int row_end);
  void RunHead();

  const Model* const model_;
  const KvPool* const pool_;
  const ModelInput* const input_;
  ForwardBuffers* const buffers_;
  const int panel_rows_;
  int layer_ = 0;
  int row_ = 0;
  bool done_ = false;
  bool told_ = false;  // The backend, of the pass as a whole.
  std::vector<int32_t> slice_query_starts_;
  std::vector<const int32_t*> slice_block_tables_;
};

}  // namespace baton

#endif  // BATON_COMMON_MODEL_FORWARD_H_
