// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_ENGINE_BATCH_H_
#define BATON_COMMON_ENGINE_BATCH_H_

#include <memory>
#include <optional>
#include <vector>

#include "common/engine/sequence.h"
#include "common/kv/block_allocator.h"
#include "common/model/forward.h"

namespace baton {

// The sequences of one forward pass, its flattened input, and the pass itself, which can pause. A sequence that ends while
// the pass is under way leaves its blocks here: the pass goes on to write and read them. Engine thread only.
class Batch {
 public:
  struct Entry {
    std::shared_ptr<Request> request;
    Sequence* sequence = nullptr;  // Null when it has ended.
    int begin = 0, end = 0;        // Positions of its rows.
    bool decode = false;           // One row, whose logits are wanted.
    int num_logits = 0;            // Rows whose logits are wanted: the one, all of a prefill's, or none.
    bool chosen = false;           // Of the one, the backend has chosen the token.
  };

  // `buffers` is the batch's own.
  Batch(const Model* model, const KvPool* pool, BlockAllocator* blocks, std::unique_ptr<ForwardBuffers> buffers,
        int panel_rows);

  // ---- Building, while not active. Decode rows before prefill rows.
  void AddDecode(Sequence* sequence);
  void AddPrefill(Sequence* sequence, int num_tokens, bool with_logits);
  int num_rows() const { return input_.num_rows(); }
  int num_logit_rows() const { return static_cast<int>(input_.logit_rows.size()); }

  // ---- Under way: from Start to Take.
  void Start();
  bool active() const { return pass_.has_value(); }
  // Runs the next unit; true while more is left.
  bool Advance();
  // Layers whose KV is complete for all rows.
  int layers_complete() const { return pass_->layers_complete(); }
  // Of the last layer, the first rows, whose KV is there while it is under way.
  int last_layer_rows() const;
  int layers_reported = 0, last_layer_rows_reported = 0;  // But for the last layer, and of it.
  std::vector<Entry>& entries() { return entries_; }
  // The sequence has ended. Its blocks, taken from its table, are released when the pass has ended; when no live sequence is
  // left, that is now.
  void Drop(Sequence* sequence);
  absl::Duration busy_time = absl::ZeroDuration();

  // Ends the pass: the sequences are no longer in it, and what ended ones left is released. All entries in order, also those
  // of ended sequences; they have num_logits rows of logits each, in their order, until the next Start.
  std::vector<Entry> Take();
  const float* logits(int row) const;
  // Of an entry whose token was chosen: -1 where a logit was not finite.
  int32_t token(int row) const { return buffers_->tokens()[row]; }

 private:
  void Reset();
  // Who chooses the tokens, where the backend can.
  void MakeChoices();

  const Model* model_;
  const KvPool* pool_;
  BlockAllocator* blocks_;
  std::unique_ptr<ForwardBuffers> buffers_;
  int panel_rows_;
  ModelInput input_;
  std::optional<ForwardPass> pass_;
  int rows_of_layer_ = 0;  // That the pass is through with, of the layer it is in.
  std::vector<Entry> entries_;
  int num_live_ = 0;
  std::vector<BlockId> held_;
};

}  // namespace baton

#endif  // BATON_COMMON_ENGINE_BATCH_H_
