// SPDX-License-Identifier: Apache-2.0
// The JSON shapes that scripts rely on, and what people read.
#include "deploy/cli/answer.h"

#include "common/base/json.h"
#include "deploy/cli/cluster_text.h"
#include "deploy/cli/command.h"
#include "deploy/cli/request.h"
#include "deploy/cli/terminal.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace baton::cli {
namespace {

using ::baton::testing::IsOk;
using ::baton::testing::StatusIs;
using ::testing::HasSubstr;

Answer ExampleAnswer() {
  Answer answer;
  v1::GenerateResponse response;
  response.set_id("r-7");
  response.set_model("smollm2");
  v1::ChoiceDelta* delta = response.add_deltas();
  delta->set_text("The ");
  delta->add_token_ids(504);
  v1::PositionLogprobs* logprobs = delta->add_logprobs();
  logprobs->set_token_id(504);
  logprobs->set_logprob(-0.02f);
  logprobs->add_top()->set_token_id(504);
  logprobs->mutable_top(0)->set_logprob(-0.02f);
  answer.Add(response);
  response.Clear();
  delta = response.add_deltas();
  delta->set_text("capital");
  delta->add_token_ids(3575);
  delta->set_finish_reason("stop");
  answer.Add(response);
  response.Clear();
  response.mutable_usage()->set_prompt_tokens(42);
  response.mutable_usage()->set_completion_tokens(2);
  response.mutable_timeline()->set_prefill_ms(31.00049);
  response.mutable_timeline()->set_decode_ms(4);
  response.mutable_timeline()->set_prefill_worker("p-1");
  response.mutable_timeline()->set_decode_worker("d-1");
  response.mutable_timeline()->set_disaggregated(true);
  response.mutable_timeline()->set_transport("grpc");
  response.mutable_timeline()->set_kv_bytes(944640);
  response.mutable_timeline()->set_attempts(1);
  answer.Add(response);
  return answer;
}

TEST(AnswerJson, HasTheShapeThatStays) {
  const std::string text = DumpJson(ToJson(ExampleAnswer(), /*with_logprobs=*/true));
  EXPECT_THAT(text, HasSubstr(R"({"id":"r-7","model":"smollm2","choices":[{"index":0,"token_ids":[504,3575],"text":"The capital",)"
                              R"("finish_reason":"stop","logprobs":[{"token_id":504,"logprob":-0.02,)"
                              R"("top":[{"token_id":504,"logprob":-0.02}]}]}],"token_ids":[504,3575],"text":"The capital",)"));
  EXPECT_THAT(text, HasSubstr(R"("usage":{"prompt_tokens":42,"completion_tokens":2,"cached_tokens":0},"timeline":{"queued_ms":0.0,)"));
  EXPECT_THAT(text, HasSubstr(R"("prefill_ms":31.0,)"));
  EXPECT_THAT(text, HasSubstr(R"("disaggregated":true,"reason":"","transport":"grpc","kv_bytes":944640,"attempts":1)"));
}

TEST(AnswerJson, LogprobsAreNullWhenNotAskedForAndAnEmptyAnswerIsWhole) {
  const auto json = ToJson(Answer(), /*with_logprobs=*/false);
  EXPECT_TRUE(json["logprobs"].is_null());
  EXPECT_TRUE(json["finish_reason"].is_null());
  EXPECT_EQ(json["text"], "");
  EXPECT_EQ(json["token_ids"].size(), 0u);
}

TEST(AnswerJson, ChoicesKeepApart) {
  Answer answer;
  v1::GenerateResponse response;
  for (const int index : {1, 0, 1}) {
    v1::ChoiceDelta* delta = response.add_deltas();
    delta->set_index(index);
    delta->set_text(index == 0 ? "a" : "b");
  }
  response.add_deltas()->set_index(-1);
  answer.Add(response);
  const auto json = ToJson(answer, false);
  ASSERT_EQ(json["choices"].size(), 2u);
  EXPECT_EQ(json["choices"][1]["index"], 1);
  EXPECT_EQ(json["choices"][1]["text"], "bb");
  EXPECT_EQ(json["text"], "a");
}

TEST(TimelineText, SaysWhoWorked) {
  const std::string text = TimelineText(ExampleAnswer());
  EXPECT_THAT(text, HasSubstr("42 prompt tokens (0 cached), 2 generated at 250.0 per second, finished: stop\n"));
  EXPECT_THAT(text, HasSubstr("prefill 31.0 | transfer 0.0"));
  EXPECT_THAT(text, HasSubstr("prefill on p-1, decode on d-1; 922 KiB of KV cache by grpc\n"));
}

v1::GetClusterResponse ExampleCluster() {
  v1::GetClusterResponse cluster;
  v1::Worker* worker = cluster.add_workers();
  worker->set_id("d-1");
  worker->set_role("decode");
  worker->set_address("127.0.0.1:9002");
  worker->set_status("127.0.0.1:9102");
  worker->set_ready(true);
  worker->set_model("smollm2");
  worker->mutable_blocks()->set_total(512);
  worker->mutable_blocks()->set_free(500);
  worker->mutable_blocks()->set_cached(12);
  worker->set_running(1);
  worker->add_transports("grpc");
  *cluster.add_workers() = *worker;
  cluster.mutable_workers(1)->set_id("d-22");
  cluster.mutable_workers(1)->set_ready(false);
  cluster.mutable_workers(1)->set_reason("draining");
  cluster.mutable_router()->set_id("r-1");
  cluster.mutable_router()->set_ready(true);
  return cluster;
}

TEST(ClusterText, JsonHasTheShapeThatStays) {
  const auto json = ClusterJson(ExampleCluster());
  const auto& worker = json["workers"][0];
  for (const char* name : {"id", "role", "address", "status", "ready", "model", "fingerprint", "numerics", "blocks", "running",
                           "waiting", "transports"}) {
    EXPECT_TRUE(worker.contains(name)) << name;
  }
  EXPECT_EQ(worker["status"], "127.0.0.1:9102");
  EXPECT_EQ(worker["blocks"]["total"], 512);
  EXPECT_EQ(worker["blocks"]["quarantined"], 0);
  EXPECT_EQ(worker["transports"][0], "grpc");
  EXPECT_EQ(json["router"]["id"], "r-1");
  EXPECT_EQ(json["router"]["queued"], 0);
  EXPECT_EQ(json["workers"][1]["reason"], "draining");
}

TEST(ClusterText, SaysHowKvTravels) {
  v1::GetClusterResponse cluster = ExampleCluster();
  v1::Worker* worker = cluster.mutable_workers(0);
  worker->set_role("prefill");
  v1::KvLink* link = worker->add_links();
  link->set_worker("d-1");
  link->set_transport("shm");
  link = worker->add_links();
  link->set_worker("d-2");
  link->set_transport("grpc");
  link->set_reason("tcp: connection refused");
  const std::string text = ClusterText(cluster, false);
  EXPECT_THAT(text, HasSubstr("shm to d-1, grpc to d-2!"));
  EXPECT_THAT(text, HasSubstr("\nd-1 sends to d-2 by grpc for now: tcp: connection refused\n"));
  const auto links = ClusterJson(cluster)["workers"][0]["links"];
  EXPECT_EQ(links[0]["transport"], "shm");
  EXPECT_FALSE(links[0].contains("reason"));
  EXPECT_EQ(links[1]["reason"], "tcp: connection refused");
}

TEST(ClusterText, SaysWhatWorkersDoOfWhatTheirMachineCan) {
  v1::GetClusterResponse cluster = ExampleCluster();
  EXPECT_EQ(ClusterText(cluster, false).find("QK PAIRS"), std::string::npos);  // Nobody has told.
  v1::Worker* worker = cluster.mutable_workers(0);
  worker->mutable_peaks()->set_read_bytes(28.4e9);
  worker->mutable_peaks()->set_matmul_ops(1.52e12);
  worker->mutable_peaks()->set_matmul_format("int8");
  v1::PhasePerformance* decode = worker->mutable_decode();
  decode->set_tokens_per_second(213.4);
  decode->set_share_of_peak(0.734);
  decode->set_ops_per_pass(0.27e9);
  decode->set_bytes_per_pass(96.64e6);
  decode->set_tokens_per_pass(1);
  decode->set_passes(12);
  decode->set_query_key_pairs(12345);
  worker->mutable_prefill()->set_passes(1);
  worker->mutable_prefill()->set_share_of_peak(0.5);
  const std::string text = ClusterText(cluster, false);
  EXPECT_THAT(text, HasSubstr("\nd-1     decode   213       73% of 28.4 GB/s read   1.0          96.6 MB    270 Mop    12345\n"));
  EXPECT_THAT(text, HasSubstr("\nd-1     prefill  0         50% of 1.52 Top/s int8 "));
  const auto json = ClusterJson(cluster)["workers"];
  EXPECT_EQ(json[0]["peaks"]["matmul_format"], "int8");
  EXPECT_EQ(json[0]["decode"]["query_key_pairs"], 12345);
  EXPECT_EQ(json[0]["decode"]["share_of_peak"], 0.734);
  EXPECT_EQ(json[0]["prefill"]["passes"], 1);
  EXPECT_FALSE(json[1].contains("decode"));
}

TEST(ClusterText, TableIsAlignedAndPlainWithoutColor) {
  const std::string text = ClusterText(ExampleCluster(), /*color=*/false);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_THAT(text, HasSubstr("\nd-1     decode  ready      127.0.0.1:9002"));
  EXPECT_THAT(text, HasSubstr("\nd-22    decode  not ready  127.0.0.1:9002"));
  EXPECT_THAT(text, HasSubstr("draining"));
  EXPECT_NE(ClusterText(ExampleCluster(), /*color=*/true).find('\x1b'), std::string::npos);
}

TEST(Table, CountsCharacters) {
  EXPECT_EQ(Table({{{"a"}, {"b"}}, {{"äö"}, {"c"}}}, false), "a   b\näö  c\n");
}

TEST(Table, WiderThanTheTerminalIsAParagraphForEachRow) {
  const std::vector<std::vector<Cell>> rows = {{{"WHO"}, {"STATE"}, {"WHERE"}, {""}}, {{"p-1"}, {"ready"}, {"here"}, {""}}, {{"d-1"}, {"no"}, {""}, {"why"}}};
  const std::string wide = "WHO  STATE  WHERE\np-1  ready  here\nd-1  no            why\n";
  EXPECT_EQ(Table(rows, false, 0), wide);
  EXPECT_EQ(Table(rows, false, 22), wide);
  EXPECT_EQ(Table(rows, false, 21), "p-1  STATE ready\n    WHERE here\nd-1  STATE no  why\n");
}

TEST(AddMessages, KeepsEverythingElseInOrder) {
  v1::ChatPrompt chat;
  ASSERT_THAT(AddMessages(R"([{"role":"user","content":"hi"},{"role":"assistant","content":null,"tool_calls":[{"z":1,"a":2}]}])", &chat),
              IsOk());
  ASSERT_EQ(chat.messages_size(), 2);
  EXPECT_EQ(chat.messages(0).content(), "hi");
  EXPECT_EQ(chat.messages(0).extra_json(), "");
  EXPECT_FALSE(chat.messages(1).has_content());
  EXPECT_EQ(chat.messages(1).extra_json(), R"({"tool_calls":[{"z":1,"a":2}]})");
  EXPECT_THAT(AddMessages("{}", &chat), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("expected a JSON list")));
  EXPECT_THAT(AddMessages(R"([{"content":"x"}])", &chat), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("item 0")));
  EXPECT_THAT(AddMessages(R"([{"role":"user","content":7}])", &chat), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'content'")));
  EXPECT_THAT(AddMessages("[", &chat), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--messages")));
}

TEST(CheckTexts, FindsWhatIsNotUtf8) {
  v1::GenerateRequest request;
  request.add_stop("a");
  request.mutable_chat()->add_messages()->set_content("\xC3\xA9");
  EXPECT_TRUE(CheckTexts(request).ok());
  request.mutable_chat()->add_messages()->set_content("ab\xC3");
  EXPECT_THAT(CheckTexts(request), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("content of the request is not valid UTF-8 at byte 2")));
  request.clear_chat();
  request.add_stop("\xFF");
  EXPECT_THAT(CheckTexts(request), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("stop")));
}

TEST(ShortestDouble, PrintsLikeTheFloat) {
  EXPECT_EQ(DumpJson(nlohmann::json(ShortestDouble(-0.02f))), "-0.02");
  EXPECT_EQ(DumpJson(nlohmann::json(ShortestDouble(-INFINITY))), "null");
}

TEST(RunCommandLine, UnknownCommandsAreUsageErrors) {
  EXPECT_EQ(RunCommandLine({"genrate"}), kExitUsage);
  EXPECT_EQ(RunCommandLine({}), kExitUsage);
  EXPECT_EQ(RunCommandLine({"--help"}), kExitOk);
  EXPECT_EQ(RunCommandLine({"bench"}), kExitUsage);
  EXPECT_EQ(RunCommandLine({"bench", "--help"}), kExitOk);
  EXPECT_EQ(RunCommandLine({"help", "bench"}), kExitOk);
}

}  // namespace
}  // namespace baton::cli
