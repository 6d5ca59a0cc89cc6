// SPDX-License-Identifier: Apache-2.0
// One request through router, prefill and decode worker, as the spans of all three processes tell it to a collector and to a file.
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "baton/v1/generation.grpc.pb.h"
#include "common/base/json.h"
#include "common/base/mutex.h"
#include "common/http/http_client.h"
#include "common/http/http_server.h"
#include "common/rpc/channel.h"
#include "common/rpc/trace_metadata.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/local_cluster.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_files.h"
#include "tests/support/tiny_model.h"

namespace baton::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;
using nlohmann::json;

// As a span arrived, whichever way.
struct Seen {
  std::string process, name, id, parent;
  int kind = 0;
  int64_t begin_ns = 0, end_ns = 0;
  json attributes = json::object();
  bool error = false;
};

Seen FromOtlp(const std::string& process, const json& span) {
  Seen seen{.process = process,
            .name = span["name"].get<std::string>(),
            .id = span["spanId"].get<std::string>(),
            .parent = span.value("parentSpanId", ""),
            .kind = span["kind"].get<int>()};
  seen.begin_ns = std::stoll(span["startTimeUnixNano"].get<std::string>());
  seen.end_ns = std::stoll(span["endTimeUnixNano"].get<std::string>());
  seen.error = span.contains("status");
  for (const json& attribute : span["attributes"]) {
    const auto value = attribute["value"].begin();
    seen.attributes[attribute["key"].get<std::string>()] =
        value.key() == "intValue" ? json(std::stoll(value.value().get<std::string>())) : value.value();
  }
  return seen;
}

// An OpenTelemetry collector that keeps what it is sent. Thread-safe.
class Collector {
 public:
  Collector() {
    auto server = HttpServer::Start({.address = "127.0.0.1:0"}, [this](HttpRequest request, std::shared_ptr<HttpResponseWriter> writer) {
      Take(request);
      writer->Send(200, "application/json", "{}");
    });
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  ~Collector() { server_.reset(); }

  std::string endpoint() const { return absl::StrCat("http://127.0.0.1:", server_->port()); }
  std::vector<Seen> Trace(const std::string& id) const {
    MutexLock lock(&mutex_);
    const auto found = traces_.find(id);
    return found == traces_.end() ? std::vector<Seen>() : found->second;
  }
  size_t num_traces() const {
    MutexLock lock(&mutex_);
    return traces_.size();
  }
  // Everything that came, as it came.
  std::string bodies() const {
    MutexLock lock(&mutex_);
    return bodies_;
  }

 private:
  void Take(const HttpRequest& request) {
    EXPECT_EQ(request.path, "/v1/traces");
    const auto body = ParseJson(request.body);
    ASSERT_TRUE(body.ok()) << body.status();
    MutexLock lock(&mutex_);
    absl::StrAppend(&bodies_, request.body, "\n");
    for (const json& resource : (*body)["resourceSpans"]) {
      std::string process;
      for (const json& attribute : resource["resource"]["attributes"]) {
        if (attribute["key"] == "service.name") process = attribute["value"]["stringValue"].get<std::string>();
      }
      for (const json& span : resource["scopeSpans"][0]["spans"]) traces_[span["traceId"].get<std::string>()].push_back(FromOtlp(process, span));
    }
  }

  mutable Mutex mutex_;
  std::map<std::string, std::vector<Seen>> traces_ ABSL_GUARDED_BY(mutex_);
  std::string bodies_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<HttpServer> server_;
};

std::vector<Seen> Named(const std::vector<Seen>& spans, absl::string_view name) {
  std::vector<Seen> found;
  for (const Seen& span : spans) {
    if (span.name == name) found.push_back(span);
  }
  return found;
}

// "name < parent's name", of every span; the client's span is "client".
std::multiset<std::string> Edges(const std::vector<Seen>& spans, const TraceContext& client) {
  std::map<std::string, std::string> names = {{client.SpanId(), "client"}};
  for (const Seen& span : spans) EXPECT_TRUE(names.emplace(span.id, span.name).second) << "two spans have the id of " << span.name;
  std::multiset<std::string> edges;
  for (const Seen& span : spans) {
    const auto parent = names.find(span.parent);
    edges.insert(absl::StrCat(span.name, " < ", parent == names.end() ? "nobody" : parent->second));
  }
  return edges;
}

class TraceTest : public ::testing::Test {
 protected:
  void StartCluster(std::vector<std::string> flags, TinyModelOptions model = {}) {
    flags.insert(flags.end(), {"--trace-otlp=" + collector_.endpoint(), "--trace-file=" + file_});
    ASSERT_OK_AND_ASSIGN(cluster_, LocalCluster::Start(WriteTempFile("tiny.gguf", TinyModel(model).Build()), flags));
  }
  void TearDown() override {
    if (HasFailure() && cluster_ != nullptr) std::fputs(cluster_->log().c_str(), stderr);
  }
  // A completion of four tokens over HTTP, in the client's span if that is one.
  void Ask(const TraceContext& client) {
    ASSERT_OK_AND_ASSIGN(const HttpResponse response,
                         Post(client, "/v1/completions",
                              R"({"prompt":"Xanadu, a stately pleasure-dome","stop":["Kubla"],"max_tokens":4,"ignore_eos":true,"temperature":0})"));
    ASSERT_EQ(response.status, 200) << response.body;
  }
  absl::StatusOr<HttpResponse> Post(const TraceContext& client, const std::string& target, const std::string& body) {
    HttpHeaders headers = {{"Content-Type", "application/json"}};
    if (client.valid()) headers.emplace_back("traceparent", FormatTraceparent(client));
    return HttpFetch({.address = cluster_->http(), .method = "POST", .target = target, .headers = headers, .body = body, .timeout = kPatience});
  }
  // Waits until the collector has `count` spans `name` of that trace.
  bool Arrive(const TraceContext& trace, const std::string& name, size_t count = 1) {
    return Eventually([&] { return Named(collector_.Trace(trace.TraceId()), name).size() >= count; });
  }
  // The whole of a request that one prefill and one decode worker served without trouble.
  bool ArriveWhole(const TraceContext& trace) {
    return Arrive(trace, "generate") && Arrive(trace, "call.decode") && Arrive(trace, "call.prefill") && Arrive(trace, "decode") &&
           Arrive(trace, "prefill") && Arrive(trace, "kv.receive");
  }

  Collector collector_;
  const std::string file_ = TempPath("trace.json");
  std::unique_ptr<LocalCluster> cluster_;
};

// The phases that a request of one prefill and one decode worker is in, and everything else below it. (How long a phase takes is
// the machine's affair: those that took no time are left out.)
void ExpectTree(const std::vector<Seen>& spans, const TraceContext& client) {
  std::multiset<std::string> edges = Edges(spans, client);
  for (const char* phase : {"tokenise", "queued", "landing", "prefill", "transfer_exposed", "first_step", "decode"}) {
    edges.erase(absl::StrCat("phase.", phase, " < generate"));
  }
  EXPECT_THAT(edges, UnorderedElementsAre("generate < client", "call.decode < generate", "call.prefill < generate", "decode < call.decode",
                                          "decode.landing < decode", "decode.first_step < decode", "decode.steps < decode",
                                          "prefill < call.prefill", "prefill.queued < prefill", "prefill.compute < prefill", "kv.send < prefill",
                                          "kv.receive < kv.send"));
}

// Whatever becomes of it.
TEST_F(TraceTest, AChatIsToldFromACompletion) {
  ASSERT_NO_FATAL_FAILURE(StartCluster({"--local-prefill", "--decode=1"}));
  const TraceContext client = NewTrace(/*sampled=*/true);
  ASSERT_OK_AND_ASSIGN(const HttpResponse response, Post(client, "/v1/chat/completions", R"({"messages":[{"role":"user","content":"Hi"}],"max_tokens":2})"));
  ASSERT_TRUE(Arrive(client, "generate")) << response.body;
  EXPECT_EQ(Named(collector_.Trace(client.TraceId()), "generate")[0].attributes["gen_ai.operation.name"], "chat");
}

TEST_F(TraceTest, OneTreeFromTheClientOverTheTransferToTheDecodeSteps) {
  for (const char* transport : {"shm", "tcp", "grpc"}) {
    ASSERT_NO_FATAL_FAILURE(StartCluster({"--prefill=1", "--decode=1", absl::StrCat("--transport=", transport)}));
    const TraceContext client = NewTrace(/*sampled=*/true);
    ASSERT_NO_FATAL_FAILURE(Ask(client));
    ASSERT_TRUE(ArriveWhole(client));
    const std::vector<Seen> spans = collector_.Trace(client.TraceId());
    ExpectTree(spans, client);
    std::map<std::string, const Seen*> by_id;
    std::map<std::string, std::string> process;
    for (const Seen& span : spans) {
      by_id[span.id] = &span;
      process[span.name] = span.process;
      EXPECT_FALSE(span.error) << span.name << " " << span.attributes;
      EXPECT_GE(span.end_ns, span.begin_ns) << span.name;
    }
    EXPECT_EQ(process["generate"], "baton-router");
    EXPECT_EQ(process["call.prefill"], "baton-router");
    EXPECT_EQ(process["kv.send"], "baton-prefill-worker");
    EXPECT_EQ(process["kv.receive"], "baton-decode-worker");
    EXPECT_EQ(process["decode.steps"], "baton-decode-worker");
    // What a process says of its own work lies within what that was done for.
    for (const Seen& span : spans) {
      const auto parent = by_id.find(span.parent);
      if (parent == by_id.end() || parent->second->process != span.process || span.name.substr(0, 5) == "call.") continue;
      EXPECT_GE(span.begin_ns, parent->second->begin_ns) << span.name;
      EXPECT_LE(span.end_ns, parent->second->end_ns) << span.name;
    }
    const json generate = Named(spans, "generate")[0].attributes;
    EXPECT_EQ(generate["gen_ai.operation.name"], "text_completion");
    EXPECT_EQ(generate["gen_ai.usage.output_tokens"], 4);
    EXPECT_EQ(generate["gen_ai.response.finish_reasons"], "length");
    EXPECT_EQ(generate["baton.prefill_worker"], "p-1");
    EXPECT_EQ(generate["baton.attempts"], 1);
    EXPECT_EQ(generate["baton.recoveries"], 0);
    EXPECT_EQ(Named(spans, "kv.send")[0].attributes["baton.transport"], transport);
    EXPECT_EQ(Named(spans, "kv.receive")[0].attributes["baton.kv_bytes"], Named(spans, "kv.send")[0].attributes["baton.kv_bytes"]);
    // Its line in the log leads to the trace.
    EXPECT_THAT(cluster_->log(), HasSubstr(" trace=" + client.TraceId() + " "));
    cluster_.reset();
  }
  EXPECT_THAT(collector_.bodies(), AllOf(Not(HasSubstr("Xanadu")), Not(HasSubstr("Kubla"))));
}

TEST_F(TraceTest, TheChromeTraceOfAllProcessesIsWhole) {
  ASSERT_NO_FATAL_FAILURE(StartCluster({"--prefill=1", "--decode=1"}));
  const TraceContext client = NewTrace(/*sampled=*/true);
  ASSERT_NO_FATAL_FAILURE(Ask(client));
  cluster_.reset();  // Ends it in order, after which everything is written, at both places.
  std::ostringstream text;
  text << std::ifstream(file_).rdbuf();
  std::string array = text.str();
  ASSERT_EQ(array.substr(array.size() - 2), ",\n");  // As such files end: whoever comes next appends.
  ASSERT_OK_AND_ASSIGN(const json events, ParseJson(absl::StrCat(array.substr(0, array.size() - 2), "]")));
  std::set<std::string> ids, parents, processes;
  std::map<std::pair<int64_t, int64_t>, std::vector<std::pair<double, double>>> rows;
  for (const json& event : events) {
    if (event["ph"] == "M") processes.insert(std::vector<std::string>(absl::StrSplit(event["args"]["name"].get<std::string>(), ' '))[0]);
    if (event["ph"] != "X") continue;
    EXPECT_EQ(event["args"]["trace"], client.TraceId());
    ids.insert(event["args"]["span"].get<std::string>());
    parents.insert(event["args"]["parent"].get<std::string>());
    rows[{event["pid"].get<int64_t>(), event["tid"].get<int64_t>()}].emplace_back(event["ts"].get<double>(), event["ts"].get<double>() + event["dur"].get<double>());
  }
  EXPECT_THAT(processes, UnorderedElementsAre("baton-router", "baton-prefill-worker", "baton-decode-worker"));
  std::set<std::string> collected;
  for (const Seen& span : collector_.Trace(client.TraceId())) collected.insert(span.id);
  EXPECT_EQ(ids, collected);
  for (const std::string& parent : parents) EXPECT_TRUE(ids.count(parent) != 0 || parent == client.SpanId()) << parent;
  // Viewers drop what overlaps another event of its row without lying in it. Microseconds, rounded.
  for (const auto& [row, spans] : rows) {
    for (const auto& [begin, end] : spans) {
      for (const auto& [other_begin, other_end] : spans) {
        EXPECT_FALSE(begin + 1 < other_begin && other_begin + 1 < end && end + 1 < other_end)
            << begin << "-" << end << " and " << other_begin << "-" << other_end;
      }
    }
  }
}

TEST_F(TraceTest, TheClientsFlagDecidesElseTheSample) {
  ASSERT_NO_FATAL_FAILURE(StartCluster({"--prefill=1", "--decode=1", "--trace-sample=0"}));
  const TraceContext unsampled = NewTrace(/*sampled=*/false), sampled = NewTrace(/*sampled=*/true);
  ASSERT_NO_FATAL_FAILURE(Ask(unsampled));
  ASSERT_NO_FATAL_FAILURE(Ask(TraceContext()));
  ASSERT_NO_FATAL_FAILURE(Ask(sampled));
  cluster_.reset();
  EXPECT_EQ(Named(collector_.Trace(sampled.TraceId()), "decode").size(), 1u);
  EXPECT_EQ(Named(collector_.Trace(sampled.TraceId()), "generate").size(), 1u);
  EXPECT_EQ(collector_.num_traces(), 1u);
}

TEST_F(TraceTest, GrpcMetadataAndSeveralChoicesAreOfTheClientsTrace) {
  ASSERT_NO_FATAL_FAILURE(StartCluster({"--prefill=1", "--decode=1"}));
  TraceContext client = NewTrace(/*sampled=*/true);
  client.state = "vendor=1";
  const auto stub = v1::Generation::NewStub(CreateChannel(cluster_->grpc(), nullptr));
  grpc::ClientContext context;
  AddTraceContext(client, &context);
  v1::GenerateRequest request = GreedyRequest({5, 6, 7, 8, 9, 10, 11, 12}, 3);
  request.set_n(2);
  const auto reader = stub->Generate(&context, request);
  v1::GenerateResponse response;
  while (reader->Read(&response)) {
  }
  ASSERT_TRUE(reader->Finish().ok());
  cluster_.reset();
  const std::vector<Seen> spans = collector_.Trace(client.TraceId());
  ASSERT_EQ(Named(spans, "generate").size(), 1u);
  EXPECT_EQ(Named(spans, "generate")[0].parent, client.SpanId());
  EXPECT_EQ(Named(spans, "generate")[0].attributes["gen_ai.usage.output_tokens"], 6);
  EXPECT_EQ(Edges(spans, client).count("decode < call.decode"), 2u);
  EXPECT_EQ(Named(spans, "decode").size(), 2u);
  EXPECT_THAT(collector_.bodies(), HasSubstr("vendor=1"));
}

TEST_F(TraceTest, ARequestThatLosesItsDecodeWorkerShowsTheRecovery) {
  ASSERT_NO_FATAL_FAILURE(StartCluster({"--prefill=1", "--decode=2"}, {.num_layers = 4, .hidden_size = 128, .num_heads = 8, .intermediate_size = 512, .context_length = 4096}));
  cli::RouterClient client(cluster_->grpc());
  bool killed = false;
  int tokens = 0;
  const absl::Status status = client.Generate(GreedyRequest({5, 6, 7, 8, 9, 10, 11, 12}, 3000), kPatience, [&](const v1::GenerateResponse& response) {
    for (const auto& delta : response.deltas()) tokens += delta.token_ids_size();
    if (std::exchange(killed, true)) return;
    for (const char* id : {"d-1", "d-2"}) {
      const auto worker = cluster_->Worker(id);
      if (worker.ok() && cluster_->Metric(worker->status(), "baton_requests", "state=\"running\"").value_or(0) > 0) kill(cluster_->PidOf(id), SIGKILL);
    }
  });
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(tokens, 3000);
  cluster_.reset();
  ASSERT_EQ(collector_.num_traces(), 1u);  // Without a word of its client it is a trace of its own.
  const std::string bodies = collector_.bodies();
  const size_t at = bodies.find("\"traceId\":\"") + 11;
  const std::vector<Seen> spans = collector_.Trace(bodies.substr(at, 32));
  ASSERT_EQ(Named(spans, "generate").size(), 1u);
  const Seen generate = Named(spans, "generate")[0];
  EXPECT_EQ(generate.parent, "");
  EXPECT_EQ(generate.attributes["baton.recoveries"], 1);
  EXPECT_GE(generate.attributes["baton.attempts"], 2);
  ASSERT_EQ(Named(spans, "recovery").size(), 1u);
  EXPECT_EQ(Named(spans, "recovery")[0].attributes["baton.lost"], "decode");
  EXPECT_GE(Named(spans, "call.prefill").size(), 2u);
  std::vector<Seen> calls = Named(spans, "call.decode");
  ASSERT_GE(calls.size(), 2u);
  std::sort(calls.begin(), calls.end(), [](const Seen& a, const Seen& b) { return a.begin_ns < b.begin_ns; });
  EXPECT_TRUE(calls[0].error);
  EXPECT_TRUE(calls[0].attributes.contains("error.type")) << calls[0].attributes;
  EXPECT_FALSE(calls.back().error);
  EXPECT_NE(calls[0].attributes["baton.worker"], calls.back().attributes["baton.worker"]);
  ASSERT_EQ(Named(spans, "decode").size(), 1u);  // Who is killed tells nothing more.
  EXPECT_EQ(Named(spans, "decode")[0].parent, calls.back().id);
}

}  // namespace
}  // namespace baton::testing
