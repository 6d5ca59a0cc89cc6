// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_COMMON_ENGINE_ENGINE_H_
#define BATON_COMMON_ENGINE_ENGINE_H_

#include <functional>
#include <memory>
#include <string>

#include "common/engine/engine_core.h"

namespace baton {

// The engine thread. RPC and transport threads only enqueue closures; they run on the engine thread between steps and at
// the pauses of a forward pass, in order.
class Engine {
 public:
  Engine(std::unique_ptr<EngineCore> core, std::string thread_name, size_t inbox_capacity = 4096);
  // As Stop.
  ~Engine();
  // Ends and joins the thread; queued closures that were not run are destroyed, later ones are refused. Idempotent. What
  // closures and sinks refer to must live until it has returned. Not on the engine thread.
  void Stop();

  using Task = std::function<void(EngineCore&)>;
  // For new work. False, with nothing run, when the inbox is full or the engine is stopped. Any thread.
  [[nodiscard]] bool TryPost(Task task);
  // For what releases something (cancel, stop, end of a call, frame bookkeeping), bounded by what was admitted before.
  // False only when stopped. Any thread.
  bool Post(Task task);

  // Snapshot published after every step and at least every 100 ms while idle. Any thread.
  EngineStats stats() const;
  // Increases with every turn of the engine's loop, idle or not: a watchdog sees a stuck engine. Any thread.
  uint64_t heartbeat() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton

#endif  // BATON_COMMON_ENGINE_ENGINE_H_
