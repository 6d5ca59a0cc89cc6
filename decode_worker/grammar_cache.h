// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_DECODE_WORKER_GRAMMAR_CACHE_H_
#define BATON_DECODE_WORKER_GRAMMAR_CACHE_H_

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "baton/internal/decode.pb.h"
#include "common/base/bounded_queue.h"
#include "common/base/mutex.h"
#include "common/base/thread.h"
#include "common/grammar/grammar.h"

namespace baton {

// The grammars of the answer formats that were asked for last, with the masks they have worked out. What is not there is compiled on
// a thread of its own: that takes milliseconds, which the streams of others would wait on a gRPC thread. Thread-safe.
class GrammarCache {
 public:
  // Each has up to about 10 MB: kMaxSchemaBytes of text, the program, Grammar's states and masks.
  static constexpr size_t kMaxGrammars = 16;
  static constexpr size_t kMaxCompiling = 256;  // Formats that wait to be compiled, of up to kMaxSchemaBytes each.
  using Then = std::function<void(absl::StatusOr<std::shared_ptr<Grammar>>)>;

  // `tokens` null: the model has no tokenizer.
  GrammarCache(std::shared_ptr<const TokenTrie> tokens, bool first_token_loses_spaces);
  // As Stop.
  ~GrammarCache() { Stop(); }

  // Calls `then` once, unless Stop comes before: within Get where nothing has to be compiled, else on the compiling thread. Null for a
  // format that allows anything.
  //   INVALID_ARGUMENT    as CompileJsonSchema, or the model has no tokenizer.
  //   RESOURCE_EXHAUSTED  kMaxCompiling others wait.
  void Get(const internal::AnswerFormat& format, Then then);
  // Compiles nothing further, and waits for what it is at. Idempotent.
  void Stop();

 private:
  struct Job {
    internal::AnswerFormat format;
    std::string key;
    Then then;
  };

  void Run();
  std::shared_ptr<Grammar> Find(const std::string& key);
  absl::StatusOr<std::shared_ptr<Grammar>> Make(const Job& job);
  absl::StatusOr<std::shared_ptr<Grammar>> Compile(const internal::AnswerFormat& format) const;

  const std::shared_ptr<const TokenTrie> tokens_;
  const bool first_token_loses_spaces_;
  Mutex mutex_;
  std::list<std::pair<std::string, std::shared_ptr<Grammar>>> recent_ ABSL_GUARDED_BY(mutex_);  // The last used first.
  BoundedQueue<Job> jobs_{kMaxCompiling};
  Thread thread_;
};

}  // namespace baton

#endif  // BATON_DECODE_WORKER_GRAMMAR_CACHE_H_
