// SPDX-License-Identifier: Apache-2.0
// A client of a router for tests/bench/run (driver.h): what a cluster gives through its streams.
//   cluster_client --router HOST:PORT
// {"kind": "stream", "batch", "context", "tokens"}: `batch` conversations of `context` random tokens at once, each generating
// `tokens`. "seconds": one number, per token step, over the time in which all of them stream. {"kind": "first_token", "n",
// "repeat"}: a lone request of n random tokens, from the call to its first token.
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <random>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "baton/v1/generation.grpc.pb.h"
#include "common/base/status_macros.h"
#include "common/rpc/channel.h"
#include "common/rpc/status_conversion.h"
#include "tests/bench/driver.h"

ABSL_FLAG(std::string, router, "", "HOST:PORT of the router's gRPC service");

namespace baton::bench {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

double Seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

// One stream, driven by events of a completion queue: one thread reads all of them, as threads of their own would take the
// cores from what is measured.
struct Stream {
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientAsyncReader<v1::GenerateResponse>> reader;
  v1::GenerateResponse response;
  grpc::Status status;
  bool started = false, finishing = false;
  std::vector<Clock::time_point> tokens;  // When each token came.
};

class Client {
 public:
  explicit Client(const std::string& router) : stub_(v1::Generation::NewStub(CreateChannel(router))) {}

  absl::StatusOr<json> Measure(const json& c) {
    const std::string kind = c.value("kind", "");
    if (kind == "stream") return MeasureStreams(c.value("batch", 1), c.value("context", 1), c.value("tokens", 64));
    if (kind != "first_token") return absl::InvalidArgumentError(absl::StrCat("kind \"", kind, "\" is none of stream, first_token"));
    json seconds = json::array();
    for (int i = 0; i < c.value("repeat", 1); ++i) {
      const auto start = Clock::now();
      std::vector<std::unique_ptr<Stream>> streams;
      BATON_RETURN_IF_ERROR(Run(1, c.value("n", 1), 1, &streams));
      seconds.push_back(Seconds(streams[0]->tokens.at(0) - start));
    }
    return json{{"seconds", seconds}};
  }

 private:
  absl::StatusOr<json> MeasureStreams(int batch, int context, int tokens) {
    std::vector<std::unique_ptr<Stream>> streams;
    BATON_RETURN_IF_ERROR(Run(batch, context, tokens, &streams));
    auto begin = streams[0]->tokens.front(), end = streams[0]->tokens.back();
    for (const auto& stream : streams) {
      begin = std::max(begin, stream->tokens.front());
      end = std::min(end, stream->tokens.back());
    }
    int64_t received = 0;
    for (const auto& stream : streams) {
      received += std::count_if(stream->tokens.begin(), stream->tokens.end(), [&](auto t) { return t > begin && t <= end; });
    }
    if (received < batch) return absl::InternalError("the conversations did not run at the same time: more tokens are needed");
    return json{{"seconds", {Seconds(end - begin) * batch / static_cast<double>(received)}}};
  }

  absl::Status Run(int batch, int context, int tokens, std::vector<std::unique_ptr<Stream>>* streams) {
    grpc::CompletionQueue queue;
    for (int i = 0; i < batch; ++i) {
      v1::GenerateRequest request;
      for (int t = 0; t < context; ++t) request.mutable_token_ids()->add_ids(static_cast<int32_t>(rng_() % 40000 + 100));
      request.set_max_tokens(tokens);
      request.set_ignore_eos(true);
      request.mutable_sampling()->set_temperature(0);
      auto stream = std::make_unique<Stream>();
      stream->context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(300));
      stream->reader = stub_->AsyncGenerate(&stream->context, request, &queue, stream.get());
      streams->push_back(std::move(stream));
    }
    void* tag = nullptr;
    bool ok = false;
    for (int open = batch; open > 0 && queue.Next(&tag, &ok);) open -= !OnEvent(static_cast<Stream*>(tag), ok);
    for (const auto& stream : *streams) {
      BATON_RETURN_IF_ERROR(FromGrpcStatus(stream->status));
      if (static_cast<int>(stream->tokens.size()) != tokens) {
        return absl::InternalError(absl::StrCat(stream->tokens.size(), " tokens came, ", tokens, " were asked for"));
      }
    }
    return absl::OkStatus();
  }

  // False when the stream has ended.
  static bool OnEvent(Stream* stream, bool ok) {
    if (stream->finishing) return false;
    if (stream->started) {
      const auto now = Clock::now();
      for (const v1::ChoiceDelta& delta : stream->response.deltas()) {
        stream->tokens.insert(stream->tokens.end(), static_cast<size_t>(ok ? delta.token_ids_size() : 0), now);
      }
    }
    stream->started = true;
    if (ok) {
      stream->reader->Read(&stream->response, stream);
    } else {
      stream->finishing = true;
      stream->reader->Finish(&stream->status, stream);
    }
    return true;
  }

  std::unique_ptr<v1::Generation::Stub> stub_;
  std::mt19937 rng_{std::random_device{}()};  // New prompts every time: nothing is found in a prefix cache.
};

}  // namespace
}  // namespace baton::bench

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  if (absl::GetFlag(FLAGS_router).empty()) {
    std::fprintf(stderr, "--router HOST:PORT is needed\n");
    return 2;
  }
  baton::bench::Client client(absl::GetFlag(FLAGS_router));
  baton::bench::ServeCases({}, [&](const nlohmann::json& c) { return client.Measure(c); });
  return 0;
}
