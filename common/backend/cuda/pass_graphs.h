// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_BACKEND_CUDA_PASS_GRAPHS_H_
#define BATON_COMMON_BACKEND_CUDA_PASS_GRAPHS_H_

#include <cstddef>
#include <map>
#include <tuple>

#include "common/backend/backend.h"
#include "common/backend/cuda/cuda_context.h"

namespace baton::cuda {

// Of a pass's rows, whose tokens are chosen on the device; of the others the logits go to the host.
enum class Choosing { kNone, kSome, kAll };

// Decode steps as CUDA graphs: a pass of a shape runs directly the first time (what it needs is allocated then), is recorded the
// second time, and is one launch from then on. The engine's thread.
class PassGraphs {
 public:
  explicit PassGraphs(CudaContext* context) : context_(context) {}
  ~PassGraphs() { Forget(); }
  PassGraphs(const PassGraphs&) = delete;
  PassGraphs& operator=(const PassGraphs&) = delete;

  // `context_tokens`: what the pass's arrays and grids are made for, at least shape.longest_context.
  void Begin(const PassShape& shape, int context_tokens, Choosing choosing);
  // Runs what Begin found recorded; complete on return.
  void End(bool complete);
  bool open() const { return open_; }

  // Memory that recorded passes name has been replaced: they are dropped, a pass that is being recorded too.
  void Forget();

 private:
  struct Graph {
    bool recorded = false;
    CUgraphExec graph = nullptr;
  };
  using Key = std::tuple<int, int, const void*, const void*, Choosing>;
  static constexpr size_t kMaxGraphs = 256;

  CudaContext* const context_;
  std::map<Key, Graph> graphs_;
  bool open_ = false, recording_ = false;
  Key key_;
};

}  // namespace baton::cuda

#endif  // BATON_COMMON_BACKEND_CUDA_PASS_GRAPHS_H_
