// SPDX-License-Identifier: Apache-2.0
#ifndef BATON_TESTS_SUPPORT_STUB_WORKERS_H_
#define BATON_TESTS_SUPPORT_STUB_WORKERS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "baton/internal/decode.grpc.pb.h"
#include "baton/internal/prefill.grpc.pb.h"
#include "baton/internal/registry.grpc.pb.h"
#include "common/base/mutex.h"
#include "common/rpc/channel.h"
#include "common/rpc/multiplexed_server_calls.h"
#include "common/rpc/server.h"

namespace baton::testing {

// What a stub worker does with its calls. A copy is taken when a call begins.
struct StubScript {
  std::vector<int32_t> tokens;  // What is generated, by index; the last one carries `finish`.
  internal::FinishReason finish = internal::LENGTH;
  int refuse = 0;               // So many calls are refused first (RESOURCE_EXHAUSTED), each with a load report.
  int fail_prefill = 0;         // So many prefill calls fail first (UNAVAILABLE).
  int die_after_tokens = -1;    // The stream breaks (UNAVAILABLE) after so many tokens, once per worker.
  int stall_after_tokens = -1;  // Waits for Stop after so many tokens.
  bool stall_prefill = false;   // Prefill waits for Cancel.
  bool cached = false;          // Landed(0) at once.
  bool caches = false;          // What has landed is cached: all of it but for what is no whole unit of 16.
  bool knows_prompt_logprobs = true;  // Off: of a version that does not know DecodeStart.prompt_logprobs.
  int lost_prompt_logprobs = 0;       // So many are missing at the end.
  bool knows_formats = true;    // Off: of a version that does not know DecodeStart.format.
};

// A worker without a model: it speaks the internal services as a script says, and registers itself with a router. Both roles
// in one class. Thread-safe.
class StubWorker {
 public:
  struct Options {
    std::string id;
    internal::WorkerRole role = internal::DECODE;
    std::string router;  // Address to register with.
    std::string fingerprint = "model-a";
    std::string kv_layout = "layout-a";
    int context_length = 64;
    int vocab_size = 300;
    int slots = 8;
    bool multiplexes = true;  // Off: of a version that has a stream for each call.
    StubScript script;
    std::string api_key;  // That it shows when it registers; empty: none.
    std::string tokenizer_fingerprint;  // That it registers with.
    std::map<std::string, std::string> text;  // Files that it tells routers without a model; none: of a version that tells nothing.
  };

  static std::unique_ptr<StubWorker> Start(const Options& options);
  ~StubWorker();

  void SetScript(const StubScript& script);
  void SendLoad();
  // Leaves the router and breaks every call, as a process that dies does.
  void Kill();

  // Each waits a bounded time and says whether it came true.
  bool WaitForDrain();
  bool WaitForTokensSent(int count);
  bool WaitForStops(int count);
  bool WaitForCancels(int count);
  bool WaitForCalls(int count);
  bool WaitForOpenCalls(int count);  // Exactly.
  int num_streams() const;           // That carry decode calls of routers, any number each.

  std::vector<internal::DecodeStart> starts() const;
  std::vector<internal::PrefillStart> prefills() const;
  const std::string& id() const { return options_.id; }

 private:
  class DecodeService;
  class PrefillService;
  class TextService;
  struct DecodeCall;
  struct PrefillCall;

  explicit StubWorker(const Options& options);
  void Register();
  bool WaitFor(const std::function<bool()>& condition);
  void OnDecode(const std::shared_ptr<DecodeCall>& call, internal::DecodeRequest&& request);
  void OnPrefill(const std::shared_ptr<PrefillCall>& call, internal::PrefillRequest&& request);
  void SendPromptLogprobs(const std::shared_ptr<DecodeCall>& call);
  void Generate(const std::shared_ptr<DecodeCall>& call);
  int CachedTokens(const internal::DecodeStart& start);
  void Land(const std::shared_ptr<DecodeCall>& call, int attempt, bool local);
  static void Deliver(const std::string& worker, uint64_t stream, int attempt);
  void Note(int StubWorker::*counter, int by = 1);

  const Options options_;
  std::unique_ptr<DecodeService> decode_;
  std::unique_ptr<PrefillService> prefill_;
  std::unique_ptr<TextService> text_;
  std::unique_ptr<RpcServer> server_;
  std::shared_ptr<grpc::Channel> router_;
  std::shared_ptr<ClientEventStream<internal::WorkerReport, internal::RouterReply>> registration_;
  mutable Mutex mutex_;
  CondVar changed_;
  StubScript script_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, std::weak_ptr<DecodeCall>> calls_ ABSL_GUARDED_BY(mutex_);
  std::set<std::vector<int32_t>> landed_ ABSL_GUARDED_BY(mutex_);  // Prompts, with `caches`.
  std::vector<internal::DecodeStart> starts_ ABSL_GUARDED_BY(mutex_);
  std::vector<internal::PrefillStart> prefills_ ABSL_GUARDED_BY(mutex_);
  int num_tokens_ = 0, num_stops_ = 0, num_cancels_ = 0, num_calls_ = 0, num_open_ = 0, num_streams_ = 0;
  bool registered_ = false, left_ = false, drain_ = false;
};

}  // namespace baton::testing

#endif  // BATON_TESTS_SUPPORT_STUB_WORKERS_H_
