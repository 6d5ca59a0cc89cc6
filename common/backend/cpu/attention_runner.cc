// SPDX-License-Identifier: Apache-2.0
#include "common/backend/cpu/attention_runner.h"

#include <algorithm>
#include <cmath>

namespace baton::cpu {

FloatType KvFloatType(KvDtype dtype) {
  switch (dtype) {
    case KvDtype::kF32:
      return FloatType::kF32;
    case KvDtype::kF16:
      return FloatType::kF16;
    case KvDtype::kInt8:
      return FloatType::kI8;
    case KvDtype::kBf16:
      break;
  }
  return FloatType::kBf16;
}

absl::Status AttentionRunner::Reserve(const LayerShape& shape, int max_rows) {
  const int group = shape.num_heads / shape.num_kv_heads;
  const size_t most_tasks = static_cast<size_t>(max_rows) * static_cast<size_t>(shape.num_kv_heads);
  tasks_.reserve(std::max(tasks_.capacity(), most_tasks));
  return linear_.ReserveThreadScratch(AttentionScratchBytes(shape.head_dim, group, std::min(max_rows, kRowsPerTask)));
}

void AttentionRunner::PlanTasks(const LayerShape& shape, const StepRows& rows) {
  tasks_.clear();
  merges_.clear();
  num_partials_ = 0;
  const int64_t partial_floats = AttentionPartialFloats(shape.head_dim) * (shape.num_heads / shape.num_kv_heads);
  // With few rows the KV heads alone do not keep the threads evenly busy: long contexts are then cut as well.
  const bool cut = rows.num_rows * shape.num_kv_heads < 8 * pool_.num_threads() && pool_.num_threads() > 1;
  for (int s = 0; s < rows.num_sequences; ++s) {
    const int first = rows.query_starts[s];
    const int num_rows = rows.query_starts[s + 1] - first;
    if (num_rows == 0) continue;
    const int num_splits = rows.positions[first] / kContextSplit + 1;
    if (cut && num_rows == 1 && num_splits > 1) {
      for (int h = 0; h < shape.num_kv_heads; ++h) {
        merges_.push_back({s, h, 0, num_splits, num_partials_});
        for (int split = 0; split < num_splits; ++split, num_partials_ += partial_floats) {
          tasks_.push_back({s, h, 0, 1, split, num_partials_});
        }
      }
      continue;
    }
    for (int end = num_rows; end > 0; end -= kRowsPerTask) {  // Late rows see more: they go first.
      const int begin = std::max(0, end - kRowsPerTask);
      for (int h = 0; h < shape.num_kv_heads; ++h) tasks_.push_back({s, h, begin, end, -1, 0});
    }
  }
  if (static_cast<size_t>(num_partials_) > partials_.size()) partials_.resize(static_cast<size_t>(num_partials_));
}

AttentionArgs AttentionRunner::ArgsFor(const LayerShape& shape, const StepRows& rows, int sequence, const float* q,
                                       const KvLayerView& kv, float* attention) const {
  const int first = rows.query_starts[sequence];
  const int64_t width = static_cast<int64_t>(shape.num_heads) * shape.head_dim;
  AttentionArgs args = {};
  args.q = q + first * width;
  args.ldq = width;
  args.out = attention + first * width;
  args.ldo = width;
  args.first_position = rows.positions[first];
  args.block_table = rows.block_tables[sequence];
  args.k = kv.k;
  args.v = kv.v;
  args.block_stride = static_cast<int64_t>(kv.block_stride);
  args.block_size = kv.block_size;
  args.kv_type = KvFloatType(kv.dtype);
  args.num_heads = shape.num_heads;
  args.num_kv_heads = shape.num_kv_heads;
  args.head_dim = shape.head_dim;
  args.scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
  return args;
}

AttentionAhead AttentionRunner::Ahead(const StepRows& rows, int64_t index) const {
  if (index >= static_cast<int64_t>(tasks_.size())) return {};
  const Task& task = tasks_[static_cast<size_t>(index)];
  const int64_t first_key = task.split < 0 ? 0 : static_cast<int64_t>(task.split) * kContextSplit;
  if (first_key > 0) return {};  // Begins in the middle of a context: rare, and long enough not to matter.
  const int last_row = rows.query_starts[task.sequence] + task.row_end - 1;
  return {rows.block_tables[task.sequence], rows.positions[last_row] + int64_t{1}, task.kv_head};
}

void AttentionRunner::Run(const LayerShape& shape, const StepRows& rows, const float* q, const KvLayerView& kv,
                          float* attention) {
  PlanTasks(shape, rows);
  const int group = shape.num_heads / shape.num_kv_heads;
  const int64_t head_floats = AttentionPartialFloats(shape.head_dim);
  pool_.ParallelFor(static_cast<int64_t>(tasks_.size()), [&](int64_t i, int thread) {
    const Task& task = tasks_[static_cast<size_t>(i)];
    AttentionArgs args = ArgsFor(shape, rows, task.sequence, q, kv, attention);
    args.ahead = Ahead(rows, i + pool_.num_threads());  // Which is likely to be this thread's.
    uint8_t* scratch = linear_.thread_scratch(thread);
    if (task.split < 0) {
      kernels_.attention_rows(args, task.kv_head, task.row_begin, task.row_end, scratch);
    } else {
      kernels_.attention_split(args, task.kv_head, task.row_begin, task.split, partials_.data() + task.partial,
                               head_floats, scratch);
    }
  });
  // A merge is a few thousand operations: not worth waking the threads again.
  for (const Merge& merge : merges_) {
    const AttentionArgs args = ArgsFor(shape, rows, merge.sequence, q, kv, attention);
    for (int h = 0; h < group; ++h) {
      float* out = args.out + merge.row * args.ldo + (merge.kv_head * group + h) * shape.head_dim;
      kernels_.attention_merge(partials_.data() + merge.partial + h * head_floats, group * head_floats,
                               merge.num_splits, shape.head_dim, out);
    }
  }
}

}  // namespace baton::cpu
